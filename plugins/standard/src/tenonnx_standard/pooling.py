"""Pooling over windows and over whole images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import (
    DType,
    Operand,
    TensorType,
    TypeMismatch,
    Value,
    always,
    constant,
    dims,
    floats,
    limits,
    op,
    same_dtype,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.convolution import transposed_to
from tenonnx_standard.global_pooling import global_lp_pool_float, power, root
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, maximum, sign
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_max, reduce_prod
from tenonnx_standard.scattering import scatter_elements
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import expand, reshape, shape, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.unpooling import max_unpool
from tenonnx_standard.windows import (
    Array,
    Length,
    Windows,
    along_axes,
    covering,
    end_in_padding,
    floored,
    lowest,
    one_axis,
    one_float_dtype,
    padded_with,
    plainly,
    pool,
    reaching,
    spatial,
    sum_taps,
    tap,
    tap_slices,
    taps_inside,
    through_float32,
    widened,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# ----- MaxPool --------------------------------------------------------------------------------------------------------


@op("MaxPool", since=1, selects=always)
def max_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, dilations: list[int] | None = None, kernel_shape: list[int],
    pads: list[int] | None = None, storage_order=0, strides: list[int] | None = None,
    _outputs=None,
):  # fmt: skip
    """The greatest element of each window and, if asked for, its place in the flattened ``X``."""
    window = windows(
        max_pool.title,
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    plain = plainly(window, X.shape[2:])
    indexed = _outputs is not None and _outputs > 1
    if plain is not None and (plain != window or storage_order > indexed):
        return max_pool(X, **plain.attributes, storage_order=storage_order * indexed, _outputs=_outputs)
    sizes = dims(X)[2:]
    window = plain or window
    begins, ends = covering(window, sizes)
    outputs = window.outputs(sizes)
    x = padded_with(X, begins, ends, lowest(X.dtype.numpy))
    if not indexed:
        return along_axes(x, window, outputs, lambda taps: maximum(*taps))
    taps = [unsqueeze(tap(x, window, offset, outputs), [-1]) for offset in window.offsets]
    stacked = concat(*taps, axis=-1) if len(taps) > 1 else taps[0]
    places = _places(X, window, argmax(stacked, axis=-1, keepdims=0), begins, outputs, storage_order)
    return reduce_max(stacked, [-1], keepdims=0), places


max_pool.until(10, lacks=["ceil_mode", "dilations"])
max_pool.until(8, lacks=["storage_order"])
end_in_padding(max_pool)


def _places(
    X: Value, window: Windows, chosen: Value, begins: Sequence[Length], outputs: Sequence[Length], storage_order: int
) -> Value:
    """Where in the flattened ``X`` the ``chosen`` places of the kernel lie."""
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
def _(X, *, kernel_shape, storage_order, _outputs, **attributes):
    kind = _pooled_type(max_pool.title, X, kernel_shape, attributes)
    return (kind, kind.with_dtype(DType.int64)) if _outputs is not None and _outputs > 1 else kind


def _pooled_type(title: str, X: Value, kernel_shape: Sequence[int], attributes: dict[str, Any]) -> TensorType:
    window = windows(title, kernel_shape, **attributes)
    if not X.dtype.is_float and not X.dtype.is_integer:
        raise TypeMismatch(f"{title}: X must be numeric", given=repr(X))
    sizes = spatial(title, X)
    if sizes is None:
        return TensorType(X.dtype, (None,) * (2 + window.rank))
    if len(sizes) != window.rank:
        raise TypeMismatch(
            f"{title}: kernel_shape must have one size for each spatial axis", given=f"{list(kernel_shape)} for {X!r}"
        )
    return TensorType(X.dtype, (*X.shape[:2], *window.outputs(sizes)))


@max_pool.numpy
def _(X, *, kernel_shape, storage_order, _outputs, **attributes):
    window = windows(max_pool.title, kernel_shape, **attributes)
    values = pool(X.shape, window, np.maximum, lowest(X.dtype))(X)
    if _outputs is None or _outputs < 2:
        return values
    return values, _places_of(_chosen(X, values, window), X.shape, window, storage_order)


@max_pool.prepare
def _(X, *, kernel_shape, storage_order, _outputs, **attributes):
    if _outputs is not None and _outputs > 1:
        return None
    return pool(X.shape, windows(max_pool.title, kernel_shape, **attributes), np.maximum, lowest(X.dtype))


def _reads(window: Windows, sizes: Sequence[int]) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each place of the kernel the windows that read inside an image there, and what they read."""
    offsets, (begins, _) = window.offsets, window.padding(sizes)
    axes = [
        taps_inside(size, window, k, begins[k], count)
        for k, (size, count) in enumerate(zip(sizes, window.outputs(sizes), strict=True))
    ]
    found = []
    for offset in offsets:
        taps = [axis[place] for axis, place in zip(axes, offset, strict=True)]
        found.append((tuple(slice(low, high) for low, high, _ in taps), tuple(source for _, _, source in taps)))
    return found


