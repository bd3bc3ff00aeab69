"""Retargeting of models with subgraphs, local functions, and default inputs."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model

import tenonnx as tx

#: Nested graphs with ops that older opsets lack or define differently: Gelu, ReduceSum and Unsqueeze with axes inputs.
MODEL = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
nested (float[2, 3] x, bool flag, int64 count) => (float[2, 3] y, float[2, 3] running, float[1, 3] chosen)
<int64[1] axes = {0}, float[3] weight = {1, -2, 0.5}>
{
    y = Loop (count, flag, x) <body = step (int64 i, bool on, float[2, 3] state) => (bool again, float[2, 3] next) {
        again = Identity (on)
        scaled = local.scaled_gelu <factor = 0.5> (state, weight)
        next = Add (scaled, x)
    }>
    zero = Constant <value = float[3] {0, 0, 0}> ()
    last, running = Scan <num_scan_inputs = 1,
        body = add (float[3] total, float[3] row) => (float[3] sum, float[3] out) {
        sum = Add (total, row)
        out = Mul (sum, weight)
    }> (zero, y)
    chosen = If (flag) <
        then_branch = yes () => (float[1, 3] a) { a = ReduceSum (y, axes) },
        else_branch = no () => (float[1, 3] b) { b = Unsqueeze (last, axes) }
    >
}
<domain: "local", opset_import: ["" : 21]>
scaled_gelu <factor> (v, w) => (r)
{
    f = Constant <value_float: float = @factor> ()
    g = Gelu (v)
    product = Mul (g, w)
    r = Mul (product, f)
}
"""


def feeds(flag, count):
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    return {"x": x, "flag": np.asarray(flag), "count": np.asarray(count)}


def run(model, arrays):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, arrays)


def exported(model, **target):
    stream = io.BytesIO()
    tx.export(tx.load(model), stream, **target)
    return onnx.ModelProto.FromString(stream.getvalue())


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_subgraphs_and_functions_are_retargeted_together(opset):
    model = parse_model(MODEL)
    moved = exported(model, opset_version=opset)
    onnx.checker.check_model(moved, full_check=True)
    assert {entry.domain: entry.version for entry in moved.opset_import}[""] == opset
    for flag, count in ((True, 2), (False, 2), (True, 0)):
        for ours, theirs in zip(run(moved, feeds(flag, count)), run(model, feeds(flag, count)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def with_default(body, dims, ir_version):
    """A model with an initializer that is also listed as an input."""
    return parse_model(
        f"""<ir_version: {ir_version}, opset_import: ["" : 13]>
        defaults (float[2, 3] x, int64[1] numbers = {{1}}) => (float[{dims}] y) {{ {body} }}"""
    )


def axes_moved(ir_version):
    return exported(with_default("y = ReduceSum <keepdims = 0> (x, numbers)", "a", ir_version), opset_version=11)


def test_a_default_is_not_treated_as_a_constant():
    moved = axes_moved(8)
    onnx.checker.check_model(moved, full_check=True)
    assert [info.name for info in moved.graph.input] == ["x", "numbers"]
    x = feeds(True, 0)["x"]
    np.testing.assert_allclose(run(moved, {"x": x})[0], x.sum(1), rtol=1e-6)
    np.testing.assert_allclose(run(moved, {"x": x, "numbers": np.array([0])})[0], x.sum(0), rtol=1e-6)


def test_an_initializer_that_had_to_be_listed_is_no_default():
    moved = axes_moved(3)
    assert [(node.op_type, len(node.input)) for node in moved.graph.node] == [("ReduceSum", 1)]


def test_a_default_becomes_a_constant_if_the_lowering_needs_it():
    stream = io.BytesIO()
    report = tx.export(tx.load(with_default("y, places = TopK (x, numbers)", "a, b", 8)), stream, opset_version=9)
    moved = onnx.ModelProto.FromString(stream.getvalue())
    onnx.checker.check_model(moved, full_check=True)
    assert [info.name for info in moved.graph.input] == ["x"]
    assert [change.node for change in report.changes if change.action == "closed"] == ["numbers"]
    x = feeds(True, 0)["x"]
    np.testing.assert_allclose(run(moved, {"x": x})[0], x.max(1, keepdims=True))


#: A function that calls another, and two functions with the same name.
FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
calls (float[2, 3] x) => (float[2, 3] y, float[2, 3] z)
{
    y = local.outer (x)
    negated = local.either:first (x)
    z = local.either:second (negated)
}
<domain: "local", opset_import: ["" : 17]>
inner (v) => (w) { shifted = Exp (v) w = Neg (shifted) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
outer (v) => (w) { once = local.inner (v) w = local.inner (once) }
<domain: "local", overload: "first", opset_import: ["" : 17]>
either (v) => (w) { w = Neg (v) }
<domain: "local", overload: "second", opset_import: ["" : 17]>
either (v) => (w) { w = Sqrt (v) }
"""


@pytest.mark.parametrize("domains", [None, ["ai.onnx", "local"], ["ai.onnx"]], ids=str)
@pytest.mark.parametrize("opset", [13, 17, 20])
def test_kept_functions_are_complete(opset, domains):
    """Functions keep those that they call, each under its own name, or are inlined if the target has no functions."""
    moved = exported(parse_model(FUNCTIONS), opset_version=opset, domains=domains)
    onnx.checker.check_model(moved)
    kept = opset == 17 and domains != ["ai.onnx"]
    names = [("inner", ""), ("outer", ""), ("either", "first"), ("either", "second")]
    assert [(function.name, function.overload) for function in moved.functions] == (names if kept else [])
    assert {node.domain for node in moved.graph.node} == ({"local"} if kept else {""})
    x = np.float32([[-1, -4, 0], [-9, -0.25, -2]])
    y, z = run(moved, {"x": x})
    np.testing.assert_allclose(y, -np.exp(-np.exp(x)), rtol=1e-6)
    np.testing.assert_allclose(z, np.sqrt(-x), rtol=1e-6)


#: A function whose body calls a vendor op.
OF_A_VENDOR = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1, "com.microsoft" : 1]>
calls (float[2, 3] x) => (float[2, 3] y) { y = local.outer (x) }
<domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]>
outer (v) => (w) { once = com.microsoft.QuickGelu <alpha = 1.0> (v) w = Neg (once) }
"""


def test_functions_contain_no_op_of_a_forbidden_domain():
    moved = exported(parse_model(OF_A_VENDOR), domains=["ai.onnx", "local"])
    assert not moved.functions
    assert {node.domain for node in moved.graph.node} == {""}
    x = np.float32([[-1, -4, 0], [-9, 0.25, 2]])
    np.testing.assert_allclose(run(moved, {"x": x})[0], -x / (1 + np.exp(-x)), rtol=1e-3, atol=1e-6)
