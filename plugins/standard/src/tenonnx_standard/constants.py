"""Constant, ConstantOfShape, Range, EyeLike and Trilu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    ArrayConstant,
    Constant,
    DType,
    Index,
    Known,
    TensorType,
    TypeMismatch,
    Value,
    dtypes,
    elements,
    limits,
    one_of,
    op,
    primitive,
    shapes,
    static,
    symbolic,
)
from tenonnx.extend import constant as literal
from tenonnx_standard.checking import Array, dims_of, numbers, numpy_rule, positions

# ----- constants ------------------------------------------------------------------------------------------------------


@primitive("Constant")
def constant(
    *,
    value: Constant | None = None,
    sparse_value: Constant | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
):
    """The tensor given by the only attribute that is set."""


_WRITTEN = ("value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings")
_DTYPES = {"float": DType.float32, "int": DType.int64, "string": DType.string}

constant.until(12, lacks=_WRITTEN)
constant.until(11, lacks=["sparse_value"], defaults={"value": REQUIRED})


def _contents(**attributes: Any) -> Any:
    """The constant given by the attributes."""
    given = {name: value for name, value in attributes.items() if value is not None}
    if len(given) != 1:
        raise TypeMismatch(
            f"{constant.title}: zero or several attributes are given",
            given=", ".join(given) or "none",
            available=", ".join(attributes),
        )
    name, value = next(iter(given.items()))
    if name in ("value", "sparse_value"):
        return value
    dtype = _DTYPES[name.removeprefix("value_").removesuffix("s")]
    return ArrayConstant(np.array(value, dtype=dtype.numpy), dtype)


@constant.type
def constant_type(**attributes):
    found = _contents(**attributes)
    return Known(found.type, data=found)


constant.numpy(lambda **attributes: _contents(**attributes).array())
constant.vjp(lambda g, y, **attributes: ())


@constant.lower()
def constant_lowering(*, value, **others):
    if value is not None:
        return None
    found = _contents(**others)
    return constant(value=ArrayConstant(found.array(), found.type.dtype))


@op("ConstantOfShape", since=9)
def constant_of_shape(input: Index, *, value: Constant | None = None):
    """A tensor of shape ``input`` filled with the element of ``value``, by default a float32 zero."""
    return ops.expand(literal(*_element(value)), input)


def _element(value: Any) -> tuple[Array, DType]:
    if value is None:
        return np.zeros((), np.float32), DType.float32
    if math.prod(value.type.shape) != 1:
        raise TypeMismatch(f"{constant_of_shape.title}: value does not hold one element", given=str(value.type))
    return value.array().reshape(-1)[:1].reshape(()), value.type.dtype


@numpy_rule(constant_of_shape)
def constant_of_shape_numpy(shape, *, value):
    element, dtype = _element(value)
    return np.full(limits.sized(numbers(positions(shape)), constant_of_shape.title), element, dtype.numpy)


# ----- generated tensors ----------------------------------------------------------------------------------------------


@op("Range", since=11)
def range_(start, limit, delta, *, stash_type=1):
    """The numbers from ``start`` up to, but excluding, ``limit``, in steps of ``delta``."""
    dtype = start.dtype
    if dtype.bits == 16 and dtype.is_float:
        wide = DType(stash_type)
        return ops.cast(range_(*(ops.cast(v, to=wide) for v in (start, limit, delta))), to=dtype)
    ones = constant_of_shape(ops.reshape(_length(start, limit, delta), [1]), value=ArrayConstant(np.ones(1, np.int64)))
    places = ops.reshape(ops.non_zero(ones), [-1])
    numbers = places if dtype is DType.int64 else ops.cast(places, to=dtype)
    numbers = numbers if _is(delta, 1) else numbers * delta
    return numbers if _is(start, 0) else numbers + start


def _is(value: Value, number: int) -> bool:
    contents = static(value)
    return contents is not None and bool((contents == number).all())


def _length(start: Value, limit: Value, delta: Value) -> Value:
    """Number of elements of Range."""
    if start.dtype is DType.int64 and _is(delta, 1):
        span = limit if _is(start, 0) else limit - start
        low = [symbolic.known_lower_bound(size) for size in elements(span) or [None]]
        return span if low[0] is not None and low[0] >= 0 else ops.maximum(span, 0)
    steps = (ops.cast(limit, to=DType.float64) - ops.cast(start, to=DType.float64)) / ops.cast(delta, to=DType.float64)
    return ops.cast(ops.maximum(ops.ceil(steps), 0), to=DType.int64)


range_.requires(one_of(stash_type=[int(dtype) for dtype in DType if dtype.is_float and dtype.bits >= 16]))
range_.until(27, lacks=["stash_type"])


@range_.type
def range_type(start, limit, delta, *, stash_type):
    dtype = start.dtype
    ends = (start, limit, delta)
    if any(v.dtype is not dtype or not _is_number(v) for v in ends) or not dtype.is_numeric:
        given = f"{start!r}, {limit!r}, {delta!r}"
        raise TypeMismatch(f"{range_.title}: start, limit and delta are not numbers of one dtype", given=given)
    known = [found.reshape(()) for v in ends if (found := static(v)) is not None]
    if len(known) == len(ends):
        return TensorType(dtype, (_count(*known),))
    first, last, step = (found[0] if (found := elements(v)) else None for v in ends)
    if step == 0 or not isinstance(step, int):
        return TensorType(dtype, (None,))
    span = symbolic.subtract(last, first) if step > 0 else symbolic.subtract(first, last)
    return TensorType(dtype, (symbolic.maximum(symbolic.ceil_div(span, abs(step)), 0),))


def _is_number(value: Value) -> bool:
    """Whether a value may be a scalar or a vector of one element."""
    shape = value.tensor.shape
    return shape is None or not shape or (len(shape) == 1 and (not isinstance(shape[0], int) or shape[0] == 1))


def _count(start: Array, limit: Array, delta: Array) -> int:
    if delta == 0:
        raise TypeMismatch(f"{range_.title}: delta is 0", given=f"from {start} to {limit}")
    if start.dtype.kind in "iu":
        first, last, step = int(start), int(limit), int(delta)
        return max(-((first - last) // step), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)


@numpy_rule(range_)
def range_numpy(start, limit, delta, *, stash_type):
    start, limit, delta = start.reshape(()), limit.reshape(()), delta.reshape(())
    count, dtype = _count(start, limit, delta), start.dtype
    limits.check_elements([count], range_.title)
    if dtype.kind in "iu":
        return (
            np.arange(count, dtype=dtype) * delta + start if delta != 1 or start != 0 else np.arange(count, dtype=dtype)
        )
    wide = DType(stash_type).numpy if dtype.itemsize < 4 else dtype
    return (np.arange(count).astype(wide) * delta.astype(wide) + start.astype(wide)).astype(dtype, copy=False)


@op("EyeLike", since=9)
def eye_like(input, *, dtype: int | None = None, k=0):
    """A matrix with the shape of ``input`` and ones on its ``k``-th diagonal, above the main one for positive ``k``."""
    rows, columns = _places(input)
    return ops.cast(ops.equal(ops.unsqueeze(rows + k, [1]), columns), to=input.dtype if dtype is None else dtype)


def _places(x: Value) -> tuple[Value, Value]:
    """The row numbers and column numbers of matrices."""
    if x.rank is not None:
        counts = dims_of(x, (-2, -1))
    else:
        empty = literal(np.zeros(0, np.int64))
        counts = [ops.reshape(ops.shape(x, start=start, end=end), empty) for start, end in ((-2, -1), (-1, None))]
    return range_(0, counts[0], 1), range_(0, counts[1], 1)


eye_like.requires(shapes(input="rows columns"))


@eye_like.numpy
def eye_like_numpy(x, *, dtype, k):
    return np.eye(*x.shape, k, dtype=x.dtype if dtype is None else DType(dtype).numpy)


eye_like.vjp(lambda g, y, x, **_: None)


@op("Trilu", since=14, data_movement=True)
def trilu(input, k: Index = None, *, upper=1):
    """The upper or lower triangle of matrices ``[..., rows, columns]`` from or up to diagonal ``k``; 0 elsewhere."""
    rows, columns = _places(input)
    rows = ops.unsqueeze(rows if k is None else rows + ops.reshape(k, literal(np.zeros(0, np.int64))), [1])
    inside = columns >= rows if upper else columns <= rows
    if input.dtype is DType.bool:  # onnxruntime has no Where for booleans
        return ops.and_(inside, input)
    return ops.where(inside, input, literal(np.zeros(()), input.dtype))


trilu.requires(shapes(input="... rows columns", k=" | 1"), dtypes(k="int64"))


@numpy_rule(trilu)
def trilu_numpy(x, k, *, upper):
    diagonal = 0 if k is None else int(k.reshape(()))
    inside = np.tri(*x.shape[-2:], diagonal - 1 if upper else diagonal, dtype=bool)
    y = np.array(x)
    np.copyto(y, x.dtype.type(0), where=inside if upper else ~inside)
    return y
