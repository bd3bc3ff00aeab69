"""Moving average along the last axis."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import at_least, dtypes, holds, op, shapes
from tenonnx_testing import call, cases, tensors


@op("WindowMean", domain="com.authored")
def window_mean(X, *, size=2, stride=1):
    return ops.average_pool(X, kernel_shape=[size], strides=[stride])


@holds
def fits(X, size):
    length = X.shape[2] if X.shape is not None else None
    return "X is shorter than size" if isinstance(length, int) and length < size else None


window_mean.requires(
    dtypes(X="float32 float64"), shapes(X="batch channels length"), at_least(size=1, stride=1, length=1), fits
)


@window_mean.numpy
def window_mean_numpy(X, *, size, stride):
    windows = np.lib.stride_tricks.sliding_window_view(X, size, -1)[:, :, ::stride]
    return windows.sum(-1, initial=X.dtype.type(-0.0)) / X.dtype.type(size)


def reference(X, *, size, stride):
    starts = range(0, X.shape[2] - size + 1, stride)
    return np.stack([X[:, :, k : k + size].astype(np.float64).mean(2) for k in starts], 2).astype(X.dtype)


@cases(window_mean, reference=reference)
def window_mean_cases(draw):
    size, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 2)), size + draw(st.integers(0, 4))
    return call(draw(tensors(["float32", "float64"], shape=shape)), size=size, stride=stride)
