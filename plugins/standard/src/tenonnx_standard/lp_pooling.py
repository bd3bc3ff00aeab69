"""LpPool: the p-norm of each window."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import (
    DType,
    Value,
    dims,
    op,
)
from tenonnx_standard.average_pooling import average_pool, spread_over_windows
from tenonnx_standard.casting import cast
from tenonnx_standard.global_pooling import global_lp_pool_float, power, root
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, sign
from tenonnx_standard.windows import (
    Windows,
    covering,
    end_in_padding,
    floored,
    infer_float_pool,
    of_nothing,
    padded_with,
    pool,
    through_float32,
    widened,
    windows,
)


@op("LpPool", since=1)
def lp_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    p=2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The p-norm of each window."""
    window = windows(
        lp_pool.title,
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return _norm_of_windows(X, window, p)


lp_pool.until(18, lacks=["ceil_mode", "dilations"])
end_in_padding(lp_pool)


def _norm_of_windows(X: Value, window: Windows, p: float) -> Value:
    if 0 in X.shape:
        return of_nothing(X, window)
    begins, ends = covering(window, dims(X)[2:])
    x = cast(X, to=DType.float32) if X.dtype.bits < 32 else X  # powers soon exceed the range of float16
    powers = padded_with(power(absolute(x), p), begins, ends)
    means = average_pool(powers, **floored(window, [0] * (2 * window.rank)).attributes)
    y = root(means * float(np.prod(window.kernel)), p)
    return y if y.dtype is X.dtype else cast(y, to=X.dtype)


@lp_pool.until(2)
def lp_pool_float(
    X,
    *,
    auto_pad="NOTSET",
    kernel_shape: list[int] | None = None,
    p=2.0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The p-norm of each window, or of each image without ``kernel_shape``; ``p`` need not be an integer."""
    if kernel_shape is None:
        return global_lp_pool_float(X, p=p)
    if float(p).is_integer():
        return lp_pool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=int(p), pads=pads, strides=strides)
    return _norm_of_windows(X, windows(lp_pool.title, kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad), p)


@lp_pool.lower(to=lp_pool_float)
def lp_pool_to_lp_pool_float(X, *, ceil_mode, dilations, p, **attributes):
    if not ceil_mode and all(d == 1 for d in dilations or ()):
        return lp_pool_float(X, p=float(p), **attributes)
    return None


through_float32(lp_pool)
infer_float_pool(lp_pool, "p")


@lp_pool.numpy
def lp_pool_numpy(X, *, kernel_shape, p, **attributes):
    window = windows(lp_pool.title, kernel_shape, **attributes)
    (x,) = widened(X)
    x = np.abs(x) if p != 2 else x
    y = pool(x.shape, window, np.add, 0)(x * x if p == 2 else x if p == 1 else x**p)
    y = np.sqrt(y) if p == 2 else y if p == 1 else y ** (1 / p)
    return y.astype(X.dtype, copy=False)


@lp_pool.vjp
def lp_pool_vjp(g, y, X, *, kernel_shape, p, **attributes):
    window = windows(lp_pool.title, kernel_shape, **attributes)
    if p == 1:
        return spread_over_windows(g, X, window) * sign(X)
    g, y, x = (cast(v, to=DType.float32) if v.dtype.bits < 32 else v for v in (g, y, X))  # as the body does
    scaled = where(equal(y, 0), 0, g / where(equal(y, 0), 1, power(y, p - 1)))
    slope = x if p == 2 else sign(x) * power(absolute(x), p - 1)
    gradient = spread_over_windows(scaled, x, window) * slope
    return gradient if x is X else cast(gradient, to=X.dtype)
