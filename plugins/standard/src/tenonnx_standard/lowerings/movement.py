"""Lowerings of slicing, concatenation, padding and gathering to other ops."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

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

# ----- slices and padding ---------------------------------------------------------------------------------------------


@lowering(ops.split)
def split_by_slices(input, split, *, axis, num_outputs, _outputs=None):
    size = input.shape[within(axis, input.rank)]
    unless(not isinstance(size, int))
    if split is not None:
        parts = [int(part) for part in numbers(split).reshape(-1)]
    else:
        pieces = num_outputs or _outputs
        unless(not pieces)
        each = -(-size // pieces)
        parts = [min(each, size - place * each) for place in range(pieces)]
    ends = np.cumsum(parts)
    return tuple(cut(input, axis, int(end) - part, int(end)) for part, end in zip(parts, ends, strict=True))


def _ranges(data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> dict[int, range]:
    """For each sliced axis, the range of its elements."""
    begin, end = numbers(starts).reshape(-1), numbers(ends).reshape(-1)
    chosen = range(len(begin)) if axes is None else numbers(axes).reshape(-1)
    step = [1] * len(begin) if steps is None else numbers(steps).reshape(-1)
    result = {}
    for a, b, axis, by in zip(begin, end, chosen, step, strict=True):
        where = within(int(axis), data.rank or 0)
        size = (data.shape or ())[where]
        unless(not isinstance(size, int))
        low, high = (max(min(int(n) + size * (n < 0), size), -1 if by < 0 else 0) for n in (a, b))
        low, high = (min(low, size - 1), high if b >= -size else -1) if by < 0 else (low, high)
        result[where] = range(low, high, int(by))
    return result


def _one_range(*arguments: Any) -> tuple[int, range]:
    ranges = _ranges(*arguments)
    unless(len(ranges) != 1)
    return next(iter(ranges.items()))


@lowering(ops.slice_)
def slice_of_single_axes(data, starts, ends, axes, steps):
    ranges = _ranges(data, starts, ends, axes, steps)
    unless(len(ranges) < 2 or any(each.step < 0 for each in ranges.values()))
    result = data
    for axis, each in ranges.items():
        result = cut(result, axis, each.start, each.stop, each.step)
    return result


@lowering(ops.slice_)
def slice_by_split(data, starts, ends, axes, steps):
    axis, chosen = _one_range(data, starts, ends, axes, steps)
    size = data.shape[axis]
    unless(chosen.step != 1 or not len(chosen))
    parts = [chosen.start, len(chosen), size - chosen.stop]
    place = 1 if parts[0] else 0
    kept = [part for part in parts if part]
    return data if len(kept) == 1 else ops.split(data, integers(kept), axis=axis)[place]


@lowering(ops.slice_)
def slice_by_gather(data, starts, ends, axes, steps):
    axis, chosen = _one_range(data, starts, ends, axes, steps)
    return ops.gather(data, integers(list(chosen)), axis=axis)


@lowering(ops.slice_)
def slice_by_pad(data, starts, ends, axes, steps):
    """Negative pads crop."""
    axis, chosen = _one_range(data, starts, ends, axes, steps)
    unless(chosen.step != 1)
    pads = np.zeros((2, data.rank), int)
    pads[:, axis] = -chosen.start, chosen.stop - data.shape[axis]
    return ops.pad(data, integers(pads.reshape(-1).tolist()))


@lowering(ops.slice_)
def slice_with_step_by_pieces(data, starts, ends, axes, steps):
    axis, chosen = _one_range(data, starts, ends, axes, steps)
    unless(chosen.step == 1)
    count([len(chosen)])
    return joined([cut(data, axis, place, place + 1) for place in chosen], axis)


def _by_stride(function: Any, data: Value, *cut_: Any) -> Any:
    """Every n-th element along an axis of images, starting with the first, by windows of one element."""
    of_floats(data)
    axis, chosen = _one_range(data, *cut_)
    unless(data.rank not in (4, 5) or axis < 2 or chosen.start != 0 or chosen.step < 1)
    unless(len(chosen) != -(-sizes(data)[axis] // chosen.step))
    rank = data.rank - 2  # type: ignore[operator]
    return function(data, [chosen.step if place == axis - 2 else 1 for place in range(rank)])


def _strided_conv(data: Value, strides: list[int]) -> Any:
    channels = sizes(data)[1]
    return ops.conv(data, like(data, np.ones((channels, 1, *[1] * len(strides)))), group=channels, strides=strides)


def _strided_max_pool(data: Value, strides: list[int]) -> Any:
    return ops.max_pool(data, kernel_shape=[1] * len(strides), strides=strides)


lowering(ops.slice_)(partial(_by_stride, _strided_conv))
lowering(ops.slice_)(partial(_by_stride, _strided_max_pool))


@lowering(ops.slice_, "finite")
def slice_by_matmul(data, starts, ends, axes, steps):
    of_floats(data)
    axis, chosen = _one_range(data, starts, ends, axes, steps)
    chooser = np.eye(data.shape[axis])[list(chosen)]
    unless(data.rank < 2 or axis < data.rank - 2)
    if axis == data.rank - 1:
        return ops.matmul(data, like(data, chooser.T))
    return ops.matmul(like(data, chooser), data)


@lowering(ops.concat)
def concat_of_one(*inputs, axis):
    unless(len(inputs) != 1)
    return inputs[0]


@lowering(ops.concat)
def concat_by_pad(*inputs, axis):
    """The sum of inputs padded with zeros."""
    of_floats(*inputs)
    shapes = list(map(sizes, inputs))
    where = within(axis, len(shapes[0]))
    widths = [shape[where] for shape in shapes]
    padded = []
    for place, value in enumerate(inputs):
        pads = np.zeros((2, len(shapes[0])), int)
        pads[:, where] = sum(widths[:place]), sum(widths[place + 1 :])
        padded.append(ops.pad(value, integers(pads.reshape(-1).tolist())))
    return reduce(ops.add, padded)


def constant_pads(data: Value, pads: Value, filling: Value | None, axes: Value | None, mode: str) -> Any:
    """The pads before and after each axis, and the fill value."""
    unless(mode != "constant")
    given = [int(pad) for pad in numbers(pads).reshape(-1)]
    rank = data.rank or 0
    chosen = list(range(rank)) if axes is None else [within(int(a), rank) for a in numbers(axes).reshape(-1)]
    begin, end = [0] * rank, [0] * rank
    for place, axis in enumerate(chosen):
        begin[axis], end[axis] = given[place], given[place + len(chosen)]
    default = "" if data.dtype is DType.string else 0
    return begin, end, default if filling is None else numbers(filling).reshape(-1)[0]


@lowering(ops.pad)
def pad_by_concat(data, pads, constant_value, axes, *, mode):
    """Concatenate constants before and after the data, axis by axis."""
    begin, end, filling = constant_pads(data, pads, constant_value, axes, mode)
    result, shape = data, list(sizes(data))
    for axis, (before, behind) in enumerate(zip(begin, end, strict=True)):
        if before < 0 or behind < 0:
            unless(max(-before, 0) + max(-behind, 0) > shape[axis], "negative pads remove more than an axis has")
            result = cut(result, axis, max(-before, 0), shape[axis] - max(-behind, 0))
            shape[axis] -= max(-before, 0) + max(-behind, 0)
        blocks = [
            like(data, np.full([*shape[:axis], max(n, 0), *shape[axis + 1 :]], filling)) for n in (before, behind)
        ]
        parts = [
            *([blocks[0]] if before > 0 else []),
            result,
            *([blocks[1]] if behind > 0 else []),
        ]
        result = joined(parts, axis)
        shape[axis] += max(before, 0) + max(behind, 0)
    return result


@lowering(ops.pad, "finite")
def pad_by_matmul(data, pads, constant_value, axes, *, mode):
    """Pad the last two axes with zeros by an identity matrix with rows and columns of zeros."""
    of_floats(data)
    begin, end, filling = constant_pads(data, pads, constant_value, axes, mode)
    unless(data.rank < 2 or filling != 0 or any(begin[:-2]) or any(end[:-2]) or min(begin + end) < 0)
    result = data
    for axis in (-2, -1):
        if begin[axis] or end[axis]:
            spread = np.pad(np.eye(sizes(data)[axis]), ((0, 0), (begin[axis], end[axis])))
            result = ops.matmul(result, like(data, spread)) if axis == -1 else ops.matmul(like(data, spread.T), result)
    return result


@lowering(ops.pad)
def pad_by_repetition(data, pads, constant_value, axes, *, mode):
    """Concatenate elements of the data before and after it, axis by axis."""
    unless(mode not in ("edge", "reflect", "wrap"))
    begin, end, _ = constant_pads(data, pads, None, axes, "constant")
    unless(min(begin + end) < 0)
    result = data
    for axis, (before, behind, size) in enumerate(zip(begin, end, sizes(data), strict=True)):
        if before or behind:
            places = np.pad(np.arange(size), (before, behind), mode=mode)
            result = ops.gather(result, integers(places.tolist()), axis=axis)
    return result


# ----- selection ------------------------------------------------------------------------------------------------------


def runs(places: Any) -> list[range]:
    """Consecutive numbers as ranges."""
    result: list[range] = []
    for place in places:
        if result and result[-1].stop == place:
            result[-1] = range(result[-1].start, place + 1)
        else:
            result.append(range(place, place + 1))
    return result


@lowering(ops.gather)
def gather_by_slices(data, indices, *, axis):
    where, chosen = within(axis, data.rank), numbers(indices)
    size = data.shape[where]
    unless(not isinstance(size, int) or not chosen.size)
    ranges = runs([within(int(index), size) for index in chosen.reshape(-1)])
    count([len(ranges)])
    gathered = joined([cut(data, where, each.start, each.stop) for each in ranges], where)
    if chosen.ndim == 1:
        return gathered
    return reshaped(gathered, [*data.shape[:where], *chosen.shape, *data.shape[where + 1 :]])


@lowering(ops.gather)
def gather_by_gather_nd(data, indices, *, axis):
    unless(within(axis, data.rank) != 0)
    return ops.gather_nd(data, ops.unsqueeze(indices, integers([indices.rank])))


@lowering(ops.gather)
def gather_by_gather_elements(data, indices, *, axis):
    unless(data.rank != 1 or indices.rank != 1)
    return ops.gather_elements(data, indices, axis=0)


@lowering(ops.gather, "finite")
def gather_by_matmul(data, indices, *, axis):
    """One-hot rows times the data."""
    of_floats(data)
    shape, where = sizes(data), within(axis, data.rank)
    order = [where, *(other for other in range(len(shape)) if other != where)]
    front = data if where == 0 else ops.transpose(data, perm=order)
    flat = reshaped(front, (shape[where], -1)) if len(shape) != 2 else front
    ones = ops.one_hot(indices, integers([shape[where]]), like(data, [0, 1]), axis=-1)
    rows_ = ones if indices.rank else reshaped(ones, (1, shape[where]))
    gathered = ops.matmul(rows_, flat)
    others = [shape[other] for other in order[1:]]
    gathered = reshaped(gathered, [*indices.shape, *others])
    if where == 0:
        return gathered
    rank = indices.rank
    back = [*range(rank, rank + where), *range(rank), *range(rank + where, rank + len(others))]
    return ops.transpose(gathered, perm=back)


@lowering(ops.one_hot)
def one_hot_by_equal(indices, depth, values, *, axis):
    """Compare the wrapped indices with all numbers."""
    size = int(numbers(depth).reshape(-1)[0])
    unless(axis not in (-1, indices.rank) or not indices.dtype.is_integer)
    each = like(indices, np.arange(size))
    column = ops.unsqueeze(indices, integers([indices.rank]))
    chosen = ops.or_(ops.equal(column, each), ops.equal(column, like(indices, np.arange(size) - size)))
    off, on = (constant(np.asarray(v), values.dtype) for v in numbers(values).reshape(-1))
    return ops.where(chosen, on, off)


@lowering(ops.one_hot)
def one_hot_by_casts(indices, depth, values, *, axis):
    """Only for values 0 and 1: sums of comparisons with the numbers from 0 up, and from -1 down."""
    size = int(numbers(depth).reshape(-1)[0])
    unless(axis not in (-1, indices.rank) or not indices.dtype.is_integer or values.dtype.is_complex)
    unless(numbers(values).reshape(-1).tolist() != [0, 1])
    column = ops.unsqueeze(indices, integers([indices.rank]))
    above, below = (ops.equal(column, like(indices, np.arange(size) - offset)) for offset in (0, size))
    return ops.add(ops.cast(above, to=values.dtype), ops.cast(below, to=values.dtype))


@lowering(ops.trilu, "finite")
def trilu_by_mul(input, k, *, upper):
    of_floats(input)
    offset = 0 if k is None else int(numbers(k).reshape(-1)[0])
    shape = sizes(input)
    mask = np.triu(np.ones(shape[-2:]), offset) if upper else np.tril(np.ones(shape[-2:]), offset)
    return ops.mul(input, like(input, mask))


@lowering(ops.reverse_sequence)
def reverse_sequence_by_slices(input, sequence_lens, *, batch_axis, time_axis):
    """For known lengths, one slice per batch entry."""
    length, lengths = sizes(input)[time_axis], numbers(sequence_lens).reshape(-1)
    count([len(lengths)])
    rows = []
    for place, n in enumerate(map(int, lengths)):
        order = [*range(n)[::-1], *range(n, length)]
        rows.append(ops.gather(cut(input, batch_axis, place, place + 1), integers(order), axis=time_axis))
    return joined(rows, batch_axis)
