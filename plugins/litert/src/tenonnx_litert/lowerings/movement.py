"""Reshaping, slicing, joining, gathering and padding."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, elements, static
from tenonnx_litert.builtins import movement as tfl
from tenonnx_litert.lowerings.registry import (
    axes_of,
    int32,
    integers,
    lowers,
    narrow,
    reshaped,
    result_dims,
    shape_vector,
    sizes,
    unless,
)

#: Maximum rank of the operands of TRANSPOSE and STRIDED_SLICE.
_MOST_TRANSPOSED, _MOST_SLICED = 6, 5


# ----- shapes ---------------------------------------------------------------------------------------------------------


@lowers(ops.reshape)
def reshape(x: Value, shape: Value, *, allowzero: int) -> Any:
    if allowzero:  # RESHAPE treats 0 as a size, too
        contents = elements(shape)
        vector = (
            shape_vector([_element(shape, place, n) for place, n in enumerate(contents)]) if contents else narrow(shape)
        )
        return tfl.reshape(x, vector)
    kind = ops.reshape.rules["type"](x, shape, allowzero=0)
    target = kind.shape
    if target is not None and [isinstance(n, int) for n in target].count(False) <= 1 and 0 not in target:
        return reshaped(x, [n if isinstance(n, int) else -1 for n in target])
    return reshaped(x, result_dims(x, shape))


def _element(shape: Value, place: int, known: Any) -> Any:
    """An element of a shape as a number if it is known, else as a value."""
    return known if isinstance(known, int) else ops.gather(shape, place, axis=0)


@lowers(ops.squeeze)
def squeeze(x: Value, axes: Value | None) -> Any:
    rank = x.ndim
    chosen = axes_of(axes, rank) if axes is not None else [k for k, n in enumerate(sizes(x)) if n == 1]
    rest = [n for k, n in enumerate(sizes(x)) if k not in chosen]
    if rest.count(None) <= 1 and 0 not in rest:
        return reshaped(x, [-1 if n is None else n for n in rest])
    return tfl.squeeze(x, squeeze_dims=chosen)


@lowers(ops.unsqueeze)
def unsqueeze(x: Value, axes: Value) -> Any:
    contents = static(axes)
    unless(contents is None, "the axes are not constant")
    rank = x.ndim + np.size(contents)
    chosen = sorted(int(axis) % rank for axis in np.reshape(contents, -1))
    target = sizes(x)
    for axis in chosen:
        target.insert(axis, 1)
    if target.count(None) <= 1 and 0 not in target:
        return reshaped(x, [-1 if n is None else n for n in target])
    for axis in chosen:
        x = tfl.expand_dims(x, int32(axis))
    return x


@lowers(ops.shape)
def shape(x: Value, *, start: int, end: int | None) -> Any:
    y = tfl.shape(x, out_type="int64")
    return y if not start and end is None else ops.slice_(y, [start], [2**31 - 1 if end is None else end], [0])


@lowers(ops.transpose)
def transpose(x: Value, *, perm: list[int] | None) -> Any:
    order = list(range(x.ndim))[::-1] if perm is None else list(perm)
    if order == sorted(order):
        return x
    known = sizes(x)
    long = [axis for axis in order if known[axis] != 1]
    if long == sorted(long) and known.count(None) <= 1 and 0 not in known:
        return reshaped(x, [-1 if known[axis] is None else known[axis] for axis in order])
    if len(order) <= _MOST_TRANSPOSED:
        return tfl.transpose(x, int32(order))
    groups: list[list[int]] = []
    for axis in order:
        if groups and axis == groups[-1][-1] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    unless(len(groups) > _MOST_TRANSPOSED or None in known, f"TRANSPOSE takes up to {_MOST_TRANSPOSED} axes")
    in_order = sorted(groups)
    merged = reshaped(x, [int(np.prod([known[k] for k in group])) for group in in_order])  # type: ignore[misc]
    moved = tfl.transpose(merged, int32([in_order.index(group) for group in groups]))
    return reshaped(moved, [known[axis] for axis in order])


@lowers(ops.expand)
def expand(x: Value, shape: Value) -> Any:
    kind = ops.expand.rules["type"](x, shape) if "type" in ops.expand.rules else None
    known = getattr(kind, "shape", None)
    if known is not None and all(isinstance(n, int) for n in known):
        if list(known) == list(x.shape):
            return x
        target = int32(list(known))
    else:
        target = tfl.broadcast_args(tfl.shape(x), narrow(shape))
    if x.dtype in (DType.float16, DType.uint16, DType.uint32):
        return ops.cast(tfl.broadcast_to(ops.cast(x, to=DType.float32), target), to=x.dtype)
    return tfl.broadcast_to(x, target)


@lowers(ops.tile)
def tile(x: Value, repeats: Value) -> Any:
    return tfl.tile(x, narrow(repeats))


@lowers(ops.constant_of_shape)
def constant_of_shape(shape: Value, *, value: Any) -> Any:
    contents = np.zeros(1, np.float32) if value is None else value.array() if hasattr(value, "array") else value
    return tfl.fill(narrow(shape), constant(np.reshape(contents, ())))


@lowers(ops.range_)
def range_(start: Value, limit: Value, delta: Value, **_: Any) -> Any:
    unless(start.dtype not in (DType.float32, DType.int32, DType.int64), f"RANGE does not take {start.dtype}")
    return tfl.range_(start, limit, delta)


# ----- joining and slicing --------------------------------------------------------------------------------------------


@lowers(ops.concat)
def concat(*values: Value, axis: int) -> Any:
    present = [v for v in values if v.shape is None or 0 not in v.shape] or list(values[:1])
    return present[0] if len(present) == 1 else tfl.concatenation(*present, axis=axis % present[0].ndim)


@lowers(ops.split)
def split(x: Value, lengths: Value | None, *, axis: int, num_outputs: int | None, _outputs: int | None) -> Any:
    axis %= x.ndim
    size = sizes(x)[axis]
    if lengths is not None:
        pieces = integers(lengths, "the lengths")
    else:
        unless(size is None, "the length of the axis is dynamic")
        count = num_outputs or _outputs or 1
        step = -(-(size or 0) // count)
        pieces = [min(step, (size or 0) - k * step) for k in range(count)]
    unless(0 in pieces or min(pieces) < 0, "an output is empty")
    if len(pieces) == 1:
        return x
    if len(set(pieces)) == 1:
        return tuple(tfl.split(int32(axis), x, num_splits=len(pieces)))
    return tuple(tfl.split_v(x, int32(pieces), int32(axis), num_splits=len(pieces)))


@lowers(ops.slice_)
def slice_(x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> Any:
    rank = x.ndim
    firsts, lasts = elements(starts), elements(ends)
    unless(axes is None and (firsts is None or lasts is None), "the number of axes is unknown")
    chosen = list(range(len(firsts or ()))) if axes is None else axes_of(axes, rank)
    firsts, lasts = (source or [None] * len(chosen) for source in (firsts, lasts))
    strides = [1] * len(chosen) if steps is None else integers(steps, "the steps")
    unless(rank > _MOST_SLICED, f"STRIDED_SLICE takes up to {_MOST_SLICED} axes")
    begin: list[Any] = [0] * rank
    end: list[Any] = [0] * rank
    step = [1] * rank
    masks = [sum(1 << k for k in range(rank) if k not in chosen)] * 2
    for place, axis in enumerate(chosen):
        step[axis] = strides[place]
        for source, known, bounds, which in ((starts, firsts, begin, 0), (ends, lasts, end, 1)):
            value = known[place]
            if isinstance(value, int):
                bounds[axis] = value
                beyond = value >= 2**31 - 1 or value <= -(2**31) + 1
                size = sizes(x)[axis]
                if isinstance(size, int) and strides[place] > 0 and which:
                    beyond = beyond or value >= size
                if strides[place] < 0 and which and isinstance(size, int):
                    beyond = beyond or value < -size
                if beyond:
                    bounds[axis] = 0
                    if (value > 0) == (which == (strides[place] > 0)):
                        masks[which] |= 1 << axis
                    else:
                        bounds[axis] = 2**31 - 1 if value > 0 else -(2**31)
            else:
                bounds[axis] = ops.gather(source, place, axis=0)
    if set(step) == {1} and masks[1] == (1 << rank) - 1 and all(isinstance(n, int) and n == 0 for n in begin):
        return x
    return tfl.strided_slice(
        x, shape_vector(begin), shape_vector(end), int32(step), begin_mask=masks[0], end_mask=masks[1]
    )


# ----- gathering ------------------------------------------------------------------------------------------------------


def _from_front(indices: Value, size: Any) -> Value:
    """Add the size to negative positions. Positions that are computed as sizes count as nonnegative."""
    contents = static(indices)
    if contents is not None:
        if not (contents < 0).any():
            return constant(contents.astype(np.int32))
        unless(not isinstance(size, int), "an axis is dynamic")
        return constant(np.where(contents < 0, contents + size, contents).astype(np.int32))
    if indices.symbolic_contents is not None or not isinstance(size, int):
        return indices
    wide = constant(np.asarray(size, indices.dtype.numpy))
    zero = constant(np.zeros((), indices.dtype.numpy))
    return ops.where(ops.less(indices, zero), indices + wide, indices)  # type: ignore[no-any-return]


@lowers(ops.gather)
def gather(x: Value, indices: Value, *, axis: int) -> Any:
    axis %= x.ndim
    size = sizes(x)[axis]
    contents = static(indices)
    if contents is not None and (contents < 0).any() and size is None:
        unless(contents.ndim > 0, "negative indices into a dynamic axis are not supported")
        index = int(contents)
        y = tfl.strided_slice(
            x,
            int32([0] * axis + [index]),
            int32([0] * axis + [0 if index == -1 else index + 1]),
            int32([1] * (axis + 1)),
            begin_mask=(1 << axis) - 1,
            end_mask=(1 << axis) - 1 | (1 << axis if index == -1 else 0),
        )
        return ops.squeeze(y, [axis])
    return tfl.gather(x, _from_front(indices, size), axis=axis)


@lowers(ops.gather_nd)
def gather_nd(x: Value, indices: Value, *, batch_dims: int) -> Any:
    unless(bool(batch_dims), "GATHER_ND has no batch dims")
    depth = indices.shape[-1]
    unless(not isinstance(depth, int), "the depth of the positions is dynamic")
    return tfl.gather_nd(x, _positions_from_front(indices, x, depth))


def _positions_from_front(indices: Value, x: Value, depth: int) -> Value:
    """Positions in the first axes of ``x``, in int32."""
    where = ops.cast(indices, to=DType.int32)
    front = shape_vector(dims(x)[:depth])
    return ops.where(ops.less(where, int32(0)), where + front, where)  # type: ignore[no-any-return]


@lowers(ops.scatter_nd)
def scatter_nd(data: Value, indices: Value, updates: Value, *, reduction: str) -> Any:
    unless(reduction not in ("none", "add"), "SCATTER_ND adds updates instead of replacing elements")
    unless(data.dtype not in (DType.float32, DType.int32, DType.int64), f"SCATTER_ND does not take {data.dtype}")
    target = shape_vector(dims(data))
    depth = indices.shape[-1]
    unless(not isinstance(depth, int), "the depth of the positions is dynamic")
    where = _positions_from_front(indices, data, depth)
    spread = tfl.scatter_nd(where, updates, target)
    if reduction == "add":
        return data + spread
    ones = ops.expand(constant(np.ones((), np.int32)), ops.shape(updates))
    counted = tfl.scatter_nd(where, ones, target)
    if data.dtype is not DType.int64:  # SCATTER_ND adds: divide by the count where a position occurs several times
        often = ops.maximum(counted, int32(1))
        spread = ops.div(spread, often if data.dtype is DType.int32 else ops.cast(often, to=DType.float32))
    return ops.where(ops.greater(counted, int32(0)), spread, data)


@lowers(ops.non_zero)
def non_zero(x: Value) -> Any:
    condition = x if x.dtype is DType.bool else ops.cast(x, to=DType.bool)
    return ops.transpose(tfl.where(condition), perm=[1, 0])


# ----- padding --------------------------------------------------------------------------------------------------------


@lowers(ops.pad)
def pad(x: Value, pads: Value, value: Value | None, axes: Value | None, *, mode: str) -> Any:
    contents = static(pads)
    if contents is None:
        unless(mode != "constant" or axes is not None, "the widths of the padding are not constant")
        paddings = ops.transpose(ops.reshape(pads, [2, -1]), perm=[1, 0])
        return _padded(x, narrow(paddings), value)
    widths = np.zeros((x.ndim, 2), np.int64)
    chosen = list(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    widths[chosen] = np.reshape(contents, (2, -1)).T
    if (widths < 0).any():
        cut = np.minimum(widths, 0)
        places = [int(k) for k in np.flatnonzero(cut.any(1))]
        ends = [int(cut[k, 1]) or 2**31 - 1 for k in places]
        x = ops.slice_(x, [int(-cut[k, 0]) for k in places], ends, places)
        widths = np.maximum(widths, 0)
    if not widths.any():
        return x
    if mode == "reflect":
        return tfl.mirror_pad(x, int32(widths), mode="REFLECT")
    if mode == "constant":
        return _padded(x, int32(widths), value)
    if mode == "edge":
        return _edges(x, widths)
    unless(True, f"no builtin operator pads by {mode}")
    return None


def _padded(x: Value, paddings: Value, value: Value | None) -> Value:
    contents = None if value is None else static(value)
    if value is None or (contents is not None and not contents.any()):
        return tfl.pad(x, paddings)  # type: ignore[no-any-return]
    return tfl.padv2(x, paddings, ops.reshape(value, [1]))  # type: ignore[no-any-return]


def _edges(x: Value, widths: Any) -> Value:
    for axis in map(int, np.flatnonzero(widths.any(1))):
        before, after = (int(n) for n in widths[axis])
        first, last = ops.slice_(x, [0], [1], [axis]), ops.slice_(x, [-1], [2**31 - 1], [axis])
        parts = [x]
        if before:
            parts.insert(0, ops.tile(first, [before if k == axis else 1 for k in range(x.ndim)]))
        if after:
            parts.append(ops.tile(last, [after if k == axis else 1 for k in range(x.ndim)]))
        x = ops.concat(*parts, axis=axis)
    return x


@lowers(ops.one_hot)
def one_hot(indices: Value, depth: Value, values: Value, *, axis: int) -> Any:
    contents = static(depth)
    unless(contents is None, "the depth is not constant")
    size = int(np.reshape(contents, -1)[0])
    positions = indices if indices.dtype in (DType.int32, DType.int64) else ops.cast(indices, to=DType.int64)
    zero = constant(np.zeros((), positions.dtype.numpy))
    shifted = positions + constant(np.asarray(size, positions.dtype.numpy))
    from_front = ops.where(ops.less(positions, zero), shifted, positions)
    off, on = (ops.reshape(ops.slice_(values, [k], [k + 1], [0]), []) for k in (0, 1))
    return tfl.one_hot(from_front, int32(size), on, off, axis=axis)
