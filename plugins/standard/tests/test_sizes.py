"""Kernels whose algorithm depends on sizes, at sizes that no case covers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import Operand


def convolved(x, w, pads, stride, group):
    """Convolution by definition: for each kernel offset, a product with the elements read there."""
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(pads, pads)] * rank])
    outputs = [(n + 2 * pads - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((len(x), group, len(w) // group, *outputs))
    kernels = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    for place in itertools.product(*map(range, w.shape[2:])):
        read = (..., *(slice(p, p + (n - 1) * stride + 1, stride) for p, n in zip(place, outputs, strict=True)))
        images = padded[read].reshape(len(x), group, -1, *outputs)
        y += np.einsum("ngc...,grc->ngr...", images, kernels[(..., *place)])
    return y.reshape(len(x), len(w), *outputs)


@pytest.mark.parametrize(
    ("images", "kernels", "stride", "group"),
    [
        ((1, 4, 20, 20), (8, 4, 3, 3), 1, 1),
        ((2, 6, 21, 19), (8, 3, 3, 5), 2, 2),
        ((70, 8, 16, 40), (4, 8, 3, 3), 1, 1),
        ((2, 3, 5, 8, 20), (4, 3, 3, 3, 3), 1, 1),
        ((1, 64, 6, 6), (64, 64, 3, 3), 1, 1),
        ((3, 64, 6, 6), (64, 64, 3, 3), 1, 1),
        ((2, 1, 9, 9), (6, 1, 3, 3), 1, 1),
        ((2, 6, 9, 9), (12, 1, 3, 3), 1, 6),
        ((2, 8, 30), (4, 8, 3), 1, 1),
        ((1, 16, 34, 34), (64, 16, 1, 1), 1, 1),
        ((2, 64, 40, 40), (64, 32, 1, 1), 1, 2),
        ((1, 40, 61), (700, 40, 1), 1, 1),
    ],
)
def test_convolutions_of_all_sizes_are_their_definition(images, kernels, stride, group):
    random = np.random.default_rng(0)
    x, w = random.standard_normal(images, np.float32), random.standard_normal(kernels, np.float32)
    width = min(kernels[-1] // 2, 1)
    attributes = {"pads": [width] * 2 * (len(images) - 2), "strides": [stride] * (len(images) - 2), "group": group}
    expected = convolved(x, w, width, stride, group)
    np.testing.assert_allclose(ops.conv(x, w, **attributes), expected, rtol=1e-4, atol=1e-3)
    operands = Operand(x.shape, x.dtype), Operand(w.shape, w.dtype, w), None
    defaults = {"auto_pad": "NOTSET", "dilations": None, "kernel_shape": None}
    kernel = ops.conv.rules["specialize"](*operands, **defaults, **attributes)
    np.testing.assert_allclose(kernel(x, w), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("distinct", [5, 100_000])
def test_top_k_of_long_rows_equals_sorting(largest, dtype, distinct):
    keys = np.random.default_rng(0).integers(distinct, size=(6, 500)).astype(dtype)
    opposite = keys.astype(np.int64) * (-1 if largest else 1)
    places = np.argsort(opposite, axis=1, kind="stable")[:, :7]
    best, result = ops.top_k(keys, [7], largest=largest)
    np.testing.assert_array_equal(result, places)
    np.testing.assert_array_equal(best, np.take_along_axis(keys, places, axis=1))


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_long_rows_with_nan(largest):
    keys = np.random.default_rng(0).standard_normal((4, 500), np.float32)
    keys[1, 3:] = keys[2, 5] = np.nan
    missing = np.isnan(keys)  # NaN is the maximum
    order = np.lexsort((-keys if largest else keys, missing ^ bool(largest)), axis=1)[:, :7]
    np.testing.assert_array_equal(ops.top_k(keys, [7], largest=largest)[1], order)


@pytest.mark.parametrize("shape", [(3, 40, 5), (2, 3, 17, 4), (2, 5000, 2), (3, 4, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
def test_sums_over_an_axis_amid_others(shape, dtype):
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    axis = len(shape) - 2
    np.testing.assert_array_equal(ops.reduce_sum(x, [axis]), x.astype("float64").sum(axis, keepdims=True))
    np.testing.assert_array_equal(
        ops.reduce_sum(np.flip(x, 0), [axis], keepdims=0), x[::-1].astype("float64").sum(axis)
    )


@pytest.mark.parametrize(
    ("length", "pads", "wanted"),
    [
        (3, [2, -4], [9]),
        (3, [-4, 2], [9]),
        (1, [2, -2], [9]),
        (0, [1, -1], []),
        (2, [-3, 1], []),
        (3, [1, -2], [9, 1]),
    ],
)
def test_padding_may_be_cut_off_again(length, pads, wanted):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.pad(graph.input("x", "float32", ("n",)), pads, np.float32(9)))
    x = np.arange(1, length + 1, dtype=np.float32)
    assert graph.run({"x": x}, backend="numpy")["y"].tolist() == wanted
    assert graph.run({"x": x}, backend="onnxruntime")["y"].tolist() == wanted
    below = tx.retarget(graph, opset_version=1)
    assert below.run({"x": x}, backend="numpy")["y"].tolist() == wanted
