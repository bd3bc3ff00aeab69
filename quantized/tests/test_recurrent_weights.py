"""Quantized weights of LSTM, GRU and RNN."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops

GATES = {"LSTM": (ops.lstm, 4), "GRU": (ops.gru, 3), "RNN": (ops.rnn, 1)}


def model(name, directions=1):
    random, (op, gates) = np.random.default_rng(0), GATES[name]
    graph = tx.Graph(opsets={"ai.onnx": 17})
    shapes = {"w": (directions, gates * 16, 8), "r": (directions, gates * 16, 16), "b": (directions, gates * 32)}
    weights = [graph.variable(k, random.standard_normal(s).astype(np.float32) * 0.3) for k, s in shapes.items()]
    x, state = graph.input("x", "float32", (6, "n", 8)), graph.input("state", "float32", (directions, "n", 16))
    result = op(x, *weights, None, state, hidden_size=16, direction="bidirectional" if directions == 2 else "forward")
    graph.output("y", result[0])
    return graph


def feeds(directions=1):
    random = np.random.default_rng(1)
    shapes = {"x": (6, 3, 8), "state": (directions, 3, 16)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def dequantized(graph):
    """Weights of the recurrent node that DequantizeLinear computes, by position, with their dtype."""
    node = next(node for node in graph.nodes if node.op_type in GATES)
    producers = {k: v.producer for k, v in enumerate(node.inputs) if v is not None and v.producer is not None}
    return {k: str(each.inputs[0].dtype) for k, each in producers.items()}


@pytest.mark.parametrize(
    ("name", "directions", "mode"),
    [("GRU", 1, "weights"), ("GRU", 2, "static"), ("GRU", 1, "dynamic"), ("LSTM", 2, "dynamic"), ("RNN", 1, "static")],
)
def test_both_weights_are_quantized(name, directions, mode, tmp_path):
    made, report = tx.quantize(model(name, directions), [feeds(directions)], mode=mode)
    types = dequantized(made)
    assert (types[1], types[2]) == ("int8", "int8")
    assert (types.get(0) == "uint8") is (mode != "weights")  # the sequence, but no state
    assert 5 not in types
    assert 0 < report.outputs["y"] < 0.02
    tx.export(made, path := tmp_path / "made.onnx")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given, expected = feeds(directions), model(name, directions).run(feeds(directions))["y"]
    assert np.linalg.norm(session.run(["y"], given)[0] - expected) < 0.02 * np.linalg.norm(expected)


def test_bits_by_pattern_and_sensitivity():
    made, report = tx.quantize(
        model("GRU"), [feeds()], mode="weights", layers=[{"pattern": "GRU*", "bits": 4}], report=True
    )
    assert dequantized(made) == {1: "int4", 2: "int4"}
    (layer,) = report.layers
    assert layer.elements == 3 * 16 * (8 + 16)
    assert layer.errors[2] > layer.errors[4] > layer.errors[8] > 0


def test_computed_weights_stay_in_floating_point():
    graph = model("GRU")
    node = next(node for node in graph.nodes if node.op_type == "GRU")
    weights = node.inputs[2]
    given = graph.input("r2", "float32", weights.shape)
    graph.replace(weights, given)
    with pytest.raises(tx.errors.InvalidCall, match="no op can be quantized"):
        tx.quantize(graph, mode="dynamic")
