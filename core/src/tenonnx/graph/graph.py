"""Values, nodes and graphs of operators, in static single-assignment form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall, UnknownType, did_you_mean, listing
from tenonnx.graph.constants import Constant, Contents, contents_given
from tenonnx.graph.containers import Attributes, Inputs, Operator, Places
from tenonnx.graph.definitions import operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.lazy_methods import lazy_import
from tenonnx.graph.methods import Methods, Shown
from tenonnx.graph.names import Names
from tenonnx.graph.properties import CheckedFields, read_only
from tenonnx.graph.training import Role, TrainingState
from tenonnx.graph.typed import Typed
from tenonnx.graph.types import Type, type_given

if TYPE_CHECKING:
    import numpy as np


#: Before this IR version every initializer had to be listed as an input, so the list does not imply a default.
OPTIONAL_INPUTS_IR = 4


@read_only(
    tensor="value.type = another type",
    rank="value.shape = other dims",
    ndim="value.shape = other dims",
    is_constant="value.data = an array",
)
class Value(Typed, Shown):
    """One value of a graph. Two values are equal only if they are the same object.

    ``type`` is None while unknown. ``data`` holds static contents, which ``numpy.asarray(value)`` reads.
    ``symbolic_contents`` holds the contents of a small integer tensor as far as they are known: a numpy object array of
    ints, symbolic expressions and None.

    The ``name``, the ``type``, ``dtype`` or ``shape`` of an input, and the ``data`` of a variable may be assigned, as
    an edit of the graph; ``producer``, ``graph`` and ``symbolic_contents`` are maintained by the graph. ``role`` is the
    role of a variable in training, None if not declared. ``outer`` is, in a subgraph under construction, the value that
    a capture represents.
    """

    __slots__ = ("_data", "_name", "_type", "graph", "outer", "producer", "role", "symbolic_contents")

    #: With an array on the left numpy defers to the value's operator, instead of creating an array of objects.
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

    @type.setter  # noqa: A003
    def type(self, type: Type | None) -> None:
        if self.graph is None:
            self._type = type
        else:
            lazy_import("set_type")(self.graph, self, type)

    @property
    def data(self) -> Constant | None:
        return self._data

    @data.setter
    def data(self, contents: Any) -> None:
        if self.graph is None:
            self._data = contents
        else:
            lazy_import("set_data")(self.graph, self, contents)

    def _replace_fields(self, **fields: Any) -> None:
        """Set ``name``, ``type`` or ``data`` without validation. For graph builders only."""
        for field, content in fields.items():
            setattr(self, f"_{field}", content)

    def forget(self) -> None:
        """Clear the type and the contents."""
        self._type = self._data = self.symbolic_contents = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._data is None:
            raise UnknownType(
                f'cannot read value "{self.name}" as an array: its contents are not known',
                given="an input" if self.producer is None else "what a node computes",
                do="compute it: tenonnx.extract(graph, None, [name]).run(feeds)",
            )
        return Contents.__array__(self._data, dtype, copy)  # type: ignore[arg-type]

    @property
    def is_constant(self) -> bool:
        """Whether this is an initializer or a loose constant: static contents without a producing node."""
        return self.data is not None and self.producer is None

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type or '?'})"


@read_only(
    outputs="graph.replace(old, new) lets others be read; graph.insert(node) adds a node",
    captures="edit the subgraph, or graph.replace(old, new)",
    domain="node.op = an op of that domain, with node.version; or graph.replace(old, new)",
    uses="node.inputs = [...]",
    subgraphs='node.attributes["name"] = a graph',
    label="node.name = a name",
    title="node.name = a name",
)
class Node(Shown):
    """One use of an operator.

    ``version`` is the opset version whose signature ``inputs`` and ``attributes`` follow. ``attributes`` holds those
    that are written in the file. ``captures`` are the outer values that the node's subgraphs use. An absent optional
    input or output is None. ``origin`` is the reader's record of the node, from which an unmodified node is written
    back verbatim.

    The ``name``, ``inputs``, ``attributes`` (or one of them), ``op``, ``op_type`` and ``version`` of a node in a graph
    may be assigned, as an edit that all consumers see. An invalid edit raises an error and changes nothing.
    """

    __slots__ = ("_attributes", "_captures", "_inputs", "_name", "_op", "_outputs", "_subgraphs", "_version", "origin")

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
        self._name = name
        self._op = op
        self._version = version
        self._inputs: Places[Value | None] = Places(inputs)
        self._outputs: Places[Value | None] = Places(outputs)
        self._captures = tuple(captures)
        self._attributes = Attributes(self, attributes)
        self._subgraphs: tuple[Graph, ...] | None = None if attributes else ()
        self.origin = origin

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        lazy_import("set_node_name")(self, name)

    @property
    def op(self) -> Operator:
        return self._op

    @op.setter
    def op(self, op: Operator | str) -> None:
        lazy_import("set_op")(self, op)

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        lazy_import("set_version")(self, version)

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        return self._inputs

    @inputs.setter
    def inputs(self, values: Sequence[Value | str | None]) -> None:
        lazy_import("set_inputs")(self, values)

    @property
    def attributes(self) -> Attributes:
        return self._attributes

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Any]) -> None:
        lazy_import("set_attributes")(self, attributes)

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        return self._outputs

    @property
    def captures(self) -> tuple[Value, ...]:
        return self._captures

    def _replace_fields(
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
        """Set fields without validation. For graph builders only."""
        if name is not None:
            self._name = name
        if op is not None:
            self._op = op
        if version is not None:
            self._version = version
        if inputs is not None:
            self._inputs = Places(inputs)
        if outputs is not None:
            self._outputs = Places(outputs)
        if captures is not None:
            self._captures = tuple(captures)
        if attributes is not None:
            self._attributes.replace_all(attributes)
            self._subgraphs = self.origin = None

    @property
    def graph(self) -> Graph | None:
        """The graph that contains the node, or None."""
        output = next((value for value in self.outputs if value is not None and value.producer is self), None)
        graph = None if output is None else output.graph
        return graph if graph is not None and any(node is self for node in graph.nodes) else None

    @property
    def domain(self) -> str:
        return self.op.domain

    @property
    def op_type(self) -> str:
        return self.op.name

    @op_type.setter
    def op_type(self, name: str) -> None:
        lazy_import("set_op")(self, name)

    @property
    def uses(self) -> tuple[Value, ...]:
        """All values that the node reads: present inputs, then captures."""
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
        """The name, or that of the first output for a node without one."""
        return self.name or next((v.name for v in self.outputs if v is not None), "")

    @property
    def title(self) -> str:
        """Name of the node in messages."""
        label = self.name or (f"-> {self.label}" if any(v is not None for v in self.outputs) else "")
        return f'node "{label}" ({self.domain}::{self.op_type}@{self.version})'

    def __repr__(self) -> str:
        names = ", ".join("" if v is None else v.name for v in self.inputs)
        outputs = ", ".join("" if v is None else v.name for v in self.outputs)
        return f"Node({outputs} = {self.domain}::{self.op_type}@{self.version}({names}))"


class Graph(CheckedFields, Names, Methods):
    """A graph of operators, each defined by its opset version.

    ``all_inputs`` are all graph inputs in file order; an input that is also a variable has that default. ``captures``
    represent, in a subgraph, the outer values in the ``captures`` of the owning node, in the same order. ``opsets``
    maps each domain to its version. ``functions`` holds the model-local functions. ``value_types`` are the types that
    the file declares for inner values, used where inference knows less. ``fixed`` describes a graph that cannot be
    edited. ``retyped`` means that types differ from those declared in the file, so that an export writes new ones.
    ``training_state`` is the optimizer state; exports write it on request.
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

    @property
    def inputs(self) -> list[Value]:
        """The graph inputs without a default, in file order. Unused ones can be removed from this list."""
        return Inputs([value for value in self.all_inputs if value.data is None], self)

    @inputs.setter
    def inputs(self, values: Sequence[Value | str]) -> None:
        lazy_import("set_graph_inputs")(self, values)

    def values(self) -> Iterator[Value]:
        """All values of this graph once: inputs, captures, variables, node outputs and loose constants."""
        return iter(dict.fromkeys(self._values()))

    def _values(self) -> Iterator[Value]:
        """All values of this graph, with repetitions."""
        yield from (*self.all_inputs, *self.captures, *self.variables)
        for node in self.nodes:
            yield from node.uses
            yield from [value for value in node.outputs if value is not None]
        yield from self.outputs

    def __getitem__(self, name: str) -> Value:
        """The value of that name; a tensor of the training state is returned as a constant that no node reads.

        Raises ``KeyError`` with similar names.
        """
        for value in self._values():
            if value.name == name:
                return value
        kept = {} if self.training_state is None else self.training_state.tensors
        if name in kept:
            return Value(name, kept[name].type, data=kept[name])
        names = [*(value.name for value in self.values()), *kept]
        others = did_you_mean(name, names) or f"it has {listing(names)}"
        raise KeyError(f'no value "{name}" in graph "{self.name}"; {others}')

    def walk(self) -> Iterator[Node]:
        """All nodes, each followed by those of its subgraphs."""
        for node in self.nodes:
            yield node
            for subgraph in node.subgraphs:
                yield from subgraph.walk()

    def nested(self) -> Iterator[Graph]:
        """This graph and its nested subgraphs."""
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

    def forget_declared(self) -> None:
        """Drop the types that the file declares for inner values; an export writes inferred ones."""
        for graph in self.nested():
            graph.value_types = {}
        self.root.retyped = True

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
        """Make ``value`` a graph output called ``name``; returns the output."""
        if getattr(value, "graph", None) is not self:
            raise InvalidCall(f'output "{name}" is not a value of graph "{self.name}"', given=repr(value))
        if value.producer is None or any(value is other for other in self.outputs):
            value = operators().identity(value)
        if value.name != name:
            self.rename(value, name)
        self.outputs.append(value)
        return value

    def append(self, node: Node) -> None:
        """Append a node with its outputs, which no graph owns yet."""
        for value in node.outputs:
            if value is not None:
                value.producer, value.graph = node, self
        self.nodes.append(node)

    def uses(self) -> dict[Value, list[Node]]:
        """The consumers of each value in this graph, in order."""
        result: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.uses:
                readers = result.setdefault(value, [])
                if not readers or readers[-1] is not node:
                    readers.append(node)
        return result

    def find(self, value: Value | str) -> Value:
        """A value of this graph, given as such or by name. Raises ``InvalidCall`` if it is not in the graph."""
        if isinstance(value, str):
            try:
                value = self[value]
            except KeyError as error:
                names = [each.name for each in self.values()]
                what, do = f'no value "{value}" in graph "{self.name}"', did_you_mean(value, names)
                raise InvalidCall(what, available=listing(names), do=do) from error
        if getattr(value, "graph", None) is not self:
            raise InvalidCall(f'the value is not in graph "{self.name}"', given=repr(value))
        return value

    def rename(self, value: Value | str, name: str) -> None:
        """Rename ``value`` to an unused name; the old name becomes free.

        The training state of a variable is renamed with it.
        """
        lazy_import("rename")(self, value, name)

    def assign(self, contents: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Replace the contents of variables by others of the same type, and forget what was inferred from the old ones.

        The arrays are not copied. Raises ``InvalidCall`` for a name that is not a variable, ``TypeMismatch`` for
        another dtype or shape; then nothing changes.
        """
        lazy_import("assign")(self, contents)

    def replace(self, old: Value | str, new: Value | str) -> None:
        """Make all consumers of ``old``, nodes and outputs, read ``new``, except the nodes on which ``new`` depends.

        Outputs keep their names. Raises ``InvalidCall`` if a consumer does not accept the type of ``new``.
        """
        lazy_import("replace")(self, old, new)

    def insert_after(self, value: Value | str, function: Callable[[Value], Any]) -> Value:
        """Insert ``function(value)`` after ``value``: all its consumers read the result instead, which is returned."""
        return lazy_import("insert_after")(self, value, function)  # type: ignore[no-any-return]

    def insert(self, node: Node, *, before: Node | None = None) -> None:
        """Insert a node before ``before``, or at the end. Raises ``InvalidCall`` for a cycle."""
        lazy_import("insert")(self, node, before=before)

    def remove(self, nodes: Node | Value | str | Sequence[Node | Value | str]) -> None:
        """Remove nodes, inputs and variables that nothing else reads. Raises ``InvalidCall`` naming the consumers."""
        lazy_import("remove")(self, nodes)

    def __repr__(self) -> str:
        opsets = ", ".join(f"{d} {v}" for d, v in self.opsets.items()) or "no opsets"
        return f'Graph("{self.name}": {len(self.nodes)} nodes, {len(self.variables)} variables, {opsets})'
