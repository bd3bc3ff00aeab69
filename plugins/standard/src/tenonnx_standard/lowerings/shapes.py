"""Lowerings of shape ops and repetition to each other."""

from __future__ import annotations

import math

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_standard.lowerings.registry import (
    count,
    cut,
    integers,
    joined,
    like,
    lowering,
    numbers,
    of_floats,
    reshaped,
    sizes,
    unless,
    within,
)


@lowering(ops.squeeze)
def squeeze_by_reshape(data, axes):
    chosen = _squeezed(data, axes)
    return reshaped(data, [dim for axis, dim in enumerate(data.shape) if axis not in chosen])


@lowering(ops.unsqueeze)
def unsqueeze_by_reshape(data, axes):
    given = numbers(axes).reshape(-1)
    rank = len(data.shape) + len(given)
    chosen, dims = {within(int(a), rank) for a in given}, iter(data.shape)
    return reshaped(data, [1 if axis in chosen else next(dims) for axis in range(rank)])


@lowering(ops.squeeze)
def squeeze_by_gather(data, axes):
    result = data
    for axis in _squeezed(data, axes)[::-1]:
        result = ops.gather(result, constant(np.int64(0)), axis=axis)
    return result


@lowering(ops.squeeze)
def squeeze_by_reduce_sum(data, axes):
    unless(not (data.dtype.is_float or data.dtype in (DType.int32, DType.int64)))
    chosen = _squeezed(data, axes)
    unless(not chosen)  # without axes, ReduceSum sums all elements
    return ops.reduce_sum(data, integers(chosen), keepdims=0)


def _squeezed(data: Value, axes: Value | None) -> list[int]:
    """The squeezed axes."""
    if axes is None:
        return [axis for axis, dim in enumerate(sizes(data)) if dim == 1]
    return sorted({within(int(a), data.rank or 0) for a in numbers(axes).reshape(-1)})


@lowering(ops.unsqueeze)
def unsqueeze_by_expand(data, axes):
    """For leading axes."""
    given = numbers(axes).reshape(-1)
    rank = data.rank + len(given)
    unless(sorted(within(int(a), rank) for a in given) != list(range(len(given))))
    return ops.expand(data, integers([*[1] * len(given), *sizes(data)]))


@lowering(ops.flatten)
def flatten_by_reshape(input, *, axis):
    shape = sizes(input)
    place = within(axis, len(shape))
    return reshaped(input, (math.prod(shape[:place]), math.prod(shape[place:])))


@lowering(ops.flatten)
def flatten_of_any_batch(input, *, axis):
    shape = input.shape
    place = within(axis, len(shape))
    rest = shape[place:]
    unless(place != 1 or not all(isinstance(dim, int) for dim in rest))
    return ops.reshape(input, [-1, math.prod(rest)])


def _new_shape(data: Value, shape: Value, allowzero: int) -> tuple[tuple[int, ...], list[int]]:
    old, wanted = sizes(data), [int(dim) for dim in numbers(shape).reshape(-1)]
    unless(0 in old)
    new = [old[place] if dim == 0 and not allowzero else dim for place, dim in enumerate(wanted)]
    if -1 in new:
        new[new.index(-1)] = math.prod(old) // -math.prod(new)
    return old, new


@lowering(ops.reshape)
def reshape_by_flatten(data, shape, *, allowzero):
    old, new = _new_shape(data, shape, allowzero)
    fits = [axis for axis in range(len(old) + 1) if [math.prod(old[:axis]), math.prod(old[axis:])] == new]
    unless(not fits)
    return ops.flatten(data, axis=fits[0])


@lowering(ops.reshape)
def reshape_by_squeeze(data, shape, *, allowzero):
    """Squeeze and Unsqueeze for a Reshape that only removes or adds axes of length 1."""
    old, new = _new_shape(data, shape, allowzero)
    unless([dim for dim in old if dim != 1] != [dim for dim in new if dim != 1] or list(old) == new)
    ones = [axis for axis, dim in enumerate(old) if dim == 1]
    bare = ops.squeeze(data, integers(ones)) if ones else data
    added = [axis for axis, dim in enumerate(new) if dim == 1]
    return ops.unsqueeze(bare, integers(added)) if added else bare


@lowering(ops.transpose)
def transpose_by_reshape(data, *, perm):
    """If only axes of length 1 move."""
    shape = data.shape
    order = list(perm or range(len(shape))[::-1])
    moved = [axis for axis in order if shape[axis] != 1]
    unless(moved != sorted(moved) or order == sorted(order))
    return reshaped(data, [shape[axis] for axis in order])