def _chosen(x: Array, y: Array, window: Windows) -> Array:
    """At which place of the kernel each window first finds its maximum ``y``."""
    reads = _reads(window, x.shape[2:])
    small = np.min_scalar_type(len(reads))
    none = small.type(np.iinfo(small).max)
    chosen = np.full(y.shape, none, small)
    any_nan = y.dtype.kind not in "iu" and bool(np.isnan(y).any())
    for place, (target, source) in enumerate(reads):
        part, read = y[(..., *target)], x[(..., *source)]
        found = read == part
        if any_nan:
            found |= np.isnan(read) & np.isnan(part)
        # the place where it is found, else the greatest number: by bits, as masks that follow the data are slow
        numbers = found.view(np.uint8) if small == np.uint8 else found.astype(small)
        numbers -= small.type(1)
        numbers |= small.type(place)
        np.minimum(chosen[(..., *target)], numbers, out=chosen[(..., *target)])
    return chosen


def _places_of(chosen: Array, shape: Sequence[int], window: Windows, storage_order: int) -> Array:
    """Where in a flattened tensor of that shape the chosen places of the kernel lie."""
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
def _(g, y, X, *, storage_order, _outputs=None, **attributes):
    g, y = (v[0] if isinstance(v, tuple) else v for v in (g, y))
    x, y = (v if v.dtype.is_float else cast(v, to=g.dtype) for v in (X, y))  # it may be a pool of codes
    return max_pool_gradient(x, g, y, **attributes)


@op("MaxPoolGradient", domain="tenonnx")
def max_pool_gradient(
    X, dY, Y=None, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, strides=None
):  # fmt: skip
    """The gradient of MaxPool, which gave ``Y``: each element of ``dY`` is added to the place that held the maximum.

    Where windows lie side by side the places are found by comparing, else they are those that MaxPool tells, which
    takes opset 8; where windows overlap it takes the additions of ScatterElements, opset 16.
    """
    window = windows(
        max_pool.title, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )  # fmt: skip
    window = plainly(window, X.shape[2:]) or window
    if _is_tiled(X, window):
        y = max_pool(X, **window.attributes) if Y is None else Y
        return max_unpool(dY, _places_by_comparing(X, y, window), kernel_shape=kernel_shape, strides=strides)
    _, places = max_pool(X, ceil_mode=int(window.ceil_mode), **window.attributes, _outputs=2)
    count = reduce_prod(shape(X), keepdims=1)
    zeros = expand(constant(np.zeros(1), X.dtype), count)
    apart = all(k <= s for k, s in zip(window.extents, window.strides, strict=True))
    scattered = scatter_elements(
        zeros, reshape(places, [-1]), reshape(dY, [-1]), axis=0, reduction="none" if apart else "add"
    )
    return reshape(scattered, shape(X))


def _is_tiled(X: Value, window: Windows) -> bool:
    """Whether every element of the images in ``X`` is in one window."""
    sizes = X.shape[2:]
    whole = all(isinstance(n, int) and n % k == 0 for n, k in zip(sizes, window.kernel, strict=True))
    return whole and window.kernel == window.extents == window.strides and not any(window.pads)


def _places_by_comparing(X: Value, y: Value, window: Windows) -> Value:
    """Where in the flattened ``X`` the tiles first have their maxima ``y``."""
    batch, channels, *sizes = dims(X)
    outputs = window.outputs(sizes)
    places = np.arange(math.prod(limits.sized(sizes, max_pool.title))).reshape(sizes)
    *offsets, last = window.offsets
    inside = constant(places[last])
    for offset in reversed(offsets):
        inside = where(equal(tap(X, window, offset, outputs), y), int(places[offset]), inside)
    images = reshape(range_(0, batch * channels, 1), [batch, channels, *(1,) * window.rank])
    return images * places.size + constant(places[tuple(tap_slices(window, (0,) * window.rank, outputs))]) + inside


max_pool_gradient.requires(floats("X", "dY", "Y"), same_dtype("X", "dY", "Y"))


