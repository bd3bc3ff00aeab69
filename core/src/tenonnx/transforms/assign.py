"""Assignment to properties of nodes, values and graphs, each an edit of the whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall, TypeMismatch, did_you_mean, listing
from tenonnx.graph.constants import contents_given
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.lazy_methods import lazy_import
from tenonnx.graph.types import Type, may_be_one, type_given
from tenonnx.op.op import Op
from tenonnx.transforms.editing import check_unread, editing

# ----- nodes ----------------------------------------------------------------------------------------------------------


def set_node_name(node: Node, name: str) -> None:
    """Set the name. Raises ``InvalidCall`` if another node has it, since runtimes require unique names."""
    graph = node.graph
    if graph is not None:
        others = [other.name for other in graph.root.walk() if other is not node] if name else []
        if not isinstance(name, str) or name in others:
            raise InvalidCall(
                f"the new name of {node.title} is not a string, or another node has it", given=repr(name)[:200]
            )
        graph.forget_names()
    node._replace_fields(name=name)


def set_op(node: Node, op: Operator | str) -> None:
    """Set the op, given as such or by its name in the same domain and version."""
    if isinstance(op, str) and node.graph is not None:
        op = _op_called(node.graph, node, op)
    if not hasattr(op, "domain"):
        raise InvalidCall(f"the new op of {node.title} is neither an op nor the name of one", given=repr(op)[:200])
    _edit(node, op=op)


def set_version(node: Node, version: int) -> None:
    """Set the opset version whose signature the inputs and attributes follow."""
    if not isinstance(version, int):
        raise InvalidCall(f"the new version of {node.title} is not an integer", given=repr(version)[:200])
    _edit(node, version=version)


def set_inputs(node: Node, values: Sequence[Value | str | None]) -> None:
    """Set all inputs."""
    if isinstance(values, str | Value) or not isinstance(values, Iterable):
        raise InvalidCall(f"the new inputs of {node.title} are not a list of values", given=repr(values)[:200])
    graph, origin = node.graph, node.origin
    _edit(node, inputs=values if graph is None else [_readable(graph, value, node) for value in values])
    node.origin = origin  # the original message is still valid, as it is used without its inputs


def set_attributes(node: Node, attributes: Mapping[str, Any]) -> None:
    """Set all attributes."""
    if not isinstance(attributes, Mapping):
        what = f"the new attributes of {node.title} are not a mapping from names to values"
        raise InvalidCall(what, given=type(attributes).__name__)
    numbers = np.ndarray | np.generic
    _edit(node, attributes={name: v.tolist() if isinstance(v, numbers) else v for name, v in attributes.items()})


def _edit(node: Node, **fields: Any) -> None:
    """Replace fields of a node as one edit of its graph."""
    graph = node.graph
    if graph is None:
        node._replace_fields(**fields)
        return
    with editing(graph):
        node._replace_fields(**fields)
        node.origin = None


def _op_called(graph: Graph, node: Node, name: Any) -> Op:
    """The op of that name in the domain and version of a node."""
    registry = graph.registry or lazy_import("default_registry")()
    result = registry.lookup(node.domain, name, node.version)
    if result is None:
        names = sorted({op.name for op in registry.ops(node.domain) if op.holds_at(node.version)})
        raise InvalidCall(
            f"no op {name!r} in {node.domain} at version {node.version}",
            given=f"as the op of {node.title}",
            available=listing(names),
            do=did_you_mean(name, names)
            or "node.op = an op of another domain, with node.version; or graph.replace(old, new)",
        )
    return result  # type: ignore[no-any-return]


def _readable(graph: Graph, value: Any, node: Node) -> Value | None:
    """A value for a node of ``graph``, also given by name; a constant of another graph gets a unique name."""
    if value is None or isinstance(value, str):
        return None if value in (None, "") else graph.find(value)
    if not isinstance(value, Value):
        raise InvalidCall(
            f"a new input of {node.title} is not a value", given=repr(value)[:200], do="constant(array) is a value"
        )
    if value.graph is not graph and value.is_constant:
        return Value(graph.unique_name(value.name), value.type, data=value.data, graph=graph)
    return graph.find(value)


# ----- values ---------------------------------------------------------------------------------------------------------


def set_type(graph: Graph, value: Value, kind: Any) -> None:
    """Set the type of a graph input or of an unknown op's output, and infer its consumers again."""
    computed = value.producer is not None
    if kind == value.type:
        return
    if (computed and isinstance(value.producer.op, Op)) or value.data is not None:  # type: ignore[union-attr]
        raise InvalidCall(
            f'cannot set the type of "{value.name}": it comes from {"its node" if computed else "its contents"}',
            given=str(kind),
            available=str(value.type),
            do="set the types of inputs, or put a Cast or Reshape after it: graph.insert_after(value, function)"
            if computed
            else "set value.data to an array of that type",
        )
    if graph.parent is not None and not computed:
        what = f'cannot set the type of the subgraph input "{value.name}": it comes from the enclosing node'
        raise InvalidCall(what, given=str(kind))
    if not isinstance(kind, Type):
        raise InvalidCall(
            f'the new type of "{value.name}" is not a type', given=repr(kind)[:200], do="value.type.with_shape(dims)"
        )
    kind = type_given(value.name, kind)
    with editing(graph):
        value._replace_fields(type=kind)
        graph.root.retyped = True
        if computed:
            graph.value_types = {**graph.value_types, value.name: kind}


def set_data(graph: Graph, value: Value, contents: Any) -> None:
    """Set the contents of a variable, perhaps of another type, or the default of an input, of the input's type."""
    if value.producer is not None or (value.data is None and value not in graph.root.all_inputs):
        raise InvalidCall(
            f'cannot set the contents of "{value.name}": it is computed by a node',
            do='graph.replace(value, graph.variable("a new name", array))',
        )
    constant = contents_given(value.name, contents)
    if value.data is None and not may_be_one(value.type, constant.type):
        raise TypeMismatch(f'the default of input "{value.name}" is not {value.type}', given=str(constant.type))
    with editing(graph):
        if value.data is None:
            value._replace_fields(data=constant)
            graph.variables.append(value)
        else:
            value._replace_fields(data=constant, type=constant.type)
        value.symbolic_contents = None
        if value in graph.all_inputs:
            graph.root.retyped = True


def set_graph_inputs(graph: Graph, values: Sequence[Value | str]) -> None:
    """Set the required inputs and their order; inputs that are missing are removed.

    Raises ``InvalidCall`` for a value that is not an input, and for a removed input that is still read.
    """
    wanted = [graph.find(value) for value in values]
    inputs = graph.inputs
    if any(value not in inputs for value in wanted) or len(set(wanted)) < len(wanted):
        raise InvalidCall(
            f'the new inputs of graph "{graph.name}" are not some of its inputs, each once',
            given=", ".join(value.name for value in wanted),
            available=", ".join(value.name for value in inputs),
            do="graph.input(name, dtype, shape) adds one",
        )
    check_unread(graph, [value for value in inputs if value not in wanted])
    with editing(graph):
        rest = iter(wanted)
        kept = [value if value.data is not None else next(rest, None) for value in graph.all_inputs]
        graph.all_inputs = [value for value in kept if value is not None]
