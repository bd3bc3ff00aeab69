"""Type inference for all values of a graph, from its inputs and initializers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenonnx.errors import (
    InvalidCall,
    InvalidModel,
    TenonnxError,
    TypeMismatch,
    UnknownType,
    UnsupportedOp,
    counted,
    did_you_mean,
    listing,
)
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.symbolic import Dim, differ, dims_given, symbols_of
from tenonnx.graph.types import TensorType, Type, may_be_one, substitute_type, unify_types
from tenonnx.op.binding import bind, known_op
from tenonnx.op.infer import infer_call
from tenonnx.op.known_values import Known
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule


@in_registry_of_graph
def infer(
    graph: Graph, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None, *, strict: bool = True
) -> list[TenonnxError]:
    """Infer the type of every value of ``graph`` from its inputs and initializers.

    ``input_shapes`` refine the shapes of graph inputs. With ``strict`` the first contradiction is raised; otherwise all
    are returned, and the values concerned keep their declared types.
    """
    if input_shapes:
        _narrow_inputs(graph, input_shapes)
    problems: list[TenonnxError] = []
    for node in graph.nodes:
        try:
            infer_node(graph, node)
        except InvalidModel as error:
            if strict:
                raise
            problems.append(error)
            give(node, declared_types(graph, node))
    return problems


@in_registry_of_graph
def infer_after(graph: Graph, changed: Collection[Node]) -> None:
    """Infer changed nodes again, and the consumers of values whose inferred facts changed.

    Nodes are visited in order. Raises ``InvalidModel`` for the first one that does not accept its inputs.
    """
    stale: set[Value] = set()
    waiting = set(changed)
    for node in graph.nodes if waiting else ():
        if node not in waiting and stale.isdisjoint(node.uses):
            continue
        before = [None if v is None else Known(v.type, v.symbolic_contents, v.data) for v in node.outputs]
        for value in node.outputs:
            if value is not None and isinstance(node.op, Op):
                value.forget()
        infer_node(graph, node)
        for value, was in zip(node.outputs, before, strict=True):
            if value is None or was is None:
                continue
            if (
                was.type != value.type
                or was.data is not value.data
                or was.symbolic_contents is not value.symbolic_contents
            ):
                stale.add(value)
                if not may_be_one(was.type, value.type):
                    graph.root.retyped = True


def ensure_inferred(graph: Graph) -> None:
    """Infer a graph if a computed value has no type yet, for example after loading."""
    if any(value is not None and value.type is None for node in graph.nodes for value in node.outputs):
        infer(graph.root, strict=False)


def infer_node(graph: Graph, node: Node) -> None:
    """Infer the outputs of a node and store the result."""
    declared = declared_types(graph, node)
    known: Sequence[Known | None] = declared
    if isinstance(node.op, Op):
        inputs, attributes = bind(node)
        for subgraph in node.subgraphs:
            share_captured(node.captures, subgraph)
        known = infer_outputs(node, inputs, attributes, declared)
    give(node, known)


def give(node: Node, known: Sequence[Known | None]) -> None:
    """Store inferred facts in the outputs of a node."""
    for value, found in zip(node.outputs, known, strict=False):
        if value is not None and found is not None:
            found.give(value)


def share_captured(captures: Sequence[Value], subgraph: Graph) -> None:
    """Copy types and contents of captured values into a subgraph."""
    for outer, inner in zip(captures, subgraph.captures, strict=True):
        inner._replace_fields(type=outer.type, data=outer.data)
        inner.symbolic_contents = outer.symbolic_contents


def declared_types(graph: Graph, node: Node) -> list[Known]:
    """Types of a node's outputs as declared by earlier inference or by the file."""
    return [
        Known(None if v is None else v.type if v.type is not None else graph.value_types.get(v.name))
        for v in node.outputs
    ]


def infer_outputs(
    node: Node, inputs: Sequence[Value | None], attributes: Mapping[str, Any], declared: Sequence[Known]
) -> Sequence[Known | None]:
    """Inferred outputs of a node; ``declared`` types apply where inference knows less.

    ``inputs`` and ``attributes`` are those of the call; its subgraphs are inferred in place. Raises ``InvalidModel`` if
    the op does not accept them.
    """
    op = known_op(node)
    try:
        known = infer_call(op, inputs, attributes, len(node.outputs))
    except (UnknownType, UnsupportedOp):
        return declared
    except TypeMismatch as error:
        raise error.as_a(InvalidModel, f"{node.title}: {error.what}") from error
    if len(node.outputs) > len(known):
        raise InvalidModel(
            f"{node.title} has {counted(len(known), 'output')}",
            given=f"{counted(len(node.outputs), 'output')} in the file",
        )
    if node.subgraphs and find_rule(op, "type") is None:  # the body replayed the subgraphs and left them without types
        for attribute in attributes.values():
            if isinstance(attribute, Graph):
                infer(attribute, strict=False)
    return [None if k is None else _merged(k, said.type) for k, said in zip(known, declared, strict=False)]


def _merged(known: Known, declared: Type | None) -> Known:
    """Inferred types, replaced by declared ones where they are unknown or lack a rank."""
    if known.type is None or (isinstance(known.type, TensorType) and known.type.shape is None):
        return replace(known, type=narrowed(known.type, declared))
    return known


def narrowed(found: Type | None, declared: Type | None) -> Type | None:
    """The unification of both types, or the first one if they contradict each other."""
    try:
        return unify_types(found, declared)
    except ValueError:
        return found


def _narrow_inputs(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> None:
    by_name = {v.name: v for v in graph.all_inputs}
    values: dict[str, Dim] = {}
    for name, dims in shapes.items():
        value = by_name.get(name)
        if value is None:
            do = did_you_mean(name, by_name)
            raise InvalidCall(f'no graph input "{name}" to give a shape', available=listing(by_name), do=do)
        try:
            wanted = dims_given(dims)
        except (TypeError, ValueError) as error:
            reason = "negative" if isinstance(error, ValueError) else "neither a whole number nor a name"
            raise InvalidCall(
                f'a size of graph input "{name}" is {reason}',
                given=repr(dims),
                available="non-negative sizes, names such as batch, or None for an unknown size (? in a command)",
                do="leave a size that is not known unknown",
            ) from error
        kind = value.tensor
        if kind.shape is not None and len(kind.shape) != len(wanted):
            raise InvalidCall(
                f'the new shape does not have the rank of graph input "{name}", {len(kind.shape)}',
                given=f"shape {list(dims)}",
            )
        pairs = list(zip(kind.shape or wanted, wanted, strict=True))
        for old, new in pairs:
            if differ(old, new):
                raise InvalidCall(
                    f'the new shape contradicts graph input "{name}": {kind}', given=f"shape {list(dims)}"
                )
            symbols = symbols_of(old)
            if len(symbols) == 1 and str(old) in symbols and new is not None:
                values[str(old)] = new
        value._replace_fields(type=kind.with_shape(tuple(old if new is None else new for old, new in pairs)))
    for value in graph.all_inputs:
        value._replace_fields(type=substitute_type(value.type, values))