@lowering(ops.transpose)
def transpose_by_slices(data, *, perm):
    shape = sizes(data)
    unless(len(shape) != 2 or list(perm or (1, 0)) != [1, 0])
    count(shape[1:], 64)
    return joined([reshaped(cut(data, 1, k, k + 1), (1, shape[0])) for k in range(shape[1])], 0)


@lowering(ops.transpose)
def transpose_by_gather(data, *, perm):
    """Gather all elements by their indices."""
    shape = sizes(data)
    size = math.prod(shape)
    unless(not 0 < size <= 1 << 20)
    places = np.arange(size).reshape(shape).transpose(perm or None)
    return ops.gather(reshaped(data, (size,)), constant(places.astype(np.int64)), axis=0)


# ----- repetition -----------------------------------------------------------------------------------------------------


def _expanded(input: Value, shape: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    old = sizes(input)
    new = np.broadcast_shapes(old, tuple(int(dim) for dim in numbers(shape).reshape(-1)))
    return (1,) * (len(new) - len(old)) + old, new


@lowering(ops.expand)
def expand_by_tile(input, shape):
    old, new = _expanded(input, shape)
    unless(0 in new)
    whole = input if len(old) == input.rank else reshaped(input, old)
    return ops.tile(whole, integers([b // a for a, b in zip(old, new, strict=True)]))


@lowering(ops.expand)
def expand_by_mul(input, shape):
    _, new = _expanded(input, shape)
    unless(not (input.dtype.is_float or input.dtype.is_integer))
    return ops.mul(input, like(input, np.ones(new)))


@lowering(ops.expand)
def expand_by_add(input, shape):
    _, new = _expanded(input, shape)
    unless(not (input.dtype.is_float or input.dtype.is_integer))
    return ops.add(input, like(input, np.full(new, -0.0 if input.dtype.is_float else 0)))


@lowering(ops.expand)
def expand_by_concat(input, shape):
    old, new = _expanded(input, shape)
    result = input if len(old) == input.rank else reshaped(input, old)
    for axis, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            count([b])
            result = ops.concat(*[result] * b, axis=axis)
    return result


@lowering(ops.expand)
def expand_by_where(input, shape):
    _, new = _expanded(input, shape)
    return ops.where(constant(np.ones(new, bool)), input, input)


@lowering(ops.expand)
def expand_by_maximum(input, shape):
    of_floats(input)
    _, new = _expanded(input, shape)
    return ops.maximum(input, like(input, np.full(new, -np.inf)))


@lowering(ops.expand)
def expand_by_gather(input, shape):
    """Repeat each element, axis by axis."""
    old, new = _expanded(input, shape)
    result = input if len(old) == input.rank else reshaped(input, old)
    for axis, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            result = ops.gather(result, integers([0] * b), axis=axis)
    return result


@lowering(ops.tile)
def tile_by_gather(input, repeats):
    result = input
    for axis, (n, times) in enumerate(zip(sizes(input), numbers(repeats).reshape(-1), strict=True)):
        if times != 1:
            result = ops.gather(result, integers(list(range(n)) * int(times)), axis=axis)
    return result


@lowering(ops.tile)
def tile_by_concat(input, repeats):
    result, times = input, [int(count) for count in numbers(repeats).reshape(-1)]
    for axis, each in enumerate(times):
        count([each])
        result = result if each == 1 else ops.concat(*[result] * each, axis=axis)
    return result


@lowering(ops.tile)
def tile_by_expand(input, repeats):
    shape, times = sizes(input), [int(count) for count in numbers(repeats).reshape(-1)]
    split_shape = [n for pair in zip([1] * len(shape), shape, strict=True) for n in pair]
    whole = [n for pair in zip(times, shape, strict=True) for n in pair]
    spread = ops.expand(reshaped(input, split_shape), integers(whole))
    return reshaped(spread, [n * t for n, t in zip(shape, times, strict=True)])


@lowering(ops.tile)
def tile_of_single_elements(input, repeats):
    shape, times = sizes(input), [int(count) for count in numbers(repeats).reshape(-1)]
    unless(any(n != 1 and t != 1 for n, t in zip(shape, times, strict=True)))
    return ops.expand(input, integers([n * t for n, t in zip(shape, times, strict=True)]))
