"""Checks shared by the rules of many ops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    ArrayConstant,
    Dim,
    DType,
    Expr,
    Known,
    Op,
    Operand,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    elements,
    limits,
    operators,
)

Array = np.ndarray[Any, Any]


def axis_within(op: Op, axis: int, rank: int) -> int:
    """``axis`` as a non-negative number. Raises ``TypeMismatch`` if a tensor of that rank has no such axis."""
    if not -rank <= axis < rank:
        raise TypeMismatch(
            f"{op.title}: axis lies outside [{-rank}, {rank - 1}]" if rank else f"{op.title}: a scalar has no axis",
            given=f"axis {axis} of a tensor of rank {rank}",
        )
    return axis % rank


def axes_within(op: Op, axes: Iterable[Any], rank: int) -> tuple[int, ...]:
    """``axes`` as non-negative numbers, in their order. Raises ``TypeMismatch`` if one is repeated or out of range."""
    result = tuple(axis_within(op, int(axis), rank) for axis in axes)
    if len(set(result)) < len(result):
        raise TypeMismatch(
            f"{op.title}: axes names an axis twice", given=f"axes {list(result)} of a tensor of rank {rank}"
        )
    return result


def numpy_rule(op: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a numpy rule for ``op``; numpy's errors about shapes and indices are raised as ``TypeMismatch``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def rule(*arrays: Any, **attributes: Any) -> Any:
            try:
                return function(*arrays, **attributes)
            except (ValueError, IndexError) as error:
                given = ", ".join("-" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
                raise TypeMismatch(f"{op.title} cannot be computed: {error}", given=given) from error

        op.numpy(rule)
        return function

    return register


def of_dims(function: Callable[..., Any], count: int = 2) -> Callable[..., Array]:
    """Make the symbolic rule of an elementwise op from a function of ``count`` dims."""
    each = np.frompyfunc(function, count, 1)
    return lambda *arrays: np.asarray(each(*arrays), dtype=object)


def same_elements(op: Op) -> None:
    """Register a kernel for ``op``, which only reshapes its first input, that computes the new shape once."""

    @op.specialize
    def op_specialize(x: Operand, *others: Operand | None, **attributes: Any) -> Callable[..., Array] | None:
        if any(other is not None and other.contents is None for other in others):
            return None
        example = np.broadcast_to(np.zeros((), x.dtype), x.shape)
        known = [None if other is None else other.contents for other in others]
        shape = op.rules["numpy"](example, *known, **attributes).shape
        return lambda x, *_: x.reshape(shape)


def numbers(array: Array) -> list[Any]:
    """The elements of a small integer array as a flat list; they may be symbolic."""
    return array.reshape(-1).tolist()  # type: ignore[no-any-return]


def positions(array: Array) -> Array:
    """An array of indices as numpy takes them. Raises ``TypeError`` if one is symbolic."""
    return array if array.dtype == np.int64 else array.astype(np.int64)


def integer_vector(op: Op, name: str, value: Value, *, or_scalar: bool = False) -> list[Any] | None:
    """The elements of a vector of sizes or axes, where known.

    Raises ``TypeMismatch`` if its type is not such a vector.
    """
    if not value.dtype.is_integer or value.rank not in (None, 1, 0 if or_scalar else 1):
        raise TypeMismatch(f"{op.title}: {name} is not a list of integers", given=repr(value))
    return elements(value)


def check_shape(op: Op, name: str, value: Value | None, wanted: Sequence[Dim]) -> None:
    """Raise ``TypeMismatch`` unless the input can have that shape, in which None matches any length."""
    shape = None if value is None else value.tensor.shape
    if shape is None:
        return
    pairs = zip(shape, wanted, strict=False)
    if len(shape) != len(wanted) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        sides = ", ".join("?" if side is None else str(side) for side in wanted)
        what = f"the shape [{sides}]" if wanted else "the shape of a scalar, []"
        raise TypeMismatch(f'{op.title}: "{name}" does not have {what}', given=repr(value))


def length(value: Value) -> int | None:
    """The number of elements of a vector, where known; 1 for a scalar."""
    shape = value.tensor.shape
    if shape is None:
        return None
    size = shape[0] if shape else 1
    if not isinstance(size, int):
        return None
    limits.check("entries", size, f'the list "{value.name}"')
    return size


def counted(limit: int, what: str) -> Value:
    """The int64 constant 0, 1, 2, ..., ``limit`` - 1."""
    return constant(np.arange(*limits.sized([limit], what)))


def dim_of(value: Value, axis: int) -> Any:
    """The length of an axis: an int if static, else a scalar int64 value."""
    size = value.shape[axis]
    return size if isinstance(size, int) else operators().dimension(value, axis)


def dims_of(value: Value, axes: Iterable[int]) -> list[Any]:
    """The lengths of some axes: an int if static, else a scalar int64 value."""
    return [dim_of(value, axis) for axis in axes]


def same_dtypes(op: Op, *values: Value | None) -> DType:
    """The dtype shared by all ``values``. Raises ``TypeMismatch`` if they have several."""
    present = [value for value in values if value is not None]
    if any(value.dtype is not present[0].dtype for value in present):
        given = ", ".join(repr(value) for value in present)
        raise TypeMismatch(f"{op.title}: inputs have different dtypes", given=given, do="cast one of them")
    return present[0].dtype


def known_contents(items: list[Dim], shape: tuple[int, ...]) -> Known:
    """An int64 tensor type with the elements ``items``, as far as they are known."""
    kind = TensorType(DType.int64, shape)
    if all(isinstance(item, int) for item in items):
        return Known(kind, data=ArrayConstant(np.asarray(items, dtype=np.int64).reshape(shape)))
    if not any(isinstance(item, int | Expr) for item in items):
        return Known(kind)
    contents = np.empty(len(items), dtype=object)
    contents[:] = items
    return Known(kind, symbolic_contents=contents.reshape(shape))
