"""Wrappers for TensorFlow values during import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, InvalidModel, NotRepresentable, Value, constant, static


class Complex(NamedTuple):
    """Complex numbers as real and imaginary part of equal shape."""

    real: Any
    imaginary: Any

    def map(self, function: Callable[[Any], Any]) -> Complex:
        return Complex(function(self.real), function(self.imaginary))


@dataclass(eq=False)
class Variable:
    """The handle of a variable; the interpreter stores the contents, which calls may change.

    ``role`` is the role in training (``Role.kind``), None if unknown.
    """

    name: str
    dtype: Any = None
    shape: Any = None
    role: str | None = None


@dataclass(eq=False)
class Table:
    """The handle of a lookup table, with its contents once known."""

    name: str
    keys: Any = None
    contents: Any = None
    default: Any = None
    buckets: int = 0


@dataclass(eq=False)
class TensorList:
    """A list of tensors of one shape: its rows as one tensor, or its size if none is written yet."""

    dtype: DType
    rows: Value | None = None
    size: Any = None
    shape: Sequence[int | None] | None = None
    filled: list[Value] = field(default_factory=list)


Held = Any  # Value | Complex | Variable | Table | TensorList


def number(content: Any, like: Value | DType) -> Value:
    """A scalar with the element type of ``like``."""
    dtype = like if isinstance(like, DType) else like.dtype
    return constant(np.asarray(content, dtype.numpy))


def int64(value: Any) -> Any:
    """Sizes and positions as int64, as ONNX requires."""
    if isinstance(value, list | tuple | np.ndarray):
        return constant(np.asarray(value, np.int64))
    if value.dtype is DType.int64:
        return value
    contents = static(value)
    return constant(np.asarray(contents).astype(np.int64)) if contents is not None else ops.cast(value, to=DType.int64)


def as_dtype(value: Value, dtype: Any) -> Value:
    """``value`` cast to ``dtype``, if necessary."""
    return value if value.dtype is dtype else ops.cast(value, to=dtype)


#: Integer types without kernels for selection and comparison in runtimes, and wider types with kernels.
_WIDER = {
    DType.int8: DType.int32,
    DType.int16: DType.int32,
    DType.uint16: DType.uint32,
}


def by_wider(op: Callable[..., Value], *values: Value) -> Value:
    """Apply ``op`` to values of one type, in a wider type if runtimes lack a kernel."""
    dtype = values[0].dtype
    wider = _WIDER.get(dtype)
    return op(*values) if wider is None else ops.cast(op(*(ops.cast(v, to=wider) for v in values)), to=dtype)


def where(condition: Value, x: Value, y: Value) -> Value:
    """``x`` where the condition holds, else ``y``; booleans by logical ops, for which runtimes have kernels."""
    if x.dtype is DType.bool:
        return ops.or_(ops.and_(condition, x), ops.and_(ops.not_(condition), y))
    return by_wider(lambda x, y: ops.where(condition, x, y), x, y)


def known(value: Value, what: str) -> Any:
    """The contents of a value that must not depend on inputs, as an array."""
    found = static(value)
    if found is None:
        raise NotRepresentable(
            f"{what} is unknown when the graph is converted",
            given=f'"{value.name}", which is computed from inputs',
            do="give fixed sizes to the inputs that it depends on (dims=, or a signature with sizes)",
        )
    return np.asarray(found)


def integers(value: Value, what: str) -> list[int]:
    return [int(each) for each in known(value, what).reshape(-1)]


def axis_of(axis: int, x: Value) -> int:
    """A non-negative axis of ``x``. Raises ``InvalidModel`` for an axis out of range."""
    if not -x.ndim <= axis < x.ndim:
        raise InvalidModel(f'"{x.name}" has no axis {axis}', given=str(x.type))
    return axis % x.ndim


def vector(value: Value) -> Value:
    """A scalar as a vector of one element."""
    return value if value.rank == 1 else ops.reshape(value, [-1])


def scalar(value: Value) -> Value:
    return value if value.rank == 0 else ops.reshape(value, constant(np.zeros(0, np.int64)))
