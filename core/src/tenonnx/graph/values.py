"""Values and nodes: the edges and vertices of a graph in single-assignment form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from tenonnx.errors import UnknownType
from tenonnx.graph.constants import Constant, Contents
from tenonnx.graph.definitions import Operators, operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.late_bindings import late
from tenonnx.graph.parts import Attributes, Places
from tenonnx.graph.types import Shape, SparseTensorType, TensorType, Type

if TYPE_CHECKING:
    import numpy as np

    from tenonnx.graph.graph import Graph
    from tenonnx.graph.training import Role


class Operator(Protocol):
    """What a graph needs to know of an operator: its name."""

    @property
    def name(self) -> str: ...

    @property
    def domain(self) -> str: ...


def _operators(name: str) -> tuple[Callable[[Value, Any], Value], Callable[[Value, Any], Value]]:
    """The methods for ``self operator other`` and ``other operator self``."""
    meaning: Callable[[Operators], Callable[[Any, Any], Value]] = attrgetter(name)

    def operate(a: Any, b: Any) -> Value:
        return meaning(operators())(a, b)

    return operate, lambda self, other: operate(other, self)


#: What says that a part of a value stays as it is.
KEPT: Final[Any] = object()


class Value:
    """One value of a graph. Two values are equal only if they are the same object.

    ``type`` is None while unknown. ``data`` holds the contents where they are static, which ``numpy.asarray(value)``
    reads. ``elements`` holds the contents of a small integer tensor as a numpy object array of ints, symbolic
    expressions and None, where these are known.

    To set the ``name``, the ``type`` of an input or the ``data`` of a variable is an edit of the graph. ``producer``,
    ``graph`` and ``elements`` are kept by the graph. ``role`` is what a variable is to training, None where nobody said
    so.
    """

    __slots__ = ("_data", "_name", "_type", "graph", "origin", "producer", "role", "symbolic_contents")

    #: An array on the left leaves the operator to the value, instead of making an array of objects.
    __array_ufunc__ = None

    def __init__(
        self,
        name: str,
        type: Type | None = None,
        *,
        data: Constant | None = None,
        producer: Node | None = None,
        graph: Graph | None = None,
    ) -> None:
        self._name = name
        self._type = type
        self._data = data
        self.producer = producer
        self.graph = graph
        self.symbolic_contents: np.ndarray[Any, Any] | None = None
        self.origin: Any = None
        self.role: Role | None = None

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if self.graph is None:
            self._name = name
        else:
            self.graph.rename(self, name)

    @property
    def type(self) -> Type | None:
        return self._type

    @type.setter  # noqa: A003 (the property of just above)
    def type(self, kind: Type | None) -> None:
        if self.graph is None:
            self._type = kind
        else:
            late("set_type")(self, kind)

    @property
    def data(self) -> Constant | None:
        return self._data

    @data.setter
    def data(self, contents: Any) -> None:
        if self.graph is None:
            self._data = contents
        else:
            late("set_data")(self, contents)

    def become(self, *, name: Any = KEPT, type: Any = KEPT, data: Any = KEPT) -> None:
        """Let the value be another, whatever the graph is then: for what builds graphs."""
        if name is not KEPT:
            self._name = name
        if type is not KEPT:
            self._type = type
        if data is not KEPT:
            self._data = data

    def forget(self) -> None:
        """Let nothing be known of the value."""
        self._type = self._data = self.symbolic_contents = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._data is None:
            raise UnknownType(
                f'the contents of value "{self.name}" must be known to be read as an array',
                given="an input" if self.producer is None else "what a node computes",
                do="compute it: tenonnx.extract(graph, None, [name]).run(feeds)",
            )
        return Contents.__array__(self._data, dtype, copy)  # type: ignore[arg-type]

    @property
    def is_constant(self) -> bool:
        """Whether this is an initializer: static contents that no node computes."""
        return self.data is not None and self.producer is None

    @property
    def tensor(self) -> TensorType:
        """The type, which must be a known tensor type."""
        if not isinstance(self.type, TensorType):
            known = "unknown" if self.type is None else str(self.type)
            sparse = isinstance(self.type, SparseTensorType)
            raise UnknownType(
                f'value "{self.name}" must be a tensor of known dtype', given=f"its type is {known}",
                do="declare a dense tensor; of what is sparse, only constants are computed with" if sparse else "",
            )  # fmt: skip
        return self.type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> Shape:
        """Dims, each an int, a symbolic expression or None. Raises ``TypeMismatch`` when the rank is unknown."""
        shape = self.tensor.shape
        if shape is None:
            raise UnknownType(
                f'the rank of value "{self.name}" must be known here',
                given=str(self.type),
                do="give the shapes of the graph inputs (--input-shapes name:1,3,224,224)",
            )
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def rank(self) -> int | None:
        return self.type.rank if isinstance(self.type, TensorType) else None

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type or '?'})"

    def __bool__(self) -> bool:
        raise TypeError(
            f'the contents of value "{self.name}" are not known while a graph is built; '
            "branch on attributes, dtypes, ranks, or on static(value)"
        )

    def __iter__(self) -> Any:
        raise TypeError(f'value "{self.name}" cannot be iterated; use dims(value) for its dims, or split it')

    def __index__(self) -> int:
        raise TypeError(
            f'value "{self.name}" is no Python number, as it is not known while a graph is built; dims(x) gives such '
            "values for dims that are not known, which range(), int() and float() cannot take"
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

    def __neg__(self) -> Value:
        return operators().negative(self)  # type: ignore[no-any-return]

    def __invert__(self) -> Value:
        return operators().not_(self)  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Value:
        return operators().getitem(self, key)  # type: ignore[no-any-return]


@cache
def _graph_class() -> type[Graph]:
    from tenonnx.graph.graph import Graph

    return Graph


class Node:
    """One use of an operator.

    ``version`` is the opset version in whose spelling ``inputs`` and ``attributes`` are written. ``attributes`` holds
    those that were written. ``captures`` are the outer values that the node's subgraphs use; an absent optional input
    or output is None. ``origin`` is the reader's record of the node, from which an untouched node is written back
    verbatim.

    To set ``inputs``, ``attributes`` or one of them, ``op`` or ``version`` of a node in a graph is an edit, which all
    consumers see; one that the graph cannot have is refused, and leaves it as it was.
    """

    __slots__ = (
        "_attributes", "_captures", "_inputs", "_op", "_outputs", "_subgraphs", "_version", "name", "origin",
    )  # fmt: skip

    def __init__(
        self,
        op: Operator,
        version: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[Value | None] = (),
        *,
        name: str = "",
        captures: Sequence[Value] = (),
        origin: Any = None,
    ) -> None:
        self._op = op
        self._version = version
        self._inputs = Places(inputs)
        self._attributes = Attributes(attributes, self)
        self._subgraphs: tuple[Graph, ...] | None = None if attributes else ()
        self._outputs = Places(outputs)
        self.name = name
        self._captures = tuple(captures)
        self.origin = origin

    @property
    def op(self) -> Operator:
        return self._op

    @op.setter
    def op(self, op: Operator) -> None:
        self._edit(op=op)

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._edit(version=version)

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Sequence[Value | str | None]) -> None:
        self._edit(inputs=inputs)

    @property
    def attributes(self) -> Attributes:
        return self._attributes

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        self._edit(attributes=attributes)

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        return self._outputs

    @outputs.setter
    def outputs(self, outputs: Sequence[Value | None]) -> None:
        self._edit(outputs=outputs)

    @property
    def captures(self) -> tuple[Value, ...]:
        return self._captures

    @captures.setter
    def captures(self, captures: Sequence[Value]) -> None:
        self._edit(captures=captures)

    def _edit(self, **parts: Any) -> None:
        late("set_parts")(self, parts)

    def become(
        self,
        *,
        op: Operator | None = None,
        version: int | None = None,
        inputs: Sequence[Value | None] | None = None,
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[Value | None] | None = None,
        captures: Sequence[Value] | None = None,
    ) -> None:
        """Let the node be another, whatever the graph is then: for what builds graphs."""
        if op is not None:
            self._op = op
        if version is not None:
            self._version = version
        if inputs is not None:
            self._inputs = Places(inputs)
        if attributes is not None:
            self._attributes.hold(attributes)
            self._subgraphs = self.origin = None
        if outputs is not None:
            self._outputs = Places(outputs)
        if captures is not None:
            self._captures = tuple(captures)

    @property
    def domain(self) -> str:
        return self._op.domain

    @property
    def op_type(self) -> str:
        return self._op.name

    @property
    def uses(self) -> tuple[Value, ...]:
        """Every value that the node reads: present inputs, then captures."""
        return tuple(v for v in self._inputs if v is not None) + self._captures

    @property
    def subgraphs(self) -> Sequence[Graph]:
        if self._subgraphs is None:
            found: list[Graph] = []
            for attribute in self._attributes.values():
                items = attribute if isinstance(attribute, list) else [attribute]
                found += items if items and isinstance(items[0], _graph_class()) else []
            self._subgraphs = tuple(found)
        return self._subgraphs

    @property
    def label(self) -> str:
        """The name, else that of the first output."""
        return self.name or next((v.name for v in self.outputs if v is not None), "")

    @property
    def title(self) -> str:
        """How messages name the node."""
        label = self.name or (f"-> {self.label}" if any(v is not None for v in self.outputs) else "")
        return f'node "{label}" ({self.domain}::{self.op_type}@{self.version})'

    def __repr__(self) -> str:
        names = ", ".join("" if v is None else v.name for v in self.inputs)
        outputs = ", ".join("" if v is None else v.name for v in self.outputs)
        return f"Node({outputs} = {self.domain}::{self.op_type}@{self.version}({names}))"
