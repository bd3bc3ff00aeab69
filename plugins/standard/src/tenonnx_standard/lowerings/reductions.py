"""Lowerings of reductions to others, to matrix products and to slices."""

from __future__ import annotations

import string
from functools import partial, reduce
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_standard.lowerings.registry import (
    count,
    cut,
    integers,
    like,
    lowering,
    not_of_half,
    numbers,
    of_floats,
    reshaped,
    sizes,
    unless,
    within,
)


def reduced(data: Value, axes: Value | None, noop: int) -> tuple[list[int], int]:
    """The reduced axes in order, and the number of elements reduced to each result."""
    shape = data.shape or ()
    chosen = [] if axes is None else [within(int(a), len(shape)) for a in numbers(axes).reshape(-1)]
    unless(not chosen and noop != 0)
    chosen = sorted(set(chosen)) or list(range(len(shape)))
    dims = [shape[axis] for axis in chosen]
    unless(not shape or not all(isinstance(dim, int) for dim in dims))
    inner = int(np.prod(dims))
    unless(inner == 0)
    return chosen, inner


def rows(data: Value, axes: Value | None, keepdims: int, noop: int) -> tuple[Value, int, list[Any]]:
    """A matrix whose last axis has the reduced elements, its length, and the dims of the result."""
    shape = data.shape or ()
    chosen, inner = reduced(data, axes, noop)
    others = [axis for axis in range(len(shape)) if axis not in chosen]
    order = [*others, *chosen]
    moved = data if order == sorted(order) else ops.transpose(data, perm=order)
    flat = ops.reshape(moved, [-1, inner]) if moved.rank != 2 or len(chosen) != 1 else moved
    result = (
        [1 if axis in chosen else dim for axis, dim in enumerate(shape)] if keepdims else [shape[a] for a in others]
    )
    return flat, inner, result


