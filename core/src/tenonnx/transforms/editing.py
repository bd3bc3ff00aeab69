"""In-place edits of a graph: each leaves a valid graph, or the graph unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tenonnx.errors import InvalidCall, InvalidModel, TypeMismatch, counted, did_you_mean, listing
from tenonnx.graph.constants import PROPAGATED_BYTES, ArrayConstant
from tenonnx.graph.definitions import operators
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.order import ordered
from tenonnx.graph.types import unify_types
from tenonnx.op.build import building
from tenonnx.op.call import constant, current
from tenonnx.op.graph_inference import ensure_inferred, infer_after
from tenonnx.op.inline import inline

if TYPE_CHECKING:
    import numpy as np

#: Root graphs with an ``editing`` block in progress.
_EDITED: WeakSet[Graph] = WeakSet()

#: The lists of a graph that an edit may change.
_LISTS = ("all_inputs", "captures", "variables", "nodes", "outputs")


@contextmanager
def editing(graph: Graph) -> Iterator[None]:
    """Validate the edits in the block together: at its end nodes are sorted and types checked, or all is reverted.

    Raises ``InvalidCall`` for a cycle, naming its nodes, and for a node that does not accept its new input.
    """
    root = graph.root
    if root in _EDITED:  # only the outermost block validates
        yield
        return
    if root.fixed:
        do = "put its body in place of the calls: export with functions='inline', load that and edit it"
        raise InvalidCall(f"{root.fixed} cannot be edited", given=root.name, do=do)
    ensure_inferred(root)
    before = _Snapshot(root)
    _EDITED.add(root)
    try:
        yield
        _validate(root, before)
    except BaseException:
        before.restore()
        raise
    finally:
        _EDITED.discard(root)
        root.forget_names()


def _validate(root: Graph, before: _Snapshot) -> None:
    """Sort nodes, and infer the types of nodes that changed."""
    for graph in root.nested():
        graph.nodes = ordered(graph)
    try:
        infer_after(root, [node for node in root.nodes if before.differs(node)])
        _check_names(root)
    except InvalidModel as error:
        raise InvalidCall(
            f"edit rejected: a node does not accept what it would read: {error.what}",
            given=error.given,
            available=error.available,
            do=error.do or "make several edits that belong together inside graph.editing()",
        ) from error


class _Snapshot:
    """Snapshot of a graph and its nested subgraphs."""

    def __init__(self, root: Graph) -> None:
        graphs = list(root.nested())
        self._graphs = [(graph, {name: list(getattr(graph, name)) for name in _LISTS}) for graph in graphs]
        self._facts = [(graph, graph.value_types, graph.training_state, graph.retyped) for graph in graphs]
        items: dict[Node | Value, None] = {}
        for graph in graphs:
            items |= dict.fromkeys(graph.nodes)
            items |= dict.fromkeys(graph.values())
        self._slots = {item: [getattr(item, slot) for slot in type(item).__slots__] for item in items}
        self._attributes = {item: dict(item.attributes) for item in items if isinstance(item, Node)}

    def differs(self, node: Node) -> bool:
        """Whether a node is new or changed, or a node in its subgraphs is."""
        slots = self._slots.get(node)
        if slots is None:
            return True
        was = dict(zip(Node.__slots__, slots, strict=True))
        return (
            node.op is not was["_op"]
            or node.version != was["_version"]
            or (node.inputs, node.captures, node.outputs) != (was["_inputs"], was["_captures"], was["_outputs"])
            or not _are_same(node.attributes, self._attributes[node])
            or any(self._has_changed(value) for value in node.uses if value.producer is None)
            or any(self.differs(inner) for subgraph in node.subgraphs for inner in subgraph.nodes)
        )

    def _has_changed(self, value: Value) -> bool:
        """Whether the type or contents of a value without producer changed."""
        slots = self._slots.get(value)
        was = None if slots is None else dict(zip(Value.__slots__, slots, strict=True))
        return was is not None and (value.type != was["_type"] or value.data is not was["_data"])

    def restore(self) -> None:
        for node, attributes in self._attributes.items():
            node._replace_fields(attributes=attributes)
        for graph, lists in self._graphs:
            for name, items in lists.items():
                setattr(graph, name, items)
        for graph, types, state, retyped in self._facts:
            graph.value_types, graph.training_state, graph.retyped = types, state, retyped
        for item, slots in self._slots.items():
            for slot, content in zip(type(item).__slots__, slots, strict=True):
                setattr(item, slot, content)


def _are_same(attributes: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return attributes.keys() == before.keys() and all(value is before[name] for name, value in attributes.items())


def _check_names(root: Graph) -> None:
    """Raise ``InvalidCall`` if two values of a graph have the same name, as constants of other graphs may."""
    for graph in root.nested():
        by_name: dict[str, Value] = {}
        for value in graph.values():
            if by_name.setdefault(value.name, value) is not value:
                raise InvalidCall(f'two values have the name "{value.name}"', do="graph.rename(...)")


# ----- single edits ---------------------------------------------------------------------------------------------------


def replace(graph: Graph, old: Value | str, new: Value | str) -> None:
    """Make all consumers of ``old`` read ``new``, except the nodes on which ``new`` depends."""
    old, new = graph.find(old), graph.find(new)
    if old is new:
        return
    with editing(graph):
        sources = _dependencies(new)
        for node in graph.nodes:
            if node not in sources and any(value is old for value in node.uses):
                node._replace_fields(
                    inputs=tuple(new if value is old else value for value in node.inputs),
                    captures=tuple(new if value is old else value for value in node.captures),
                )
        replace_outputs(graph, old, new)


def _dependencies(value: Value) -> set[Node]:
    """The nodes on which a value depends."""
    result: set[Node] = set()
    waiting = [value]
    while waiting:
        producer = waiting.pop().producer
        if producer is not None and producer not in result:
            result.add(producer)
            waiting += producer.uses
    return result


def replace_outputs(graph: Graph, old: Value, new: Value) -> None:
    """Replace ``old`` by ``new`` in the graph outputs, under the existing names."""
    if not any(value is old for value in graph.outputs):
        return
    if new.producer is None or any(new is value for value in graph.outputs):
        with building(graph, old.name):
            new = operators().identity(new)
    graph.outputs[:] = [new if value is old else value for value in graph.outputs]
    name = old.name
    old._replace_fields(name=graph.unique_name(f"{name}/replaced"))
    new._replace_fields(name=name)


def insert_after(graph: Graph, value: Value | str, function: Callable[[Value], Any]) -> Value:
    """Insert ``function(value)`` after ``value``: all its consumers read the result instead, which is returned."""
    value = graph.find(value)
    if not callable(function):
        what = f'cannot insert after "{value.name}": not a function of a value'
        raise InvalidCall(what, given=type(function).__name__, do="lambda x: op(x)")
    with editing(graph):
        with building(graph, value.name):
            result = function(value)
        if not isinstance(result, Value):
            raise InvalidCall(
                f'the function for "{value.name}" did not return one value',
                given=type(result).__name__,
                do="return op(x)",
            )
        replace(graph, value, result)
    return result


def insert(graph: Graph, node: Node, *, before: Node | None = None) -> None:
    """Insert a node created by hand before ``before``, or at the end; its consumers are moved after it.

    Raises ``InvalidCall`` for a value of another graph, and for outputs that already have a producer.
    """
    if before is not None and before not in graph.nodes:
        raise InvalidCall(f'the node given as before is not in graph "{graph.name}"', given=before.title)
    for value in node.uses:
        if value.graph is not graph and not (value.graph is None and value.is_constant):
            raise InvalidCall(f'{node.title} reads a value that is not in graph "{graph.name}"', given=repr(value))
    for output in node.outputs:
        if output is not None and (output.data is not None or output.producer not in (None, node)):
            raise InvalidCall(
                f"an output of {node.title} is a constant, or an output of another node", given=repr(output)
            )
        if output is not None and any(output.name == value.name for value in graph.values() if value is not output):
            raise InvalidCall(
                f'name "{output.name}" of an output of {node.title} is already used in graph "{graph.name}"'
            )
    with editing(graph):
        graph.append(node)
        if before is not None:
            graph.nodes.insert(graph.nodes.index(before), graph.nodes.pop())


def remove(graph: Graph, nodes: Node | Value | str | Sequence[Node | Value | str]) -> None:
    """Remove nodes, inputs and variables that nothing else reads, and release their names."""
    given = [nodes] if isinstance(nodes, str) or not isinstance(nodes, Sequence) else list(nodes)
    values = [graph.find(each) for each in given if isinstance(each, Value | str)]
    removed = [each for each in given if not isinstance(each, Value | str)]
    computed = next((value for value in values if value.producer is not None), None)
    if computed is not None:
        what = f'cannot remove an output of a node from graph "{graph.name}" without the node'
        raise InvalidCall(what, given=repr(computed), do="graph.remove(value.producer)")
    with editing(graph):
        if removed:
            _remove_nodes(graph, removed)
        check_unread(graph, values)
        graph.all_inputs = [value for value in graph.all_inputs if value not in values]
        graph.variables = [value for value in graph.variables if value not in values]


def _remove_nodes(graph: Graph, gone: list[Any]) -> None:
    if not all(isinstance(node, Node) for node in gone):
        what = f'cannot remove an object that is not a node from graph "{graph.name}"'
        raise InvalidCall(what, given=repr(gone), do='graph["a value"].producer is the node that computes it')
    outputs = {value for node in gone for value in node.outputs if value is not None}
    for node in gone:
        if node not in graph.nodes:
            raise InvalidCall(f'cannot remove a node that is not in graph "{graph.name}"', given=node.title)
    reader = next((n.title for n in graph.nodes if n not in gone and outputs.intersection(n.uses)), "")
    if not reader and outputs.intersection(graph.outputs):
        reader = "the outputs of the graph"
    if reader:
        raise InvalidCall(
            f"{gone[0].title} cannot be removed", given=f"{reader} read its output", do="replace that value first"
        )
    graph.nodes = [node for node in graph.nodes if node not in gone]


def check_unread(graph: Graph, gone: Sequence[Value]) -> None:
    """Raise ``InvalidCall`` naming the consumers of a value that would be removed."""
    uses = graph.uses()
    for value in gone:
        readers = [node.title for node in uses.get(value, ())] + ["the outputs of the graph"] * (value in graph.outputs)
        if readers:
            what = f'"{value.name}" cannot be removed'
            raise InvalidCall(what, given=f"{readers[0]} reads it", do="graph.replace(value, other) first")


# ----- a graph as a function ------------------------------------------------------------------------------------------


def apply_graph(graph: Graph, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call ``graph``: inline its nodes in the graph of the given values, or compute its outputs for arrays."""
    wanted = [value.name for value in graph.inputs]
    names = {value.name for value in graph.all_inputs}
    given = {**dict(zip(wanted, inputs, strict=False)), **named}
    strange = [name for name in named if name not in names or name in wanted[: len(inputs)]]
    missing = [name for name in wanted if name not in given]
    if strange or missing or len(inputs) > len(wanted):
        raise InvalidCall(
            f'inputs for graph "{graph.name}" are missing, unknown or given twice',
            given=f"{counted(len(inputs), 'input')} in order, {', '.join(named) or 'none'} by name",
            available=", ".join(f"{value.name}: {value.type}" for value in graph.all_inputs),
        )
    target = next((v.graph for v in given.values() if isinstance(v, Value) and v.graph is not None), None)
    if target is None and current() is None:
        results = list(graph.run(given).values())
    elif target is graph:
        raise InvalidCall("cannot insert a graph into itself", given="its own values", do="take graph.copy()")
    else:
        with ExitStack() as scopes:
            if current() is None and target is not None:
                scopes.enter_context(editing(target))
                scopes.enter_context(building(target, graph.name))
            results = list(inline(graph, [_value_of(given.get(v.name), v) for v in graph.all_inputs]))
    return results[0] if len(results) == 1 else tuple(results)


