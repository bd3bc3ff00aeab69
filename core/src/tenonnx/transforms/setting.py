"""Parts of nodes, values and graphs that are set: each time an edit of the whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.constants import contents_given
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.late_bindings import late
from tenonnx.graph.names import near_names
from tenonnx.graph.types import Type, may_be_one, type_given
from tenonnx.op.op import Op
from tenonnx.transforms.editing import check_unread, editing, rename


def set_parts(node: Node, parts: Mapping[str, Any]) -> None:
    """Let a node have other parts, as one edit of the graph that it is in."""
    graph = _graph_of(node)
    if graph is None:
        node.become(**parts)
        return
    for name, do in _KEPT.items():
        if name in parts:
            raise InvalidCall(f"the {name} of a node in a graph stay", given=node.title, do=do)
    if "name" in parts:
        _check_name(graph, node, parts["name"])
        node.become(**parts)
        graph.forget_names()
        return
    if isinstance(parts.get("op"), str):
        parts = {"op": _op_called(graph, node, parts["op"])}
    if "inputs" in parts:
        given = parts["inputs"]
        if isinstance(given, str | Value) or not isinstance(given, Iterable):
            raise InvalidCall(f"the inputs of {node.title} must be values, in a list", given=repr(given)[:200])
        parts = {"inputs": [_readable(graph, value, node) for value in given]}
    if not isinstance(parts.get("attributes", {}), Mapping):
        what = f"the attributes of {node.title} must be a mapping from names to values"
        raise InvalidCall(what, given=type(parts["attributes"]).__name__)
    if "attributes" in parts:
        numbers = np.ndarray | np.generic
        held = parts["attributes"].items()
        parts = {"attributes": {name: v.tolist() if isinstance(v, numbers) else v for name, v in held}}
    if not isinstance(parts.get("version", 1), int) or not hasattr(parts.get("op", node.op), "domain"):
        raise InvalidCall(f"{node.title} must have an op, or the name of one, and a version", given=repr(parts)[:200])
    with editing(graph):
        node.become(**parts)
        node.origin = None if "inputs" not in parts else node.origin


#: What is called in place of setting these.
_KEPT = {
    "outputs": "graph.replace(old, new) lets others be read; graph.insert(node) puts in a node made by hand",
    "captures": "edit the subgraph, or graph.replace(old, new)",
}


def _check_name(graph: Graph, node: Node, name: Any) -> None:
    """Raise ``InvalidCall`` for a name that another node has, which runtimes refuse."""
    if not isinstance(name, str) or (
        name and any(name == other.name for other in graph.root.walk() if other is not node)
    ):
        raise InvalidCall(f"the name of {node.title} must be a text that no other node has", given=repr(name)[:200])


def _op_called(graph: Graph, node: Node, name: Any) -> Op:
    """The op of that name in the domain and at the version of a node."""
    registry = graph.registry or late("default_registry")()
    found = registry.lookup(node.domain, name, node.version)
    if found is None:
        names = sorted({op.name for op in registry.ops(node.domain) if op.holds_at(node.version)})
        raise InvalidCall(
            f"{node.title} must be an op of {node.domain} at version {node.version}",
            given=name, available=", ".join(near_names(name, names)),
            do="node.op = an op of another domain, with node.version; or graph.replace(old, new)",
        )  # fmt: skip
    return found  # type: ignore[no-any-return]


def _graph_of(node: Node) -> Graph | None:
    """The graph that a node is in."""
    made = next((value for value in node.outputs if value is not None and value.producer is node), None)
    graph = None if made is None else made.graph
    return graph if graph is not None and any(held is node for held in graph.nodes) else None


def _readable(graph: Graph, value: Any, node: Node) -> Value | None:
    """A value as a node of ``graph`` may read it: by name, too, and a constant of elsewhere under a name of its own."""
    if value is None or isinstance(value, str):
        return None if value in (None, "") else graph.find(value)
    if not isinstance(value, Value):
        raise InvalidCall(f"{node.title} must read values", given=repr(value)[:200], do="constant(array) is a value")
    if value.graph is not graph and value.is_constant:
        return Value(graph.unique_name(value.name), value.type, data=value.data, graph=graph)
    return graph.find(value)


def set_part(graph: Graph, value: Value, part: str, given: Any) -> None:
    """Let a value of a graph have another name, type or data, as one edit of the graph."""
    {"name": rename, "type": _set_type, "data": _set_data}[part](graph, value, given)


def _set_type(graph: Graph, value: Value, kind: Any) -> None:
    """Let a graph input, or what an unknown op computes, have another type; what reads it is inferred anew."""
    computed = value.producer is not None
    if kind == value.type:
        return
    if (computed and isinstance(value.producer.op, Op)) or value.data is not None:  # type: ignore[union-attr]
        raise InvalidCall(
            f'the type of "{value.name}" follows from what it {"is computed from" if computed else "holds"}',
            given=str(kind),
            available=str(value.type),
            do="set the types of inputs, or put a Cast or Reshape behind it: graph.insert_after(value, function)"
            if computed else "set value.data to an array of that type",
        )  # fmt: skip
    if graph.parent is not None and not computed:
        raise InvalidCall(f'the type of "{value.name}" is what the node of its subgraph gives', given=str(kind))
    if not isinstance(kind, Type):
        raise InvalidCall(f'"{value.name}" must have a type', given=repr(kind)[:200], do="value.type.with_shape(dims)")
    kind = type_given(value.name, kind)
    with editing(graph):
        value.become(type=kind)
        graph.declare_anew()
        if computed:
            graph.value_types = {**graph.value_types, value.name: kind}


def _set_data(graph: Graph, value: Value, contents: Any) -> None:
    """Let a variable hold other contents, which may be of another type, or an input have a default of its own type."""
    if value.producer is not None or (value.data is None and value not in graph.root.all_inputs):
        raise InvalidCall(
            f'"{value.name}" must be a variable or an input to be given contents',
            given="what a node computes",
            do='graph.replace(value, graph.variable("a new name", array))',
        )
    constant = contents_given(value.name, contents)
    if value.data is None and not may_be_one(value.type, constant.type):
        raise TypeMismatch(f'the default of input "{value.name}" must be {value.type}', given=str(constant.type))
    with editing(graph):
        if value.data is None:
            value.become(data=constant)
            graph.variables.append(value)
        else:
            value.become(data=constant, type=constant.type)
        value.symbolic_contents = None
        if value in graph.all_inputs:
            graph.declare_anew()


def set_inputs(graph: Graph, values: Sequence[Value | str]) -> None:
    """Let the inputs that must be fed be these, in this order; those that are missing are removed.

    Raises ``InvalidCall`` for what is no input, and naming what reads an input that would be gone.
    """
    wanted = [graph.find(value) for value in values]
    held = graph.inputs
    if any(value not in held for value in wanted) or len(set(wanted)) < len(wanted):
        raise InvalidCall(
            f'the inputs of graph "{graph.name}" can be removed, and put in another order',
            given=", ".join(value.name for value in wanted),
            available=", ".join(value.name for value in held),
            do="graph.input(name, dtype, shape) adds one",
        )
    check_unread(graph, [value for value in held if value not in wanted])
    with editing(graph):
        rest = iter(wanted)
        kept = [value if value.data is not None else next(rest, None) for value in graph.all_inputs]
        graph.all_inputs = [value for value in kept if value is not None]
