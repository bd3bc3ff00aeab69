"""The graph: inputs, variables, nodes and outputs in single-assignment form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.constants import ArrayConstant, Constant
from tenonnx.graph.definitions import operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.late_bindings import late, late_if_installed
from tenonnx.graph.symbolic import dims_given
from tenonnx.graph.training import TrainingState
from tenonnx.graph.types import TensorType, Type
from tenonnx.graph.values import Node, Operator, Value

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from tenonnx.graph.program import Program

#: Contents of at most this many bytes are propagated through ops while types are inferred.
PROPAGATED_BYTES = 8192

#: Below this IR version every initializer had to be listed as an input, so that the list says nothing.
OPTIONAL_INPUTS_IR = 4


class Graph:
    """A graph of operators at the meaning that their opset versions gave them.

    ``all_inputs`` are all graph inputs in file order; those that are variables too have a default and may be fed.
    ``captures`` are, in a subgraph, the stand-ins of outer values, one for each capture of the node that owns it.
    ``opsets`` maps each domain to its version. ``functions`` holds the operators that this graph alone defines.
    ``pending`` maps, while a subgraph is built, outer values to their stand-ins.
    ``value_types`` are the types that a file declared for inner values; they count only where inference knows nothing.
    ``is_edited`` tells, of the outermost graph, that an edit of several steps is under way.
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
        self.pending: dict[Value, Value] = {}
        self.is_edited = False
        self.fixed = ""
        self.retyped = False
        self._names: dict[str, int] | None = None

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
            yield from (value for value in (*node.inputs, *node.captures, *node.outputs) if value is not None)
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
        near = near_names(name, [*(v.name for v in self.values()), *kept])
        raise KeyError(f'no value "{name}" in graph "{self.name}"; nearest: {", ".join(near)}')

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

    def names(self) -> dict[str, int]:
        """Every name taken in this graph and the graphs nested in it, shared by all of them, with a running count."""
        root = self.root
        if root._names is None:
            names: dict[str, int] = {}
            for graph in root.nested():
                names.update((value.name, 0) for value in graph._values())
                names.update((node.name, 0) for node in graph.nodes)
            root._names = names  # whole, as another thread may look
        return root._names

    def unique_name(self, wanted: str) -> str:
        """``wanted``, or ``wanted_1``, ``wanted_2`` ...: the first that the whole graph has not yet; it is taken."""
        return unique_name(self.names(), wanted)

    # ----- building -----------------------------------------------------------------------------------------------

    def input(self, name: str, dtype: DType | str | Type, shape: tuple[int | str | None, ...] | None = None) -> Value:
        """Add a graph input. A dim is an int, a symbol or expression such as ``"batch"`` or ``"2*n + 1"``, or None."""
        try:
            kind: Type = dtype if isinstance(dtype, Type) else TensorType(DType.of(dtype), shape)  # type: ignore[arg-type]
            if isinstance(kind, TensorType):
                kind = kind.with_dtype(DType.of(kind.dtype))
        except (TypeError, ValueError) as error:
            raise InvalidCall(
                f'input "{name}" must have an element type of ONNX',
                given=repr(dtype),
                available=", ".join(map(str, DType)),
            ) from error
        if isinstance(kind, TensorType):
            kind = tensor_type_given(name, kind)
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

    def _claim(self, name: str) -> str:
        if not isinstance(name, str) or name in self.names():
            given = "a value of that name exists" if isinstance(name, str) else "no text"
            raise InvalidCall(f'the name "{name}" must be new in graph "{self.name}"', given=given)
        self.names()[name] = 0
        return name

    # ----- editing ------------------------------------------------------------------------------------------------

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes of this graph that read each value, in order."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.uses):
                found.setdefault(value, []).append(node)
        return found

    def find(self, value: Value | str) -> Value:
        """A value of this graph, which may be given by name. Raises ``InvalidCall`` for another."""
        if isinstance(value, str):
            try:
                value = self[value]
            except KeyError as error:
                raise InvalidCall(str(error.args[0])) from error
        if getattr(value, "graph", None) is not self:
            raise InvalidCall(f'a value of graph "{self.name}" is needed here', given=repr(value))
        return value

    def rename(self, value: Value | str, name: str) -> None:
        """Give ``value`` another name, which no other value has. The old one is free then.

        What the training state keeps of a variable is renamed with it.
        """
        value = self.find(value)
        if name == value.name:
            return
        text = isinstance(name, str) and name != ""
        if not text or any(name == other.name for graph in self.root.nested() for other in graph.values()):
            given = "a value of that name exists" if text else "no text"
            raise InvalidCall(f'the name "{name}" must be new in graph "{self.name}"', given=given)
        if value.name in self.value_types:
            self.value_types = {name if n == value.name else n: kind for n, kind in self.value_types.items()}
        if self.training_state is not None and value in self.variables:
            variables = {variable.name for variable in self.variables}
            self.training_state = self.training_state.renamed(value.name, name, variables)
        value.become(name=name)
        self.root._names, self.root.retyped = None, True

    def assign(self, contents: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give variables other contents of the same type, and forget what was inferred from the old ones.

        The contents are kept, not copied. Raises ``InvalidCall`` for a name that is no variable, ``TypeMismatch`` for
        another dtype or shape; then nothing changes.
        """
        held = {value.name: value for value in self.variables}
        new = {}
        for name, array in contents.items():
            if name not in held:
                raise InvalidCall(f'no variable "{name}" in graph "{self.name}"', available=", ".join(list(held)[:20]))
            new[name] = ArrayConstant(array)
            if new[name].type != held[name].type:
                given, wanted = new[name].type, held[name].type
                raise TypeMismatch(f'variable "{name}" must stay {wanted}', given=str(given))
        with self.editing() if any(constant.nbytes <= PROPAGATED_BYTES for constant in new.values()) else nullcontext():
            for name, constant in new.items():
                held[name].become(data=constant)
                held[name].symbolic_contents = None

    def editing(self) -> AbstractContextManager[None]:
        """A scope whose edits count together: at its end nodes are put in order and types are checked.

        After an error, nothing has changed. Each of the edits below is such a scope of its own.
        """
        return late("editing")(self)  # type: ignore[no-any-return]

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

    # ----- what the floors above do with a graph ------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The graph as a function: on values of another graph it is put into that one, on arrays it is computed.

        Inputs are those that must be fed, in order or by name. One result, or a tuple where there are several outputs.
        """
        return late("apply_graph")(self, inputs, named)

    def __reduce__(self) -> tuple[Any, ...]:
        return late("pickled")(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        drawn = late_if_installed("to_html")
        return None if drawn is None else drawn(self)

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        return late("to_dot")(self)  # type: ignore[no-any-return]

    def to_svg(self) -> str:
        """The graph as a drawing."""
        return late("to_svg")(self)  # type: ignore[no-any-return]

    def to_proto(self, **fields: Any) -> onnx.ModelProto:
        """What ``tenonnx.export`` would write, as a message; ``fields`` are those of ``ExportConfig``."""
        return late("to_proto")(self, **fields)  # type: ignore[no-any-return]

    def summary(self, *, nodes: int = 40) -> str:
        """Inputs, outputs, ops and the first ``nodes`` nodes, as text."""
        return late("summary")(self, nodes=nodes)  # type: ignore[no-any-return]

    def building(self, prefix: str = "") -> AbstractContextManager[None]:
        """A scope in which every op that is called adds its node here, also one without inputs or on arrays.

        ``prefix`` begins the names of new values. After an error inside, there is nothing of what the block added.
        """
        return late("building")(self, prefix)  # type: ignore[no-any-return]

    def infer(self, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Graph:
        """Give every value its type; ``input_shapes`` are further facts about the inputs. Returns the graph itself."""
        late("infer")(self, input_shapes)
        return self

    def extract(self, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Graph:
        """The part of the graph that computes ``outputs`` from ``inputs``, names of values; None for those it needs."""
        return late("extract")(self, inputs, outputs)  # type: ignore[no-any-return]

    def copy(self) -> Graph:
        """A graph of its own with the same contents; the arrays of constants are shared."""
        return late("copy_graph")(self)  # type: ignore[no-any-return]

    def compile(self, backend: str = "auto", **options: Any) -> Program:
        """The graph made ready to run, see ``tenonnx.backend.base.compile_graph``."""
        return late("compile_graph")(self, backend, **options)  # type: ignore[no-any-return]

    def run(
        self, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Value] | str | None = None
    ) -> dict[str, Any]:
        """The outputs for ``feeds``, by name. For many calls, ``compile`` once.

        ``outputs`` are other values to compute, inner ones, too: what these do not need is neither fed nor run.
        """
        if outputs is None:
            return self.compile(backend)(feeds)
        several = [outputs] if isinstance(outputs, str | Value) else outputs
        names = [self.find(value).name for value in several]
        part = self.extract(None, names)
        unneeded = {v.name for v in self.all_inputs} - {v.name for v in part.all_inputs}
        given = {name: array for name, array in feeds.items() if name not in unneeded}
        found = part.compile(backend)(given)
        return {name: found[name] for name in names}

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, training_state: bool = True) -> None:
        """Write the graph as a native file ``*.safetensors``; ``overwrite`` replaces a read-only file, too.

        ``training_state`` False leaves out what an optimizer needs to go on.
        """
        late("save")(self, path, overwrite=overwrite, training_state=training_state)


def _edited(name: str) -> Callable[..., Any]:
    def edit(self: Inputs, *arguments: Any, **keywords: Any) -> Any:
        plain = list(self)
        result = getattr(plain, name)(*arguments, **keywords)
        self._graph.inputs = plain
        list.__setitem__(self, slice(None), plain)
        return self if result is plain else result

    return edit


class Inputs(list[Value]):
    """The inputs of a graph: what is removed from this list, or put in another order, is so in the graph."""

    __slots__ = ("_graph",)

    def __init__(self, values: Sequence[Value], graph: Graph) -> None:
        super().__init__(values)
        self._graph = graph

    append, extend, insert, remove, pop, clear, sort, reverse = map(
        _edited, ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse")
    )
    __setitem__, __delitem__, __iadd__, __imul__ = map(_edited, ("__setitem__", "__delitem__", "__iadd__", "__imul__"))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (tuple(self),)


def tensor_type_given(name: str, kind: TensorType) -> TensorType:
    """A type as it was given, with dims as they are reckoned with. Raises ``InvalidCall`` for what is none."""
    try:
        kind = kind.with_dtype(DType.of(kind.dtype))
        return kind if kind.shape is None else kind.with_shape(dims_given(kind.shape))
    except (TypeError, ValueError) as error:
        what = f'the shape of input "{name}" must be a tuple of sizes, symbols and None'
        raise InvalidCall(what, given=repr(kind.shape), do='("batch", 3)') from error


def contents_given(name: str, data: Any) -> Constant:
    """Contents as they were given. Raises ``InvalidCall`` for what is no array."""
    import numpy as np

    if not isinstance(data, np.ndarray | np.generic | Constant):
        what = f'variable "{name}" must have the contents of an array'
        raise InvalidCall(what, given=type(data).__name__, do="wrap it: numpy.array(data)")
    if not isinstance(data, np.ndarray | np.generic):
        return data
    small = data.nbytes <= PROPAGATED_BYTES  # types may follow from it, whatever becomes of the array that was given
    return ArrayConstant(np.array(data) if small else np.asarray(data))


def unique_name(names: MutableMapping[str, int], wanted: str) -> str:
    """The first of ``wanted``, ``wanted_1``, ``wanted_2`` ... that is not among ``names``; it is taken."""
    name, count = wanted, names.get(wanted, 0)
    while name in names:
        count += 1
        name = f"{wanted}_{count}"
    names[wanted] = count
    names.setdefault(name, 0)
    return name


def near_names(name: str, names: Sequence[str]) -> list[str]:
    """The names that are written much like this one, or else the first twenty."""
    import difflib

    return difflib.get_close_matches(name, names, 3) or list(names[:20])
