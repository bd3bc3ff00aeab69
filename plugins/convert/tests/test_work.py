"""Work of verifications: models that would take excessive work are refused before they run, others are not."""

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_convert.verifying.work import check_work

LOOP = (
    "{y} = Loop ({count}, {condition}, {x}) "
    "<body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {{ {body} }}>"
)
BRANCHES = (
    "y = If ({condition}) <then_branch = p () => (float[2] q) {{ {loop} }}, "
    "else_branch = r () => (float[2] s) {{ s = Relu (x) }}>"
)


def graph_of(nodes, initializers="int64 m = {4611686018427387904}, bool t = {1}, bool f = {0}", opsets='"": 17'):
    text = f"<ir_version: 8, opset_import: [{opsets}]> g (float[2] x) => (float y) <{initializers}> {{ {nodes} }}"
    return tx.load(onnx.parser.parse_model(text))


def loop(count="m", condition="t", body="d = Identity (c) e = Relu (a)", x="x", y="y"):
    return LOOP.format(count=count, condition=condition, body=body, x=x, y=y)


BOMBS = {
    "constant trips": loop(),
    "no condition": loop(condition=""),
    "no end": loop(count=""),
    "condition of the body is a constant": loop(count="", body="d = Constant <value = bool {1}> () e = Relu (a)"),
    "count is computed": "n = Mul (m2, m2) " + loop(count="n"),
    "in a branch": BRANCHES.format(condition="t", loop=loop(y="q")),
    "a loop in a loop": loop(count="k", body="d = Identity (c) " + loop(count="k", x="a", y="e")),
    "scan of a long range": "n = Range (z, k2, o) y, u = Scan <num_scan_inputs = 1, body = b (float[2] a, int64 j)"
    " => (float[2] e, int64 v) {e = Relu (a) v = Identity (j)}> (x, n)",
    "resize": "w = Reshape (x, s4) r = Resize (w, , , to) y = ReduceMean <keepdims = 0> (r)",
    "expand": "w = Expand (x, s2) y = ReduceMean <keepdims = 0> (w)",
    "one tensor many times": " ".join(f"w{k} = Expand (x, s5)" for k in range(20)) + " y = Relu (w0)",
}
CONSTANTS = (
    "int64 m = {4611686018427387904}, bool t = {1}, bool f = {0}, int64 m2 = {1000000}, int64 k = {100000},"
    "int64 z = {0}, int64 k2 = {1000000}, int64 o = {1}, int64[4] s4 = {1, 1, 1, 2}, int64[4] to = {1, 1, 16384, 16384}"
    ", int64[2] s2 = {134217728, 2}, int64[2] s5 = {8388608, 2}, int64 many = {9223372036854775807}, float top = {20}"
)


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_refused_before_they_run(kind):
    graph = graph_of(BOMBS[kind], CONSTANTS)
    with pytest.raises(tx.LimitExceeded, match='exceeds the limit "work"') as caught:
        tx.verify(graph)
    assert "TENONNX_LIMIT_WORK" in str(caught.value)


def test_a_bomb_in_a_function_is_refused():
    text = f"""<ir_version: 8, opset_import: ["": 17, "f": 1]> g (float[2] x) => (float[2] y) {{ y = f.bomb (x) }}
    <domain: "f", opset_import: ["": 17]> bomb (x) => (y) {{
      m = Constant <value = int64 {{4611686018427387904}}> () t = Constant <value = bool {{1}}> () {loop()} }}"""
    with pytest.raises(tx.LimitExceeded, match='exceeds the limit "work"'):
        tx.verify(tx.load(onnx.parser.parse_model(text)))


HONEST = {
    "ends by what it computes": loop(
        count="many", body="e = Add (a, a) n = ReduceSum <keepdims = 0> (e) g = Abs (n) d = Less (g, top)"
    ),
    "never entered": loop(condition="f"),
    "ten thousand trips": loop(count="h"),
    "trips in a branch": BRANCHES.format(condition="t", loop=loop(count="h", y="q")),
}


@pytest.mark.parametrize("kind", HONEST)
def test_honest_loops_run(kind):
    assert tx.verify(graph_of(HONEST[kind], CONSTANTS + ", int64 h = {10000}")).equal


def test_weights_and_inputs_justify_work():
    """A generator of large images has large weights; a large batch is an input of the user."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("batch", 1 << 12))
    graph.output("y", graph.variable("w", np.ones((1 << 15, 1, 1), np.float32)) * x)
    check_work(graph)
    bare = tx.Graph(opsets={"ai.onnx": 17})
    bare.output("y", bare.input("x", "float32", ("batch", 1)) * np.float32(2))
    check_work(bare, {"x": (1 << 30, 1)})


def test_convert_suggests_how_to_continue(tmp_path):
    graph = graph_of(BOMBS["resize"], CONSTANTS)
    with pytest.raises(tx.LimitExceeded, match="--no-verify") as caught:
        tx.convert(graph, tmp_path / "m.onnx")
    assert "Resize" in caught.value.what
    assert not list(tmp_path.iterdir())
    tx.convert(graph, tmp_path / "m.onnx", verify=False)
    with tx.limits.override(work=1 << 40):
        check_work(graph)
