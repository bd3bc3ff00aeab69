"""Padding: adding or cropping elements at the ends of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Index,
    Op,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    elements,
    limits,
    op,
    symbolic,
    vector,
)
from tenonnx_standard.checking import Array, axes_within, dim_of, integer_vector, length, numbers, numpy_rule, positions

MODES = ("constant", "reflect", "edge", "wrap")

_LAST = np.iinfo(np.int64).max


def check_mode(op: Op, mode: str, modes: Sequence[str] = MODES) -> None:
    if mode not in modes:
        raise TypeMismatch(f"{op.title}: unknown mode", given=repr(mode), available=", ".join(modes))


@op("Pad", data_movement=True)
def pad(data, pads: Index, constant_value=None, axes: Index = None, *, mode="constant"):
    """``data`` with elements added at both ends of its axes, or removed for negative pads.

    New elements are ``constant_value`` (0 by default), or from ``data``: mirrored at its first and last elements
    (``reflect``), repetitions of these (``edge``), or from the other end (``wrap``).
    """
    return padded(pad, data, pads, constant_value, axes, mode)


@pad.type
def pad_type(data, pads, constant_value, axes, *, mode):
    return padded_type(pad, data, pads, constant_value, axes, mode)


@pad.symbolic
@numpy_rule(pad)
def pad_numpy(x, pads, constant_value, axes, *, mode):
    listed = None if axes is None else numbers(positions(axes))
    return pad_array(pad, x, numbers(positions(pads)), constant_value, listed, mode)


@pad.until(19)
def pad_unwrapped(data, pads: Index, constant_value=None, axes: Index = None, *, mode="constant"):
    """Padding in the modes ``constant``, ``reflect`` and ``edge``."""
    check_mode(pad_unwrapped, mode, MODES[:-1])
    return pad(data, pads, constant_value, axes, mode=mode)


pad_unwrapped.until(18, lacks=["axes"])
pad_unwrapped.until(
    11,
    attributes=["pads", "constant_value"],
    renamed={"constant_value": "value"},
    defaults={"pads": REQUIRED, "constant_value": 0.0},
)
pad_unwrapped.until(2, renamed={"pads": "paddings"})


@pad.lower(to=pad_unwrapped)
def pad_to_pad_unwrapped(data, pads, constant_value, axes, *, mode):
    return None if mode == "wrap" else pad_unwrapped(data, pads, constant_value, axes, mode=mode)


@pad_unwrapped.lower()
def pad_unwrapped_lowering(data, pads, constant_value, axes, *, mode):
    """Pad with pads for every axis."""
    if axes is None:
        return None
    return pad_unwrapped(data, pads_for_every_axis(pad, pads, axes, data.ndim), constant_value, mode=mode)


# ----- on values ------------------------------------------------------------------------------------------------------


def padded(op: Op, x: Value, pads: Value, constant_value: Value | None, axes: Value | None, mode: str) -> Value:
    """The body of Pad, axis by axis: filled elements may be cropped again, and cropped ones are not repeated."""
    check_mode(op, mode)
    data = x
    for axis, (before, after) in enumerate(_pairs(op, pads, axes, x.ndim)):
        if mode == "constant":
            x = _cut(_filled(x, axis, _added(before), _added(after), constant_value), axis, before, after)
        else:
            x = _taken(_cut(x, axis, before, after), axis, _added(before), _added(after), mode)
    return ops.identity(x) if x is data else x


def _pairs(op: Op, pads: Value, axes: Value | None, rank: int) -> list[tuple[Any, Any]]:
    """The numbers of elements to add at both ends of every axis, as ints or values."""
    if axes is not None:
        pads = pads_for_every_axis(op, pads, axes, rank)
    contents = elements(pads)
    fixed = contents is not None and all(isinstance(number, int) for number in contents)
    numbers: Any = contents if fixed else [pads[k] for k in range(2 * rank)]
    return list(zip(numbers[:rank], numbers[rank:], strict=True))


def pads_for_every_axis(op: Op, pads: Value, axes: Value, rank: int) -> Value:
    """``pads`` for all axes, 0 for those not in ``axes``."""
    listed = elements(axes)
    if listed is not None and all(isinstance(axis, int) for axis in listed):
        count = len(listed)
        numbers: list[Any] = [0] * (2 * rank)
        for k, axis in enumerate(axes_within(op, listed, rank)):
            numbers[axis], numbers[axis + rank] = pads[k], pads[k + count]
        return vector(numbers)
    places = ops.cast(axes, to=DType.int64) % rank
    return ops.scatter_elements(constant(np.zeros(2 * rank, np.int64)), ops.concat(places, places + rank, axis=0), pads)


def _cut(x: Value, axis: int, before: Any, after: Any) -> Value:
    start = ops.maximum(-before, 0) if isinstance(before, Value) else max(-before, 0)
    end = dim_of(x, axis) + ops.minimum(after, 0) if isinstance(after, Value) else after if after < 0 else _LAST
    return x if isinstance(start, int) and start == 0 and end is _LAST else ops.slice_(x, [start], [end], [axis])


def _added(number: Any) -> Any:
    return ops.maximum(number, 0) if isinstance(number, Value) else max(number, 0)


def _is_nothing(*numbers: Any) -> bool:
    return not any(isinstance(number, Value) or number for number in numbers)


def _filled(x: Value, axis: int, before: Any, after: Any, constant_value: Value | None) -> Value:
    if _is_nothing(before, after):
        return x
    if constant_value is None:
        constant_value = constant("" if x.dtype is DType.string else 0, x.dtype)
    value = constant_value if constant_value.rank == 0 else ops.reshape(constant_value, constant(np.zeros(0, np.int64)))
    sizes = dims(x)
    parts = []
    for number in (before, after):
        fill = None if _is_nothing(number) else ops.expand(value, [*sizes[:axis], number, *sizes[axis + 1 :]])
        parts.append(fill)
    return ops.concat(*(part for part in (parts[0], x, parts[1]) if part is not None), axis=axis)


def _taken(x: Value, axis: int, before: Any, after: Any, mode: str) -> Value:
    if _is_nothing(before, after):
        return x
    size = dim_of(x, axis)
    places = ops.range_(-before, size + after, 1)
    if mode == "edge":
        places = ops.maximum(ops.minimum(places, size - 1), 0)
    elif mode == "wrap":
        places = places % size
    else:
        period = 2 * (size - 1)
        period = max(period, 1) if isinstance(period, int) else ops.maximum(period, 1)
        places = places % period
        places = ops.minimum(places, period - places)
    return ops.gather(x, places, axis=axis)


# ----- on dims --------------------------------------------------------------------------------------------------------


def _is_one(value: Value) -> bool:
    """Whether a value may be a scalar, or a vector of one element."""
    return value.shape is None or (len(value.shape) < 2 and not any(isinstance(n, int) and n != 1 for n in value.shape))


def padded_type(
    op: Op, data: Value, pads: Value, constant_value: Value | None, axes: Value | None, mode: str
) -> TensorType:
    """The type rule of Pad."""
    check_mode(op, mode)
    kind, contents = data.tensor, integer_vector(op, "pads", pads)
    listed = None if axes is None else integer_vector(op, "axes", axes)
    if constant_value is not None and (constant_value.dtype is not kind.dtype or not _is_one(constant_value)):
        raise TypeMismatch(
            f"{op.title}: constant_value is not one element of the dtype of data",
            given=f"{data!r}, {constant_value!r}",
        )
    if kind.shape is None:
        return kind
    rank = len(kind.shape)
    if axes is not None and (listed is None or None in listed):
        return kind.with_shape((None,) * rank)
    places = range(rank) if listed is None else axes_within(op, listed, rank)
    if length(pads) not in (None, 2 * len(places)):
        raise TypeMismatch(
            f"{op.title}: pads does not hold two numbers for every axis", given=f"{length(pads)} for {len(places)} axes"
        )
    numbers = contents or [None] * (2 * len(places))
    found = list(kind.shape)
    for k, axis in enumerate(places):
        found[axis] = symbolic.add(found[axis], symbolic.add(numbers[k], numbers[k + len(places)]))
        size = found[axis]
        if isinstance(size, int) and size < 0:
            raise TypeMismatch(
                f"{op.title}: negative pads remove more than an axis has", given=f"pads {numbers} for {data!r}"
            )
    return kind.with_shape(tuple(found))


# ----- on arrays ------------------------------------------------------------------------------------------------------


def pad_array(op: Op, x: Array, pads: Sequence[int], fill: Any, axes: Sequence[int] | None, mode: str) -> Array:
    """``x`` padded; ``fill`` is an array of one element, or None for 0."""
    check_mode(op, mode)
    places = range(x.ndim) if axes is None else axes_within(op, axes, x.ndim)
    if len(pads) != 2 * len(places):
        raise ValueError(f"{len(pads)} pads for {len(places)} axes")
    befores, afters = [0] * x.ndim, [0] * x.ndim
    for k, axis in enumerate(places):
        befores[axis], afters[axis] = int(pads[k]), int(pads[k + len(places)])
    sizes = [b + d + a for b, d, a in zip(befores, x.shape, afters, strict=True)]
    if min(sizes, default=0) < 0:
        raise ValueError(f"pads {list(pads)} remove more than the input has: {x.shape}")
    shape = limits.sized(sizes, op.title)
    y = _full(shape, x, fill) if mode == "constant" else np.empty(shape, x.dtype)
    kept = x[tuple(slice(max(-b, 0), max(d + min(a, 0), 0)) for b, d, a in zip(befores, x.shape, afters, strict=True))]
    key = [slice(max(b, 0), max(b, 0) + d) for b, d in zip(befores, kept.shape, strict=True)]
    if kept.size:
        y[tuple(key)] = kept
    if mode != "constant":
        for axis, (before, after) in enumerate((max(b, 0), max(a, 0)) for b, a in zip(befores, afters, strict=True)):
            if before or after:
                _mirror(y[(*[slice(None)] * (axis + 1), *key[axis + 1 :])], axis, before, after, mode)
    return y


def _full(shape: tuple[int, ...], x: Array, fill: Any) -> Array:
    """An array filled with ``fill``, by default 0, or "" for strings; other object arrays have symbolic dims."""
    if fill is not None:
        return np.full(shape, fill.reshape(-1)[0], x.dtype)
    if x.dtype == object:
        return np.full(shape, "" if not x.size or isinstance(x.flat[0], str) else 0, object)
    return np.zeros(shape, x.dtype)


def _mirror(y: Array, axis: int, before: int, after: int, mode: str) -> None:
    """Fill both ends of an axis with elements from between them."""
    size = y.shape[axis] - before - after
    if size <= 0:
        raise ValueError(f"mode {mode} cannot pad an empty axis")
    lead = (slice(None),) * axis
    middle = y[(*lead, slice(before, before + size))]
    y[(*lead, slice(before))] = middle[(*lead, _places(np.arange(-before, 0), size, mode))]
    y[(*lead, slice(before + size, None))] = middle[(*lead, _places(np.arange(size, size + after), size, mode))]


def _places(places: Array, size: int, mode: str) -> Array:
    """The positions on an axis to copy to the given positions outside of it."""
    if mode == "edge":
        return places.clip(0, size - 1)
    if mode == "wrap":
        return places % size
    period = max(2 * (size - 1), 1)
    places %= period
    return np.minimum(places, period - places)


# ----- center crop ----------------------------------------------------------------------------------------------------


@op("CenterCropPad", since=18, data_movement=True)
def center_crop_pad(input_data, shape: Index, *, axes: list[int] | None = None):
    """``input_data`` cropped or padded with zeros at both ends of ``axes`` to the lengths ``shape``."""
    rank, contents = input_data.ndim, elements(shape)
    places = range(rank) if axes is None else axes_within(center_crop_pad, axes, rank)
    fixed = contents is not None and all(isinstance(size, int) for size in contents)
    wanted: Any = contents if fixed else [ops.as_int64(shape[k]) for k in range(len(places))]
    starts, ends, pads = [], [], [0] * (2 * rank)
    for axis, size in zip(places, wanted, strict=True):
        whole = dim_of(input_data, axis)
        static = isinstance(whole, int) and isinstance(size, int)
        more, less = whole - size, size - whole
        more, less = (max(more, 0), max(less, 0)) if static else (ops.maximum(more, 0), ops.maximum(less, 0))
        starts.append(more // 2)
        ends.append(more // 2 + size)
        pads[axis], pads[axis + rank] = less // 2, less - less // 2
    return pad(ops.slice_(input_data, starts, ends, list(places)), pads)


@center_crop_pad.type
def center_crop_pad_type(input_data, shape, *, axes):
    kind, contents, count = input_data.tensor, integer_vector(center_crop_pad, "shape", shape), length(shape)
    if kind.shape is None:
        return kind.with_shape((None,) * count if axes is None and count is not None else None)
    rank = len(kind.shape)
    places = range(rank) if axes is None else axes_within(center_crop_pad, axes, rank)
    if count not in (None, len(places)):
        raise TypeMismatch(
            f"{center_crop_pad.title}: shape does not hold a length for every axis",
            given=f"{count} for {len(places)} axes",
        )
    found = list(kind.shape)
    for axis, size in zip(places, contents or [None] * len(places), strict=True):
        if isinstance(size, int) and size < 0:
            raise TypeMismatch(f"{center_crop_pad.title}: a length is negative", given=f"shape {contents}")
        found[axis] = size
    return kind.with_shape(tuple(found))
