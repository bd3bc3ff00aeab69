"""Canonicalization: a graph in the form of an op's body.

It is fusion whose calls are expanded again: the op never stands in a graph, and its body may be longer than what it
replaces, if that is what a consumer is faster with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tenonnx.extend import Graph, Node, NotRepresentable, Op, Value, copy_graph, limits
from tenonnx.extend.backends import target_for
from tenonnx.extend.transforms import (
    ALLOWANCE,
    Call,
    Legalizer,
    ensure_inferred,
    gc_paused,
    in_registry_of_graph,
    leaving_defaults,
)
from tenonnx_optimize.regions import Fused
from tenonnx_optimize.replacement import Replacement, replaced
from tenonnx_optimize.search import Worth
from tenonnx_optimize.templates import Templates

#: So many nodes before one that may be replaced are looked at with it, the one behind the other.
REACH = 2

#: It need not stand for more than one node, nor leave fewer.
ANY = Worth(replaced=1, gain=-math.inf)


@leaving_defaults
@in_registry_of_graph
@gc_paused()
def canonicalize(graph: Graph, ops: Sequence[Op], *, at: Callable[[Node], bool]) -> Graph:
    """``graph`` with the body of one of ``ops`` in the place of each node that computes the same by other words.

    The ops have rules ``pattern``, which propose calls; each is proven as fusion proves it, and then written out. It
    need not leave fewer nodes. Only nodes ``at`` which it may be are replaced: a graph without any is given back as it
    is, and little but them and what they read is looked at. Subgraphs stay as they are.
    """
    if not any(map(at, graph.nodes)):
        return graph
    graph = copy_graph(graph)
    ensure_inferred(graph)
    templates = Templates.of_graph(graph, ())
    with limits.work(ALLOWANCE * len(graph.nodes)):
        heads = list(filter(at, graph.nodes))
        near = set(heads)
        for _ in range(REACH):
            near |= {value.producer for node in near for value in node.uses if value.producer is not None}
        return replaced(graph, templates, ops, heads=heads, among=near, worth=ANY, by=_Writing) or graph


class _Writing(Replacement):
    """Puts what the bodies of calls give, at the versions of the graph where these can say it: an export has less to
    do.
    """

    @cached_property
    def legalizer(self) -> Legalizer:
        return Legalizer(target_for(self.source), self.graph.root)

    def put(self, fused: Fused, inputs: Sequence[Value | None]) -> dict[Value, Value]:
        """Result of the body of the call, unless it is its input."""
        proposal, (head, *_), start = fused.proposal, fused.outputs, len(self.nodes)
        result, *_ = self.expand(Call(proposal.op, inputs, proposal.attributes, 1))
        if result is not None and proposal.after is not None:
            result = proposal.after(result)
        if head is None or result is None or result.producer not in self.nodes[start:]:
            return {}
        return {head: result}

    def add(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], known: Any, **options: Any
    ) -> tuple[Value | None, ...]:
        try:
            form = self.legalizer.of(Call(op, inputs, attributes, len(known), None, known))
        except NotRepresentable:
            self.graph.root.opsets.setdefault(op.domain, op.version)
            return super().add(op, inputs, attributes, known, **options)
        return super().add(op, form.inputs, {}, known, version=form.version, written=form.attributes)
