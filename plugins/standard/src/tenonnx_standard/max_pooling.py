"""MaxPool: the maximum of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    constant,
    dims,
    op,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.math import maximum
from tenonnx_standard.reduction import reduce_max
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import expand, reshape, shape, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.windows import (
    Array,
    Length,
    Windows,
    along_axes,
    covering,
    end_in_padding,
    lowest,
    of_nothing,
    padded_with,
    plainly,
    pool,
    pooled_type,
    tap,
    taps_inside,
    through_float32,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@op("MaxPool", since=1, data_movement=True)
def max_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order=0,
    strides: list[int] | None = None,
    _outputs=None,
):
    """The maximum of each window and, as second output, its index in the flattened ``X``."""
    window = windows(
        max_pool.title,
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    indexed = _outputs is not None and _outputs > 1
    if 0 in X.shape:
        least = of_nothing(X, window, lowest(X.dtype.numpy))
        return (least, expand(constant(0), shape(least))) if indexed else least
    plain = plainly(window, X.shape[2:])
    if plain is not None and (plain != window or bool(storage_order) > indexed):
        return max_pool(X, **plain.attributes, storage_order=storage_order * indexed, _outputs=_outputs)
    window = plain or window
    sizes = dims(X)[2:]
    begins, ends = covering(window, sizes)
    outputs = window.outputs(sizes)
    # the smallest integer would be indistinguishable from padding
    wide = cast(X, to=DType.float32) if indexed and X.dtype.is_integer else X
    x = padded_with(wide, begins, ends, lowest(wide.dtype.numpy))
    if not indexed:
        return along_axes(x, window, outputs, lambda taps: maximum(*taps))
    taps = [unsqueeze(tap(x, window, offset, outputs), [-1]) for offset in window.offsets]
    stacked = concat(*taps, axis=-1) if len(taps) > 1 else taps[0]
    places = _places(X, window, argmax(stacked, axis=-1, keepdims=0), begins, outputs, storage_order)
    greatest = reduce_max(stacked, [-1], keepdims=0)
    return greatest if wide is X else cast(greatest, to=X.dtype), places


max_pool.until(10, lacks=["ceil_mode", "dilations"])
max_pool.until(8, lacks=["storage_order"])
end_in_padding(max_pool)


def _places(
    X: Value, window: Windows, chosen: Value, begins: Sequence[Length], outputs: Sequence[Length], storage_order: int
) -> Value:
    """Indices in the flattened ``X`` of the ``chosen`` kernel offsets."""
    batch, channels, *sizes = dims(X)
    image = batch * channels
    count = sizes[0]
    for size in sizes[1:]:
        count = count * size
    places = reshape(range_(0, image, 1), [batch, channels, *(1,) * window.rank]) * count
    offsets = np.asarray(list(window.offsets), dtype=np.int64).reshape(-1, window.rank)
    step: Length = 1
    for k in range(window.rank) if storage_order else reversed(range(window.rank)):
        start = range_(0, outputs[k], 1) * window.strides[k] - begins[k]
        inside = gather(constant(offsets[:, k] * window.dilations[k]), chosen)
        places = places + (inside + reshape(start, [-1, *(1,) * (window.rank - 1 - k)])) * step
        step = step * sizes[k]
    return places


through_float32(max_pool, DType.int8, DType.uint8)


@max_pool.type
def max_pool_type(X, *, kernel_shape, storage_order, _outputs, **attributes):
    kind = pooled_type(max_pool.title, X, kernel_shape, attributes)
    return (kind, kind.with_dtype(DType.int64)) if _outputs is not None and _outputs > 1 else kind


@max_pool.numpy
def max_pool_numpy(X, *, kernel_shape, storage_order, _outputs, **attributes):
    window = windows(max_pool.title, kernel_shape, **attributes)
    values = pool(X.shape, window, np.maximum, lowest(X.dtype))(X)
    if _outputs is None or _outputs < 2:
        return values
    if not X.size:
        return values, np.zeros(values.shape, np.int64)
    return values, _places_of(first_maxima(X, values, window), X.shape, window, storage_order)


@max_pool.specialize
def max_pool_specialize(X, *, kernel_shape, storage_order, _outputs, **attributes):
    if _outputs is not None and _outputs > 1:
        return None
    return pool(X.shape, windows(max_pool.title, kernel_shape, **attributes), np.maximum, lowest(X.dtype))


def reads(window: Windows, sizes: Sequence[int]) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each kernel offset, the windows that read inside an image there, and the elements that they read."""
    offsets, (begins, _) = window.offsets, window.padding(sizes)
    axes = [
        taps_inside(size, window, k, begins[k], count)
        for k, (size, count) in enumerate(zip(sizes, window.outputs(sizes), strict=True))
    ]
    result = []
    for offset in offsets:
        taps = [axis[place] for axis, place in zip(axes, offset, strict=True)]
        result.append((tuple(slice(low, high) for low, high, _ in taps), tuple(source for _, _, source in taps)))
    return result


def first_maxima(x: Array, y: Array, window: Windows) -> Array:
    """The kernel offset at which each window first finds its maximum ``y``, 0 for windows that read padding alone."""
    taps = reads(window, x.shape[2:])
    small = np.min_scalar_type(len(taps))
    none = small.type(np.iinfo(small).max)
    chosen = np.full(y.shape, none, small)
    any_nan = y.dtype.kind not in "iu" and bool(np.isnan(y).any())
    for place, (target, source) in enumerate(taps):
        part, read = y[(..., *target)], x[(..., *source)]
        found = read == part
        if any_nan:
            found |= np.isnan(read) & np.isnan(part)
        # the offset on a match, else the largest number; done on bits, since data-dependent masks are slow
        numbers = found.view(np.uint8) if small == np.uint8 else found.astype(small)
        numbers -= small.type(1)
        numbers |= small.type(place)
        np.minimum(chosen[(..., *target)], numbers, out=chosen[(..., *target)])
    chosen[chosen == none] = 0  # windows that read padding alone
    return chosen


def _places_of(chosen: Array, shape: Sequence[int], window: Windows, storage_order: int) -> Array:
    """Indices in a flattened tensor of that shape of the chosen kernel offsets."""
    sizes = shape[2:]
    begins, _ = window.padding(sizes)
    steps = np.cumprod([1, *sizes[:-1]]) if storage_order else np.cumprod([1, *sizes[:0:-1]])[::-1]
    offsets = np.asarray(list(window.offsets), np.int64).reshape(-1, window.rank) * window.dilations
    places = (offsets * steps).sum(1).take(chosen)
    for k, count in enumerate(chosen.shape[2:]):
        start = (np.arange(count) * window.strides[k] - begins[k]) * steps[k]
        places += start.reshape(-1, *(1,) * (window.rank - 1 - k))
    images = np.arange(shape[0] * shape[1]) * int(np.prod(sizes))
    places += images.reshape(*shape[:2], *(1,) * window.rank)
    return places


@max_pool.vjp
def max_pool_vjp(g, y, X, *, storage_order, _outputs=None, **attributes):
    g, y = (v[0] if isinstance(v, tuple) else v for v in (g, y))
    x, y = (v if v.dtype.is_float else cast(v, to=g.dtype) for v in (X, y))  # ``y`` may be a pool of quantized values
    return ops.max_pool_gradient(x, g, y, **attributes)
