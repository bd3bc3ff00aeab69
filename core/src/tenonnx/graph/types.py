"""Types of values: tensor, sparse tensor, sequence, optional and map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenonnx.errors import InvalidCall
from tenonnx.graph.dtypes import DType
from tenonnx.graph.symbolic import Dim, dims_given, join, substitute, unify

Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of ``dtype``, a ``DType`` or its name; ``shape`` is None if the rank is unknown."""

    dtype: DType
    shape: Shape | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str):
            try:
                object.__setattr__(self, "dtype", DType.of(self.dtype))
            except (TypeError, ValueError) as error:
                what = "the element type of a tensor is not one of ONNX"
                raise InvalidCall(what, given=repr(self.dtype), available=", ".join(map(str, DType))) from error

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def with_shape(self, shape: Shape | None) -> TensorType:
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class SparseTensorType:
    """A sparse tensor of ``dtype``; ``shape`` is the dense shape, None if the rank is unknown."""

    dtype: DType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse {TensorType(self.dtype, self.shape)}"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of values of the type ``element``, None if unknown."""

    element: Type | None

    def __str__(self) -> str:
        return f"sequence({self.element or '?'})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value of the type ``element``, None if unknown, that may be absent."""

    element: Type | None

    def __str__(self) -> str:
        return f"optional({self.element or '?'})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map with keys of the element type ``key`` and values of the type ``value``, None if unknown."""

    key: DType
    value: Type | None

    def __str__(self) -> str:
        return f"map({self.key}, {self.value or '?'})"


Type: TypeAlias = TensorType | SparseTensorType | SequenceType | OptionalType | MapType


def unify_types(a: Type | None, b: Type | None) -> Type | None:
    """Intersect two types that are both known for one value.

    None means unknown. Raises ``ValueError`` if they contradict each other.
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, TensorType | SparseTensorType) and type(a) is type(b):
        if a.dtype != b.dtype:
            raise ValueError(f"{a} and {b} differ in dtype")
        return type(a)(a.dtype, _unify_shapes(a.shape, b.shape))
    if isinstance(a, SequenceType | OptionalType) and type(a) is type(b):
        return type(a)(unify_types(a.element, b.element))
    if isinstance(a, MapType) and isinstance(b, MapType) and a.key == b.key:
        return MapType(a.key, unify_types(a.value, b.value))
    raise ValueError(f"{a} and {b} are different types")


def may_be_one(a: Type | None, b: Type | None) -> bool:
    """Whether two types may belong to one value."""
    try:
        unify_types(a, b)
    except ValueError:
        return False
    return True


def _unify_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise ValueError(f"ranks {len(a)} and {len(b)} differ")
    return tuple(unify(m, n) for m, n in zip(a, b, strict=True))


def join_types(a: Type | None, b: Type | None) -> Type | None:
    """The most precise type that holds for both branches; None if they have nothing in common."""
    if a is None or b is None or a == b:
        return a if a == b else None
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype == b.dtype:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.dtype)
        return TensorType(a.dtype, tuple(join(m, n) for m, n in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, SequenceType | OptionalType) and type(a) is type(b):
        return type(a)(join_types(a.element, b.element))
    return None


def substitute_type(kind: Type | None, values: Mapping[str, Dim]) -> Type | None:
    """``kind`` with symbols of its dims replaced by ``values``."""
    if isinstance(kind, TensorType | SparseTensorType):
        shape = None if kind.shape is None else tuple(substitute(d, values) for d in kind.shape)
        return type(kind)(kind.dtype, shape)
    if isinstance(kind, SequenceType | OptionalType):
        return type(kind)(substitute_type(kind.element, values))
    if isinstance(kind, MapType):
        return MapType(kind.key, substitute_type(kind.value, values))
    return kind


def type_given(name: str, given: Any, shape: Any = None) -> Type:
    """The type of an input from a caller's arguments, with parsed dims. Raises ``InvalidCall`` if it is invalid."""
    try:
        kind: Type = given if isinstance(given, Type) else TensorType(DType.of(given), shape)
        if isinstance(kind, TensorType):
            kind = kind.with_dtype(DType.of(kind.dtype))
    except (TypeError, ValueError) as error:
        raise InvalidCall(
            f'the element type of input "{name}" is not one of ONNX',
            given=repr(given),
            available=", ".join(map(str, DType)),
        ) from error
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    try:
        return kind.with_shape(dims_given(kind.shape))
    except (TypeError, ValueError) as error:
        what = f'the shape of input "{name}" is not a tuple of sizes, symbols and None'
        raise InvalidCall(what, given=repr(kind.shape), do='("batch", 3)') from error
