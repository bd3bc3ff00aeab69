"""Custom ops embedded as local functions, so that files run without the ops' package."""

import io
import json

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op, primitive, static
from tenonnx.registry.packages import KEY
from tenonnx.registry.registry import Registry


@op("Scaled", domain="com.acme")
def scaled(X, *, by=2.0, mode="product"):
    return X * by if mode == "product" else X + by


@scaled.until(5)
def scaled_by_power(X, *, by=1.0):
    return scaled(X, by=2.0**by)


scaled.until(7, renamed={"by": "factor"})


@op("Mixed", domain="com.acme")
def mixed(X, weight=None, bias=None, *, axis=-1):
    result = ops.softmax(X, axis=axis)
    if weight is not None:
        result = ops.matmul(scaled(result), weight)
    return (result if bias is None else result + bias), ops.reduce_sum(result, [axis])


@op("SumOver", domain="com.acme")
def sum_over(X, axes):
    known = static(axes)
    if known is None:
        raise tx.TypeMismatch("the axes must be known")
    return ops.reduce_sum(X, [int(axis) for axis in known])


@op("Within", domain="com.acme")
def within(X, *, body):
    return X


@primitive("Opened", domain="com.acme")
def opened(X): ...


opened.type(lambda X: X.type)
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


@pytest.fixture(scope="module")
def registry():
    result = Registry.installed()
    for each in (scaled, scaled_by_power, mixed, sum_over, within):
        result.add(each)
    return result


def graph_of(*calls, version=7):
    """A graph that applies the calls to ``x`` one after the other."""
    graph = tx.Graph(opsets={"com.acme": version, "ai.onnx": 21})
    value = graph.input("x", "float32", ("batch", 3))
    for call in calls:
        value = call(value)
    graph.output("y", value)
    return graph


def carried(graph, **options):
    stream = io.BytesIO()
    report = tx.export(graph, stream, functions="vendor", **options)
    model = onnx.load_from_string(stream.getvalue())
    onnx.checker.check_model(model, full_check=True)
    return model, report


