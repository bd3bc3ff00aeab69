"""Extraction of a subgraph as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph, Value
from tenonnx.op.graph_inference import ensure_inferred
from tenonnx.transforms.dims import untyped
from tenonnx.transforms.prune import drop_dead_nodes, needed_nodes
from tenonnx.transforms.rewrite import copy_graph


def extract(graph: Graph, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Graph:
    """The part of ``graph`` that computes the values ``outputs`` from the values ``inputs``, by name.

    Without ``inputs`` these are the graph inputs that it needs. Inputs keep their defaults; a weight that becomes an
    input has none. Raises ``InvalidCall`` if further inputs are needed, and for an input of unknown type.
    """
    part = copy_graph(graph)
    ensure_inferred(part)
    wanted = _named(part, outputs)
    cut = _inputs_of(part, wanted) if inputs is None else list(dict.fromkeys(_named(part, inputs)))
    for name in [value.name for value in cut if value.type is None]:
        raise InvalidCall(f'input "{name}" of the part has no known type', do="install what its op needs")
    formals, part.all_inputs, part.outputs = part.all_inputs, cut, wanted
    computed = {*cut}.difference(formals)
    known = any(value.data is not None for value in computed)
    part.nodes = [node for node in part.nodes if computed.isdisjoint(node.outputs)]
    for value in computed:
        value.producer = None
        value._replace_fields(data=None)
    drop_dead_nodes(part)
    used = {*part.uses(), *part.outputs}
    missing = [v.name for v in formals if v in used and v not in cut and v.data is None]
    if missing:
        raise InvalidCall(
            f"the part reads inputs of the model that are not among {[value.name for value in cut]}",
            given=", ".join(missing),
            do="add them to inputs",
        )
    part.variables = [v for v in part.variables if v in used and v not in computed]
    part.origin = None
    if known:  # facts derived from the contents are no longer valid
        part = untyped(part)
        ensure_inferred(part)
    return part


def _named(graph: Graph, names: Sequence[str] | str) -> list[Value]:
    """The values of these names, or of a single name."""
    values = {value.name: value for value in graph.values()}
    several = [names] if isinstance(names, str) else names
    return [values[name] if name in values else graph.find(name) for name in several]


def _inputs_of(graph: Graph, wanted: Collection[Value]) -> list[Value]:
    """The graph inputs on which these values depend."""
    read = {value for node in needed_nodes(graph, wanted) for value in node.uses}.union(wanted)
    return [value for value in graph.all_inputs if value in read]


def between(graph: Graph, given: Collection[Value], wanted: Sequence[Value]) -> Graph:
    """The part of ``graph`` that computes ``wanted`` from ``given``, for inlining: it shares the nodes."""
    part = Graph(graph.name)
    part.all_inputs, part.outputs = list(given), list(wanted)
    part.nodes = needed_nodes(graph, wanted, given)
    return part
