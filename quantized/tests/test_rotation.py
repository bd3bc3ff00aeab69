"""Rotation of the residual stream keeps the outputs of the model and spreads outliers of activations."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.tuning.constants import weights_as_constants
from tenonnx_quantized.tuning.methods.rotation import hadamard, rotate

IDS = np.random.default_rng(0).integers(0, 40, (3, 7))


def decoder(width=24, opset=23, *, tied=False, bias=False, outlier=1.0, norm="rms", ending=None):
    """Return an embedding, two residual blocks (a normalization and two linear layers), and a head."""
    random = np.random.default_rng(5)
    graph = tx.Graph(opsets={"ai.onnx": 23})

    def weights(name, *shape):
        return graph.variable(name, random.standard_normal(shape).astype(np.float32) / 4)

    def normalized(name, x):
        scale = graph.variable(name, random.uniform(0.5, 2, width).astype(np.float32))
        return ops.rms_normalization(x, scale) if norm == "rms" else ops.layer_normalization(x, scale)[0]

    table = weights("table", 40, width)
    contents = np.array(table)
    contents[:, 3] *= outlier
    graph.assign({"table": contents})
    x = ops.gather(table, graph.input("ids", "int64", ("n", "length")))
    for k in range(2):
        hidden = normalized(f"{k}.norm", x) @ weights(f"{k}.up", width, 32)
        written = ops.relu(hidden) @ weights(f"{k}.down", 32, width)
        if bias:
            written = written + weights(f"{k}.bias", width)
        x = x + written
    if ending == "output":
        graph.output("stream", x)
    if ending == "softmax":
        graph.output("chances", ops.softmax(x))
    x = normalized("norm", x)
    head = ops.transpose(table, perm=[1, 0]) if tied else weights("head", width, 40)
    graph.output("logits", x @ head)
    tx.infer(graph)
    return graph if opset == 23 else tx.retarget(graph, opset)


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"bias": True}, {"opset": 17}, {"opset": 13, "bias": True}])
@pytest.mark.parametrize("width", [32, 24, 15])
def test_a_rotated_model_has_the_same_outputs_with_other_weights(width, options):
    graph = decoder(width, **options)
    expected = graph.run({"ids": IDS}, backend="numpy")["logits"]
    made = weights_as_constants(graph)
    tx.infer(made)
    before = np.array(made["table"])
    rotate(made)
    np.testing.assert_allclose(made.run({"ids": IDS}, backend="numpy")["logits"], expected, rtol=1e-4, atol=1e-4)
    after = np.array(next(n for n in made.nodes if n.op_type == "Gather").inputs[0])
    np.testing.assert_allclose(after, before @ hadamard(width), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 12, 15, 64])
def test_the_matrix_is_orthogonal_and_spreads_each_channel(size):
    matrix = hadamard(size)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    if size in (2, 64):
        np.testing.assert_allclose(np.abs(matrix), 1 / np.sqrt(size))


def test_an_outlier_of_the_stream_causes_a_smaller_error():
    graph = decoder(32, outlier=100.0)
    feeds = [{"ids": np.random.default_rng(k).integers(0, 40, (4, 7))} for k in range(2)]
    ops_of_products = ["MatMul", "Add"]
    plain, rotated = (
        tx.quantize(graph, feeds, mode="static", method=method, ops=ops_of_products, backend="numpy")[1].sqnr["logits"]
        for method in ("rtn", "rotate")
    )
    assert rotated > plain + 8


@pytest.mark.parametrize("mode", ["weights", "static", "dynamic"])
def test_rotation_works_in_every_mode_and_with_other_methods(mode):
    feeds = [{"ids": IDS}]
    for method in ("rotate", "rotate,gptq", "rotate,awq"):
        _, report = tx.quantize(decoder(32), feeds, mode=mode, bits=8, method=method, backend="numpy")
        assert report.sqnr["logits"] > 25


def test_weights_that_are_also_inputs_are_not_rotated():
    graph = decoder()
    graph.all_inputs = [*graph.inputs, graph["table"]]
    with pytest.raises(tx.InvalidCall, match="no residual stream can be rotated"):
        tx.quantize(graph, mode="weights", method="rotate", initializers_as_constants=False, backend="numpy")
    made, _ = tx.quantize(graph, mode="weights", method="rotate", bits=8, backend="numpy")
    expected = graph.run({"ids": IDS}, backend="numpy")["logits"]
    np.testing.assert_allclose(
        made.run({"ids": IDS}, backend="numpy")["logits"], expected, atol=0.05 * np.ptp(expected)
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"norm": "layer"}, "no value is normalized by its root mean square"),
        ({"ending": "output"}, '"stream" is an input or output'),
        ({"ending": "softmax"}, "Softmax"),
    ],
)
def test_models_that_cannot_be_rotated_are_rejected(options, said):
    with pytest.raises(tx.InvalidCall, match="no residual stream can be rotated") as caught:
        tx.quantize(decoder(**options), mode="weights", method="rotate", backend="numpy")
    assert said in str(caught.value)
