"""Gradients with few operations, fewer than optimizers of runtimes would leave."""

from collections import Counter

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_standard.activation import gelu

RANDOM = np.random.default_rng(0)


def gradient_of(build, **arrays):
    """The gradient of ``build`` with respect to its first input, weighted by 1, 2, ..., and its graph."""
    graph = tx.Graph()
    values = [graph.input(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    y = build(*values)
    graph.output("y", y)
    first = next(iter(arrays))
    result = tx.grad(graph, of="y", wrt=first, seeds={"y": "g"})
    weights = np.arange(1, np.prod(y.shape) + 1, dtype=y.dtype.numpy).reshape(y.shape)
    return result.run({**arrays, "g": weights}, backend="numpy")[f"{first}/grad"], result


def count(graph):
    return Counter(node.op_type for node in graph.nodes)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_the_gradients_of_parts_are_joined(order):
    def parted(x):
        return ops.concat(*(x[k] * float(k + 1) for k in order), axis=0)

    result, graph = gradient_of(parted, x=RANDOM.standard_normal((3, 4, 5), dtype=np.float32))
    weights = np.arange(1, 61, dtype=np.float32).reshape(3, 4, 5)
    expected = np.stack([weights[order.index(k)] * (k + 1) for k in range(3)])
    np.testing.assert_array_equal(result, expected)
    made = count(graph)
    assert (made["Pad"], made["Concat"]) == (0, 2)


def test_parts_with_a_rest_are_joined_and_padded():
    result, graph = gradient_of(lambda x: x[1:3] * x[3:5], x=np.arange(1, 7, dtype=np.float32))
    np.testing.assert_array_equal(result, [0, 4, 10, 2, 6, 0])
    assert count(graph)["Pad"] == count(graph)["Concat"] == 1


@pytest.mark.parametrize("cut", [(slice(0, 2), slice(1, 3)), (slice(0, 2), slice(4, 6))], ids=["over", "apart"])
def test_parts_that_do_not_lie_side_by_side_are_added(cut):
    result, graph = gradient_of(lambda x: x[cut[0]] * x[cut[1]], x=np.arange(1, 7, dtype=np.float32))
    assert "Concat" not in count(graph)
    expected = np.zeros(6)
    for mine, other in (cut, cut[::-1]):
        expected[mine] += np.array([1, 2]) * np.arange(1, 7)[other]
    np.testing.assert_array_equal(result, expected)


def test_parts_of_two_axes_are_added():
    x = RANDOM.standard_normal((4, 4), dtype=np.float32)
    _, graph = gradient_of(lambda x: ops.concat(x[:2], ops.transpose(x[:, :2]), axis=0), x=x)
    assert count(graph)["Pad"] == 2


@pytest.mark.parametrize(("approximate", "nodes"), [("none", 12), ("tanh", 15)])
def test_gelu(approximate, nodes):
    x = np.linspace(-6, 6, 101)
    result, graph = gradient_of(lambda x: gelu(x, approximate=approximate), x=x)

    def at(x):
        return plain.run({"x": x}, backend="numpy")["y"]

    plain = tx.Graph()
    plain.output("y", gelu(plain.input("x", "float64", x.shape), approximate=approximate))
    slope = (at(x + 1e-5) - at(x - 1e-5)) / 2e-5
    np.testing.assert_allclose(result, slope * np.arange(1, 102), rtol=1e-4, atol=1e-4)
    assert len(graph.nodes) == nodes


def test_the_gradient_of_a_transposed_weight_is_not_transposed():
    arrays = {"w": RANDOM.standard_normal((6, 5), dtype=np.float32), "x": np.ones((2, 3, 5), np.float32)}
    result, graph = gradient_of(lambda w, x: x @ ops.transpose(w, perm=[1, 0]), **arrays)
    weights = np.arange(1, 37, dtype=np.float32).reshape(6, 6)
    np.testing.assert_allclose(result, np.repeat(weights.sum(axis=0)[:, None], 5, axis=1))
    assert count(tx.simplify(graph))["Transpose"] == 2  # of the weight, and of the gradient of the product
