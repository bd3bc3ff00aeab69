"""Types of every value of a graph, from its inputs and initializers down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx.errors import InvalidCall, InvalidModel, TenonnxError, TypeMismatch, UnknownType, UnsupportedOp
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import Dim, parse, symbols_of
from tenonnx.graph.types import TensorType, Type, substitute_type, unify_types
from tenonnx.graph.values import Node
from tenonnx.op.binding import bind
from tenonnx.op.infer import Known, infer_call
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule


@in_registry_of_graph
def infer(
    graph: Graph, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None, *, strict: bool = True
) -> list[TenonnxError]:
    """Give every value of ``graph`` the type that its inputs and initializers imply.

    ``input_shapes`` are further facts about graph inputs. With ``strict`` the first contradiction is raised; without
    it all are returned, and the values concerned keep what the file declared.
    """
    if input_shapes:
        _narrow_inputs(graph, input_shapes)
    problems: list[TenonnxError] = []
    for node in graph.nodes:
        try:
            _infer_node(graph, node)
        except (UnknownType, UnsupportedOp):
            _fall_back(graph, node)
        except TypeMismatch as error:
            _fall_back(graph, node)
            problem = InvalidModel(
                f"{node.title}: {error.what}", given=error.given, available=error.available, do=error.do
            )
            if strict:
                raise problem from error
            problems.append(problem)
        except InvalidModel as error:
            if strict:
                raise
            _fall_back(graph, node)
            problems.append(error)
    return problems


def _infer_node(graph: Graph, node: Node) -> None:
    if not isinstance(node.op, Op):
        raise UnknownType(f"{node.title} has no known meaning")
    inputs, attributes = bind(node)
    for outer, position in zip(node.captures, range(len(node.captures)), strict=True):
        for subgraph in node.subgraphs:
            inner = subgraph.captures[position]
            inner.type, inner.elements, inner.data = outer.type, outer.elements, outer.data
    known = infer_call(node.op, inputs, attributes, len(node.outputs))
    _give(graph, node, known)
    if find_rule(node.op, "type") is None:  # a body has replayed the subgraphs, and left them as they were
        for subgraph in node.subgraphs:
            infer(subgraph, strict=False)


def _give(graph: Graph, node: Node, known: Sequence[Known | None]) -> None:
    if len(node.outputs) > len(known):
        raise InvalidModel(f"{node.title} has {len(known)} outputs", given=f"{len(node.outputs)} outputs in the file")
    for value, found in zip(node.outputs, known, strict=False):
        if value is None or found is None:
            continue
        declared = value.type if value.type is not None else graph.value_types.get(value.name)
        found.give(value)
        if value.type is None:
            value.type = declared
        elif isinstance(value.type, TensorType) and value.type.shape is None:
            value.type = _narrowed(value.type, declared)


def _narrowed(found: Type, declared: Type | None) -> Type:
    try:
        return unify_types(found, declared) or found
    except ValueError:
        return found


def _fall_back(graph: Graph, node: Node) -> None:
    for value in node.outputs:
        if value is not None and value.type is None:
            value.type = graph.value_types.get(value.name)


def _narrow_inputs(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> None:
    by_name = {v.name: v for v in graph.all_inputs}
    values: dict[str, Dim] = {}
    for name, dims in shapes.items():
        value = by_name.get(name)
        if value is None:
            raise InvalidCall(f'no graph input "{name}" to give a shape', available=", ".join(by_name))
        wanted = tuple(parse(d) if isinstance(d, str) else d for d in dims)
        if any(isinstance(dim, int) and dim < 0 for dim in wanted):
            raise InvalidCall(
                f'a size of graph input "{name}" must not be negative',
                given=", ".join("?" if dim is None else str(dim) for dim in dims),
                available="sizes from 0 on, names such as batch, and an unknown size: None, or ? on the command line",
                do="leave a size that is not known unknown",
            )
        kind = value.tensor
        if kind.shape is not None and len(kind.shape) != len(wanted):
            raise InvalidCall(f'graph input "{name}" has rank {len(kind.shape)}', given=f"shape {list(dims)}")
        for old, new in zip(kind.shape or wanted, wanted, strict=True):
            if isinstance(old, int) and isinstance(new, int) and old != new:
                raise InvalidCall(f'graph input "{name}" is {kind}', given=f"shape {list(dims)}")
            symbols = symbols_of(old)
            if len(symbols) == 1 and str(old) in symbols and new is not None:
                values[str(old)] = new
        value.type = TensorType(kind.dtype, wanted if kind.shape is None else _merge(kind.shape, wanted))
    for value in graph.all_inputs:
        value.type = substitute_type(value.type, values)


def _merge(old: Sequence[Dim], new: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(n if n is not None else o for o, n in zip(old, new, strict=True))
