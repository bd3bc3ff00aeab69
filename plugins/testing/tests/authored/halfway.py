"""The floor of the mean of two integers, without overflow."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import dtypes, op, same_dtype
from tenonnx.extend.symbolic import broadcast_shapes
from tenonnx_testing import broadcastable, call, cases


@op("Halfway", domain="com.authored", broadcasts=True, elementwise=True)
def halfway(A, B):
    odd = ops.bitwise_xor(A, B)
    # floor division: clear the last bit first
    return ops.bitwise_and(A, B) + (odd - ops.bitwise_and(odd, 1)) / 2


halfway.requires(dtypes(A="int8 uint8 int16 int32 uint32 int64 uint64"), same_dtype("A", "B"))


@halfway.numpy
def halfway_numpy(A, B):
    return (A & B) + ((A ^ B) >> 1)


@halfway.type
def halfway_type(A, B):
    return A.tensor.with_shape(broadcast_shapes(A.shape, B.shape))


def reference(A, B):
    return np.asarray((A.astype(object) + B.astype(object)) // 2, A.dtype)


@cases(halfway, gradient=False, reference=reference)
def halfway_cases(draw):
    return call(*draw(broadcastable(2, ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])))
