"""Lowerings of axes and bounds known only at run time, to ops with constant ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value, constant, elements, static, symbolic
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import dim_of, length
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import equal, greater, less, not_, where
from tenonnx_standard.math import maximum, minimum
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum, worst
from tenonnx_standard.shapes import expand, reshape, shape, size, squeeze, unsqueeze
from tenonnx_standard.slicing import compress, gather, slice_

#: Greater steps are clipped to this; no axis is longer, and sums of it cannot overflow.
LONGEST = 1 << 40


def along(x: Value, axis: Value, function: Callable[[Value, int], Value], *, kept: int = 0) -> Value:
    """Call ``function(x, axis)`` on a view in which the axes before ``axis``, and those after it, are merged."""
    free = x.ndim - kept
    if free == 1:
        return function(x, 0)
    sizes, places = shape(x), constant(np.arange(free))
    outer, inner = slice_(sizes, [0], [free]), slice_(sizes, [free], [x.ndim])
    place = _from_front(reshape(axis, [1]), x.ndim)
    before = reduce_prod(where(less(places, place), outer, 1))
    behind = reduce_prod(where(greater(places, place), outer, 1))
    full = _is_full(x)
    y = function(_in_shape(x, concat(before, gather(outer, place), behind, inner, axis=0), full), 1)
    found = shape(y)
    outer = where(equal(places, place), found[1:2], outer)
    return _in_shape(y, concat(outer, slice_(found, [3], [3 + kept]), axis=0), full)


def _is_full(x: Value) -> bool:
    return all(map(symbolic.is_known_positive, x.shape))


def _in_shape(x: Value, lengths: Value, full: bool) -> Value:
    """Reshape ``x``; a length of 0 means 0 here, while older versions of Reshape copy the length of ``x``.

    Unless ``x`` is ``full`` (not empty), elements are appended for a shape without 0, then sliced off.
    """
    if full or lengths.shape == (0,):
        return reshape(x, lengths)  # type: ignore[no-any-return]
    least = maximum(lengths, 1)
    missing = reduce_prod(least, keepdims=1) - size(x)
    nothing = constant(np.full(1, "" if x.dtype is DType.string else 0, x.dtype.numpy), x.dtype)
    y = reshape(concat(reshape(x, [-1]), expand(nothing, missing), axis=0), least)
    return slice_(y, constant(np.zeros(y.ndim, np.int64)), lengths)  # type: ignore[no-any-return]


def _from_front(places: Value, size: Any) -> Value:
    """Axes or positions as non-negative numbers; ``size`` is added to negative ones."""
    places = ops.as_int64(places)
    return where(less(places, 0), places + size, places)


def _listed(axes: Value, rank: int) -> Value:
    """For each axis of a tensor of that rank, whether ``axes`` contains it."""
    matches = equal(constant(np.arange(rank).reshape(-1, 1)), unsqueeze(_from_front(axes, rank), [0]))
    return cast(reduce_max(cast(matches, to=DType.float32), [1], keepdims=0), to=DType.bool)


def _others(data: Value, listed: Value, count: int) -> Value:
    """The ``count`` lengths of the axes that ``listed`` excludes."""
    return reshape(compress(shape(data), not_(listed)), [count])


@squeeze.lower()
def squeeze_lowering(data: Value, axes: Value | None) -> Value | None:
    count = None if axes is None else length(axes)
    if axes is None or static(axes) is not None or data.rank is None or count is None:
        return None
    return _in_shape(data, _others(data, _listed(axes, data.ndim), data.ndim - count), _is_full(data))


@unsqueeze.lower()
def unsqueeze_lowering(data: Value, axes: Value) -> Value | None:
    """The new shape takes the lengths of ``data`` by the running count of existing axes."""
    count = length(axes)
    if static(axes) is not None or data.rank is None or count is None:
        return None
    rank = data.ndim + count
    new = _listed(axes, rank)
    number = matmul(cast(not_(new), to=DType.float32), constant(np.triu(np.ones((rank, rank), np.float32))))
    lengths = gather(concat(constant(np.ones(1, np.int64)), shape(data), axis=0), cast(number, to=DType.int64))
    return _in_shape(data, where(new, 1, lengths), _is_full(data))


@slice_.lower()
def slice_lowering(data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> Value | None:
    """Gather the positions of the slice."""
    count = length(starts)
    if data.rank is None or count is None or (static(starts) is not None and static(ends) is not None):
        return None
    listed = list(range(count)) if axes is None else elements(axes)
    strides = [1] * count if steps is None else elements(steps)
    if not all(isinstance(number, int) for number in (*(listed or [None]), *(strides or [None]))):
        return None
    for k, (axis, stride) in enumerate(zip(listed or [], strides or [], strict=True)):
        size, back, step = dim_of(data, axis), int(stride < 0), max(-LONGEST, min(stride, LONGEST))
        start, end = (
            minimum(maximum(_from_front(bound[k], size), least), size - back)
            for bound, least in ((starts, 0), (ends, -back))
        )
        taken = (start - end if back else end - start) + (abs(step) - 1)
        data = gather(data, start + range_(0, maximum(taken / abs(step), 0), 1) * step, axis=axis)
    return data


def _one_at_a_time(op: Op, neutral: Callable[[DType], Any] | None) -> Callable[..., Any]:
    """Lower a reduction over computed axes to opsets where ``axes`` is an attribute, one axis at a time.

    Each axis is reduced and expanded to its length again; finally one position of it is kept. A ``neutral`` element is
    concatenated to each axis if one may be empty. Calls that reduce no axes or all axes need nothing.
    """

    def lowered(data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        if axes is None or static(axes) is not None or data.rank is None or axes.rank != 1:
            return None
        rank, count = data.ndim, axes.shape[0]
        if count == rank or (count == 0 and not noop_with_empty_axes):
            return op(data, keepdims=keepdims)
        if not isinstance(count, int) or not 0 < count <= rank:
            return None
        listed, whole, y, full = _listed(axes, rank), shape(data), data, _is_full(data)
        if not full:
            if neutral is None:
                return None
            y = pad(data, [0] * rank + [1] * rank, constant(np.asarray(neutral(data.dtype)), data.dtype))
        for axis in range(rank):
            y = where(slice_(listed, [axis], [axis + 1]), op(y, [axis], keepdims=1), y)
        y = slice_(y, [0] * rank, where(listed, 1, whole))
        return y if keepdims else _in_shape(y, _others(data, listed, rank - count), full)

    return lowered


for _op, _neutral in {
    reduce_sum: lambda dtype: 0,
    reduce_prod: lambda dtype: 1,
    reduce_max: lambda dtype: worst(dtype.numpy, 1),
    reduce_min: lambda dtype: worst(dtype.numpy, -1),
    reduce_mean: None,
}.items():
    _op.lower()(_one_at_a_time(_op, _neutral))
