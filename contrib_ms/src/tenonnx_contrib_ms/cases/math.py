"""Cases of distances, inverses, complex numbers and Fourier transforms."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.math import cdist, complex_mul, complex_mul_conj, inverse, irfft, is_all_finite, rfft
from tenonnx_testing import broadcastable, call, cases, shapes, tensors

FLOATS = ["float32", "float64"]


@cases(cdist)
def cdist_cases(draw):
    m, n, k = draw(shapes(3, 3, 1, 4))
    a = draw(tensors(FLOATS, shape=(m, n), distinct=True))
    b = draw(tensors(a.dtype.name, shape=(k, n), distinct=True)) + a.dtype.type(9)
    return call(a, b, metric=draw(st.sampled_from(["sqeuclidean", "euclidean"])))


@cases(inverse)
def inverse_cases(draw):
    size, batch = draw(st.integers(1, 5)), draw(shapes(0, 2, 1, 2))
    x = draw(tensors([*FLOATS, "float16"], shape=(*batch, size, size), min_value=-0.5, max_value=0.5))
    order = np.random.default_rng(size).permutation(size)
    return call(x + (2 * np.eye(size)[order]).astype(x.dtype))


def complex_numbers(draw):
    a, b = draw(broadcastable(2, [*FLOATS, "float16"], max_rank=2))
    return [np.stack([x, x[..., ::-1] - 1 if x.ndim else x], axis=-1) for x in (a, b)]


@cases(complex_mul)
def complex_mul_cases(draw):
    return call(*complex_numbers(draw))


@cases(complex_mul_conj)
def complex_mul_conj_cases(draw):
    return call(*complex_numbers(draw))


@cases(rfft)
def rfft_cases(draw):
    x = draw(tensors(FLOATS, min_rank=1, max_rank=3, min_side=2))
    return call(x, signal_ndim=draw(st.integers(1, x.ndim)))


@cases(irfft)
def irfft_cases(draw):
    x = draw(tensors(shape=(*draw(shapes(1, 3, 2, 4)), 2)))
    return call(x, signal_ndim=draw(st.integers(1, x.ndim - 1)))


@cases(is_all_finite, gradient=False)
def is_all_finite_cases(draw):
    dtype = draw(st.sampled_from([*FLOATS, "float16", "bfloat16"]))
    found = [draw(tensors(dtype)) for _ in range(draw(st.integers(1, 3)))]
    found[-1] = np.where(found[-1] > 3, draw(st.sampled_from([np.nan, np.inf, -np.inf])), found[-1]).astype(dtype)
    return call(*found, **draw(st.sampled_from([{}, {"isinf_only": 1}, {"isnan_only": 1}])))
