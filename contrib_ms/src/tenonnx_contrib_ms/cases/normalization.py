"""Cases of normalization with a residual connection."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.normalization import skip_layer_normalization, skip_simplified_layer_normalization
from tenonnx_testing import call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def residual(draw):
    """Two tensors whose sum varies along the last axis, and parameters of its length."""
    shape = draw(shapes(2, 3, 2, 4))
    x = draw(tensors(FLOATS, shape=shape, min_value=-1, max_value=1))
    x = x + (4 * np.arange(shape[-1])).astype(x.dtype)
    skip = draw(
        tensors(
            x.dtype.name, shape=draw(st.sampled_from([shape, shape[1:], (1, *shape[1:])])), min_value=-1, max_value=1
        )
    )
    gamma, beta, bias = (draw(tensors(x.dtype.name, shape=shape[-1:], min_value=-1, max_value=1)) for _ in range(3))
    return x, skip, gamma, beta, bias if draw(st.booleans()) else None, draw(st.sampled_from([1e-5, 1e-2]))


@cases(skip_layer_normalization)
def _(draw):
    x, skip, gamma, beta, bias, epsilon = residual(draw)
    return call(x, skip, gamma, beta if draw(st.booleans()) else None, bias, epsilon=epsilon)


@cases(skip_simplified_layer_normalization)
def _(draw):
    x, skip, gamma, _, bias, epsilon = residual(draw)
    return call(x, skip, gamma, bias, epsilon=epsilon)
