"""Lists of ops as targets: the lowering that is found, its outputs, and its accuracy class."""

import numpy as np
import pytest
from lists_of_ops import APPROXIMATE, LISTS

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx_targets.files import narrowed_target

#: Special values, tried one at a time among ordinary ones, since sums of several depend on their order.
SPECIAL = (1e30, -1e30, np.inf, -np.inf, np.nan)

#: Ops whose body differs from the kernel: the sign of NaN is 0, and a padding zero times infinity is NaN.
OF_THE_BODY = ("sign-where", "conv-transpose")


def graph_of(function, shapes):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    inputs = [graph.input(f"x{place}", "float32", shape) for place, shape in enumerate(shapes)]
    with graph.building():
        graph.output("y", function(*inputs))
    return graph


def retargeted(graph, listed, accuracy):
    target = narrowed_target(None, graph.opsets, listed.split(","), (), accuracy)
    moved = tx.retarget(graph, target=target)
    assert {node.op_type for node in moved.walk()} <= {*listed.split(","), "Constant"}
    return moved


def outputs(graph, feeds):
    with np.errstate(all="ignore"):
        return graph.run(feeds, backend="numpy")["y"]


def drawn(shapes, special=None):
    generator = np.random.default_rng(7)
    feeds = {f"x{place}": generator.standard_normal(shape).astype(np.float32) * 2 for place, shape in enumerate(shapes)}
    if special is not None:
        for array in feeds.values():
            array[generator.random(array.shape) < 0.3] = special
    return feeds


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_suffices(name):
    function, listed, *shapes = LISTS[name]
    graph = graph_of(function, shapes)
    moved = retargeted(graph, listed, "finite")
    feeds = drawn(shapes)
    np.testing.assert_allclose(outputs(moved, feeds), outputs(graph, feeds), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_a_list_that_suffices_for_an_approximation(name):
    function, listed, *shapes = APPROXIMATE[name]
    graph = graph_of(function, shapes)
    with pytest.raises(NotRepresentable):
        retargeted(graph, listed, "finite")
    feeds = drawn(shapes)
    moved = retargeted(graph, listed, "approximate")
    np.testing.assert_allclose(outputs(moved, feeds), outputs(graph, feeds), atol=5e-6)


@pytest.mark.parametrize("name", [name for name in LISTS if name not in OF_THE_BODY])
def test_special_values_survive_unless_finite_ones_are_assumed(name):
    function, listed, *shapes = LISTS[name]
    graph = graph_of(function, shapes)
    try:
        moved = retargeted(graph, listed, "rounding")
    except NotRepresentable:
        return
    for special in SPECIAL:
        feeds = drawn(shapes, special)
        np.testing.assert_allclose(outputs(moved, feeds), outputs(graph, feeds), rtol=1e-4, atol=1e-6)


def test_identical_calls_are_replaced_identically():
    def twice(x):
        first = ops.softmax(ops.relu(x), axis=-1)
        return ops.add(ops.softmax(first, axis=-1), ops.softmax(ops.neg(x), axis=0))

    graph = graph_of(twice, [(3, 4)])
    moved = retargeted(graph, "Exp,ReduceSum,ReduceMax,Sub,Div,Relu,Neg,Add", "rounding")
    names = [value.name for node in moved.nodes for value in node.outputs]
    assert len(set(names)) == len(names)
    assert sum(node.op_type == "Exp" for node in moved.nodes) == 3
    feeds = drawn([(3, 4)])
    np.testing.assert_allclose(outputs(moved, feeds), outputs(graph, feeds), rtol=1e-6)


def test_new_dims_of_identical_calls_stay_distinct():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, y = (graph.input(name, "float32", (4,)) for name in "xy")
    with graph.building():
        for name, value in {"p": x, "q": y}.items():
            graph.output(name, ops.compress(value, ops.greater(value, 0.0), axis=0))
    target = narrowed_target(None, graph.opsets, None, ["Compress"], "rounding")
    moved = tx.retarget(graph, target=target)
    feeds = {"x": np.float32([1, -1, 2, 3]), "y": np.float32([-1, -1, 2, -3])}
    result = moved.run(feeds, backend="numpy")
    assert (result["p"].tolist(), result["q"].tolist()) == ([1, 2, 3], [2])
    p, q = (output.type.shape for output in moved.outputs)
    assert p != q or p == (None,)


def test_calls_on_different_large_constants_stay_distinct():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", (2, 300))
    weights = [graph.variable(f"w{k}", np.full((300, 2), k + 1, np.float32)) for k in range(2)]
    with graph.building():
        for k, weight in enumerate(weights):
            graph.output(f"y{k}", ops.gemm(x, weight, None, alpha=0.5))
    target = narrowed_target(None, graph.opsets, ["MatMul", "Mul", "Transpose", "Reshape"], (), "rounding")
    moved = tx.retarget(graph, target=target)
    feeds = {"x": np.ones((2, 300), np.float32)}
    for name, expected in graph.run(feeds, backend="numpy").items():
        np.testing.assert_allclose(moved.run(feeds, backend="numpy")[name], expected, rtol=1e-6)
