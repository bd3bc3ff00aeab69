"""Rewrite regions: positions for a call in a graph, and the nodes that it makes redundant."""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass

from tenonnx.extend import Graph, Node, Op, Value
from tenonnx_optimize.normal_form import Normalizer
from tenonnx_optimize.templates import Proposal

#: A call that seems to replace more nodes than this probably does not have all sources of its value as inputs; the
#: search would then go back to the graph inputs for each such call.
MOST_REPLACED = 256


class Subject:
    """A graph to rewrite, with its normal form, in which calls are matched.

    ``sources`` maps values of the normal form to those of the graph. Only the nodes in ``among`` are normalized.
    """

    def __init__(self, graph: Graph, *, among: Container[Node] | None = None) -> None:
        self.graph = graph
        self.normal = Normalizer(graph, among=among)
        self.normal.run()
        self.sources: dict[Value, Value] = {}
        for value in graph.values():
            self.sources.setdefault(self.normal.mapping.get(value, value), value)
        self.ops = frozenset(node.op for node in self.normal.graph.nodes if isinstance(node.op, Op))
        self.position = {node: place for place, node in enumerate(graph.nodes)}
        self.readers = graph.uses()
        self.results = frozenset(graph.outputs)

    def read(self, node: Node) -> list[Value]:
        """The outputs of a node that have consumers."""
        return [v for v in node.outputs if v is not None and (v in self.readers or v in self.results)]


@dataclass(frozen=True, slots=True)
class Fused:
    """A call for values of the source: ``outputs`` has one for each output of the call, None if it has no consumer.

    ``region`` is the set of nodes that it replaces, ``computed_inputs`` are values to compute for its inputs that
    earlier calls do not compute, and ``last`` is the position of the last node that it depends on.
    """

    proposal: Proposal
    outputs: tuple[Value | None, ...]
    region: tuple[Node, ...]
    computed_inputs: frozenset[Value]
    last: int

    @property
    def gain(self) -> int:
        return len(self.region) - len(self.computed_inputs) - (1 if self.proposal.after is None else 2)


class Placement:
    """Disjoint regions of calls; values computed for one call's inputs are available to the next."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        #: values of the normal form that the source lacks, and that chosen calls need as inputs
        self.outputs: set[Value] = set()

    def of(self, value: Value, proposal: Proposal, results: Sequence[Value | None]) -> Fused | None:
        """The call with the nodes that it makes redundant, for a value and other ``results`` in the source.

        None if there is no position before all its consumers.
        """
        subject = self.subject
        given, created = self.needed(proposal)
        others = [None if r is None else subject.sources.get(r) for r in results[1:]]
        outputs = (value, *(None if o is None or o.producer is None or o in given else o for o in others))
        region = self.region(outputs, given)
        inside = set(region)
        read_elsewhere = {
            v
            for v in outputs
            if v is not None and (v in subject.results or not inside.issuperset(subject.readers.get(v, ())))
        }
        outputs = tuple(v if v is value or v in read_elsewhere else None for v in outputs)
        while outputs[-1] is None:
            outputs = outputs[:-1]
        outputs += (None,) * (proposal.outputs - len(outputs))
        made_by = [v.producer for v in outputs if v is not None and v.producer is not None]
        if any(node not in inside or len(subject.read(node)) > 1 for node in made_by):
            return None
        last = max((subject.position[v.producer] for v in given if v.producer is not None), default=-1)
        readers = [node for v in outputs if v is not None for node in subject.readers.get(v, ()) if node not in inside]
        early = any(subject.position[node] <= last for node in readers)
        return None if early else Fused(proposal, outputs, tuple(region), frozenset(created), last)

    def needed(self, proposal: Proposal) -> tuple[set[Value], set[Value]]:
        """The source values on which the inputs depend, and the values to compute from them."""
        given: set[Value] = set()
        created: set[Value] = set()
        pending = [v for v in proposal.inputs if v is not None]
        while pending:
            value = pending.pop()
            if value in self.subject.sources:
                given.add(self.subject.sources[value])
            elif value.producer is not None and value not in created:
                created.add(value)
                pending += value.producer.uses
        return given, created - self.outputs

    def region(self, outputs: Sequence[Value | None], given: set[Value], *, alone: bool = False) -> list[Node]:
        """The nodes that become redundant once the outputs are replaced, found backwards from these.

        ``alone`` ignores other consumers; then the search ends just above ``MOST_REPLACED``.
        """
        subject = self.subject
        heads = {v for v in outputs if v is not None}
        pending = {v.producer for v in heads if v.producer is not None}
        queue = [(-subject.position[node], id(node), node) for node in pending]
        heapq.heapify(queue)
        region: set[Node] = set()
        result: list[Node] = []
        while queue and not (alone and len(result) > MOST_REPLACED):
            node = heapq.heappop(queue)[2]
            needless = alone or all(
                v is None or v in heads or (v not in subject.results and region.issuperset(subject.readers.get(v, ())))
                for v in node.outputs
            )
            if not needless:
                continue
            region.add(node)
            result.append(node)
            for value in node.uses:
                source = value.producer
                if value not in given and source is not None and source not in pending:
                    pending.add(source)
                    heapq.heappush(queue, (-subject.position[source], id(source), source))
        return result
