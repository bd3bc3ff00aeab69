"""Functions composed of several ops, shared by bodies and gradients, in the namespace of the ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Dim, DType, Value, constant, static, symbolic
from tenonnx_standard.linear_algebra import sum_of_first_axes


def reshape_like(x: Value, like: Value) -> Value:
    """``x`` reshaped to the shape of ``like``, which has as many elements."""
    sizes = like.tensor.shape
    full = sizes is not None and all(map(symbolic.is_known_positive, sizes))
    return ops.reshape(x, ops.shape(like), allowzero=int(not full))


def as_shape(x: Value, items: Sequence[Any]) -> Value:
    """``x`` reshaped to a shape of ints and values, where 0 means a length of 0."""
    full = all(isinstance(item, int) and item != 0 for item in items)
    return ops.reshape(x, items, allowzero=int(not full))


def as_int64(value: Value) -> Value:
    """``value`` as int64, the dtype of positions and sizes."""
    return value if value.dtype is DType.int64 else ops.cast(value, to=DType.int64)


def zeros_like(x: Value) -> Value:
    """Zeros with the shape and dtype of ``x``."""
    return _filled_like(x, 0)


def ones_like(x: Value) -> Value:
    """Ones with the shape and dtype of ``x``."""
    return _filled_like(x, 1)


def _filled_like(x: Value, number: int) -> Value:
    element = constant(np.asarray(number), x.dtype)
    return element if x.rank == 0 else ops.expand(element, ops.shape(x))


def sum_to(g: Value, like: Value) -> Value:
    """``g`` summed over the axes along which ``like`` was broadcast to its shape.

    A dim of ``like`` that is unknown may be 1 at run time. Whether it was broadcast is then decided by comparing
    shapes.
    """
    if g.rank is None or like.rank is None:
        return _sum_where_shapes_differ(g, like)
    lead = g.ndim - like.ndim
    leading = list(range(lead))
    inner, unsure = [], False
    for axis, (wide, narrow) in enumerate(zip(g.shape[lead:], like.shape, strict=True), start=lead):
        if narrow == 1:
            inner += [axis] if wide != 1 else []
        else:
            unsure |= not _never_broadcast(narrow, wide)
    if inner:
        g = ops.reduce_sum(g, leading + inner, keepdims=1)
        g = ops.squeeze(g, leading) if lead else g
    elif lead:
        g = sum_of_first_axes(g, lead)
    return _sum_where_shapes_differ(g, like) if unsure else g


def _never_broadcast(narrow: Dim, wide: Dim) -> bool:
    """Whether an axis of length ``narrow`` surely kept its length when it became one of length ``wide``."""
    return wide == 1 or (narrow is not None and narrow == wide) or (symbolic.known_lower_bound(narrow) or 0) >= 2


def _sum_where_shapes_differ(g: Value, like: Value) -> Value:
    """``g`` summed to the shape of ``like``; the axes are determined at run time."""
    given, wanted = ops.shape(g), ops.shape(like)
    aligned = wanted
    if g.rank is None or g.rank != like.rank:
        missing = ops.shape(given) - ops.shape(wanted)
        aligned = ops.concat(ops.expand(constant(np.ones(1, dtype=np.int64)), missing), wanted, axis=0)
    axes = ops.reshape(ops.non_zero(ops.not_(ops.equal(given, aligned))), [-1])
    return ops.reshape(ops.reduce_sum(g, axes, keepdims=1, noop_with_empty_axes=1), wanted, allowzero=1)  # type: ignore[no-any-return]


def gradient_sum(a: Value, b: Value) -> Value:
    """The sum of two gradients of one value; adjacent parts padded with zeros are concatenated instead."""
    parts = [_padded_part(a), _padded_part(b)]
    for first, second in (parts, parts[::-1]):
        if first is None or second is None or first.axis != second.axis or first.end != second.start:
            continue
        axis = first.axis
        joined = ops.concat(*_joined(first.data, axis), *_joined(second.data, axis), axis=axis)
        pads = [0] * (2 * a.ndim)
        pads[axis], pads[axis + a.ndim] = first.start, second.after
        return ops.pad(joined, pads) if any(pads) else joined  # type: ignore[no-any-return]
    return ops.add(a, b)  # type: ignore[no-any-return]


class _Part(NamedTuple):
    """A value that is ``data`` in a range of an axis and zero elsewhere."""

    data: Value
    axis: int
    start: int
    end: int
    after: int


def _padded_part(x: Value) -> _Part | None:
    node = x.producer
    if node is None or node.op is not ops.pad or node.attributes.get("mode", "constant") != "constant":
        return None
    data, pads, *others = node.inputs
    contents = None if pads is None else static(pads)
    if data is None or contents is None or any(v is not None for v in others) or contents.min(initial=0) < 0:
        return None
    places = np.flatnonzero(contents) % data.ndim
    axis = int(places[0]) if len(places) else 0
    length = data.shape[axis]
    if not isinstance(length, int) or (places != axis).any():
        return None
    start, behind = contents[[axis, axis + data.ndim]].tolist()
    return _Part(data, axis, start, start + length, behind)


def _joined(x: Value, axis: int) -> Sequence[Value]:
    """The values concatenated to ``x`` along ``axis``, or ``x`` itself."""
    node = x.producer
    if node is None or node.op is not ops.concat or node.attributes["axis"] != axis:
        return [x]
    return [v for v in node.inputs if v is not None]
