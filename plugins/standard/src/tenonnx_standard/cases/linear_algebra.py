"""Cases of matrix products and determinants."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.math import FLOATS
from tenonnx_standard.linear_algebra import det, gemm, gemm_one_way, gemm_with_c, matmul
from tenonnx_testing import Gap, broadcastable, call, cases, tensors

WIDE = [*FLOATS, "int32", "int64", "uint32", "uint64"]


@cases(matmul)
def matmul_cases(draw):
    batch_a, batch_b = (x.shape for x in draw(broadcastable(2, max_rank=2, max_side=3)))
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    a = draw(tensors(WIDE, shape=draw(st.sampled_from([(*batch_a, m, k), (k,)]))))
    b = draw(tensors(a.dtype, shape=draw(st.sampled_from([(*batch_b, k, n), (k,)]))))
    return call(a, b)


def product(draw, dtypes, shapes_of_c):
    """A, B and C, and whether to transpose A and B."""
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    transposed = {"transA": draw(st.integers(0, 1)), "transB": draw(st.integers(0, 1))}
    a = draw(tensors(dtypes, shape=(k, m) if transposed["transA"] else (m, k)))
    b = draw(tensors(a.dtype, shape=(n, k) if transposed["transB"] else (k, n)))
    c = draw(tensors(a.dtype, shape=draw(st.sampled_from(shapes_of_c(m, n)))))
    if a.dtype.kind in "iu":
        factors = {"alpha": float(draw(st.integers(0, 2))), "beta": float(draw(st.integers(0, 2)))}
    else:
        factors = {"alpha": draw(st.sampled_from([1.0, 0.5, 0.0])), "beta": draw(st.sampled_from([1.0, -2.0, 0.25]))}
    return a, b, c, {**transposed, **factors}


def broadcast_to(m, n):
    return [(m, n), (n,), (1, n), (m, 1), (1,), (), (1, 1)]


@cases(gemm)
def gemm_cases(draw):
    a, b, c, attributes = product(draw, WIDE, broadcast_to)
    return call(a, b, draw(st.sampled_from([c, None])), **attributes)


@cases(gemm_with_c)
def gemm_with_c_cases(draw):
    a, b, c, attributes = product(draw, ["float32", "float64"], broadcast_to)
    return call(a, b, c, **attributes)


BETA = Gap(
    "reference",
    "onnx.reference ignores beta if C is not broadcast",
    when=lambda call: not call.attributes["broadcast"] and call.attributes["beta"] != 1,
)


@cases(gemm_one_way, gaps=[BETA])
def gemm_one_way_cases(draw):
    broadcast = draw(st.integers(0, 1))
    a, b, c, attributes = product(draw, ["float32", "float64"], broadcast_to if broadcast else lambda m, n: [(m, n)])
    return call(a, b, c, broadcast=broadcast, **attributes)


@cases(
    det,
    gaps=[
        Gap("special values", "elimination of an infinity divides it by itself, and the rule takes another order"),
        Gap("variations", "the body suits small matrices", when=lambda call: call.inputs[0].size > 999),
    ],
)
def det_cases(draw):
    size = draw(st.integers(1, 4))
    batch = draw(st.sampled_from([(), (2,), (1, 3)]))
    x = draw(tensors(["float32", "float64"], shape=(*batch, size, size), min_value=-1, max_value=1))
    return call(x + 2 * np.eye(size, dtype=x.dtype))
