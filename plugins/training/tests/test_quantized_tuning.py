"""A file that quantises and dequantises is tuned, its scales too, and stays one."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from trained_models import contents, digits

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

BITS = 3  # few codes, so that there is something to win back


def quantised():
    """The digits network, its weights rounded to a few codes by QuantizeLinear and DequantizeLinear."""
    graph, images, labels = digits()
    for node in list(graph.nodes):
        weight = node.inputs[1] if node.op_type in ("Conv", "Gemm") else None
        if weight is None or weight.data is None:
            continue
        largest = float(np.abs(weight.data.array()).max())
        scale = graph.variable(f"{weight.name}_scale", np.float32(largest / (2 ** (BITS - 1) - 1)))
        zero = graph.variable(f"{weight.name}_zero", np.int8(0))
        start = len(graph.nodes)
        bound = ops.clip(weight, -scale * 4.0, scale * 3.0)
        rounded = dequantize_linear(quantize_linear(bound, scale, zero), scale, zero)
        fresh, position = graph.nodes[start:], graph.nodes.index(node)
        graph.nodes[start:] = []
        for made in fresh:  # as the file has them: nothing is respelled, and folded for that
            made.version = graph.opsets["ai.onnx"]
        graph.nodes[position:position] = fresh
        node.inputs = (node.inputs[0], rounded, *node.inputs[2:])
        node.origin = None
    return graph, images, labels


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_tuning_wins_back_what_rounding_lost(backend):
    plain, images, labels = digits()
    graph, _, _ = quantised()
    held, test = (images[:320], labels[:320]), (images[320:640], labels[320:640])
    before = contents(graph)
    measured = [tt.evaluate(g, test, ["accuracy"], backend=backend)["accuracy"] for g in (plain, graph)]
    history = tt.fit(
        graph, held, loss="softmax_cross_entropy", optimizer=tt.Adam(2e-3), epochs=3, frozen_statistics=True,
        trainable=["*.weight", "*_scale"], backend=backend,
    )  # fmt: skip
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
    tuned = tt.evaluate(graph, test, ["accuracy"], backend=backend)["accuracy"]
    assert measured[1] < measured[0]
    assert tuned > measured[1]
    after = contents(graph)
    assert any(name.endswith("_scale") and after[name] != before[name] for name in before)
    stream = io.BytesIO()
    tx.export(graph, stream)
    found = [node.op_type for node in onnx.load_model_from_string(stream.getvalue()).graph.node]
    assert found.count("QuantizeLinear") == found.count("DequantizeLinear") > 1
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"images": test[0]})[0]
    assert np.mean(scores.argmax(axis=1) == test[1]) == pytest.approx(tuned, abs=0.01)
