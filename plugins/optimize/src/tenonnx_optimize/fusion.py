"""Fusion: replacing subgraphs by ops with equal bodies.

The body of an op is traced for the types in the graph and searched in the graph, both in normal form. A match proposes
a call: values for the inputs, numbers for the attributes. The rule ``pattern`` may propose further calls. Each proposal
is verified by expansion: the body of the call in normal form, on these values, has to equal the subgraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenonnx import default_registry
from tenonnx.extend import (
    Graph,
    InvalidCall,
    Op,
    Registry,
    copy_graph,
    did_you_mean,
    find_rule,
    find_trait,
    limits,
    listing,
)
from tenonnx.extend.transforms import (
    ALLOWANCE,
    ensure_inferred,
    in_registry_of_graph,
    leaving_defaults,
)
from tenonnx_optimize.replacement import replaced
from tenonnx_optimize.templates import Templates, can_be_traced

#: Number of passes over a graph, as one op may be part of another op's body.
PASSES = 4


@leaving_defaults
@in_registry_of_graph
def fuse(graph: Graph, ops: Iterable[str | Op] | None = None, *, also: Iterable[str | Op] = ()) -> Graph:
    """Replace subgraphs that equal the body of an op by one node, if that reduces the number of nodes.

    ``ops`` are the ops to search for, by name (``com.microsoft::FastGelu``, or ``Gelu`` for ``ai.onnx``) or as objects;
    by default all ops with a body at the graph's opsets, except those that few runtimes implement or that no
    specification has; ``also`` adds some of these. Inner values of a match with other consumers become outputs of the
    op, or their nodes are kept. Raises ``InvalidCall`` for a name that no installed package provides.
    """
    registry = graph.root.registry or default_registry()
    if ops is None:
        wanted = list(dict.fromkeys([*_candidates(graph, registry), *(_found(op, graph, registry) for op in also)]))
        traced = [op for op in wanted if find_rule(op, "pattern") is None and can_be_traced(op)]
    else:
        wanted = [_found(op, graph, registry) for op in ops]
        traced = [op for op in wanted if can_be_traced(op)]
    templates = Templates.of_graph(graph, traced)
    patterns = [op for op in wanted if find_rule(op, "pattern") is not None]
    graph = copy_graph(graph)
    ensure_inferred(graph)
    with limits.work(PASSES * ALLOWANCE * len(graph.nodes)):
        for _ in range(PASSES):
            fused = replaced(graph, templates, patterns)
            if fused is None:
                break
            graph = fused
    return graph


def _candidates(graph: Graph, registry: Registry) -> Iterator[Op]:
    for domain, version in graph.opsets.items():
        for op in registry.ops(domain):
            rare = not op.is_specified_at(version) or op.primitive or find_trait(op, "on_request") is True
            if op.holds_at(version) and op.pure and not rare:
                yield op


def _found(wanted: str | Op, graph: Graph, registry: Registry) -> Op:
    if isinstance(wanted, Op):
        return wanted
    domain, _, name = wanted.rpartition("::")
    domain = domain or "ai.onnx"
    op = registry.lookup(domain, name, graph.opsets.get(domain, 10**6))
    if op is None or op.primitive:
        known = sorted({op.name for op in registry.ops(domain) if not op.primitive})
        raise InvalidCall(
            f"{domain}::{name} is not an op with a body", available=listing(known), do=did_you_mean(name, known)
        )
    return op