def _value_of(given: Any, formal: Value) -> Value | None:
    """A value for an input, with the input's type."""
    if given is None:
        return None
    value = given if isinstance(given, Value) else constant(given)
    try:
        unify_types(formal.type, value.type)
    except ValueError as error:
        raise TypeMismatch(
            f'input "{formal.name}" is not {formal.type}', given=f"{value.type}", do="cast or reshape it"
        ) from error
    return value


def rename(graph: Graph, value: Value | str, name: str) -> None:
    """Rename a value, see ``Graph.rename``."""
    value = graph.find(value)
    if name == value.name:
        return
    text = isinstance(name, str) and name != ""
    if not text or any(name == other.name for graph in graph.root.nested() for other in graph.values()):
        reason = f'already used in graph "{graph.name}"' if text else "empty or no string"
        raise InvalidCall(f'name "{name}" is {reason}')
    if value.name in graph.value_types:
        graph.value_types = {name if n == value.name else n: kind for n, kind in graph.value_types.items()}
    if graph.training_state is not None and value in graph.variables:
        variables = {variable.name for variable in graph.variables}
        graph.training_state = graph.training_state.renamed(value.name, name, variables)
    value._replace_fields(name=name)
    graph.forget_names()
    graph.root.retyped = True


def assign(graph: Graph, contents: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Replace the contents of variables by others of the same type, see ``Graph.assign``."""
    variables = {value.name: value for value in graph.variables}
    new = {}
    for name, array in contents.items():
        if name not in variables:
            do = did_you_mean(name, variables)
            raise InvalidCall(f'no variable "{name}" in graph "{graph.name}"', available=listing(variables), do=do)
        new[name] = ArrayConstant(array)
        if new[name].type != variables[name].type:
            given, wanted = new[name].type, variables[name].type
            raise TypeMismatch(f'new contents of variable "{name}" are not {wanted}', given=str(given))
    with editing(graph) if any(constant.nbytes <= PROPAGATED_BYTES for constant in new.values()) else nullcontext():
        for name, constant in new.items():
            variables[name]._replace_fields(data=constant)
            variables[name].symbolic_contents = None
