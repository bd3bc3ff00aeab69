"""Fusion: the bodies of ops are found in other words, and nothing else is taken for them."""

import math

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall
from tenonnx.extend import op


def graph_of(function, *shapes, opset=23):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    inputs = [graph.input(f"x{k}", "float32", shape) for k, shape in enumerate(shapes)]
    graph.output("y", function(*inputs))
    return graph


def check(graph, *expected, ops=None, **attributes):
    """Fused, the graph has these ops, and gives the same numbers; the first has these attributes."""
    before = [node.op_type for node in graph.nodes]
    fused = tx.fuse(graph, ops)
    assert [node.op_type for node in fused.nodes] == list(expected)
    assert [node.op_type for node in graph.nodes] == before, "the source is left as it was"
    for name, value in attributes.items():
        assert fused.nodes[0].attributes[name] == pytest.approx(value)
    tx.verify(graph, fused).raise_if_failed()
    return fused


def standardised(x, scale, bias, epsilon=1e-12, axes=(-1,)):
    deviation = x - ops.reduce_mean(x, list(axes))
    variance = ops.reduce_mean(ops.pow_(deviation, 2.0), list(axes))
    return deviation / ops.sqrt(variance + epsilon) * scale + bias


SEQUENCES = ("batch", "length", 8)


def test_layer_normalization():
    check(graph_of(standardised, SEQUENCES, (8,), (8,)), "LayerNormalization", epsilon=1e-12)


def test_layer_normalization_over_two_axes():
    graph = graph_of(lambda *x: standardised(*x, axes=(1, 2)), ("batch", 3, 8), (3, 8), (3, 8))
    check(graph, "LayerNormalization", axis=1)


def test_root_mean_square():
    def by_square(x, scale):
        return scale * (x * ops.reciprocal(ops.sqrt(ops.reduce_mean(ops.pow_(x, 2.0), [-1]) + 1e-6)))

    check(graph_of(by_square, SEQUENCES, (8,)), "RMSNormalization", epsilon=1e-6)


GELUS = {
    "half of it first": lambda x: x * 0.5 * (1.0 + ops.erf(x / math.sqrt(2))),
    "half of it last": lambda x: 0.5 * (x * (ops.erf(x / 1.4142135) + 1.0)),
    "by the reciprocal": lambda x: x * (1.0 + ops.erf(x * 0.70710678)) * 0.5,
}


@pytest.mark.parametrize("form", GELUS.values(), ids=GELUS)
def test_gelu(form):
    check(graph_of(form, ("n", 8)), "Gelu")


def test_gelu_of_a_product():
    check(graph_of(lambda x, w: GELUS["half of it first"](x * w), ("n", 8), (8,)), "Mul", "Gelu")


def test_gelu_by_tanh():
    def form(x):
        return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * ops.pow_(x, 3.0))))

    check(graph_of(form, ("n", 8)), "Gelu", approximate="tanh")


def test_softmax():
    def form(x):
        exponentials = ops.exp(x - ops.reduce_max(x, [-1]))
        return exponentials / ops.reduce_sum(exponentials, [-1])

    check(graph_of(form, ("n", 8)), "Softmax")


def test_one_op_within_another():
    check(graph_of(lambda a, b, c: ops.relu(ops.matmul(a, b) + c), ("n", 8), (8, 4), (4,)), "Gemm", "Relu")


def test_ops_of_another_domain_are_found_where_the_graph_has_it():
    graph = graph_of(lambda x, skip, s, b: standardised(x + skip, s, b), SEQUENCES, SEQUENCES, (8,), (8,))
    check(graph, "Add", "LayerNormalization")
    graph.opsets = {**graph.opsets, "com.microsoft": 1}
    check(graph, "SkipLayerNormalization")


def test_only_what_is_asked_for():
    graph = graph_of(GELUS["half of it first"], ("n", 8))
    check(graph, *[node.op_type for node in graph.nodes], ops=["LayerNormalization"])
    check(graph, "Gelu", ops=["ai.onnx::Gelu"])
    with pytest.raises(InvalidCall, match=r"ai\.onnx::Guess must be an op with a body"):
        tx.fuse(graph, ["Guess"])