def results(model):
    """Results of a model in onnxruntime and in tenonnx, both without the package."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result = session.run(None, {"x": X})
    ours = tx.load(model).run({"x": X}, backend="numpy")
    for one, other in zip(result, ours.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    return result


CALLS = {
    "an attribute": [lambda x: scaled(x, by=3.0)],
    "an attribute that chooses a body": [scaled, lambda x: scaled(x, by=0.5, mode="sum"), scaled],
    "an input that is absent": [
        lambda x: mixed(x, np.ones((3, 4), "f"))[0],
        lambda x: mixed(x, None, np.ones(4, "f"))[0],
    ],
    "the second of two results": [lambda x: mixed(x)[1]],
    "a constant that decides": [lambda x: sum_over(x, np.array([1]))],
}


@pytest.mark.parametrize("opset", [21, 11])
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_a_runtime_and_a_reader_without_the_package_run_the_file(calls, opset):
    graph = graph_of(*calls)
    model, report = carried(graph, opset_version=opset)
    assert [change.action for change in report.changes if "com.acme" in change.op] == ["carried"] * len(calls)
    assert {node.domain for node in model.graph.node} == {"com.acme"}
    np.testing.assert_allclose(results(model)[0], graph.run({"x": X}, backend="numpy")["y"], rtol=1e-5)


def test_identical_calls_share_a_function():
    model, _ = carried(graph_of(scaled, lambda x: scaled(x, mode="sum"), scaled, lambda x: scaled(x, by=4.0)))
    assert [node.op_type for node in model.graph.node] == ["Scaled", "Scaled_2", "Scaled", "Scaled_3"]
    assert [function.name for function in model.functions] == ["Scaled", "Scaled_2", "Scaled_3"]
    assert not any(node.attribute for node in model.graph.node)


@pytest.mark.parametrize(("version", "name", "factor"), [(1, "by", 8.0), (6, "factor", 3.0), (7, "by", 3.0)])
def test_the_meaning_of_an_older_version_is_embedded(version, name, factor, registry):
    header = f'<ir_version: 8, opset_import: ["": 17, "com.acme": {version}]>'
    text = f"{header} g (float[2, 3] x) => (float[2, 3] y) {{ y = com.acme.Scaled<{name} = 3.0>(x) }}"
    graph = tx.load(onnx.parser.parse_model(text), registry=registry)
    model, _ = carried(graph)
    assert {o.domain: o.version for o in model.opset_import} == {"": 17, "com.acme": version}
    np.testing.assert_allclose(results(model)[0], X * factor)


def test_calls_in_branches_and_local_functions_are_embedded(registry):
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 7, "local": 1]>
        g (float[2, 3] x, bool c) => (float[2, 3] y) {
            t = local.Twice(x)
            y = If(c) <then_branch = a () => (float[2, 3] p) { p = com.acme.Scaled(t) },
                       else_branch = b () => (float[2, 3] q) { q = com.acme.Scaled<by = 5.0>(t) }>
        }
        <domain: "local", opset_import: ["com.acme": 7]> Twice (a) => (b) { b = com.acme.Scaled(a) }"""
    graph = tx.load(onnx.parser.parse_model(text), registry=registry)
    model, report = carried(graph)
    labels = {change.node for change in report.changes if change.action == "carried"}
    assert sorted(label.split("/")[1] for label in labels if "branch" in label) == ["else_branch", "then_branch"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for c, factor in ((True, 4), (False, 10)):
        np.testing.assert_allclose(session.run(None, {"x": X, "c": np.array(c)})[0], X * factor)
        there = tx.load(model).run({"x": X, "c": np.array(c)}, backend="numpy")
        np.testing.assert_allclose(there["y"], X * factor)


def test_embedded_functions_can_be_differentiated_and_retargeted():
    model, _ = carried(graph_of(lambda x: scaled(x, by=3.0)))
    back = tx.load(model)
    slope = tx.grad(back, of="y", wrt="x", seeds={"y": "g"})
    np.testing.assert_allclose(
        slope.run({"x": X, "g": np.ones_like(X)}, backend="numpy")["x/grad"], 3 * np.ones_like(X)
    )
    assert {node.domain for node in tx.retarget(back, 9, domains=["ai.onnx"]).nodes} == {"ai.onnx"}


def test_the_package_of_the_domain_is_recorded_permanently(registry, monkeypatch):
    monkeypatch.setattr(Registry, "source", lambda self, op: "tenonnx-acme 2.1")
    graph = graph_of(scaled)
    graph.registry = registry
    model, _ = carried(graph)
    again = tx.load(model).to_proto()
    for each in (model, again):
        assert json.loads({e.key: e.value for e in each.metadata_props}[KEY]) == {"com.acme": "tenonnx-acme 2.1"}


def test_the_package_of_the_domain_of_a_handmade_graph_is_recorded(registry, monkeypatch):
    monkeypatch.setattr("tenonnx.registry.registry._default", registry)
    monkeypatch.setattr(Registry, "source", lambda self, op: "tenonnx-acme 2.1")
    stream = io.BytesIO()
    tx.export(graph_of(scaled), stream)
    model = onnx.load_from_string(stream.getvalue())
    assert json.loads({e.key: e.value for e in model.metadata_props}[KEY]) == {"com.acme": "tenonnx-acme 2.1"}


def test_without_custom_ops_nothing_is_embedded():
    model, report = carried(graph_of(ops.relu))
    assert not model.functions
    assert [change.action for change in report.changes] == ["kept"]


def test_ops_that_no_function_can_replace_are_named(registry):
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 7]>
        g (float[2] x) => (float[2] y) { a = com.acme.Scaled(x)  [lost] y = com.acme.Unknown(a) }"""
    graph = tx.load(onnx.parser.parse_model(text), registry=registry)
    with pytest.raises(tx.NotRepresentable, match="1 node cannot be expressed") as caught:
        carried(graph)
    assert 'node "lost" (com.acme::Unknown@7): cannot be expressed as a function' in str(caught.value)
    with pytest.raises(tx.NotRepresentable, match="cannot be expressed in the target") as caught:
        carried(graph_of(opened))
    assert "com.acme::Opened@1): cannot be expressed as a function: a primitive" in caught.value.given
    assert "define the op by ops" in caught.value.do
    body = "b (float[2] i) => (float[2] o) { o = Relu(i) }"
    text = f"""<ir_version: 8, opset_import: ["": 17, "com.acme": 7]>
        g (float[2] x) => (float[2] y) {{ y = com.acme.Within<body = {body}>(x) }}"""
    with pytest.raises(tx.NotRepresentable, match="cannot be expressed in the target") as caught:
        carried(tx.load(onnx.parser.parse_model(text), registry=registry))
    assert "cannot be expressed as a function: the call has a subgraph" in caught.value.given


def test_values_of_the_option_and_the_required_version():
    with pytest.raises(tx.InvalidCall, match="keep, inline and vendor") as caught:
        tx.export(graph_of(scaled), io.BytesIO(), functions="all")
    assert caught.value.available == "keep, inline, vendor"
    with pytest.raises(tx.NotRepresentable, match="is too old for"):
        carried(graph_of(scaled), ir_version=7, opset_version=11)
