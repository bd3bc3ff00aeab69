"""Fusion of a vendor's ops that have only bodies, and of element types that the version of an op lacks."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op
from tenonnx_convert.apply_rules import apply_rules

DOMAIN = "com.vendor"


@op("Squareplus", domain=DOMAIN)
def squareplus(X, *, b=4.0):
    return (X + ops.sqrt(X * X + b)) / 2.0


@op("HardMish", domain=DOMAIN)
def hard_mish(X):
    return X * ops.clip(X + 2.0, 0.0, 2.0) / 2.0


@op("CappedLogits", domain=DOMAIN)
def capped_logits(X, *, cap=30.0):
    return ops.tanh(X / cap) * cap


@op("SwiGLU", domain=DOMAIN)
def swiglu(X, gate):
    return X * (gate * ops.sigmoid(gate))


@op("GeGLU", domain=DOMAIN)
def geglu(X, gate):
    return X * ops.gelu(gate)


@op("ScaleNorm", domain=DOMAIN)
def scale_norm(X, g, *, epsilon=1e-5):
    return X / ops.sqrt(ops.reduce_sum(X * X, [-1]) + epsilon) * g


@op("Modulate", domain=DOMAIN)
def modulate(X, scale, shift):
    return X * (scale + 1.0) + shift


@op("Mix", domain=DOMAIN)
def mix(X, Y, *, alpha=0.5):
    return X * alpha + Y * (1 - alpha)


@op("GatedNorm", domain=DOMAIN)
def gated_norm(X, gate, weight, *, epsilon=1e-6):
    normal = X * ops.reciprocal(ops.sqrt(ops.reduce_mean(X * X, [-1]) + epsilon))
    return normal * weight * (gate * ops.sigmoid(gate))


@op("Cosine", domain=DOMAIN)
def cosine(A, B, *, epsilon=1e-8):
    length = ops.sqrt(ops.reduce_sum(A * A, [-1])) * ops.sqrt(ops.reduce_sum(B * B, [-1]))
    return ops.reduce_sum(A * B, [-1]) / (length + epsilon)


ROWS = ("batch", "length", 8)
CALLS = {
    squareplus: ([ROWS], {"b": 1.5}),
    hard_mish: ([ROWS], {}),
    capped_logits: ([ROWS], {"cap": 50.0}),
    swiglu: ([ROWS, ROWS], {}),
    geglu: ([ROWS, ROWS], {}),
    scale_norm: ([ROWS, (8,)], {"epsilon": 1e-3}),
    modulate: ([ROWS, ("batch", 1, 8), ("batch", 1, 8)], {}),
    mix: ([ROWS, ROWS], {"alpha": 0.3}),
    gated_norm: ([ROWS, ROWS, (8,)], {"epsilon": 1e-4}),
    cosine: ([ROWS, ROWS], {}),
}


WORDS = {
    "as written": {},
    "commuted": {"Add": lambda node, a, b: b + a, "Mul": lambda node, a, b: b * a},
    "less as plus": {"Sub": lambda node, a, b: a + -b},
    "over as times": {"Div": lambda node, a, b: a * ops.reciprocal(b)},
    "squares as powers": {"Mul": lambda node, a, b: ops.pow_(a, 2.0) if a is b else None},
    "roots as powers": {"Sqrt": lambda node, a: ops.pow_(a, 0.5)},
    "one over, as such": {"Reciprocal": lambda node, a: 1.0 / a},
}


def graph_of(made):
    shapes, attributes = CALLS[made]
    graph = tx.Graph(opsets={"ai.onnx": 20, DOMAIN: 1})
    inputs = [graph.input(f"x{k}", "float32", shape) for k, shape in enumerate(shapes)]
    graph.output("y", made(*inputs, **attributes))
    return graph


def check_numbers(graph, other):
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.normal(size=[d if isinstance(d, int) else 2 for d in v.shape]).astype(np.float32)
        for v in graph.inputs
    }
    expected, result = (g.run(feeds, "numpy") for g in (graph, other))
    assert expected.keys() == result.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("made", CALLS, ids=lambda made: made.name)
def test_written_out_and_found_again(made, words):
    graph = graph_of(made)
    written = apply_rules(tx.retarget(graph, 20, ["ai.onnx"]), words)
    assert DOMAIN not in {node.domain for node in written.nodes}
    written.opsets = dict(graph.opsets)
    fused = tx.fuse(written, [made])
    assert [node.op_type for node in fused.nodes] == [made.name]
    check_numbers(graph, fused)


@pytest.mark.parametrize("made", CALLS, ids=lambda made: made.name)
def test_inner_values_with_consumers_are_not_lost(made):
    graph = graph_of(made)
    written = tx.retarget(graph, 20, ["ai.onnx"])
    inner = written.nodes[0].outputs[0]
    inner.name = "inner"
    written.outputs.append(inner)
    written.opsets = dict(graph.opsets)
    fused = tx.fuse(written, [made])
    assert [value.name for value in fused.outputs] == ["y", "inner"]
    check_numbers(written, fused)


@pytest.mark.parametrize(
    ("opset", "dtype", "fused"), [(21, "bfloat16", False), (22, "bfloat16", True), (21, "float16", True)]
)
def test_a_graph_fuses_to_no_op_in_an_element_type_that_its_version_lacks(opset, dtype, fused):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    x = graph.input("x", dtype, (2, 3))
    below = ops.floor(x)
    odd = ops.greater(below - ops.floor(below / 2) * 2, 0)
    up = ops.or_(ops.greater(x - below, 0.5), ops.and_(ops.not_(ops.less(x - below, 0.5)), odd))
    graph.output("y", below + ops.cast(up, to=x.dtype))
    assert ("Round" in {node.op_type for node in tx.fuse(graph).nodes}) == fused
