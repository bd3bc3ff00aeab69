"""What retargeting makes of ops that older versions cannot say in the same way."""

import numpy as np
import onnx
import pytest

from tenonnx.errors import NotRepresentable
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.graph import Graph
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.transforms.retarget import retarget
from tenonnx_standard.casting import bitcast
from tenonnx_standard.deformable import col2im
from tenonnx_standard.joining import concat
from tenonnx_standard.math import maximum, mod, pow_
from tenonnx_standard.pooling import average_pool, max_pool
from tenonnx_standard.reduction import reduce_max, reduce_mean
from tenonnx_standard.shape import reshape, squeeze, unsqueeze
from tenonnx_standard.signal import dft
from tenonnx_standard.slicing import slice_

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
AXES = np.array([-1, 0])
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
def test_the_older_form_is_legal_and_says_the_same(name):
    opset, function, arrays = CASES[name]
    graph = Graph(opsets={"ai.onnx": 26})
    inputs = [graph.input(f"x{k}", str(a.dtype), a.shape) for k, a in enumerate(arrays)]
    graph.output("y", function(*inputs))
    moved = retarget(graph, opset)
    onnx.checker.check_model(to_model(moved), full_check=True)
    axes = [a for n in moved.nodes for k, a in n.attributes.items() if k in ("axis", "axes")]
    assert opset > 9 or all(np.min(a) >= 0 for a in axes)
    np.testing.assert_allclose(evaluate_graph(moved, arrays)[0], np.asarray(function(*arrays)), rtol=1e-6, atol=1e-6)


def test_computed_axes_of_a_mean_of_what_may_be_empty_are_refused():
    graph = Graph(opsets={"ai.onnx": 22})
    graph.output("y", reduce_mean(graph.input("x", "float32", ("n", 3)), graph.input("axes", "int64", (1,))))
    with pytest.raises(NotRepresentable, match="no form in the target"):
        retarget(graph, 11)


def test_a_negative_axis_needs_the_rank():
    graph = Graph(opsets={"ai.onnx": 22})
    x = graph.input("x", "float32")
    graph.output("y", concat(x, x, axis=-1))
    with pytest.raises(NotRepresentable) as caught:
        retarget(graph, 9)
    assert "cannot be negative at version 9" in str(caught.value)
