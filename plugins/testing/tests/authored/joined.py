"""Two strings joined by a separator; if one is empty, the other one."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import constant, dtypes, op
from tenonnx.extend.symbolic import broadcast_shapes
from tenonnx_testing import broadcastable, call, cases


@op("Joined", domain="com.authored", broadcasts=True, elementwise=True, grows_text=True)
def joined(A, B, *, separator=" "):
    empty = constant(np.asarray("", object))
    between = ops.string_concat(ops.string_concat(A, constant(np.asarray(separator, object))), B)
    alone = ops.or_(ops.equal(A, empty), ops.equal(B, empty))
    return ops.where(alone, ops.string_concat(A, B), between)


joined.requires(dtypes(A="string", B="string"))


@joined.numpy
def joined_numpy(A, B, *, separator):
    return np.asarray(np.frompyfunc(lambda a, b: a + separator + b if a and b else a + b, 2, 1)(A, B), object)


@joined.type
def joined_type(A, B, *, separator):
    return A.tensor.with_shape(broadcast_shapes(A.shape, B.shape))


def reference(A, B, *, separator):
    a, b = np.broadcast_arrays(A, B)
    pairs = zip(a.reshape(-1), b.reshape(-1), strict=True)
    found = np.empty(a.size, object)
    found[:] = [separator.join(filter(None, pair)) for pair in pairs]
    return found.reshape(a.shape)


@cases(joined, gradient=False, reference=reference)
def joined_cases(draw):
    return call(*draw(broadcastable(2, "string")), separator=draw(st.sampled_from([" ", "", "--"])))
