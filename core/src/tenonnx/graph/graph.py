"""Graphs, values and nodes, which hold each other: a graph of operators in single-assignment form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tenonnx.errors import InvalidCall, UnknownType
from tenonnx.graph.constants import Constant, Contents, contents_given
from tenonnx.graph.definitions import operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.late_bindings import late
from tenonnx.graph.methods import Methods
from tenonnx.graph.names import Names, near_names
from tenonnx.graph.parts import Attributes, Inputs, Operator, Places, fixed
from tenonnx.graph.settable import EditedPart, Settable, part, settled
from tenonnx.graph.training import Role, TrainingState
from tenonnx.graph.typed import Typed
from tenonnx.graph.types import Type, type_given

if TYPE_CHECKING:
    import numpy as np


#: Below this IR version every initializer had to be listed as an input, so that the list says nothing.
OPTIONAL_INPUTS_IR = 4


#: What says that a part of a value stays as it is.
KEPT: Final[Any] = object()


@settled(
    tensor="value.type = another type", rank="value.shape = other dims", ndim="value.shape = other dims",
    is_constant="value.data = an array",
)  # fmt: skip
class Value(Typed):
    """One value of a graph. Two values are equal only if they are the same object.

    ``type`` is None while unknown. ``data`` holds the contents where they are static, which ``numpy.asarray(value)``
    reads. ``symbolic_contents`` holds those of a small integer tensor as a numpy object array of ints, symbolic
    expressions and None, where these are known.

    To set the ``name``, the ``type``, ``dtype`` or ``shape`` of an input, or the ``data`` of a variable is an edit of
    the graph, which keeps ``producer``, ``graph`` and ``symbolic_contents``. ``role`` is what a variable is to
    training, None where nobody said so. ``outer`` is, while a subgraph is built, what one of its captures stands for.
    """

    __slots__ = ("_data", "_name", "_type", "graph", "outer", "producer", "role", "symbolic_contents")

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
        self.outer: Value | None = None
        self.role: Role | None = None

    name: EditedPart[str, str] = part("name")
    type: EditedPart[Type | None, Type | None] = part("type")
    data: EditedPart[Constant | None, Any] = part("data")

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

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type or '?'})"


@settled(
    domain="node.op = an op of that domain, with node.version; or graph.replace(old, new)",
    uses="node.inputs = [...]", subgraphs='node.attributes["name"] = a graph',
    label="node.name = a name", title="node.name = a name",
)  # fmt: skip
class Node:
    """One use of an operator.

    ``version`` is the opset version in whose spelling ``inputs`` and ``attributes`` are written. ``attributes`` holds
    those that were written. ``captures`` are the outer values that the node's subgraphs use; an absent optional input
    or output is None. ``origin`` is the reader's record of the node, from which an untouched node is written back
    verbatim.

    To set the ``name``, ``inputs``, ``attributes`` or one of them, ``op``, ``op_type`` or ``version`` of a node in a
    graph is an edit, which all consumers see; one that the graph cannot have is refused, and leaves it as it was.
    """

    __slots__ = ("_subgraphs", "attributes", "captures", "inputs", "name", "op", "origin", "outputs", "version")

    if TYPE_CHECKING:
        name: EditedPart[str, str]
        op: EditedPart[Operator, Operator | str]
        version: EditedPart[int, int]
        inputs: EditedPart[tuple[Value | None, ...], Sequence[Value | str | None]]
        attributes: EditedPart[Attributes, Mapping[str, Any]]
        outputs: EditedPart[tuple[Value | None, ...], Sequence[Value | None]]
        captures: EditedPart[tuple[Value, ...], Sequence[Value]]
        origin: Any
        _subgraphs: tuple[Graph, ...] | None

    def __new__(
        cls,
        op: Operator,
        version: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[Value | None] = (),
        *,
        name: str = "",
        captures: Sequence[Value] = (),
        origin: Any = None,
    ) -> Node:
        made: Any = object.__new__(_Unfinished)
        made.name, made.op, made.version, made.origin = name, op, version, origin
        made.inputs, made.outputs, made.captures = Places(inputs), Places(outputs), tuple(captures)
        if not attributes:
            made.attributes, made._subgraphs = Attributes(), ()
        elif type(attributes) is Attributes:  # of another node, which may know that there are no subgraphs in them
            made.attributes, made._subgraphs = Attributes(attributes), attributes._node._subgraphs and None
        else:
            made.attributes, made._subgraphs = Attributes(fixed(attributes)), None
        made.attributes._node = made
        made.__class__ = cls
        return made  # type: ignore[no-any-return]

    def __setattr__(self, name: str, given: Any) -> None:
        if name in _SET:
            late("set_parts")(self, {name: given})
        else:
            super().__setattr__(name, given)

    def become(
        self,
        *,
        name: str | None = None,
        op: Operator | None = None,
        version: int | None = None,
        inputs: Sequence[Value | None] | None = None,
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[Value | None] | None = None,
        captures: Sequence[Value] | None = None,
    ) -> None:
        """Let the node be another, whatever the graph is then: for what builds graphs."""
        if name is not None:
            _SET["name"](self, name)
        if op is not None:
            _SET["op"](self, op)
        if version is not None:
            _SET["version"](self, version)
        if inputs is not None:
            _SET["inputs"](self, Places(inputs))
        if outputs is not None:
            _SET["outputs"](self, Places(outputs))
        if captures is not None:
            _SET["captures"](self, tuple(captures))
        if attributes is not None:
            self.attributes.hold(attributes)
            self._subgraphs = self.origin = None

    @property
    def domain(self) -> str:
        return self.op.domain

    @property
    def op_type(self) -> str:
        return self.op.name

    @op_type.setter
    def op_type(self, name: str) -> None:
        self.op = name

    @property
    def uses(self) -> tuple[Value, ...]:
        """Every value that the node reads: present inputs, then captures."""
        present = tuple([v for v in self.inputs if v is not None]) if None in self.inputs else self.inputs
        return (*present, *self.captures) if self.captures else present  # type: ignore[arg-type, return-value]

    @property
    def subgraphs(self) -> Sequence[Graph]:
        if self._subgraphs is None:
            found: list[Graph] = []
            for attribute in self.attributes.values():
                if isinstance(attribute, Graph):
                    found.append(attribute)
                elif isinstance(attribute, list) and attribute and isinstance(attribute[0], Graph):
                    found += attribute
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


class _Unfinished:
    """A node while it is made: its parts are set without a call of Python's, which the class of nodes has for that."""

    __slots__ = Node.__slots__


