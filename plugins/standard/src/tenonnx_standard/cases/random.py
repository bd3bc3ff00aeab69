"""Cases of random ops: what they draw differs from run to run, so types alone are compared."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.testing import call, cases, shapes, tensors
from tenonnx_standard.random import (
    bernoulli,
    multinomial,
    random_normal,
    random_normal_like,
    random_uniform,
    random_uniform_like,
)

#: Codes of float16, float32 and float64.
FLOATS = st.sampled_from([10, 1, 11])
SEED = st.sampled_from([None, 1.0, 7.5])


@cases(random_uniform, gradient=False)
def _(draw):
    shape = list(draw(shapes(1, 3)))
    return call(dtype=draw(FLOATS), low=-1.0, high=draw(st.sampled_from([0.5, 2.0])), seed=draw(SEED), shape=shape)


@cases(random_normal, gradient=False)
def _(draw):
    shape = list(draw(shapes(1, 3)))
    return call(dtype=draw(FLOATS), mean=0.5, scale=draw(st.sampled_from([0.5, 2.0])), seed=draw(SEED), shape=shape)


@cases(random_uniform_like, gradient=False)
def _(draw):
    dtype = draw(st.sampled_from([None, 1, 11]))
    return call(draw(tensors(["float32", "float64"])), dtype=dtype, low=-1.0, high=2.0, seed=draw(SEED))


@cases(random_normal_like, gradient=False)
def _(draw):
    dtype = draw(st.sampled_from([None, 1, 11]))
    return call(draw(tensors(["float32", "float64"])), dtype=dtype, mean=1.0, scale=2.0, seed=draw(SEED))


@cases(bernoulli, gradient=False)
def _(draw):
    dtype = draw(st.sampled_from([None, 1, 7, 9]))
    return call(draw(tensors(["float32", "float64"], min_value=0, max_value=1)), dtype=dtype, seed=draw(SEED))


@cases(multinomial, gradient=False)
def _(draw):
    logits = draw(tensors(shape=(draw(st.integers(1, 3)), 4)))
    dtype, size = draw(st.sampled_from([6, 7])), draw(st.integers(1, 5))
    return call(np.log(np.exp(logits)), dtype=dtype, sample_size=size, seed=draw(SEED))
