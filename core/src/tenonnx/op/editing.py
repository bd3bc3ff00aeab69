"""Edits of a graph in place: each leaves a graph that every consumer takes, or the graph as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tenonnx.errors import InvalidCall, InvalidModel, TypeMismatch
from tenonnx.graph.graph import Graph
from tenonnx.graph.operators import operators
from tenonnx.graph.order import ordered
from tenonnx.graph.types import unify_types
from tenonnx.graph.values import Node, Value
from tenonnx.op.build import building
from tenonnx.op.call import constant, current
from tenonnx.op.graph_inference import ensure_inferred, infer_after
from tenonnx.op.inline import inline

#: The parts of a graph that an edit may change.
_LISTS = ("all_inputs", "captures", "variables", "nodes", "outputs")


@contextmanager
def editing(graph: Graph) -> Iterator[None]:
    """Let the edits inside count together: at the end nodes are in order and types hold, or nothing has changed.

    Raises ``InvalidCall`` for a cycle, naming the way round, and for a node that does not take what it now reads.
    """
    root = graph.root
    if root.is_edited:  # the outermost edit judges
        yield
        return
    ensure_inferred(root)
    before = _Before(root)
    root.is_edited = True
    try:
        yield
        _settle(root, before)
    except BaseException:
        before.restore()
        raise
    finally:
        root.is_edited, root._names = False, None


def _settle(root: Graph, before: _Before) -> None:
    """Put nodes in order, and give types to what reads something else than before."""
    for graph in root.nested():
        graph.nodes = ordered(graph)
    try:
        infer_after(root, [node for node in root.nodes if before.differs(node)])
    except InvalidModel as error:
        raise InvalidCall(
            f"after an edit every node must take what it reads: {error.what}",
            given=error.given,
            available=error.available,
            do=error.do or "make several edits that belong together inside graph.editing()",
        ) from error


class _Before:
    """A graph as it was, with the graphs nested in it."""

    def __init__(self, root: Graph) -> None:
        graphs = list(root.nested())
        self._graphs = [(graph, {name: list(getattr(graph, name)) for name in _LISTS}) for graph in graphs]
        self._facts = [(graph, graph.value_types, graph.retyped) for graph in graphs]
        items: dict[Node | Value, None] = {}
        for graph in graphs:
            items |= dict.fromkeys(graph.nodes)
            items |= dict.fromkeys(graph.values())
        self._slots = {item: [getattr(item, slot) for slot in type(item).__slots__] for item in items}

    def differs(self, node: Node) -> bool:
        """Whether a node is new, or reads or says something else than before, or one nested in it does."""
        held = self._slots.get(node)
        if held is None:
            return True
        was = dict(zip(Node.__slots__, held, strict=True))
        return (
            any(getattr(node, name) is not was[name] for name in ("op", "version", "_attributes"))
            or any(getattr(node, name) != was[name] for name in ("inputs", "captures", "outputs"))
            or any(self.differs(inner) for subgraph in node.subgraphs for inner in subgraph.nodes)
        )

    def restore(self) -> None:
        for graph, lists in self._graphs:
            for name, held in lists.items():
                setattr(graph, name, held)
        for graph, types, retyped in self._facts:
            graph.value_types, graph.retyped = types, retyped
        for item, slots in self._slots.items():
            for slot, content in zip(type(item).__slots__, slots, strict=True):
                setattr(item, slot, content)


# ----- single edits ---------------------------------------------------------------------------------------------------


def replace(graph: Graph, old: Value | str, new: Value | str) -> None:
    """Let all that reads ``old`` read ``new``, but for the nodes that ``new`` itself comes from."""
    old, new = graph.find(old), graph.find(new)
    if old is new:
        return
    with editing(graph):
        sources = _sources(new)
        for node in graph.nodes:
            if node not in sources and any(value is old for value in node.uses):
                node.inputs = tuple(new if value is old else value for value in node.inputs)
                node.captures = tuple(new if value is old else value for value in node.captures)
        _replace_outputs(graph, old, new)


def _sources(value: Value) -> set[Node]:
    """The nodes that a value comes from."""
    found: set[Node] = set()
    waiting = [value]
    while waiting:
        producer = waiting.pop().producer
        if producer is not None and producer not in found:
            found.add(producer)
            waiting += producer.uses
    return found


def _replace_outputs(graph: Graph, old: Value, new: Value) -> None:
    """Let graph outputs that are ``old`` be ``new``, under the name that they have."""
    for position, value in enumerate(graph.outputs):
        if value is old:
            if new.producer is None or any(new is output for output in graph.outputs):
                with building(graph, old.name):
                    new = operators().identity(new)
            graph.outputs[position] = new
            old.name, new.name = graph.unique_name(f"{old.name}/replaced"), old.name


def insert_after(graph: Graph, value: Value | str, function: Callable[[Value], Any]) -> Value:
    """Put ``function(value)`` behind ``value``: all that reads it reads the result, which is returned."""
    value = graph.find(value)
    if not callable(function):
        what = f'what is put behind "{value.name}" must be a function of a value'
        raise InvalidCall(what, given=type(function).__name__, do="lambda x: op(x)")
    with editing(graph):
        with building(graph, value.name):
            result = function(value)
        if not isinstance(result, Value):
            raise InvalidCall(
                f'the function for "{value.name}" must return one value', given=type(result).__name__, do="return op(x)"
            )
        replace(graph, value, result)
    return result


def insert(graph: Graph, node: Node, *, before: Node | None = None) -> None:
    """Add a node that was made by hand, ahead of ``before`` or at the end; what reads it comes after it.

    Raises ``InvalidCall`` for a value that is not of this graph, and for outputs that something else gives.
    """
    if before is not None and before not in graph.nodes:
        raise InvalidCall(f'a node goes before one of graph "{graph.name}"', given=before.title)
    for value in node.uses:
        if value.graph is not graph and not (value.graph is None and value.is_constant):
            raise InvalidCall(f'{node.title} must read values of graph "{graph.name}"', given=repr(value))
    for output in node.outputs:
        if output is not None and (output.data is not None or output.producer not in (None, node)):
            raise InvalidCall(f"{node.title} must give values of its own", given=repr(output))
        if output is not None and any(output.name == value.name for value in graph.values() if value is not output):
            raise InvalidCall(f"{node.title} must give new names", given=f'"{output.name}", which there is')
    with editing(graph):
        graph.append(node)
        if before is not None:
            graph.nodes.insert(graph.nodes.index(before), graph.nodes.pop())


def remove(graph: Graph, nodes: Node | Sequence[Node]) -> None:
    """Take out nodes that nothing else reads; their names are free then."""
    gone = list(nodes) if isinstance(nodes, Sequence) else [nodes]
    if not all(isinstance(node, Node) for node in gone) or isinstance(nodes, str):
        what = f'a node of graph "{graph.name}" can be removed, or several'
        raise InvalidCall(what, given=repr(nodes), do='graph["a value"].producer is the node that computes it')
    outputs = {value for node in gone for value in node.outputs if value is not None}
    for node in gone:
        if node not in graph.nodes:
            raise InvalidCall(f'a node of graph "{graph.name}" can be removed', given=node.title)
    reader = next((n.title for n in graph.nodes if n not in gone and outputs.intersection(n.uses)), "")
    if not reader and outputs.intersection(graph.outputs):
        reader = "the outputs of the graph"
    if reader:
        raise InvalidCall(
            f"{gone[0].title} cannot be removed", given=f"{reader} read its output", do="replace that value first"
        )
    with editing(graph):
        graph.nodes = [node for node in graph.nodes if node not in gone]


# ----- a graph as a function ------------------------------------------------------------------------------------------


def compose(graph: Graph, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """``graph`` called: its nodes in the graph of the values given, or its outputs for arrays."""
    wanted = [value.name for value in graph.inputs]
    known = {value.name for value in graph.all_inputs}
    given = {**dict(zip(wanted, inputs, strict=False)), **named}
    strange = [name for name in named if name not in known or name in wanted[: len(inputs)]]
    missing = [name for name in wanted if name not in given]
    if strange or missing or len(inputs) > len(wanted):
        raise InvalidCall(
            f'graph "{graph.name}" takes each of its inputs once',
            given=f"{len(inputs)} inputs in order, {', '.join(named) or 'none'} by name",
            available=", ".join(f"{value.name}: {value.type}" for value in graph.all_inputs),
        )
    target = next((v.graph for v in given.values() if isinstance(v, Value) and v.graph is not None), None)
    if target is None and current() is None:
        results = list(graph.run(given).values())
    elif target is graph:
        raise InvalidCall("a graph is put into another one", given="its own values", do="take graph.copy()")
    else:
        with ExitStack() as scopes:
            if current() is None and target is not None:
                scopes.enter_context(editing(target))
                scopes.enter_context(building(target, graph.name))
            results = list(inline(graph, [_value_of(given.get(v.name), v) for v in graph.all_inputs]))
    return results[0] if len(results) == 1 else tuple(results)


def _value_of(given: Any, formal: Value) -> Value | None:
    """A value for an input, of the type that the input declares."""
    if given is None:
        return None
    value = given if isinstance(given, Value) else constant(given)
    try:
        unify_types(formal.type, value.type)
    except ValueError as error:
        raise TypeMismatch(
            f'input "{formal.name}" must be {formal.type}', given=f"{value.type}", do="cast or reshape it"
        ) from error
    return value