@lowering(ops.reduce_sum, "rounding")
def reduce_sum_by_matmul(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    flat, inner, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    return reshaped(ops.matmul(flat, like(data, np.ones((inner, 1)))), dims)


@lowering(ops.reduce_mean, "rounding")
def reduce_mean_by_matmul(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    flat, inner, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    return reshaped(ops.matmul(flat, like(data, np.full((inner, 1), 1 / inner))), dims)


@lowering(ops.reduce_mean, "rounding")
def reduce_mean_by_sum(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    _, inner = reduced(data, axes, noop_with_empty_axes)
    total = ops.reduce_sum(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    return ops.div(total, like(data, inner))


@lowering(ops.reduce_sum, "rounding")
def reduce_sum_by_mean(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    _, inner = reduced(data, axes, noop_with_empty_axes)
    mean = ops.reduce_mean(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    return ops.mul(mean, like(data, inner))


def _image(flat: Value, inner: int) -> Value:
    """Rows as the channels of a single image."""
    outer = (flat.shape or (None,))[0]
    return reshaped(flat, (1, outer, inner, 1))


@lowering(ops.reduce_mean, "rounding")
def reduce_mean_by_global_average_pool(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    flat, inner, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    return reshaped(ops.global_average_pool(_image(flat, inner)), dims)


def _of_images(pool: Any, data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
    """Reduce exactly the spatial axes of images."""
    of_floats(data)
    chosen, _ = reduced(data, axes, noop_with_empty_axes)
    unless((data.rank or 0) < 3 or chosen != list(range(2, data.rank or 0)))
    pooled = pool(data)
    return pooled if keepdims else reshaped(pooled, (data.shape or ())[:2])


lowering(ops.reduce_mean, "rounding")(partial(_of_images, ops.global_average_pool))
lowering(ops.reduce_max)(partial(_of_images, ops.global_max_pool))


@lowering(ops.reduce_mean, "rounding")
def reduce_mean_of_channels_by_conv(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    chosen, channels = reduced(data, axes, noop_with_empty_axes)
    unless(data.rank not in (4, 5) or chosen != [1])
    mean = ops.conv(data, like(data, np.full((1, channels, *[1] * (data.rank - 2)), 1 / channels)))
    return mean if keepdims else reshaped(mean, [*data.shape[:1], *data.shape[2:]])


@lowering(ops.reduce_sum, "rounding")
def reduce_sum_by_einsum(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    chosen, _ = reduced(data, axes, noop_with_empty_axes)
    letters = string.ascii_lowercase[: data.rank]
    total = ops.einsum(data, equation=f"{letters}->{''.join(letters[a] for a in range(data.rank) if a not in chosen)}")
    return reshaped(total, [1 if a in chosen else dim for a, dim in enumerate(data.shape)]) if keepdims else total


@lowering(ops.reduce_max)
def reduce_max_by_global_max_pool(data, axes, *, keepdims, noop_with_empty_axes):
    of_floats(data)
    flat, inner, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    return reshaped(ops.global_max_pool(_image(flat, inner)), dims)


@lowering(ops.reduce_max)
def reduce_max_by_top_k(data, axes, *, keepdims, noop_with_empty_axes):
    flat, _, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    return reshaped(ops.top_k(flat, integers([1]), axis=1)[0], dims)


@lowering(ops.reduce_max)
def reduce_max_by_minimum(data, axes, **attributes):
    of_floats(data)
    return ops.neg(ops.reduce_min(ops.neg(data), axes, **attributes))


@lowering(ops.reduce_min)
def reduce_min_by_maximum(data, axes, **attributes):
    of_floats(data)
    return ops.neg(ops.reduce_max(ops.neg(data), axes, **attributes))


def _by_slices(combine: Any, data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
    flat, inner, dims = rows(data, axes, keepdims, noop_with_empty_axes)
    count([inner], 128)
    return reshaped(reduce(combine, [cut(flat, 1, place, place + 1) for place in range(inner)]), dims)


lowering(ops.reduce_sum, "rounding")(partial(_by_slices, ops.add))
lowering(ops.reduce_prod, "rounding")(partial(_by_slices, ops.mul))
lowering(ops.reduce_max)(partial(_by_slices, ops.maximum))
lowering(ops.reduce_min)(partial(_by_slices, ops.minimum))


@lowering(ops.reduce_log_sum_exp, "finite")
def reduce_log_sum_exp_without_maximum(data, axes, **attributes):
    of_floats(data)
    not_of_half(data)
    return ops.log(ops.reduce_sum(ops.exp(data), axes, **attributes))


@lowering(ops.reduce_l2, "rounding")
def reduce_l2_by_squares(data, axes, **attributes):
    of_floats(data)
    not_of_half(data)
    return ops.sqrt(ops.reduce_sum(ops.mul(data, data), axes, **attributes))


@lowering(ops.reduce_l2, "rounding")
def reduce_l2_by_sum_square(data, axes, **attributes):
    of_floats(data)
    not_of_half(data)
    return ops.sqrt(ops.reduce_sum_square(data, axes, **attributes))


@lowering(ops.lp_normalization, "finite")
def lp_normalization_by_maximum(input, *, axis, p):
    of_floats(input)
    norm = (ops.reduce_l1 if p == 1 else ops.reduce_l2)(input, integers([axis]))
    return ops.div(input, ops.maximum(norm, like(input, np.finfo(np.float16).tiny)))


@lowering(ops.cumsum, "finite")
def cumsum_by_matmul(x, axis, *, exclusive, reverse):
    of_floats(x)
    where = within(int(numbers(axis).reshape(-1)[0]), x.rank)
    unless(where != x.rank - 1)
    size = sizes(x)[-1]
    before = np.triu(np.ones((size, size)), 1 if exclusive else 0)
    return ops.matmul(x, like(x, before.T if reverse else before))


@lowering(ops.cumsum, "rounding")
def cumsum_by_sums(x, axis, *, exclusive, reverse):
    unless(exclusive)
    where = within(int(numbers(axis).reshape(-1)[0]), x.rank)
    size = sizes(x)[where]
    count([size], 64)
    order = range(size)[::-1] if reverse else range(size)
    total, sums = None, []
    for place in order:
        piece = cut(x, where, place, place + 1)
        total = piece if total is None else ops.add(total, piece)
        sums.append(total)
    return sums[0] if size == 1 else ops.concat(*(sums[::-1] if reverse else sums), axis=where)
