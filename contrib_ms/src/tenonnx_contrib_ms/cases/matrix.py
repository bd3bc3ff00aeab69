"""Cases of matrix products fused with transposition, scaling and activations."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.matrix import (
    fused_matmul,
    fused_matmul_activation,
    gemm_fast_gelu,
    sparse_to_dense_matmul,
    transpose_matmul,
)
from tenonnx_testing import Gap, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def matrices(draw):
    """Draw two matrices or batches of matrices, and attributes that transpose them."""
    batch, (m, k, n) = draw(shapes(0, 2, 1, 3)), draw(shapes(3, 3))
    dtype = draw(st.sampled_from(FLOATS))
    alpha = draw(st.sampled_from([1.0, 0.5, -2.0]))
    turned = {"transA": draw(st.integers(0, 1)), "transB": draw(st.integers(0, 1)), "alpha": alpha}
    sides = [(k, m) if turned["transA"] else (m, k), (n, k) if turned["transB"] else (k, n)]
    return batch, dtype, sides, turned


@cases(fused_matmul)
def fused_matmul_cases(draw):
    batch, dtype, sides, turned = matrices(draw)
    stacked = []
    for name, (rows, columns) in zip("AB", sides, strict=True):
        moved = bool(batch) and draw(st.booleans())
        turned[f"transBatch{name}"] = int(moved)
        stacked.append((rows, *batch, columns) if moved else (*batch, rows, columns))
    return call(*(draw(tensors(dtype, shape=shape, min_value=-2, max_value=2)) for shape in stacked), **turned)


@cases(fused_matmul)
def fused_matmul_cases_2(draw):
    """Vectors, which are not transposed, and batches of different ranks."""
    (k, n), batch = draw(shapes(2, 2)), draw(shapes(0, 2, 1, 3))
    a = draw(tensors(FLOATS, shape=draw(st.sampled_from([(k,), (*batch, 2, k)])), min_value=-2, max_value=2))
    b = draw(tensors(a.dtype.name, shape=draw(st.sampled_from([(k,), (k, n)])), min_value=-2, max_value=2))
    return call(a, b, alpha=0.5)


@cases(transpose_matmul)
def transpose_matmul_cases(draw):
    batch, dtype, sides, turned = matrices(draw)
    return call(*(draw(tensors(dtype, shape=(*batch, *shape), min_value=-2, max_value=2)) for shape in sides), **turned)


@cases(fused_matmul_activation)
def fused_matmul_activation_cases(draw):
    batch, dtype, sides, turned = matrices(draw)
    activation = draw(st.sampled_from([{"activation": "Tanh"}, {"activation": "Elu", "activation_alpha": 0.5}]))
    if draw(st.booleans()):
        activation = {"activation": "Softmax", "activation_axis": draw(st.sampled_from([-1, -2]))}
    if draw(st.booleans()):
        activation = {"activation": "ScaledTanh", "activation_alpha": 0.5, "activation_beta": 2.0}
    a, b = (draw(tensors(dtype, shape=(*batch, *shape), min_value=-2, max_value=2)) for shape in sides)
    return call(a, b, **turned, **activation)


@cases(gemm_fast_gelu)
def gemm_fast_gelu_cases(draw):
    (m, k, n), batch = draw(shapes(3, 3)), draw(shapes(0, 1))
    x = draw(tensors(FLOATS[:1], shape=(*batch, m, k), min_value=-1, max_value=1))
    w = draw(tensors(x.dtype, shape=(k, n), min_value=-1, max_value=1))
    return call(x, w, draw(st.none() | tensors(x.dtype, shape=(n,))))


@cases(
    sparse_to_dense_matmul,
    gaps=[Gap("versions", "the schema accepts only a sparse tensor, and the body only a dense one")],
)
def sparse_to_dense_matmul_cases(draw):
    _, dtype, sides, turned = matrices(draw)
    a, b = (draw(tensors(dtype, shape=shape, min_value=-2, max_value=2)) for shape in sides)
    return call(np.where(a > 0, a, 0).astype(a.dtype), b, **turned)
