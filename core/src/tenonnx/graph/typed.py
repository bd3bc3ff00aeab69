"""Names, types and Python operators of values."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Protocol, Self, TypeVar

from tenonnx.errors import UnknownType
from tenonnx.graph.definitions import Operators, operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import Shape, SparseTensorType, TensorType, Type, type_given

Instance = TypeVar("Instance")


class Operation(Protocol):
    """A binary operator method, which returns a value of the operand's class."""

    def __get__(self, instance: Instance, owner: Any = None) -> Callable[[Any], Instance]: ...


def _operators(name: str) -> tuple[Operation, Operation]:
    """The methods for ``self operator other`` and ``other operator self``."""
    meaning: Callable[[Operators], Callable[[Any, Any], Any]] = attrgetter(name)

    def operate(a: Any, b: Any) -> Any:
        return meaning(operators())(a, b)

    return operate, lambda self, other: operate(other, self)


class Typed:
    """Object with a name and a type, which may be unknown; operators add nodes."""

    __slots__ = ()

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def type(self) -> Type | None:
        raise NotImplementedError

    @property
    def tensor(self) -> TensorType:
        """The tensor type. Raises ``TypeMismatch`` if the type is unknown or another one."""
        if not isinstance(self.type, TensorType):
            known = "unknown" if self.type is None else str(self.type)
            sparse = isinstance(self.type, SparseTensorType)
            raise UnknownType(
                f'value "{self.name}" is not a tensor of known dtype',
                given=f"its type is {known}",
                do="declare a dense tensor; of what is sparse, only constants are computed with" if sparse else "",
            )
        return self.type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @dtype.setter
    def dtype(self, dtype: DType | str) -> None:
        self.type = type_given(self.name, dtype, self.tensor.shape)  # type: ignore[misc]

    @property
    def shape(self) -> Shape:
        """Dims: ints, symbolic expressions or None. Raises ``TypeMismatch`` if the rank is unknown."""
        shape = self.tensor.shape
        if shape is None:
            raise UnknownType(
                f'the rank of value "{self.name}" is not known',
                given=str(self.type),
                do="give the shapes of the graph inputs (--input-shapes name:1,3,224,224)",
            )
        return shape

    @shape.setter
    def shape(self, shape: tuple[int | str | None, ...] | None) -> None:
        self.type = type_given(self.name, self.dtype, shape)  # type: ignore[misc]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def rank(self) -> int | None:
        return self.type.rank if isinstance(self.type, TensorType) else None

    def __bool__(self) -> bool:
        raise TypeError(
            f'the contents of value "{self.name}" are not known while a graph is built; '
            "branch on attributes, dtypes, ranks, or on static(value)"
        )

    def __iter__(self) -> Any:
        raise TypeError(f'value "{self.name}" cannot be iterated; use dims(value) for its dims, or split it')

    def __index__(self) -> int:
        raise TypeError(
            f'value "{self.name}" is not a Python number, as it is unknown while a graph is built; dims(x) returns '
            "such values for unknown dims, which range(), int() and float() cannot take"
        )

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("modulo")
    __pow__, __rpow__ = _operators("power")
    __matmul__, __rmatmul__ = _operators("matmul")
    __and__, __rand__ = _operators("and_")
    __or__, __ror__ = _operators("or_")
    __lt__, __gt__ = _operators("less")[0], _operators("greater")[0]
    __le__, __ge__ = _operators("less_or_equal")[0], _operators("greater_or_equal")[0]

    def __neg__(self) -> Self:
        return operators().negative(self)  # type: ignore[no-any-return]

    def __invert__(self) -> Self:
        return operators().not_(self)  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Self:
        return operators().getitem(self, key)  # type: ignore[no-any-return]
