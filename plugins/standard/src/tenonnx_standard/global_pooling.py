"""Pooling over whole images."""

from __future__ import annotations

import math

import numpy as np

from tenonnx.extend import DType, Value, op, shapes
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, pow_, sign, sqrt
from tenonnx_standard.reduction import PLAIN_ROW, reduce_max, reduce_mean, reduce_sum, worst
from tenonnx_standard.windows import Array, widened


def power(x: Value, p: float) -> Value:
    return x if p == 1 else x * x if p == 2 else pow_(x, float(p))


def root(x: Value, p: float) -> Value:
    if float(p).is_integer():
        return x if p == 1 else sqrt(x) if p == 2 else pow_(x, 1.0 / p)
    nothing = equal(x, 0)  # where the slope of the root is infinite, that of the norm is finite
    return where(nothing, 0, pow_(where(nothing, 1, x), 1.0 / p))


def _image_axes(X: Value) -> list[int]:
    return list(range(2, X.ndim))


def _per_image(x: Array) -> Array:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _as_images(y: Array, like: Array) -> Array:
    return y.reshape(*like.shape[:2], *(1,) * (like.ndim - 2)).astype(like.dtype, copy=False)


@op("GlobalAveragePool", since=1)
def global_average_pool(X):
    """The mean of each channel of each image."""
    return reduce_mean(X, _image_axes(X), keepdims=1)


global_average_pool.requires(shapes(X="batch channels _ ..."))


@global_average_pool.numpy
def global_average_pool_numpy(X):
    (x,) = widened(X)
    images = _per_image(x)
    return _as_images(images.sum(-1) / x.dtype.type(images.shape[-1]), X)


@global_average_pool.specialize
def global_average_pool_specialize(X):
    """Sum few positions as a product with ones."""
    count = math.prod(X.shape[2:])
    if X.dtype not in (np.float32, np.float64) or count > PLAIN_ROW or 1 in (count, X.size):
        return None
    ones, shape = np.ones(count, X.dtype), (*X.shape[:2], *(1,) * (X.ndim - 2))
    divisor = X.dtype.type(count)

    def mean(X):
        y = np.dot(X.reshape(-1, count), ones)
        y /= divisor
        return y.reshape(shape)

    return mean


@op("GlobalMaxPool", since=1, data_movement=True)
def global_max_pool(X):
    """The maximum of each channel of each image."""
    return reduce_max(X, _image_axes(X), keepdims=1)


global_max_pool.requires(shapes(X="batch channels _ ..."))


@global_max_pool.numpy
def global_max_pool_numpy(X):
    images = _per_image(X)
    empty = not images.shape[-1]
    return _as_images(np.full(images.shape[:2], worst(X.dtype, 1)) if empty else images.max(-1), X)


@op("GlobalLpPool", since=1)
def global_lp_pool(X, *, p=2):
    """The p-norm of each channel of each image."""
    return _norm_of_images(X, p)


def _norm_of_images(X: Value, p: float) -> Value:
    x = cast(X, to=DType.float32) if X.dtype.bits < 32 else X  # powers soon exceed the range of float16
    y = root(reduce_sum(power(absolute(x), p), _image_axes(x), keepdims=1), p)
    return y if y.dtype is X.dtype else cast(y, to=X.dtype)


@global_lp_pool.until(2)
def global_lp_pool_float(X, *, p=2.0):
    """The p-norm of each image of each channel; ``p`` need not be an integer."""
    return global_lp_pool(X, p=int(p)) if float(p).is_integer() else _norm_of_images(X, p)


@global_lp_pool.lower(to=global_lp_pool_float)
def global_lp_pool_to_global_lp_pool_float(X, *, p):
    return global_lp_pool_float(X, p=float(p))


global_lp_pool.requires(shapes(X="batch channels _ ..."))


@global_lp_pool.numpy
def global_lp_pool_numpy(X, *, p):
    (x,) = widened(X)
    x = _per_image(x)
    y = np.sqrt(np.vecdot(x, x)) if p == 2 else (np.abs(x) ** p).sum(-1) ** (1 / p)
    return _as_images(y, X)


@global_lp_pool.vjp
def global_lp_pool_vjp(g, y, X, *, p):
    if p == 1:
        return g * sign(X)
    g, y, x = (cast(v, to=DType.float32) if v.dtype.bits < 32 else v for v in (g, y, X))  # as the body does
    scaled = where(equal(y, 0), 0, g / where(equal(y, 0), 1, power(y, p - 1)))
    gradient = scaled * (x if p == 2 else sign(x) * power(absolute(x), p - 1))
    return gradient if x is X else cast(gradient, to=X.dtype)