@max_pool_gradient.numpy
def _(X, dY, Y=None, *, kernel_shape, **attributes):
    window = windows(max_pool.title, kernel_shape, **attributes)
    (g,) = widened(dY)
    pooled = pool(X.shape, window, np.maximum, lowest(X.dtype))(X) if Y is None else Y
    if g.shape != pooled.shape:
        wanted = list(pooled.shape)
        raise TypeMismatch(f"{max_pool_gradient.title}: dY must have the shape {wanted}", given=f"{dY.shape}")
    chosen = _chosen(X, pooled, window)
    result = np.zeros(X.shape, g.dtype)
    for place, (target, source) in enumerate(_reads(window, X.shape[2:])):
        result[(..., *source)] += _masked(g[(..., *target)], chosen[(..., *target)] == place)
    return result.astype(X.dtype, copy=False)


def _masked(x: Array, mask: Array) -> Array:
    """``x`` where ``mask`` holds, else 0; by its bits."""
    bits = np.negative(mask.astype(f"i{x.dtype.itemsize}"))
    bits &= x.view(bits.dtype)
    return bits.view(x.dtype)


# ----- AveragePool ----------------------------------------------------------------------------------------------------


@op("AveragePool", since=1)
def average_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations: list[int] | None = None,
    kernel_shape: list[int], pads: list[int] | None = None, strides: list[int] | None = None
):  # fmt: skip
    """The mean of each window, over what lies in the input, or with ``count_include_pad`` in the padding too."""
    window = windows(
        average_pool.title, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )  # fmt: skip
    sizes = dims(X)[2:]
    begins, ends = window.padding(sizes)
    plain = plainly(window, X.shape[2:])
    if count_include_pad and any(not isinstance(p, int) or p for p in (*begins, *ends)):
        beyond = [0] * window.rank
        if window.ceil_mode:
            beyond = [r - e for r, e in zip(reaching(window, sizes, begins, ends), ends, strict=True)]
        if all(isinstance(n, int) for n in beyond):
            inner = floored(window, [*[0] * window.rank, *beyond])
            return average_pool(padded_with(X, begins, ends), **inner.attributes)
    elif plain is not None and (plain != window or count_include_pad):
        return average_pool(X, **plain.attributes)
    begins, ends = covering(window, sizes)
    total = along_axes(padded_with(X, begins, ends), window, window.outputs(sizes), sum_taps)
    for divisor in _divisors(X, window, count_include_pad):
        total = total / divisor
    return total


def _divisors(X: Value, window: Windows, count_include_pad: int) -> list[Value | float]:
    """For each axis, how many elements every window counts along it."""
    sizes = dims(X)[2:]
    begins, ends = window.padding(sizes)
    reached = reaching(window, sizes, begins, ends) if window.ceil_mode else ends
    outputs = window.outputs(sizes)
    found: list[Value | float] = []
    for k in range(window.rank):
        before, counted, after = begins[k], sizes[k], reached[k]
        if count_include_pad:
            before, counted, after = 0, begins[k] + sizes[k] + ends[k], reached[k] - ends[k]
        if isinstance(before, int) and isinstance(after, int) and not before and not after:
            found.append(float(window.kernel[k]))
            continue
        ones = pad(expand(constant(np.ones((1, 1, 1)), X.dtype), [1, 1, counted]), [0, 0, before, 0, 0, after])
        counts = along_axes(ones, one_axis(window, k), outputs[k : k + 1], sum_taps)
        found.append(reshape(counts, [-1, *(1,) * (window.rank - 1 - k)]))
    return found


average_pool.until(19, lacks=["dilations"])
average_pool.until(10, lacks=["ceil_mode"])
average_pool.until(7, lacks=["count_include_pad"])
end_in_padding(average_pool)


through_float32(average_pool)


@average_pool.type
def _(X, *, kernel_shape, count_include_pad, **attributes):
    one_float_dtype(average_pool.title, X)
    return _pooled_type(average_pool.title, X, kernel_shape, attributes)


@average_pool.numpy
def _(X, *, kernel_shape, count_include_pad, **attributes):
    return _averaging(X, windows(average_pool.title, kernel_shape, **attributes), count_include_pad)(X)


@average_pool.prepare
def _(X, *, kernel_shape, count_include_pad, **attributes):
    return _averaging(X, windows(average_pool.title, kernel_shape, **attributes), count_include_pad)


