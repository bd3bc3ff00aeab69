"""Retargeting to older opsets that express ops differently."""

import itertools
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from tenonnx.errors import NotRepresentable
from tenonnx.extend import DType, TensorType, moves_data, subgraph
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.graph import Graph
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.transforms.retarget import retarget
from tenonnx_standard.average_pooling import average_pool
from tenonnx_standard.casting import bitcast
from tenonnx_standard.control_flow import scan
from tenonnx_standard.deformable import col2im
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import equal, greater, less
from tenonnx_standard.math import maximum, minimum, mod, pow_
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.recurrent import rnn
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_prod, reduce_sum
from tenonnx_standard.scattering import scatter_elements
from tenonnx_standard.shapes import reshape, squeeze, unsqueeze
from tenonnx_standard.signal import dft
from tenonnx_standard.slicing import slice_

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
AXES = np.array([-1, 0])
LARGEST = 2**63 - 1
WINDOWS = {"ceil_mode": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [3, 3]}

CASES = {
    "negative axis": (9, lambda x: concat(x, x, axis=-2), [X]),
    "negative axes": (9, lambda x: reduce_mean(x, [-1, -3]), [X]),
    "computed axes": (17, lambda x, axes: reduce_max(x, axes), [X, AXES]),
    "computed axes that vanish": (11, lambda x, axes: reduce_mean(x, axes, keepdims=0), [X, AXES]),
    "all axes, computed": (11, lambda x, axes: reduce_max(x, axes), [X[0], AXES]),
    "a window that starts in the padding": (17, lambda x: max_pool(x, **WINDOWS), [X.reshape(6, 1, 2, 2)]),
    "a mean that starts in the padding": (17, lambda x: average_pool(x, **WINDOWS), [X.reshape(6, 1, 2, 2)]),
    "wide integers": (11, lambda a, b: maximum(a, b), [np.array([2**62, -5]), np.array([2**62 + 1, -7])]),
    "an integer exponent": (11, lambda x, y: pow_(x, y), [X[0, 0], np.array([0, 1, 2, 3])]),
    "integers to a power": (
        11,
        lambda x, y: pow_(x, y),
        [np.array([3, -2, 7, -1, 0, 1, 0, -1, 2]), np.array([4, 3, 0, 101, 64, 64, 0, -3, -1])],
    ),
    "computed axes of an empty tensor": (17, lambda x, axes: reduce_max(x, axes), [X[:, :0], np.array([1])]),
    "new axes, computed": (11, lambda x, axes: unsqueeze(x, axes), [X, np.array([-1, 1])]),
    "axes to drop, computed": (11, lambda x, axes: squeeze(x, axes), [X[:, None, :, :1], np.array([-1, 1])]),
    "a transform along a computed axis": (11, lambda x, axis: dft(x, None, axis), [X[..., None], np.array(-2)]),
    "sums of blocks, their size computed": (
        13,
        lambda x, block: col2im(x, [3, 3], block, strides=[1, 1]),
        [X.reshape(1, 4, 6)[..., :4], np.array([2, 2])],
    ),
    "a shape with a dim of 0": (13, lambda x: reshape(x, [3, 4, 0], allowzero=1), [X[:, :0]]),
    "a shape of something empty": (13, lambda x, y: reshape(x, y, allowzero=1), [X[:, :0], np.array([3, 4, 0])]),
    "bounds, computed": (
        9,
        lambda x, a, b: slice_(x, a, b, [2, 1], [1, 2]),
        [X, np.array([-3, 0]), np.array([99, -1])],
    ),
    "bounds backwards, computed": (9, lambda x, a, b: slice_(x, a, b, [2], [-2]), [X, np.array([-1]), np.array([-9])]),
    "a remainder of integers": (9, lambda x, y: mod(x, y), [np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, -3])]),
    "a remainder with the sign of the first": (
        9,
        lambda x, y: mod(x, y, fmod=1),
        [np.array([7, -7]), np.array([-3, 3])],
    ),
    "bits of integers": (21, lambda x: bitcast(x, to=2), [np.array([-1, 5, -128], np.int8)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_older_form_is_valid_and_equivalent(name):
    opset, function, arrays = CASES[name]
    graph = Graph(opsets={"ai.onnx": 26})
    inputs = [graph.input(f"x{k}", str(a.dtype), a.shape) for k, a in enumerate(arrays)]
    graph.output("y", function(*inputs))
    moved = retarget(graph, opset)
    onnx.checker.check_model(to_model(moved), full_check=True)
    axes = [a for n in moved.nodes for k, a in n.attributes.items() if k in ("axis", "axes")]
    assert opset > 9 or all(np.min(a) >= 0 for a in axes)
    np.testing.assert_allclose(evaluate_graph(moved, arrays)[0], np.asarray(function(*arrays)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [0, 2])
def test_a_mean_over_computed_axes_may_be_of_nothing(length):
    graph = Graph(opsets={"ai.onnx": 22})
    graph.output("y", reduce_mean(graph.input("x", "float32", ("n", 3)), graph.input("axes", "int64", (1,))))
    feeds = {"x": np.ones((length, 3), np.float32), "axes": np.int64([0])}
    result = retarget(graph, 11).run(feeds, backend="numpy")["y"]
    np.testing.assert_array_equal(result, np.full((1, 3), 1 if length else np.nan, np.float32))


def session(graph):
    return onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("step", [1, 2, LARGEST, -1, -2, -LARGEST])
def test_every_slice_with_computed_bounds_is_that_of_the_specification(step):
    graph = Graph(opsets={"ai.onnx": 21})
    start, end = graph.input("s", "int64", (1,)), graph.input("e", "int64", (1,))
    graph.output("y", slice_(graph.input("x", "float32", (2, "n")), start, end, [1], [step]))
    source, moved = session(graph), session(retarget(graph, 9))
    starts = [-LARGEST - 1, -LARGEST, -9, -3, -2, -1, 0, 1, 2, 3, 9, LARGEST]
    ends = starts if step > 0 else starts[:-1]  # onnxruntime takes the largest for the end, also backwards
    for size, s, e in itertools.product((0, 1, 3), starts, ends):
        feeds = {"s": np.array([s]), "e": np.array([e]), "x": np.ones((2, size), np.float32).cumsum(1)}
        expected = source.run(None, feeds)[0]
        np.testing.assert_array_equal(evaluate_graph(graph, list(feeds.values()))[0], expected, f"{size}: {s}, {e}")
        np.testing.assert_array_equal(moved.run(None, feeds)[0], expected, f"{size}: {s}, {e}")


WIDTHS = {"int32": 2**31, "int64": 2**63, "uint32": 2**32, "uint64": 2**64}


def edges(dtype):
    """The numbers where integer arithmetic of a type overflows, and some in between."""
    end = WIDTHS[dtype]
    numbers = {
        0,
        1,
        2,
        3,
        5,
        2**15,
        2**16 - 1,
        46341,
        end // 2,
        end // 2 - 1,
        2**31 % end,
        2**32 % end,
        end - 2,
        end - 1,
    }
    signed = dtype.startswith("i")
    return sorted({*numbers, *(-n for n in numbers), -end} if signed else numbers)


def on_edges(function, dtype, other, opset):
    """Every pair of edge values, the result of ``function`` lowered to the opset, and the expected one."""
    pairs = list(itertools.product(edges(dtype), edges(other)))
    arrays = [np.array([a for a, _ in pairs], dtype), np.array([b for _, b in pairs], other)]
    graph = Graph(opsets={"ai.onnx": 26})
    graph.output("y", function(*(graph.input(f"x{k}", str(a.dtype), a.shape) for k, a in enumerate(arrays))))
    return pairs, evaluate_graph(retarget(graph, opset), arrays)[0].tolist(), function(*arrays).tolist()


@pytest.mark.parametrize("other", WIDTHS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_integers_to_a_power_at_the_edges_of_their_type(dtype, other):
    smallest, end = (-WIDTHS[dtype] if dtype[0] == "i" else 0), WIDTHS[dtype]
    for (x, y), moved, result in zip(*on_edges(pow_, dtype, other, 11), strict=True):
        if y < 0:
            expected = 0 if abs(x) > 1 else x if y % 2 else x * x
        elif abs(x) < 2:
            expected = x ** (y % 2 + 2) if y else 1
        elif y > 64 or not smallest <= x**y < end:
            continue  # not representable in the type
        else:
            expected = x**y
        assert (x, y, moved) == (x, y, expected)
        assert (x, y, result) == (x, y, expected)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("function", [less, greater, equal, maximum, minimum, mod, lambda a, b: mod(a, b, fmod=1)])
def test_integers_are_compared_and_divided_exactly_at_the_edges_of_their_type(dtype, function):
    pairs, moved, result = on_edges(function, dtype, dtype, 8)
    assert [(*p, v) for p, v in zip(pairs, moved, strict=True) if p[1]] == [
        (*p, v) for p, v in zip(pairs, result, strict=True) if p[1]
    ]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shape", [(1, 0, 4), (1, 2, 0), (1, 0, 0), (1, 2, 4)])
@pytest.mark.parametrize(
    ("function", "axes"),
    [
        (squeeze, [0]),
        (unsqueeze, [1, 3]),
        (lambda x, axes: reduce_sum(x, axes, keepdims=0), [0, 2]),
        (lambda x, axes: reduce_sum(x, axes, keepdims=0), [1]),
        (lambda x, axes: reduce_prod(x, axes), [1]),
        (lambda x, axis: dft(unsqueeze(x, [-1]), None, axis), 0),
    ],
)
def test_computed_axes_of_what_may_be_empty(function, axes, shape, known):
    x, axes = np.ones(shape, np.float32).cumsum(1), np.array(axes)
    graph = Graph(opsets={"ai.onnx": 21})
    dims = shape if known else ("a", "b", "c")
    graph.output("y", function(graph.input("x", "float32", dims), graph.input("axes", "int64", axes.shape)))
    moved, expected = retarget(graph, 11), function(x, axes)
    for result in (session(moved).run(None, {"x": x, "axes": axes})[0], evaluate_graph(moved, [x, axes])[0]):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def check_without_loops(graph, arrays, **where):
    moved = retarget(graph, **where)
    assert not {n.op_type for n in moved.walk()} & {"Scan", "Loop", "RNN", "LSTM", "GRU"}
    for result, expected in zip(evaluate_graph(moved, arrays), evaluate_graph(graph, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("where", "layout"), [({"target": "rknn-2"}, 0), ({"opset_version": 8}, 1)])
@pytest.mark.parametrize("length", [3, 6])
def test_a_recurrent_layer_is_unrolled_without_loops(length, where, layout):
    random = np.random.default_rng(0)
    graph = Graph(opsets={"ai.onnx": 14})
    x = random.normal(size=(2, length, 3) if layout else (length, 2, 3)).astype(np.float32)
    w, r = (graph.variable(n, random.normal(size=(2, 4, k)).astype(np.float32)) for n, k in (("w", 3), ("r", 4)))
    lengths = graph.variable("lengths", np.array([length, 2], np.int32))
    inputs = graph.input("x", "float32", x.shape), w, r, None, lengths
    for k, y in enumerate(rnn(*inputs, hidden_size=4, direction="bidirectional", layout=layout)):
        graph.output(f"y{k}", y)
    check_without_loops(graph, [x], **where)


def test_a_scan_is_written_out_below_the_version_that_has_it():
    graph = Graph(opsets={"ai.onnx": 21})
    x, scale = graph.input("x", "float32", (2, 3, 4)), graph.input("scale", "float32", (2, 4))
    kinds = [("total", TensorType(DType.float32, (2, 4))), ("part", TensorType(DType.float32, (2, 4)))]
    with interpreting(Builder(graph)):
        body = subgraph(lambda total, part: (total + part * scale, total), kinds)
        axes = {"scan_input_axes": [1], "scan_output_axes": [-1]}
        ways = {"scan_input_directions": [1], "scan_output_directions": [1]}
        total, totals = scan(scale * 0.0, x, body=body, num_scan_inputs=1, **axes, **ways)
    graph.output("y", total)
    graph.output("ys", totals)
    check_without_loops(graph, [X, X[:, 0]], opset_version=7)


def test_lowerings_are_found_for_a_graph_that_is_built_by_hand():
    program = """
from tenonnx.graph.graph import Graph
from tenonnx.transforms.retarget import retarget
from tenonnx_standard.reduction import reduce_sum

graph = Graph(opsets={"ai.onnx": 21})
graph.output("y", reduce_sum(graph.input("x", "float32", (2, 3)), graph.input("axes", "int64", (1,))))
retarget(graph, 11)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_negative_axis_needs_the_rank():
    graph = Graph(opsets={"ai.onnx": 22})
    x = graph.input("x", "float32")
    graph.output("y", concat(x, x, axis=-1))
    with pytest.raises(NotRepresentable) as caught:
        retarget(graph, 9)
    assert "cannot be negative at version 9" in str(caught.value)


# ----- a wider element type -------------------------------------------------------------------------------------------


def test_a_sum_is_not_that_of_a_wider_element_type():
    """Quantized uint8 values may be moved, selected and compared as floats, but their sums wrap around."""
    assert moves_data(concat, {})
    assert all(moves_data(meaning, {}) for meaning in concat.meanings)
    assert moves_data(scatter_elements, {"reduction": "max"})
    assert not moves_data(scatter_elements, {"reduction": "add"})
    assert not moves_data(reduce_sum, {})
