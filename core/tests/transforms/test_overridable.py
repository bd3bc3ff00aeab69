"""Inputs with a default: no transform relies on it, as calls may override it."""

import io

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op
from tenonnx_convert.apply_rules import apply_rules
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions

pytestmark = pytest.mark.usefixtures("standard_operators")

X, FED = np.float32([1, 2]), np.float32([3, 3])


@op("Scaled", domain="com.example")
def scaled(x, scale):
    return x * ops.exp(scale)


@op("Shaped", domain="com.example")
def shaped(x, shape):
    return ops.reshape(x, shape)


def graph_of(op, default):
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.example": 1})
    x = graph.input("x", "float32", (2,))
    graph.all_inputs.append(graph.variable("default", default))
    graph.output("y", op(x, graph["default"]))
    return graph


def ai_onnx(call):
    return call.op.domain == "ai.onnx"


TRANSFORMS = {
    "decompose": lambda graph: tx.decompose(graph, ai_onnx),
    "fold": tx.fold,
    "fuse": tx.fuse,
    "grad": lambda graph: tx.grad(graph, "y", "x", seeds={"y": "seed"}),
    "merge": merge_common_subexpressions,
    "rules": lambda graph: apply_rules(graph, {"Scaled": lambda node, x, scale: x * ops.exp(scale)}, strict=True),
    "retarget": lambda graph: tx.retarget(graph, 13, ["ai.onnx"]),
    "simplify": tx.simplify,
    "in half": lambda graph: tx.lower_precision(graph, "float16").graph,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fed_values_are_used(name):
    made = TRANSFORMS[name](graph_of(scaled, np.float32([0, 1])))
    further = {"seed": X} if name == "grad" else {}
    fed = made.run({"x": X, "default": FED, **further}, backend="numpy")["y"]
    np.testing.assert_allclose(fed, X * np.exp(FED), rtol=1e-2)
    left = made.run({"x": X, **further}, backend="numpy")["y"]
    np.testing.assert_allclose(left, X * np.exp(np.float32([0, 1])), rtol=1e-2)


def test_functions_of_a_model_are_inlined_without_counting_on_a_default():
    file = io.BytesIO()
    tx.export(graph_of(scaled, np.float32([0, 1])), file, functions="vendor")
    graph = tx.load(file.getvalue())
    file = io.BytesIO()
    tx.export(graph, file, functions="inline")
    fed = tx.load(file.getvalue()).run({"x": X, "default": FED}, backend="numpy")["y"]
    np.testing.assert_allclose(fed, X * np.exp(FED), rtol=1e-5)


def test_a_node_that_needs_a_default_closes_the_input():
    graph = graph_of(shaped, np.int64([2, 1]))
    gradient = tx.grad(graph, "y", "x", seeds={"y": "seed"})
    result = gradient.run({"x": X, "seed": X[:, None]}, backend="numpy")
    assert result["y"].shape == (2, 1)
    np.testing.assert_array_equal(result["x/grad"], X)


def test_a_default_in_half_precision_is_of_the_type_of_its_input():
    made = tx.lower_precision(graph_of(scaled, np.float32([0, 1])), "float16", convert_interface=True).graph
    assert [value.data.type for value in made.all_inputs if value.data is not None] == [made["default"].type]
    assert made["default"].dtype == tx.DType.float16
    result = made.run({"x": X.astype(np.float16)}, backend="numpy")["y"]
    np.testing.assert_allclose(result, X * np.exp(np.float32([0, 1])), rtol=1e-2)


def test_the_graph_may_be_given_by_name():
    assert [node.op_type for node in tx.simplify(graph=graph_of(scaled, X)).nodes] == ["Scaled"]
