"""Extraction: a part of a graph as a graph of its own."""

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

    Without ``inputs`` they are the graph inputs that it needs. Those keep their defaults; a weight that becomes an
    input has none. Raises ``InvalidCall`` when it would need others, and for an input whose type is not known.
    """
    part = copy_graph(graph)
    ensure_inferred(part)
    inputs = [inputs] if isinstance(inputs, str) else inputs
    outputs = [outputs] if isinstance(outputs, str) else outputs
    if inputs is None:
        nodes = needed_nodes(part, [value for value in part.values() if value.name in outputs])
        read = {value.name for node in nodes for value in node.uses} | set(outputs)
        inputs = [value.name for value in part.all_inputs if value.name in read]
    values = {v.name: v for v in part.values()}
    cut = [values[name] if name in values else part.find(name) for name in dict.fromkeys(inputs)]
    wanted = [values[name] if name in values else part.find(name) for name in outputs]
    for name in [value.name for value in cut if value.type is None]:
        raise InvalidCall(f'an input must have a known type, "{name}" has none', do="install what its op needs")
    part.nodes = [node for node in part.nodes if not any(v in cut for v in node.outputs if v is not None)]
    old_formals = part.all_inputs
    known = any(value.data is not None and value not in old_formals for value in cut)
    for value in {*cut}.difference(old_formals):
        value.producer = None
        value.become(data=None)
    part.all_inputs = cut
    part.outputs = wanted
    drop_dead_nodes(part)
    used = {*part.uses(), *part.outputs}
    missing = [v.name for v in old_formals if v in used and v not in cut and v.data is None]
    if missing:
        raise InvalidCall(
            f"the part needs more inputs than {list(inputs)}", given=", ".join(missing), do="add them to inputs"
        )
    part.variables = [v for v in part.variables if v in used and (v not in cut or v in old_formals)]
    part.origin = None
    return untyped(part) if known else part  # what followed from the contents holds no more


def between(graph: Graph, given: Collection[Value], wanted: Sequence[Value]) -> Graph:
    """The part of ``graph`` that computes ``wanted`` from ``given``, to be inlined: it shares its nodes."""
    part = Graph(graph.name)
    part.all_inputs, part.outputs = list(given), list(wanted)
    part.nodes = needed_nodes(graph, wanted, given)
    return part
