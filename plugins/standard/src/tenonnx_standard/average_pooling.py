"""AveragePool: the mean of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenonnx.extend import (
    Operand,
    Value,
    constant,
    dims,
    limits,
    op,
)
from tenonnx_standard.convolution import transposed_to
from tenonnx_standard.padding import pad
from tenonnx_standard.shapes import expand, reshape, shape
from tenonnx_standard.windows import (
    Array,
    Windows,
    along_axes,
    covering,
    end_in_padding,
    floored,
    infer_float_pool,
    of_nothing,
    one_axis,
    padded_with,
    plainly,
    pool,
    reaching,
    sum_taps,
    through_float32,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@op("AveragePool", since=1)
def average_pool(
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    count_include_pad=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The mean of each window, over its elements inside the input; with ``count_include_pad`` over the padding too."""
    window = windows(
        average_pool.title,
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    if 0 in X.shape:
        return of_nothing(X, window)
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
    """For each axis, the number of elements that each window counts along it."""
    sizes = dims(X)[2:]
    begins, ends = window.padding(sizes)
    reached = reaching(window, sizes, begins, ends) if window.ceil_mode else ends
    outputs = window.outputs(sizes)
    result: list[Value | float] = []
    for k in range(window.rank):
        before, counted, after = begins[k], sizes[k], reached[k]
        if count_include_pad:
            before, counted, after = 0, begins[k] + sizes[k] + ends[k], reached[k] - ends[k]
        if isinstance(before, int) and isinstance(after, int) and not before and not after:
            result.append(float(window.kernel[k]))
            continue
        ones = pad(expand(constant(np.ones((1, 1, 1)), X.dtype), [1, 1, counted]), [0, 0, before, 0, 0, after])
        counts = along_axes(ones, one_axis(window, k), outputs[k : k + 1], sum_taps)
        result.append(reshape(counts, [-1, *(1,) * (window.rank - 1 - k)]))
    return result


average_pool.until(19, lacks=["dilations"])
average_pool.until(10, lacks=["ceil_mode"])
average_pool.until(7, lacks=["count_include_pad"])
end_in_padding(average_pool)
through_float32(average_pool)
infer_float_pool(average_pool, "count_include_pad")


@average_pool.numpy
def average_pool_numpy(X, *, kernel_shape, count_include_pad, **attributes):
    return _mean_kernel(X, windows(average_pool.title, kernel_shape, **attributes), count_include_pad)(X)


@average_pool.specialize
def average_pool_specialize(X, *, kernel_shape, count_include_pad, **attributes):
    return _mean_kernel(X, windows(average_pool.title, kernel_shape, **attributes), count_include_pad)


def _mean_kernel(X: Operand | Array, window: Windows, count_include_pad: int) -> Callable[[Array], Array]:
    """A function that averages the windows of images like ``X``."""
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
    """For each axis, one over the number of elements that each window counts."""
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
def average_pool_vjp(g, y, X, *, kernel_shape, count_include_pad, **attributes):
    window = windows(average_pool.title, kernel_shape, **attributes)
    for divisor in _divisors(X, window, count_include_pad):
        g = g / divisor
    return spread_over_windows(g, X, window)


def spread_over_windows(g: Value, X: Value, window: Windows) -> Value:
    """Add each element of ``g`` to all elements of its window: the transpose of a sum over the windows of ``X``."""
    ones = constant(np.ones(limits.sized((1, 1, *window.kernel), window.title)), X.dtype)
    images = reshape(X, [-1, 1, *dims(X)[2:]])
    result = transposed_to(images, reshape(g, [-1, 1, *dims(g)[2:]]), ones, window, 1)
    return reshape(result, shape(X))
