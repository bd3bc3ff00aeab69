"""The largest element of each window along the last axis, padded, and its position in the whole input."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import DType, at_least, floats, holds, op, shapes
from tenonnx_testing import call, cases, tensors


@op("Peaks", domain="com.authored")
def peaks(X, *, size=2, stride=1, pad=0):
    return ops.max_pool(X, kernel_shape=[size], strides=[stride], pads=[pad, pad], _outputs=2)


@holds
def long_enough(X, size, pad):
    length = X.shape[2] if X.shape is not None else None
    short = isinstance(length, int) and (length == 0 or length + 2 * pad < size)
    return "X is empty or shorter than size along its last axis" if short else None


@holds
def narrow(size, pad):
    return "pad is as large as size" if pad >= size else None


peaks.requires(shapes(X="batch channels length"), floats("X"), at_least(size=1, stride=1, pad=0), narrow, long_enough)


@peaks.numpy
def peaks_numpy(X, *, size, stride, pad):
    wide = np.pad(X, [(0, 0), (0, 0), (pad, pad)], constant_values=X.dtype.type(-np.inf))
    windows = np.lib.stride_tricks.sliding_window_view(wide, size, axis=2)[:, :, ::stride]
    within = np.arange(wide.shape[2]) - pad
    real = np.lib.stride_tricks.sliding_window_view((within >= 0) & (within < X.shape[2]), size)[::stride]
    greatest = windows.max(3, keepdims=True)
    inside = (real & ((windows == greatest) | (np.isnan(windows) & np.isnan(greatest)))).argmax(3)
    starts = np.arange(windows.shape[2]) * stride - pad
    rows = np.arange(X.shape[0] * X.shape[1]).reshape(*X.shape[:2], 1) * X.shape[2]
    return windows.max(3), rows + starts + inside


@peaks.type
def peaks_type(X, *, size, stride, pad):
    if X.shape is None:
        return X.tensor, X.tensor.with_dtype(DType.int64)
    length = X.shape[2]
    sides = (*X.shape[:2], None if length is None else (length + 2 * pad - size) // stride + 1)
    return X.tensor.with_shape(sides), X.tensor.with_dtype(DType.int64).with_shape(sides)


@peaks.vjp
def peaks_vjp(g, y, X, *, size, stride, pad):
    zeros = ops.expand(ops.cast(0.0, to=X.dtype), [ops.size(X)])
    places, cotangents = ops.reshape(y[1], [-1]), ops.reshape(g[0], [-1])
    flat = ops.scatter_elements(zeros, places, cotangents, reduction="add")
    return ops.reshape(flat, ops.shape(X))


def reference(X, *, size, stride, pad):
    count = (X.shape[2] + 2 * pad - size) // stride + 1
    values, places = np.empty((*X.shape[:2], count), X.dtype), np.empty((*X.shape[:2], count), np.int64)
    for n, c, k in np.ndindex(values.shape):
        begin = k * stride - pad
        window = range(max(begin, 0), min(begin + size, X.shape[2]))
        best = max(window, key=lambda place: X[n, c, place])
        values[n, c, k], places[n, c, k] = X[n, c, best], (n * X.shape[1] + c) * X.shape[2] + best
    return values, places


@cases(peaks, reference=reference)
def peaks_cases(draw):
    size = draw(st.integers(1, 3))
    pad = draw(st.integers(0, size - 1))
    x = draw(tensors(["float32", "float64"], min_rank=3, max_rank=3, max_side=5, distinct=True))
    x = np.concatenate([x, x + x.dtype.type(20)], 2) if x.shape[2] < size else x
    x = np.concatenate([x, x + x.dtype.type(40)], 2) if x.shape[2] < size else x
    return call(x, size=size, stride=draw(st.integers(1, 2)), pad=pad)
