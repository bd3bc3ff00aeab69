"""Python operators on values, and helpers that transforms use by name."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, TensorType, TypeMismatch, subgraph
from tenonnx.op.build import Builder
from tenonnx.op.call import dims, interpreting
from tenonnx.op.evaluate import evaluate_graph
from tenonnx_standard.operators import vector

KEYS = [
    0,
    -1,
    slice(1, None),
    slice(None, None, -1),
    slice(3, 0, -2),
    slice(-2, None),
    None,
    Ellipsis,
    (0, 1),
    (slice(None), -1),
    (Ellipsis, 0),
    (None, 1, Ellipsis, None),
    (slice(None), None, slice(0, 2), -1),
    (0, 1, 2),
    (Ellipsis, slice(1, 2)),
]


def run(build, *arrays, shapes=None):
    """Results of ``build`` in a graph, for arrays of the given shapes (by default their own)."""
    graph = Graph()
    values = []
    for k, array in enumerate(arrays):
        shape = array.shape if shapes is None else shapes[k]
        values.append(graph.input(f"x{k}", array.dtype.name, shape))
    with interpreting(Builder(graph)):
        result = build(*values)
        graph.outputs.append(Builder(graph).as_output(result))
    return evaluate_graph(graph, list(arrays))[0], graph


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("shape", [None, ("a", "b", "c")])
def test_indexing_is_that_of_numpy(key, shape):
    x = np.arange(60.0).reshape(3, 4, 5)
    result, graph = run(lambda v: v[key], x, shapes=None if shape is None else [shape])
    np.testing.assert_array_equal(result, x[key])
    assert graph.outputs[0].ndim == x[key].ndim


def test_an_integer_value_picks_along_its_axis():
    x = np.arange(60.0).reshape(3, 4, 5)
    result, _ = run(lambda v, i: v[1:, i, 0], x, np.array([[0, 2]]))
    np.testing.assert_array_equal(result, x[1:, [[0, 2]], 0])


#: Results of Python operators on two arrays of small positive numbers.
BINARY = [
    *(getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")),
    *(getattr(operator, name) for name in ("lt", "le", "gt", "ge")),
]


@pytest.mark.parametrize("apply", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("side", ["left", "right"])
def test_an_array_on_either_side_is_a_constant(apply, side):
    """With an array on the left, numpy would create an array of objects, with one node per element."""
    x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 5.0], [2.0, 3.0]])
    a, b = (y, x) if side == "left" else (x, y)
    result, graph = run(lambda v: apply(y, v) if side == "left" else apply(v, y), x)
    np.testing.assert_allclose(result, apply(a, b))
    assert len(graph.nodes) <= 4


@pytest.mark.parametrize("apply", [operator.and_, operator.or_], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [bool, np.int32])
def test_masks_on_the_left_are_constants(apply, dtype):
    x, mask = np.array([0, 1, 1], dtype), np.array([1, 0, 1], dtype)
    result, _ = run(lambda v: apply(mask, v), x)
    np.testing.assert_array_equal(result, apply(mask, x))


def test_numpy_functions_do_not_accept_values():
    with pytest.raises(TypeError, match="does not support ufuncs"):
        run(lambda v: np.add(np.ones(2), v), np.ones(2))


@pytest.mark.parametrize("key", [(0, 0, 0, 0), (Ellipsis, Ellipsis), "a", (slice(None), 1.5)], ids=str)
def test_invalid_indices_are_refused(key):
    with pytest.raises(TypeMismatch):
        run(lambda v: v[key], np.zeros((2, 3)))


def test_bounds_may_be_computed():
    x = np.arange(12.0).reshape(3, 4)
    result, _ = run(lambda v: v[:, dims(v)[0] - 1 :], x, shapes=[("rows", 4)])
    np.testing.assert_array_equal(result, x[:, 2:])


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [((2, 3), (3,)), ((2, 3), (1,)), ((2, 3), (2, 1)), ((2, 3), ()), ((4, 2, 3), (1, 3)), ((2,), (2,))],
)
@pytest.mark.parametrize("known", ["static", "symbolic", "unknown", "no rank"])
def test_sum_to_undoes_broadcasting(wide, narrow, known):
    g, like = np.random.default_rng(0).random(wide), np.zeros(narrow)
    shapes = {
        "static": None,
        "symbolic": [tuple(f"g{k}" for k in range(len(wide))), tuple(f"x{k}" for k in range(len(narrow)))],
        "unknown": [(None,) * len(wide), (None,) * len(narrow)],
        "no rank": [None, None],
    }[known]
    result, graph = run(ops.sum_to, g, like, shapes=shapes)
    lead = tuple(range(len(wide) - len(narrow)))
    expected = g.sum(axis=lead)
    expected = expected.sum(axis=tuple(k for k, d in enumerate(narrow) if d == 1), keepdims=True)
    np.testing.assert_allclose(result, expected)
    if known == "symbolic":
        assert graph.outputs[0].shape == graph.inputs[1].shape


def test_sum_to_adds_nothing_where_shapes_are_known_to_be_equal():
    _, graph = run(ops.sum_to, np.ones((2, 3)), np.ones((2, 3)), shapes=[("n", 3), ("n", 3)])
    assert [node.op_type for node in graph.nodes] == ["Identity"]


def test_lists_of_ints_and_values_are_one_vector():
    def build(v):
        n, m = dims(v)
        return vector([1, 2, n, -1, m])

    result, graph = run(build, np.zeros((4, 5)), shapes=[("n", "m")])
    np.testing.assert_array_equal(result, [1, 2, 4, -1, 5])
    assert [str(e) for e in graph.outputs[0].symbolic_contents] == ["1", "2", "n", "-1", "m"]


def test_computed_lengths_stay_known():
    _, graph = run(lambda v: (dims(v)[0] + 1) * 2 // 3, np.zeros((4, 5)), shapes=[("n", 5)])
    assert str(graph.outputs[0].symbolic_contents) == "(2*n + 2)//3"


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: a / b, [-3, 3, -3]),
        (lambda a, b: a % b, [1, 1, -1]),
        (lambda a, b: a & b, [0, 2, 6]),
        (lambda a, b: ~a | b, [6, -6, -2]),
        (lambda a, b: 2 - a + b, [11, -3, -7]),
        (lambda a, b: -a * b, [14, -14, 14]),
    ],
)
def test_integers(build, expected):
    result, _ = run(build, np.array([-7, 7, 7]), np.array([2, 2, -2]))
    np.testing.assert_array_equal(result, expected)


def test_floats():
    a, b = np.array([-7.5, 7.5]), np.array([2.0, -2.0])
    np.testing.assert_array_equal(run(lambda a, b: a % b, a, b)[0], a % b)
    np.testing.assert_array_equal(run(lambda a, b: a // b, a, b)[0], a // b)


def test_bools_are_combined_by_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    np.testing.assert_array_equal(run(lambda a, b: ~(a & b) | b, a, b)[0], ~(a & b) | b)


def test_two_dtypes_are_never_mixed():
    with pytest.raises(TypeMismatch, match="element type"):
        run(lambda a, b: a + b, np.zeros(2, np.float32), np.zeros(2, np.float64))


@pytest.mark.parametrize(("filled", "number"), [(ops.zeros_like, 0), (ops.ones_like, 1)])
@pytest.mark.parametrize("shape", [None, ("n", 3), (None, None)])
def test_filled_tensors_have_the_shape_of_another(filled, number, shape):
    result, _ = run(filled, np.zeros((2, 3), np.float32), shapes=None if shape is None else [shape])
    np.testing.assert_array_equal(result, np.full((2, 3), number, np.float32))
    assert result.dtype == np.float32


def test_the_iterations_of_a_loop_may_be_a_python_int():
    graph = Graph()
    x = graph.input("x", "float32", (2,))
    with graph.building():
        kinds = [("i", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ())), ("v", x.type)]
        body = subgraph(lambda i, going_on, v: (ops.identity(going_on), v * 2.0), kinds)
    graph.output("y", ops.loop(3, None, x, body=body))
    assert graph.run({"x": [1, 2]}, backend="numpy")["y"].tolist() == [8, 16]


@pytest.mark.parametrize("exponents", [(), (1,), (4,), (2, 1), (2, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_the_power_of_one_half_is_not_a_square_root(exponents, dtype, backend):
    """IEEE 754: minus infinity becomes infinity, and -0.0 becomes 0.0; a square root results in NaN and -0.0."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, y = graph.input("x", dtype, ("n", 4)), graph.variable("y", np.full(exponents, 0.5, dtype))
    graph.output("z", ops.pow_(x, y))
    result = graph.run({"x": np.array([[-np.inf, -0.0, -1, 4]] * 2, dtype)}, backend=backend)["z"]
    np.testing.assert_array_equal(result, [[np.inf, 0, np.nan, 2]] * 2)
    assert not np.signbit(result[:, 1]).any()


