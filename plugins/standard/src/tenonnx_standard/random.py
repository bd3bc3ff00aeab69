"""Random ops. They are never folded; without a seed every call draws new numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, Value, at_least, limits, one_of, op, primitive, shapes
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import less

#: Any element type; type rules check which ones an op takes.
_DTYPE = one_of(dtype=tuple(map(int, DType)))


def generator(seed: float | None) -> np.random.Generator | np.random.RandomState:
    """Random generator of a ``seed`` attribute. An integer seeds numpy's RandomState, like in onnx."""
    if seed is None:
        return np.random.default_rng()
    whole = float(seed).is_integer() and 0 <= seed < 2**32
    return np.random.RandomState(int(seed) if whole else int(np.float32(seed).view(np.uint32)))


def _float_type(what: str, dtype: int) -> DType:
    kind = DType(dtype)
    if not kind.is_float:
        raise TypeMismatch(f"{what} is not of floats", given=f"dtype={kind}")
    return kind


def _shaped_type(*, dtype: int, shape: list[int], **_: Any) -> TensorType:
    return TensorType(_float_type("a random tensor", dtype), tuple(shape))


def _like_type(input: Value, *, dtype: int | None, **_: Any) -> TensorType:
    return input.tensor.with_dtype(_float_type("a random tensor", int(input.dtype) if dtype is None else dtype))


def _uniform(shape: Any, dtype: int, low: float, high: float, seed: float | None) -> Any:
    # From ``high`` downward, since equal numbers as onnx's reference, which has the same generator, would test nothing.
    return (high - (high - low) * generator(seed).random(limits.sized(shape, "a random tensor"))).astype(
        DType(dtype).numpy
    )


def _normal(shape: Any, dtype: int, mean: float, scale: float, seed: float | None) -> Any:
    return (mean + scale * generator(seed).standard_normal(limits.sized(shape, "a random tensor"))).astype(
        DType(dtype).numpy
    )


def _dtype_of(input: Any, dtype: int | None) -> int:
    return int(DType.of(input.dtype)) if dtype is None else dtype


@primitive("RandomUniform", since=1, pure=False, type=_shaped_type)
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed: float | None = None, shape: list[int]):
    """Uniform random numbers in ``(low, high]``, with the given shape and dtype; float32 by default."""


random_uniform.requires(_DTYPE, at_least(shape=0))
random_uniform.numpy(lambda *, dtype, high, low, seed, shape: _uniform(shape, dtype, low, high, seed))


@primitive("RandomNormal", since=1, pure=False, type=_shaped_type)
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed: float | None = None, shape: list[int]):
    """Normally distributed numbers with the given shape and dtype; ``scale`` is the standard deviation."""


random_normal.requires(_DTYPE, at_least(shape=0))
random_normal.numpy(lambda *, dtype, mean, scale, seed, shape: _normal(shape, dtype, mean, scale, seed))


@primitive("RandomUniformLike", since=1, pure=False, type=_like_type)
def random_uniform_like(input, *, dtype: int | None = None, high=1.0, low=0.0, seed: float | None = None):
    """Uniform random numbers with the shape of ``input`` and, by default, its dtype."""


random_uniform_like.requires(_DTYPE)
random_uniform_like.numpy(
    lambda input, *, dtype, high, low, seed: _uniform(input.shape, _dtype_of(input, dtype), low, high, seed)
)
random_uniform_like.vjp(lambda g, y, input, **_: None)


@primitive("RandomNormalLike", since=1, pure=False, type=_like_type)
def random_normal_like(input, *, dtype: int | None = None, mean=0.0, scale=1.0, seed: float | None = None):
    """Normally distributed numbers with the shape of ``input`` and, by default, its dtype."""


random_normal_like.requires(_DTYPE)
random_normal_like.numpy(
    lambda input, *, dtype, mean, scale, seed: _normal(input.shape, _dtype_of(input, dtype), mean, scale, seed)
)
random_normal_like.vjp(lambda g, y, input, **_: None)


@op("Bernoulli", since=15, pure=False)
def bernoulli(input, *, dtype: int | None = None, seed: float | None = None):
    """1 with the probability given by each element of ``input``, otherwise 0, in the shape of ``input``."""
    wide = cast(input, to=DType.float32) if input.dtype.bits < 32 else input  # fewer numbers round to 1
    drawn = less(random_uniform_like(wide, seed=seed), wide)
    return cast(drawn, to=int(input.dtype) if dtype is None else dtype)


def _multinomial_type(input: Value, *, dtype: int, sample_size: int, **_: Any) -> TensorType:
    if input.ndim != 2:
        raise TypeMismatch(
            "Multinomial: input is not a matrix [batch, classes] of log-probabilities", given=repr(input)
        )
    return TensorType(DType(dtype), (input.shape[0], sample_size))


@primitive("Multinomial", since=7, pure=False, type=_multinomial_type)
def multinomial(input, *, dtype=6, sample_size=1, seed: float | None = None):
    """Class indices ``[batch, sample_size]``, sampled from log-probabilities ``input [batch, classes]``."""


multinomial.requires(
    shapes(input="batch classes"), at_least(classes=1), one_of(dtype=(int(DType.int32), int(DType.int64)))
)


@multinomial.numpy
def multinomial_numpy(input, *, dtype, sample_size, seed):
    logits = input.astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    bounds = np.cumsum(weights, axis=1)
    limits.check_elements((*bounds.shape, sample_size), multinomial.title)
    drawn = generator(seed).random((len(input), sample_size)) * bounds[:, -1:]
    found = (drawn[:, :, None] >= bounds[:, None, :]).sum(axis=2)
    return np.minimum(found, input.shape[1] - 1).astype(DType(dtype).numpy)