def test_an_older_opset_has_fewer_ops():
    graph = graph_of(GELUS["half of it first"], ("n", 8), opset=13)
    assert "Gelu" not in {node.op_type for node in tx.fuse(graph).nodes}


def test_what_others_read_is_kept_for_them():
    graph = tx.Graph(opsets={"ai.onnx": 23})
    x = graph.input("x", "float32", ("n", 8))
    inner = ops.erf(x / math.sqrt(2))
    graph.output("inner", inner)
    graph.output("y", x * 0.5 * (1.0 + inner))
    fused = check(graph, "Div", "Erf", "Gelu")
    assert [value.name for value in fused.outputs] == ["inner", "y"]


WRONG = {
    "another mean": lambda x, s, b: (x - ops.reduce_mean(x, [1])) / ops.sqrt(
        ops.reduce_mean(ops.pow_(x - ops.reduce_mean(x, [-1]), 2.0), [-1]) + 1e-5) * s + b,
    "the root of the sum": lambda x, s, b: (lambda d: d / (ops.sqrt(ops.reduce_mean(d * d, [-1])) + 1e-5) * s + b)(
        x - ops.reduce_mean(x, [-1])),
    "another power": lambda x, s, b: (lambda d: d / ops.sqrt(ops.reduce_mean(ops.pow_(d, 4.0), [-1]) + 1e-5) * s + b)(
        x - ops.reduce_mean(x, [-1])),
}  # fmt: skip


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_what_is_nearly_it_stays(form):
    fused = tx.fuse(graph_of(form, SEQUENCES, (8,), (8,)))
    assert "LayerNormalization" not in {node.op_type for node in fused.nodes}


def test_an_op_of_a_third_party_is_found_by_its_body():
    @op("Bump", domain="com.example")
    def bump(X, *, width=2.0):
        return ops.exp(X * X * width * -1.0) * X

    graph = graph_of(lambda x: x * ops.exp(-(ops.pow_(x, 2.0) / 4.0)), ("n",))
    graph.opsets = {**graph.opsets, "com.example": 1}
    fused = tx.fuse(graph, [bump])
    assert [node.op_type for node in fused.nodes] == ["Bump"]
    assert fused.nodes[0].attributes["width"] == pytest.approx(0.25)
    x = np.float32([0.5, -1])
    np.testing.assert_allclose(fused.run({"x0": x}, "numpy")["y"], graph.run({"x0": x}, "numpy")["y"], rtol=1e-6)


def test_an_export_fuses_for_its_target(tmp_path):
    graph = graph_of(lambda x, s, b: GELUS["half of it first"](standardised(x, s, b)), SEQUENCES, (8,), (8,), opset=13)
    report = tx.export(graph, tmp_path / "fused.onnx", opset_version=20, fuse=True)
    written = tx.load(tmp_path / "fused.onnx")
    assert [node.op_type for node in written.nodes] == ["LayerNormalization", "Gelu"]
    assert {str(change) for change in report.changes if change.action == "fused"} == {
        f"{node.name} (ai.onnx::{node.op_type}@{node.version}): fused; its body stood here" for node in written.nodes
    }
    tx.verify(graph, written).raise_if_failed()


def test_an_export_fuses_for_another_domain_that_is_asked_for(tmp_path):
    graph = graph_of(lambda x, skip, s, b: standardised(x + skip, s, b), SEQUENCES, SEQUENCES, (8,), (8,), opset=13)
    tx.export(graph, tmp_path / "fused.onnx", opset_version=17, fuse=True, domains=["ai.onnx", "com.microsoft"])
    written = tx.load(tmp_path / "fused.onnx")
    assert [node.op_type for node in written.nodes] == ["SkipLayerNormalization"]
    tx.verify(graph, written).raise_if_failed()
