"""Lists of ops as targets: the way that is found, its numbers, and its accuracy class."""

import numpy as np
import pytest
from lists_of_ops import APPROXIMATE, LISTS

import tenonnx as tx
from tenonnx.errors import NotRepresentable
from tenonnx_targets.files import narrowed_target

#: Each among ordinary values: sums of huge values of both signs depend on their order.
SPECIAL = (1e30, -1e30, np.inf, -np.inf, np.nan)

#: Their bodies give other numbers than the kernels: 0 for the sign of NaN, and NaN for the product of a stuffed zero.
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
