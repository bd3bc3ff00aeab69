"""A value listed more than once in the outputs of a graph or subgraph."""

import io

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import tenonnx as tx

X = np.arange(-4, 8, dtype=np.float32).reshape(3, 4)
RELU, SUM = np.maximum(X, 0), np.cumsum(X, axis=0)

MODELS = {
    "graph": ("(float[n,4] r, float[n,4] r) { r = Relu(x) }", [RELU, RELU]),
    "copy": (
        "(float[n,4] r, float[n,4] r, float[n,4] s) { q = Relu(x) r = Identity(q) s = Neg(r) }",
        [RELU, RELU, -RELU],
    ),
    "input": ("(float[n,4] x, float[n,4] x, float[n,4] r) { r = Relu(x) }", [X, X, RELU]),
    "initializer": ("(float[2] w, float[2] w) <float[2] w = {1, 2}> { unused = Relu(x) }", [np.array([1, 2])] * 2),
    "constant": ("(float[2] v, float[2] v) <float[2] w = {1, 2}> { v = Neg(w) }", [np.array([-1, -2])] * 2),
    "loop": (
        "(float[n,4] y, float[a,b,c] s) { m = Constant<value_int=2>() y, s = Loop(m, , x) <body = b (int64 i, bool c,"
        "float[n,4] a) => (bool go, float[n,4] b, float[n,4] b) { go = Identity(c) b = Add(a, x) }> }",
        [3 * X, np.stack([2 * X, 3 * X])],
    ),
    "condition": (
        "(float[n,4] y, bool[a] s, bool[a] t) { m = Constant<value_int=2>() y, s, t = Loop(m, , x) <body = b (int64 i,"
        "bool c, float[n,4] a) => (bool c, float[n,4] b, bool c, bool c) { b = Add(a, x) }> }",
        [3 * X, np.array([True, True]), np.array([True, True])],
    ),
    "scan": (
        "(float[4] y, float[n,4] z, float[n,4] w) <float[4] i = {0,0,0,0}> { y, z, w = Scan(i, x) <num_scan_inputs=1,"
        "body = b (float[4] s, float[4] e) => (float[4] t, float[4] t, float[4] t) { t = Add(s, e) }> }",
        [SUM[-1], SUM, SUM],
    ),
    "if": (
        "(float[n,4] y, float[n,4] z) { c = Constant<value=bool {1}>() y, z = If(c) <then_branch = t () => (float[n,4]"
        "p, float[n,4] p2) { p = Relu(x) p2 = Neg(x) }, else_branch = e () => (float[n,4] q, float[n,4] u)"
        "{ q = Neg(x) u = Abs(x) }> }",
        [RELU, RELU],
    ),
}


def model_of(name):
    text, expected = MODELS[name]
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => ' + text)
    if name == "if":  # onnx's parser rejects repeated names in a subgraph
        branch = next(a.g for a in model.graph.node[1].attribute if a.name == "then_branch")
        branch.output[1].name = "p"
        del branch.node[1]
    onnx.checker.check_model(model, full_check=True)
    return model, expected


def written(graph, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "made",
    [
        written,
        lambda graph: written(graph, opset_version=13),
        lambda graph: written(tx.simplify(graph)),
        lambda graph: written(tx.decompose(graph, keep=lambda call: True)),
    ],
    ids=["as read", "opset 13", "simplified", "rewritten"],
)
def test_a_file_keeps_each_of_them(name, made):
    model, expected = model_of(name)
    data = made(tx.load(model))
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    session = onnxruntime.InferenceSession(data)
    assert [each.name for each in session.get_outputs()] == [each.name for each in model.graph.output]
    for got, wanted in zip(session.run(None, {"x": X}), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_run_returns_each_of_them(name, backend):
    model, expected = model_of(name)
    results = tx.load(model).run({"x": X}, backend=backend)
    for output, wanted in zip(model.graph.output, expected, strict=True):
        np.testing.assert_array_equal(results[output.name], wanted)


def test_replacing_the_value_replaces_both():
    graph = tx.load(model_of("graph")[0])
    with graph.editing():
        graph.insert_after("r", lambda value: -value)
    assert [value.name for value in graph.outputs] == ["r", "r"]
    np.testing.assert_array_equal(graph.run({"x": X}, backend="numpy")["r"], -RELU)


def test_each_repeated_output_of_a_branch_gets_its_own_value():
    """onnxruntime 1.32 returns None for the second output of such a branch, and uninitialized memory for a Scan."""
    branch = tx.load(model_of("if")[0]).nodes[1].subgraphs[0]
    assert len(set(branch.outputs)) == 2


def test_half_precision_keeps_each_of_them(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model_of("graph")[0], path)
    tx.convert(path, tmp_path / "h.onnx", float16=True, half_interface=True)
    result = onnxruntime.InferenceSession(tmp_path / "h.onnx").run(None, {"x": X.astype(np.float16)})
    assert [each.tolist() for each in result] == [RELU.tolist()] * 2
