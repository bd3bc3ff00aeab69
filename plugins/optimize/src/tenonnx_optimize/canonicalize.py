"""Canonicalization: rewriting a graph to the form of an op's body.

Works like fusion, but expands the matched calls again: the op never appears in the graph. Its body may be longer than
the original, if consumers run it faster.
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

#: Number of levels of producers that are considered together with a candidate node.
REACH = 2

#: A call may replace a single node, and need not reduce the number of nodes.
ANY = Worth(replaced=1, gain=-math.inf)


@leaving_defaults
@in_registry_of_graph
@gc_paused()
def canonicalize(graph: Graph, ops: Sequence[Op], *, at: Callable[[Node], bool]) -> Graph:
    """``graph`` with equivalent subgraphs replaced by the bodies of ``ops``.

    The ops have rules ``pattern``, which propose calls; each is verified as in fusion, and then expanded. The number of
    nodes may grow. Only nodes accepted by ``at`` are replaced, and little else is analyzed; a graph without any is
    returned unchanged. Subgraphs are not rewritten.
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
    """Adds the expanded bodies of calls, at the graph's own versions if possible, to spare exports the adaptation."""

    @cached_property
    def legalizer(self) -> Legalizer:
        return Legalizer(target_for(self.source), self.graph.root)

    def put(self, fused: Fused, inputs: Sequence[Value | None]) -> dict[Value, Value]:
        """The results of the body of the call, unless they are its inputs."""
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
