"""Respelling: what a graph computes, in the words of the body of an op that computes the same.

It is fusion whose calls are expanded again: the op never stands in a graph, and its body may be longer than what it
replaces, if that is what a consumer is faster with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tenonnx.errors import NotRepresentable
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.garbage import uncollected
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Node, Value
from tenonnx.limits import work
from tenonnx.op.graph_inference import ensure_inferred
from tenonnx.op.op import Op
from tenonnx.transforms.forms import Forms
from tenonnx.transforms.fuse import Fused, Replacing, Search
from tenonnx.transforms.overridable import leaving_defaults
from tenonnx.transforms.rewrite import ALLOWANCE, Call, Rewriter, copy_graph
from tenonnx.transforms.target import target_for
from tenonnx.transforms.templates import Templates

#: So many nodes before one that may be replaced are looked at with it, the one behind the other.
REACH = 2


@leaving_defaults
@in_registry_of_graph
@uncollected()
def respell(graph: Graph, ops: Sequence[Op], *, at: Callable[[Node], bool]) -> Graph:
    """``graph`` with the body of one of ``ops`` in the place of each node that computes the same by other words.

    The ops have the rule ``spot``, which proposes calls; each is proven as fusion proves it, and then written out. It
    need not leave fewer nodes. Only nodes ``at`` which it may be are replaced: a graph without any is given back as it
    is, and little but them and what they read is looked at. Subgraphs stay as they are.
    """
    if not any(map(at, graph.nodes)):
        return graph
    graph = copy_graph(graph)
    ensure_inferred(graph)
    templates = Templates.of_graph(graph, ())
    with work(ALLOWANCE * len(graph.nodes)):
        return _Respelling(graph, templates, ops, list(filter(at, graph.nodes))).run() or graph


class _Writing(Replacing):
    """Writes what bodies say at the versions of the graph where these can say it: an export has less to do."""

    @cached_property
    def forms(self) -> Forms:
        return Forms(target_for(self.source), self.graph.root)

    def add(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], known: Any, **options: Any
    ) -> tuple[Value | None, ...]:
        try:
            form = self.forms.of(Call(op, inputs, attributes, len(known), None, known))
        except NotRepresentable:
            self.graph.root.opsets.setdefault(op.domain, op.version)
            return super().add(op, inputs, attributes, known, **options)
        return super().add(op, form.inputs, {}, known, version=form.version, written=form.attributes)


class _Respelling(Search):
    """One search for what stands for the values of ``heads``, whose calls are written out."""

    least, least_gain = 1, -math.inf
    replacing = _Writing

    def __init__(self, graph: Graph, templates: Templates, spots: Sequence[Op], heads: Sequence[Node]) -> None:
        near = set(heads)
        for _ in range(REACH):
            near |= {value.producer for node in near for value in node.uses if value.producer is not None}
        super().__init__(graph, templates, spots, among=near)
        self.heads = heads

    def called(self, rewriter: Rewriter, fused: Fused) -> dict[Value, Value]:
        """What the body of the call gives, unless that is just what it is given."""
        proposal, (head, *_), start = fused.proposal, fused.outputs, len(rewriter.nodes)
        inputs = [None if v is None else self.brought_to(rewriter, v) for v in proposal.inputs]
        result, *_ = rewriter.expand(Call(proposal.op, inputs, proposal.attributes, 1))
        if result is not None and proposal.after is not None:
            result = proposal.after(result)
        if head is None or result is None or result.producer not in rewriter.nodes[start:]:
            return {}
        return {head: result}
