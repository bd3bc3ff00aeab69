"""Normalisation by statistics of the batch, of channels, of trailing axes, or of a neighbourhood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, constant, dims, op
from tenonnx.graph import dims as dim
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import pow_, reciprocal, sqrt
from tenonnx_standard.reduction import (
    axes_within,
    axis_within,
    is_half,
    reduce_l1,
    reduce_l2,
    reduce_mean,
    reduce_sum,
    sum_of_squares,
    total,
    widened,
)
from tenonnx_standard.shape import expand, pad, reshape, shape

Array = np.ndarray[Any, Any]

# ----- stages: statistics are taken in a dtype that may differ from that of the data --------------------------------------


def _to(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else cast(x, to=dtype)


def _stage(*values: Value) -> DType:
    """The dtype to take statistics in: float64 where there is some, else float32."""
    return DType.float64 if any(v.dtype is DType.float64 for v in values) else DType.float32


def _stash(made: Op, stash_type: int) -> DType:
    dtype = DType(stash_type) if stash_type in iter(DType) else DType.undefined
    if not dtype.is_float:
        raise TypeMismatch(f"{made.title}: stash_type must be a float type", given=f"stash_type={stash_type}")
    return dtype


def _standardised(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """``x`` with mean 0 and variance 1 over ``axes``; the mean, and the inverse of the standard deviation."""
    mean = reduce_mean(x, axes)
    deviation = x - mean
    inverse = reciprocal(sqrt(reduce_mean(deviation * deviation, axes) + epsilon))
    return deviation * inverse, mean, inverse


def _standardised_gradient(g: Value, standard: Value, inverse: Value, axes: Sequence[int]) -> Value:
    """The gradient of what was standardised: ``g`` without its mean and without its part along the result."""
    return (g - reduce_mean(g, axes) - standard * reduce_mean(g * standard, axes)) * inverse


def _count(x: Value, axes: Sequence[int]) -> Any:
    """How many elements ``x`` has along ``axes``: a number, or a value of the dtype of ``x``."""
    sizes = dims(x)
    count = math.prod([sizes[axis] for axis in axes])
    return cast_like(count, x) if isinstance(count, Value) else float(count)


def _standardised_array(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """What ``_standardised`` gives, rounded step by step where the dtype is narrow; the result is an array of its own."""
    count = math.prod(x.shape[axis] for axis in axes)
    if is_half(x.dtype):
        mean = (total(widened(x), axes) / np.float32(count)).astype(x.dtype)
        deviation = x - mean
        variance = (total(widened(deviation * deviation), axes) / np.float32(count)).astype(x.dtype)
    else:
        mean = np.divide(total(x, axes), x.dtype.type(count))
        deviation = x - mean
        variance = np.divide(sum_of_squares(deviation, axes), x.dtype.type(count))
    inverse = np.reciprocal(np.sqrt(variance + x.dtype.type(epsilon)))
    deviation *= inverse
    return deviation, mean, inverse


def _affine(x: Array, scale: Array | None, bias: Array | None) -> Array:
    """``x * scale + bias``, in place where the dtypes allow."""
    for ufunc, parameter in ((np.multiply, scale), (np.add, bias)):
        if parameter is not None:
            x = ufunc(x, parameter.astype(x.dtype, copy=False), out=x)
    return x


# ----- over the batch ---------------------------------------------------------------------------------------------------


def _per_channel(parameter: Value, x: Value) -> Value:
    """A parameter with one element for each channel, shaped to broadcast along axis 1 of ``x``."""
    return reshape(parameter, [-1] + [1] * (x.ndim - 2)) if x.ndim > 2 else parameter


def _but_channels(rank: int) -> list[int]:
    """All axes but that of the channels."""
    return [axis for axis in range(rank) if axis != 1]


def _checked(made: Op, x: Value, *parameters: Value, size: dim.Dim = None, minimum_rank: int = 1) -> TensorType:
    """The type of ``x``, when it holds floats and each of ``parameters`` holds one float for each channel."""
    kind = x.tensor
    for value in (x, *parameters):
        if not value.dtype.is_float:
            raise TypeMismatch(f"{made.title}: all inputs must hold floats", given=repr(value), do="cast it")
    if kind.shape is None:
        return kind
    if len(kind.shape) < minimum_rank:
        raise TypeMismatch(f"{made.title}: the rank must be at least {minimum_rank}", given=repr(x))
    size = size if size is not None else kind.shape[1] if len(kind.shape) > 1 else 1
    for value in parameters:
        known = value.tensor.shape
        if known is not None and (len(known) != 1 or _differ(known[0], size)):
            expected = "?" if size is None else size
            raise TypeMismatch(f"{made.title}: a parameter must have shape [{expected}]", given=f"{value!r}, {x!r}")
    return kind


def _differ(a: dim.Dim, b: dim.Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


@op("BatchNormalization")
def batch_normalization(X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0, _outputs=None):
    """Each channel shifted and scaled by the given statistics; in training by its own, which the running ones follow."""
    stage = _stage(X, scale, B, input_mean, input_var)
    x, weight, shift, mean, variance = (_to(v, stage) for v in (X, scale, B, input_mean, input_var))
    if not training_mode:
        factor = weight / sqrt(variance + epsilon)
        return _to(x * _per_channel(factor, X) + _per_channel(shift - mean * factor, X), X.dtype)
    axes = _but_channels(X.ndim)
    standard, _, _ = _standardised(x, axes, epsilon)
    batch_mean = reduce_mean(x, axes, keepdims=0) if X.ndim > 1 else reduce_mean(x, axes)
    deviation = x - _per_channel(batch_mean, X)
    batch_variance = reduce_mean(deviation * deviation, axes, keepdims=int(X.ndim == 1))
    y = standard * _per_channel(weight, X) + _per_channel(shift, X)
    running_mean = mean * momentum + batch_mean * (1 - momentum)
    running_variance = variance * momentum + batch_variance * (1 - momentum)
    return _to(y, X.dtype), _to(running_mean, input_mean.dtype), _to(running_variance, input_var.dtype)