#: What sets the parts of a node, whatever the graph is then.
_PARTS: Final = ("name", "op", "version", "inputs", "outputs", "captures", "attributes")
_SET: Final = {name: getattr(Node, name).__set__ for name in _PARTS}


class Graph(Settable, Names, Methods):
    """A graph of operators at the meaning that their opset versions gave them.

    ``all_inputs`` are all graph inputs in file order; those that are variables too have a default and may be fed.
    ``captures`` are, in a subgraph, the stand-ins of outer values, one for each capture of the node that owns it.
    ``opsets`` maps each domain to its version. ``functions`` holds the operators that this graph alone defines.
    ``value_types`` are the types that a file declared for inner values; they count only where inference knows nothing.
    ``fixed`` says of a graph that cannot be edited what it is.
    ``retyped`` tells that values have other types than the file declared, so that all are declared anew.
    ``training_state`` is what an optimizer needs to go on; it is written where an export asks for it.
    """

    def __init__(
        self,
        name: str = "graph",
        *,
        opsets: Mapping[str, int] | None = None,
        ir_version: int | None = None,
        parent: Graph | None = None,
    ) -> None:
        self.name = name
        self.opsets: dict[str, int] = dict(opsets or {})
        self.ir_version = ir_version
        self.all_inputs: list[Value] = []
        self.captures: list[Value] = []
        self.variables: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.metadata: dict[str, str] = {}
        self.functions: dict[tuple[str, str, str], Operator] = {}
        self.value_types: Mapping[str, Type] = {}
        self.training_state: TrainingState | None = None
        self.doc = ""
        self.parent = parent
        self.origin: Any = None
        self.registry: Any = parent.registry if parent is not None else None
        self.fixed = ""
        self.retyped = False
        self._names = None

    # ----- reading ------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> list[Value]:
        """The graph inputs that must be fed, in file order. Those that nothing reads can be removed from this list."""
        return Inputs([value for value in self.all_inputs if value.data is None], self)

    @inputs.setter
    def inputs(self, values: Sequence[Value | str]) -> None:
        late("set_inputs")(self, values)

    def values(self) -> Iterator[Value]:
        """Every value of this graph once: all_inputs, captures, variables, node outputs and loose constants."""
        return iter(dict.fromkeys(self._values()))

    def _values(self) -> Iterator[Value]:
        """Every value of this graph wherever it is named."""
        yield from (*self.all_inputs, *self.captures, *self.variables)
        for node in self.nodes:
            yield from node.uses
            yield from [value for value in node.outputs if value is not None]
        yield from self.outputs

    def __getitem__(self, name: str) -> Value:
        """The value of that name; of a tensor of the training state, one with its contents that no node reads.

        Raises ``KeyError`` naming what is near.
        """
        for value in self._values():
            if value.name == name:
                return value
        kept = {} if self.training_state is None else self.training_state.tensors
        if name in kept:
            return Value(name, kept[name].type, data=kept[name])
        raise KeyError(f'no value "{name}" in graph "{self.name}"; nearest: {self._near(name)}')

    def _near(self, name: str) -> str:
        """The values that may be meant by a name that none has."""
        kept = {} if self.training_state is None else self.training_state.tensors
        return ", ".join(near_names(name, [*(v.name for v in self.values()), *kept]))

    def walk(self) -> Iterator[Node]:
        """Every node, those of nested subgraphs after the node that holds them."""
        for node in self.nodes:
            yield node
            for subgraph in node.subgraphs:
                yield from subgraph.walk()

    def nested(self) -> Iterator[Graph]:
        """This graph and those nested in it."""
        yield self
        for node in self.nodes:
            for subgraph in node.subgraphs:
                yield from subgraph.nested()

    @property
    def root(self) -> Graph:
        graph = self
        while graph.parent is not None:
            graph = graph.parent
        return graph

    def declare_anew(self) -> None:
        """Let all types be declared anew, as values have other names or types than the file says."""
        self.root.retyped = True

    def forget_declared(self) -> None:
        """Let nothing count that the file declared of types: values have others, which are declared anew."""
        for graph in self.nested():
            graph.value_types = {}
        self.declare_anew()

    # ----- building -----------------------------------------------------------------------------------------------

    def input(self, name: str, dtype: DType | str | Type, shape: tuple[int | str | None, ...] | None = None) -> Value:
        """Add a graph input. A dim is an int, a symbol or expression such as ``"batch"`` or ``"2*n + 1"``, or None."""
        kind = type_given(name, dtype, shape)
        value = Value(self._claim(name), kind, graph=self)
        self.all_inputs.append(value)
        return value

    def variable(self, name: str, data: np.ndarray[Any, Any] | Constant) -> Value:
        """Add an initializer."""
        constant = contents_given(name, data)
        value = Value(self._claim(name), constant.type, data=constant, graph=self)
        self.variables.append(value)
        return value

    def output(self, name: str, value: Value) -> Value:
        """Make ``value`` a graph output called ``name``."""
        if getattr(value, "graph", None) is not self:
            raise InvalidCall(f'output "{name}" must be a value of graph "{self.name}"', given=repr(value))
        if value.producer is None or any(value is other for other in self.outputs):
            value = operators().identity(value)
        if value.name != name:
            self.rename(value, name)
        self.outputs.append(value)
        return value

    def append(self, node: Node) -> None:
        """Add a node whose outputs are values made for it."""
        for value in node.outputs:
            if value is not None:
                value.producer, value.graph = node, self
        self.nodes.append(node)

    # ----- editing ------------------------------------------------------------------------------------------------

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes of this graph that read each value, in order."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.uses:
                readers = found.setdefault(value, [])
                if not readers or readers[-1] is not node:
                    readers.append(node)
        return found

    def find(self, value: Value | str) -> Value:
        """A value of this graph, which may be given by name. Raises ``InvalidCall`` for another."""
        if isinstance(value, str):
            try:
                value = self[value]
            except KeyError as error:
                what = f'no value "{value}" in graph "{self.name}"'
                raise InvalidCall(what, available=self._near(str(value))) from error
        if getattr(value, "graph", None) is not self:
            raise InvalidCall(f'a value of graph "{self.name}" is required', given=repr(value))
        return value

    def rename(self, value: Value | str, name: str) -> None:
        """Give ``value`` another name, which no other value has. The old one is free then.

        What the training state keeps of a variable is renamed with it.
        """
        late("rename")(self, value, name)

    def assign(self, contents: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give variables other contents of the same type, and forget what was inferred from the old ones.

        The contents are kept, not copied. Raises ``InvalidCall`` for a name that is no variable, ``TypeMismatch`` for
        another dtype or shape; then nothing changes.
        """
        late("assign")(self, contents)

    def replace(self, old: Value | str, new: Value | str) -> None:
        """Let every node and output that reads ``old`` read ``new``, but for the nodes that ``new`` comes from.

        An output keeps its name. Raises ``InvalidCall`` where a reader does not take the type of ``new``.
        """
        late("replace")(self, old, new)

    def insert_after(self, value: Value | str, function: Callable[[Value], Any]) -> Value:
        """Put ``function(value)`` behind ``value``: all that reads it reads the result, which is returned."""
        return late("insert_after")(self, value, function)  # type: ignore[no-any-return]

    def insert(self, node: Node, *, before: Node | None = None) -> None:
        """Add a node made by hand ahead of ``before``, or at the end. Raises ``InvalidCall`` for a cycle."""
        late("insert")(self, node, before=before)

    def remove(self, nodes: Node | Value | str | Sequence[Node | Value | str]) -> None:
        """Take out nodes, inputs and variables that nothing else reads. Raises ``InvalidCall`` naming what does."""
        late("remove")(self, nodes)

    def __repr__(self) -> str:
        opsets = ", ".join(f"{d} {v}" for d, v in self.opsets.items())
        return (
            f'Graph("{self.name}": {len(self.nodes)} nodes, {len(self.variables)} variables, {opsets or "no opsets"})'
        )
