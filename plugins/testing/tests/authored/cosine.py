"""Cosine similarity between the rows of two matrices."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import dtypes, holds, op, same_dtype, shapes
from tenonnx_testing import call, cases, tensors


@op("Cosine", domain="com.authored")
def cosine(A, B, *, epsilon=1e-6):
    dot = ops.reduce_sum(A * B, [-1], keepdims=0)
    norms = ops.sqrt(ops.reduce_sum(A * A, [-1], keepdims=0)) * ops.sqrt(ops.reduce_sum(B * B, [-1], keepdims=0))
    return dot / ops.maximum(norms, epsilon)


@holds
def positive(epsilon):
    return None if epsilon > 0 else "epsilon is not positive"


cosine.requires(dtypes(A="float32 float64"), same_dtype("A", "B"), shapes(A="rows width", B="rows width"), positive)


@cosine.numpy
def cosine_numpy(A, B, *, epsilon):
    dot = (A * B).sum(-1)
    norms = np.sqrt((A * A).sum(-1)) * np.sqrt((B * B).sum(-1))
    return dot / np.maximum(norms, A.dtype.type(epsilon))


@cosine.type
def cosine_type(A, B, *, epsilon):
    known = A.shape or B.shape
    return A.tensor.with_shape(known[:1] if known else (None,))


@cosine.vjp
def cosine_vjp(g, y, A, B, *, epsilon):
    a = ops.sqrt(ops.reduce_sum(A * A, [-1], keepdims=1))
    b = ops.sqrt(ops.reduce_sum(B * B, [-1], keepdims=1))
    wide, cos = ops.unsqueeze(g, [-1]), ops.unsqueeze(y, [-1])
    near = a * b < epsilon
    by = ops.maximum(a * b, epsilon)
    of_a = ops.where(near, 0.0, cos / ops.maximum(a * a, 1e-30))
    of_b = ops.where(near, 0.0, cos / ops.maximum(b * b, 1e-30))
    return wide * (B / by - A * of_a), wide * (A / by - B * of_b)


def reference(A, B, *, epsilon):
    a, b = A.astype(np.float64), B.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (np.einsum("ij,ij->i", a, b) / np.maximum(norms, epsilon)).astype(A.dtype)


@cases(cosine, reference=reference)
def cosine_cases(draw):
    a = draw(tensors(["float32", "float64"], min_rank=2, max_rank=2, exclude_near=(0.0,)))
    b = draw(tensors(a.dtype, shape=a.shape, exclude_near=(0.0,)))
    return call(a, b, epsilon=draw(st.sampled_from([1e-6, 1e-3])))
