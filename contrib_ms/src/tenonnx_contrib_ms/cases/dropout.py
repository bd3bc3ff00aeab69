"""Cases of fused dropout."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.dropout import bias_dropout, bitmask_bias_dropout, bitmask_dropout
from tenonnx_standard.cases.regularization import kept_or_dropped
from tenonnx_testing import call, cases, tensors

FLOATS = ["float32", "float64", "float16"]


def options(draw):
    """Draw ratio and mode of a dropout without effect."""
    ratio = draw(st.sampled_from([None, np.asarray(0.25, np.float32)]))
    return ratio, draw(st.sampled_from([None, np.asarray(False)]))


def added(draw):
    """Draw data, bias and residual."""
    x = draw(tensors(FLOATS, min_rank=1))
    bias = draw(tensors(x.dtype, shape=x.shape[-1:]))
    return x, bias, draw(st.none() | tensors(x.dtype, shape=x.shape))


@cases(bias_dropout)
def bias_dropout_cases(draw):
    return call(*added(draw), *options(draw), seed=draw(st.integers(0, 3)), _outputs=draw(st.integers(1, 2)))


@cases(bitmask_dropout)
def bitmask_dropout_cases(draw):
    x = draw(tensors(FLOATS, max_side=6))
    return call(x, *options(draw), seed=draw(st.integers(0, 3)), _outputs=draw(st.integers(1, 2)))


@cases(bitmask_bias_dropout)
def bitmask_bias_dropout_cases(draw):
    return call(*added(draw), *options(draw), seed=draw(st.integers(0, 3)), _outputs=draw(st.integers(1, 2)))


@cases(bitmask_dropout, law=kept_or_dropped, gradient=False)
def bitmask_dropout_cases_2(draw):
    """Training mode."""
    ratio = np.asarray(draw(st.sampled_from([0.25, 0.5])), np.float32)
    return call(draw(tensors(FLOATS[:2])), ratio, np.asarray(True), seed=3, _outputs=draw(st.integers(1, 2)))
