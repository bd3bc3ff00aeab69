"""Replacement of subgraphs by calls: runs search, match verification and rewriting."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence

from tenonnx.extend import Graph, Node, Op, Value
from tenonnx.extend.transforms import Builder, Call, Rewriter, bind, drop_dead_nodes
from tenonnx_optimize.regions import Fused, Subject
from tenonnx_optimize.search import USUAL, Search, Worth
from tenonnx_optimize.templates import Templates


def replaced(
    graph: Graph,
    templates: Templates,
    patterns: Sequence[Op],
    *,
    heads: Sequence[Node] | None = None,
    among: Container[Node] | None = None,
    worth: Worth = USUAL,
    by: type[Replacement] | None = None,
) -> Graph | None:
    """``graph`` with the calls that one search finds replaced, None if it finds none.

    They replace values of the nodes ``heads``, by default of any node, and are matched within the nodes ``among``;
    ``by`` is the rewriter. The nodes of ``graph`` are sorted in place.
    """
    subject = Subject(graph, among=among)
    found = Search(subject, templates, patterns, worth).run(graph.nodes if heads is None else heads)
    if not found:
        return None
    places: dict[Node, float] = dict(subject.position)
    for each in found.values():
        places.update((node, max(places[node], each.last + 0.5)) for node in each.region)
    graph.nodes.sort(key=places.__getitem__)
    fused = (by or Replacement)(subject, found).run()
    drop_dead_nodes(fused)
    return fused


class _Copying(Rewriter):
    """Copies kept nodes, whose types are known from the search."""

    def stays_unchanged(self, node: Node) -> bool:
        return True


class Replacement(Rewriter):
    """Copies a graph and replaces only the values in ``replacements``."""

    def __init__(self, subject: Subject, found: Mapping[Value, Fused]) -> None:
        super().__init__(subject.graph, lambda _, call: self._results(call))
        self.sources, self.replacements = subject.sources, found
        self.replaced: dict[Value, Value] = {}
        self.brought: dict[Value, Value] = {}

    def stays_unchanged(self, node: Node) -> bool:
        return self.node is not None and not any(v in self.replacements for v in self.node.outputs if v is not None)

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        return _Copying(subgraph, self.decide, outer=self)

    def _results(self, call: Call) -> Sequence[Value | None] | None:
        """Replacement of a node, added where the first result of its call is needed."""
        value = None if call.node is None else next((v for v in call.node.outputs if v in self.replacements), None)
        if value is None:
            return None
        if value not in self.replaced:
            fused = self.replacements[value]
            self.replaced.update(self.put(fused, [None if v is None else self.bring(v) for v in fused.proposal.inputs]))
        return [self.replaced[value]] if value in self.replaced else None

    def put(self, fused: Fused, inputs: Sequence[Value | None]) -> dict[Value, Value]:
        """The results of a call on these inputs, by the replaced values; an empty result keeps the node."""
        proposal = fused.proposal
        results = Builder.call(self, proposal.op, inputs, proposal.attributes, len(fused.outputs))
        pairs = itertools.zip_longest(fused.outputs, results)
        given = {wanted: result for wanted, result in pairs if wanted is not None and result is not None}
        node = next(result.producer for result in given.values() if result.producer is not None)
        kept = {*given.values(), *results[: proposal.outputs]}
        node._replace_fields(outputs=tuple(v if v in kept else None for v in node.outputs[: len(fused.outputs)]))
        if proposal.after is not None and (first := fused.outputs[0]) is not None:
            given[first] = proposal.after(given[first])
        for wanted, result in given.items():
            result._replace_fields(name=wanted.name)
        return given

    def bring(self, value: Value) -> Value:
        """A value of the normal form in the new graph: copied from the source, or computed once from source values."""
        if value in self.sources:
            return self.copy(self.sources[value])
        if value.data is not None:
            return self.intern_constant(value)
        if value not in self.brought:
            node = value.producer
            assert node is not None
            assert isinstance(node.op, Op)
            inputs, attributes = bind(node)
            given = [None if v is None else self.bring(v) for v in inputs]
            results = Builder.call(self, node.op, given, attributes, len(node.outputs))
            self.brought.update(
                (v, r) for v, r in zip(node.outputs, results, strict=False) if v is not None and r is not None
            )
        return self.brought[value]
