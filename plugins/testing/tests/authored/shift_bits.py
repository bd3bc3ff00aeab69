"""Bit shifts to the left or right; shifting by the width or more gives 0."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import dtypes, one_of, op, same_dtype
from tenonnx.extend.symbolic import broadcast_shapes
from tenonnx_testing import broadcastable, call, cases


@op("ShiftBits", domain="com.authored", broadcasts=True, elementwise=True)
def shift_bits(X, count, *, direction="left"):
    width = X.dtype.bits
    shifted = ops.bitshift(X, ops.minimum(count, width - 1), direction=direction.upper())
    return ops.where(count >= width, 0, shifted)


shift_bits.requires(
    dtypes(X="uint8 uint16 uint32 uint64"), same_dtype("X", "count"), one_of(direction=("left", "right"))
)


@shift_bits.numpy
def shift_bits_numpy(X, count, *, direction):
    width = X.dtype.type(8 * X.dtype.itemsize)
    kept = np.minimum(count, width - X.dtype.type(1))
    shifted = X << kept if direction == "left" else X >> kept
    return np.where(count >= width, X.dtype.type(0), shifted)


@shift_bits.type
def shift_bits_type(X, count, *, direction):
    return X.tensor.with_shape(broadcast_shapes(X.shape, count.shape))


def reference(X, count, *, direction):
    size = 2 ** (8 * X.dtype.itemsize)

    def one(x, n):
        n = min(int(n), 100)
        return (int(x) << n if direction == "left" else int(x) >> n) % size

    return np.frompyfunc(one, 2, 1)(X, count).astype(X.dtype) if X.ndim or count.ndim else X.dtype.type(one(X, count))


@cases(shift_bits, gradient=False, reference=lambda X, count, **given: np.asarray(reference(X, count, **given)))
def shift_bits_cases(draw):
    kinds = ["uint8", "uint16", "uint32", "uint64"]
    x, count = draw(broadcastable(2, kinds, min_value=0, max_value=9))
    return call(x, count, direction=draw(st.sampled_from(["left", "right"])))