@pytest.mark.parametrize(
    ("updates", "places", "slopes"),
    [
        ([0.0, 0.0], [[-1], [1]], [0, 0]),
        ([0.0, 3.0], [[1], [1]], [-60, 0]),
        ([2.0, 3.0], [[1], [1]], [-60, -40]),
        ([0.0, 3.0], [[0], [1]], [1.5, -20]),
    ],
)
def test_zeros_that_are_multiplied_at_one_place_have_the_slope_of_a_product(updates, places, slopes):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, u = graph.input("x", "float64", (2,)), graph.input("u", "float64", (2,))
    graph.output("y", ops.scatter_nd(x, np.array(places), u, reduction="mul"))
    derived = tx.grad(graph, of="y", wrt=["u"], seeds={"y": "g"})
    result = derived.run({"x": [1.5, -2.0], "u": updates, "g": [1.0, 10.0]}, backend="numpy")
    assert result["u/grad"].tolist() == slopes


def test_integers_of_gemm_wrap_and_are_exact():
    large = np.array([[2**60 + 1]], np.int64)
    one = np.ones_like(large)
    assert ops.gemm(large, one, alpha=2.0).tolist() == [[2**61 + 2]]
    assert ops.gemm(one, one, large, beta=2.0).tolist() == [[2**61 + 3]]
    assert ops.gemm(np.array([[2**30]], np.int32), np.ones((1, 1), np.int32), alpha=3.0).tolist() == [[-(2**30)]]


@pytest.mark.parametrize("value", [np.array([2.5], np.float32), np.array(2.5, np.float32), np.float32(2.5)])
def test_a_numpy_array_is_a_tensor_as_an_attribute(value):
    np.testing.assert_array_equal(ops.constant_of_shape(np.int64([2]), value=value), np.float32([2.5, 2.5]))


def test_a_list_is_not_accepted_as_a_tensor_attribute():
    with pytest.raises(tx.InvalidCall, match='attribute "value" is not a tensor'):
        ops.constant_of_shape(np.int64([2]), value=[2.5])
