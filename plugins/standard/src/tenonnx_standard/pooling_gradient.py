"""The gradient of max pooling."""

from __future__ import annotations

import math

import numpy as np

from tenonnx.extend import TypeMismatch, Value, constant, dims, floats, holds, limits, op, same_dtype, shapes
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import equal, where
from tenonnx_standard.max_pooling import first_maxima, max_pool, reads
from tenonnx_standard.reduction import reduce_prod
from tenonnx_standard.scattering import scatter_elements, scatter_elements_plain
from tenonnx_standard.shapes import expand, reshape, shape
from tenonnx_standard.slicing import gather
from tenonnx_standard.unpooling import max_unpool
from tenonnx_standard.windows import (
    Array,
    Windows,
    lowest,
    plainly,
    pool,
    tap,
    tap_slices,
    widened,
    windows,
)


@op("MaxPoolGradient", domain="tenonnx")
def max_pool_gradient(
    X,
    dY,
    Y=None,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The gradient of MaxPool with output ``Y``: each element of ``dY`` is added at the position of the maximum.

    For windows that tile the input, positions are found by comparison; otherwise MaxPool returns them, which needs
    opset 8. For overlapping windows, gradients are added by ScatterElements or, below opset 16, by several scatters.
    """
    window = windows(
        max_pool.title,
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    window = plainly(window, X.shape[2:]) or window
    if _is_tiled(X, window):
        y = max_pool(X, **window.attributes) if Y is None else Y
        return max_unpool(dY, _places_by_comparing(X, y, window), kernel_shape=kernel_shape, strides=strides)
    places = _places(X, window)
    apart = all(n == 1 for n in _periods(window, dY))
    scattered = scatter_elements(
        _zeros(X), reshape(places, [-1]), reshape(dY, [-1]), axis=0, reduction="none" if apart else "add"
    )
    return reshape(scattered, shape(X))


@max_pool_gradient.lower(to=scatter_elements_plain)
def max_pool_gradient_to_scatter_elements_plain(X, dY, Y=None, *, kernel_shape, **attributes):
    """Lower to Scatter, which does not add: one Scatter per set of windows that do not overlap."""
    window = windows(max_pool.title, kernel_shape, **attributes)
    window = plainly(window, X.shape[2:]) or window
    if _is_tiled(X, window):
        return None
    places, total, periods = _places(X, window), _zeros(X), _periods(window, dY)
    for begins in np.ndindex(*periods):
        apart = (..., *(slice(int(b), None, n) for b, n in zip(begins, periods, strict=True)))
        these = reshape(places[apart], [-1])
        total = scatter_elements(total, these, gather(total, these) + reshape(dY[apart], [-1]), axis=0)
    return reshape(total, shape(X))


def _places(X: Value, window: Windows) -> Value:
    """Indices in the flattened ``X`` of the maxima of overlapping windows."""
    _, places = max_pool(X, ceil_mode=int(window.ceil_mode), **window.attributes, _outputs=2)
    return places


def _zeros(X: Value) -> Value:
    return expand(constant(np.zeros(1), X.dtype), reduce_prod(shape(X), keepdims=1))


def _periods(window: Windows, dY: Value) -> list[int]:
    """For each axis, the distance at which windows do not overlap."""
    apart = [-(-extent // stride) for extent, stride in zip(window.extents, window.strides, strict=True)]
    return [max(1, min(n, size)) if isinstance(size, int) else n for n, size in zip(apart, dY.shape[2:], strict=True)]


def _is_tiled(X: Value, window: Windows) -> bool:
    """Whether windows tile ``X``, so that every element is in exactly one."""
    sizes = X.shape[2:]
    whole = all(isinstance(n, int) and n % k == 0 for n, k in zip(sizes, window.kernel, strict=True))
    return whole and window.kernel == window.extents == window.strides and not any(window.pads)


def _places_by_comparing(X: Value, y: Value, window: Windows) -> Value:
    """First indices in the flattened ``X`` of the maxima ``y`` of the tiles."""
    batch, channels, *sizes = dims(X)
    outputs = window.outputs(sizes)
    places = np.arange(math.prod(limits.sized(sizes, max_pool.title))).reshape(sizes)
    *offsets, last = window.offsets
    inside = constant(places[last])
    for offset in reversed(offsets):
        inside = where(equal(tap(X, window, offset, outputs), y), int(places[offset]), inside)
    images = reshape(range_(0, batch * channels, 1), [batch, channels, *(1,) * window.rank])
    return images * places.size + constant(places[tuple(tap_slices(window, (0,) * window.rank, outputs))]) + inside


def _kernel_fits(X: Value, dY: Value, kernel_shape: list[int]) -> str | None:
    fits = all(value.rank in (None, len(kernel_shape) + 2) for value in (X, dY))
    return None if fits else "kernel_shape does not have one size for each spatial axis of X and dY"


max_pool_gradient.requires(
    floats("X", "dY", "Y"),
    same_dtype("X", "dY", "Y"),
    shapes(X="batch channels sizes...", dY="batch channels outputs...", Y="batch channels outputs..."),
    holds(_kernel_fits),
)


@max_pool_gradient.numpy
def max_pool_gradient_numpy(X, dY, Y=None, *, kernel_shape, **attributes):
    window = windows(max_pool.title, kernel_shape, **attributes)
    (g,) = widened(dY)
    pooled = pool(X.shape, window, np.maximum, lowest(X.dtype))(X) if Y is None else Y
    if g.shape != pooled.shape:
        wanted = list(pooled.shape)
        raise TypeMismatch(f"{max_pool_gradient.title}: dY does not have the shape {wanted}", given=f"{dY.shape}")
    chosen = first_maxima(X, pooled, window)
    result = np.zeros(X.shape, g.dtype)
    for place, (target, source) in enumerate(reads(window, X.shape[2:])):
        result[(..., *source)] += _where_mask(g[(..., *target)], chosen[(..., *target)] == place)
    return result.astype(X.dtype, copy=False)


def _where_mask(x: Array, mask: Array) -> Array:
    """``x`` where ``mask`` is true, else 0, by masking bits."""
    bits = np.negative(mask.astype(f"i{x.dtype.itemsize}"))
    bits &= x.view(bits.dtype)
    return bits.view(x.dtype)