def _averaging(X: Operand | Array, window: Windows, count_include_pad: int) -> Callable[[Array], Array]:
    """The function of images like ``X`` that gives the mean of each window."""
    wide = np.dtype(np.float32) if X.dtype.itemsize < 4 else X.dtype
    total = pool(X.shape, window, np.add, 0)
    shares = _shares(window, X.shape[2:], count_include_pad)
    if all((s == s[0]).all() for s in shares if s.size):
        factor = np.asarray(np.prod([s[0] for s in shares if s.size]), wide)
    else:
        factor = np.ones((), wide)
        for k, s in enumerate(shares):
            factor = factor * s.astype(wide).reshape(-1, *(1,) * (window.rank - 1 - k))

    def mean(X: Array) -> Array:
        x = X.astype(wide, copy=False)
        y = total(x)
        if y is x:
            return X
        y *= factor
        return y.astype(X.dtype, copy=False)

    return mean


def _shares(window: Windows, sizes: Sequence[int], count_include_pad: int) -> list[Array]:
    """Along each axis, one over the number of elements that every window counts."""
    begins, ends = window.padding(sizes)
    shares = []
    for k, count in enumerate(window.outputs(sizes)):
        limits.check_elements([count, window.kernel[k]], window.title)
        start = np.arange(count) * window.strides[k] - begins[k]
        at = start[:, None] + np.arange(window.kernel[k]) * window.dilations[k]
        low, high = (-begins[k], sizes[k] + ends[k]) if count_include_pad else (0, sizes[k])
        shares.append(1 / np.maximum(((at >= low) & (at < high)).sum(1), 1))
    return shares


@average_pool.vjp
def _(g, y, X, *, kernel_shape, count_include_pad, **attributes):
    window = windows(average_pool.title, kernel_shape, **attributes)
    for divisor in _divisors(X, window, count_include_pad):
        g = g / divisor
    return _spread(g, X, window)


def _spread(g: Value, X: Value, window: Windows) -> Value:
    """Add each element of ``g`` to all elements of its window: the transpose of summing windows of ``X``."""
    ones = constant(np.ones(limits.sized((1, 1, *window.kernel), window.title)), X.dtype)
    images = reshape(X, [-1, 1, *dims(X)[2:]])
    result = transposed_to(images, reshape(g, [-1, 1, *dims(g)[2:]]), ones, window, 1)
    return reshape(result, shape(X))


# ----- LpPool ---------------------------------------------------------------------------------------------------------


@op("LpPool", since=1)
def lp_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, dilations: list[int] | None = None, kernel_shape: list[int], p=2,
    pads: list[int] | None = None, strides: list[int] | None = None
):  # fmt: skip
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
    begins, ends = covering(window, dims(X)[2:])
    x = cast(X, to=DType.float32) if X.dtype.bits < 32 else X  # powers leave the range of half floats soon
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
    """The p-norm of each window, or of each image where no size is given; ``p`` need not be an integer."""
    if kernel_shape is None:
        return global_lp_pool_float(X, p=p)
    if float(p).is_integer():
        return lp_pool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=int(p), pads=pads, strides=strides)
    return _norm_of_windows(X, windows(lp_pool.title, kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad), p)


@lp_pool.lower(to=lp_pool_float)
def _(X, *, ceil_mode, dilations, p, **attributes):
    if not ceil_mode and all(d == 1 for d in dilations or ()):
        return lp_pool_float(X, p=float(p), **attributes)
    return None


through_float32(lp_pool)


@lp_pool.type
def _(X, *, kernel_shape, p, **attributes):
    one_float_dtype(lp_pool.title, X)
    return _pooled_type(lp_pool.title, X, kernel_shape, attributes)


@lp_pool.numpy
def _(X, *, kernel_shape, p, **attributes):
    window = windows(lp_pool.title, kernel_shape, **attributes)
    (x,) = widened(X)
    x = np.abs(x) if p != 2 else x
    y = pool(x.shape, window, np.add, 0)(x * x if p == 2 else x if p == 1 else x**p)
    y = np.sqrt(y) if p == 2 else y if p == 1 else y ** (1 / p)
    return y.astype(X.dtype, copy=False)


@lp_pool.vjp
def _(g, y, X, *, kernel_shape, p, **attributes):
    window = windows(lp_pool.title, kernel_shape, **attributes)
    if p == 1:
        return _spread(g, X, window) * sign(X)
    scaled = where(equal(y, 0), 0, g / where(equal(y, 0), 1, power(y, p - 1)))
    slope = X if p == 2 else sign(X) * power(absolute(X), p - 1)
    return _spread(scaled, X, window) * slope
