"""Cases of random ops, each with its distribution."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.random import (
    bernoulli,
    multinomial,
    random_normal,
    random_normal_like,
    random_uniform,
    random_uniform_like,
)
from tenonnx_testing import Law, call, cases, shapes, tensors

#: TensorProto data types of float16, float32 and float64.
FLOATS = st.sampled_from([10, 1, 11])
SEED = st.sampled_from([None, 1.0, 7.5])


def uniform(call):
    low, high = call.attributes["low"], call.attributes["high"]
    return Law((low + high) / 2, (high - low) / np.sqrt(12), low, high)


def normal(call):
    return Law(call.attributes["mean"], call.attributes["scale"])


def coins(call):
    p = call.inputs[0].astype(np.float64)
    return Law(p, np.sqrt(p * (1 - p)), 0, 1)


def classes(call):
    weights = np.exp(call.inputs[0].astype(np.float64))[:, None]
    weights /= weights.sum(-1, keepdims=True)
    numbers = np.arange(weights.shape[-1])
    mean = (weights * numbers).sum(-1)
    deviation = np.sqrt((weights * numbers**2).sum(-1) - mean**2)
    return Law(mean, deviation, 0, numbers[-1])


@cases(random_uniform, gradient=False, law=uniform)
def random_uniform_cases(draw):
    shape = list(draw(shapes(1, 3)))
    return call(dtype=draw(FLOATS), low=-1.0, high=draw(st.sampled_from([0.5, 2.0])), seed=draw(SEED), shape=shape)


@cases(random_normal, gradient=False, law=normal)
def random_normal_cases(draw):
    shape = list(draw(shapes(1, 3)))
    return call(dtype=draw(FLOATS), mean=0.5, scale=draw(st.sampled_from([0.5, 2.0])), seed=draw(SEED), shape=shape)


@cases(random_uniform_like, gradient="it is drawn at random", law=uniform)
def random_uniform_like_cases(draw):
    dtype = draw(st.sampled_from([None, 1, 11]))
    return call(draw(tensors(["float32", "float64"])), dtype=dtype, low=-1.0, high=2.0, seed=draw(SEED))


@cases(random_normal_like, gradient="it is drawn at random", law=normal)
def random_normal_like_cases(draw):
    dtype = draw(st.sampled_from([None, 1, 11]))
    return call(draw(tensors(["float32", "float64"])), dtype=dtype, mean=1.0, scale=2.0, seed=draw(SEED))


@cases(bernoulli, gradient=False, law=coins)
def bernoulli_cases(draw):
    dtype = draw(st.sampled_from([None, 1, 7, 9]))
    return call(draw(tensors(["float32", "float64"], min_value=0, max_value=1)), dtype=dtype, seed=draw(SEED))


@cases(multinomial, gradient=False, law=classes)
def multinomial_cases(draw):
    logits = draw(tensors(shape=(draw(st.integers(1, 3)), 4)))
    dtype, size = draw(st.sampled_from([6, 7])), draw(st.integers(1, 5))
    return call(np.log(np.exp(logits)), dtype=dtype, sample_size=size, seed=draw(SEED))
