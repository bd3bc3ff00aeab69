"""Fusion: expansion read backwards. Where the body of an op stands in a graph, the op is put.

A body is traced for the types at hand and looked for in the graph, both in normal form. What is found proposes a call:
values for the inputs, numbers for the attributes. A family may propose calls, too, by the rule ``spot``. The proof is
the expansion: the body of the proposed call, in normal form and on these very values, is what the graph computes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenonnx.errors import InvalidCall, TenonnxError
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph, near_names
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Node, Value
from tenonnx.limits import work
from tenonnx.op.binding import bind, foreseeing
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.op.graph_inference import ensure_inferred
from tenonnx.op.infer import infer_call
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.matching import Match, Matcher
from tenonnx.transforms.normal_form import Normalizer
from tenonnx.transforms.overridable import leaving_defaults
from tenonnx.transforms.prune import drop_dead_nodes
from tenonnx.transforms.rewrite import ALLOWANCE, Call, Decision, Rewriter, copy_graph
from tenonnx.transforms.templates import Proposal, Templates, can_be_traced

#: A length that no graph names, which is a multiple of what heads and blocks may be.
ANY_LENGTH = math.lcm(*range(1, 17)) * 2**10

#: Passes over a graph: one op may be part of the body of another.
PASSES = 4


@leaving_defaults
@in_registry_of_graph
def fuse(graph: Graph, ops: Iterable[str | Op] | None = None, *, also: Iterable[str | Op] = ()) -> Graph:
    """``graph`` with one node wherever the body of an op stands, as long as that leaves fewer nodes.

    ``ops`` are the ops to look for, by name (``com.microsoft::FastGelu``, or ``Gelu`` for ``ai.onnx``) or themselves;
    by default all that exist at the graph's opsets and have a body, but for those that runtimes have seldom a kernel
    for, or no specification has: of these, the ones that are named in ``also``. What other nodes read inside a match
    is an output of the op, or kept for them. Raises ``InvalidCall`` for a name that no installed package gives.
    """
    registry = graph.root.registry or default_registry()
    if ops is None:
        wanted = list(dict.fromkeys([*_candidates(graph, registry), *(_found(op, graph, registry) for op in also)]))
        traced = [op for op in wanted if find_rule(op, "spot") is None and can_be_traced(op)]
    else:
        wanted = [_found(op, graph, registry) for op in ops]
        traced = [op for op in wanted if can_be_traced(op)]
    templates = Templates.of_graph(graph, traced)
    spots = [op for op in wanted if find_rule(op, "spot") is not None]
    graph = copy_graph(graph)
    ensure_inferred(graph)
    with work(PASSES * ALLOWANCE * len(graph.nodes)):
        for _ in range(PASSES):
            fused = Search(graph, templates, spots).run()
            if fused is None:
                break
            graph = fused
    return graph


def _candidates(graph: Graph, registry: Registry) -> Iterator[Op]:
    for domain, version in graph.opsets.items():
        for op in registry.ops(domain):
            rare = not op.specified or op.primitive or find_rule(op, "rare") is not None
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
        raise InvalidCall(f"{domain}::{name} must be an op with a body", available=", ".join(near_names(name, known)))
    return op


def _of_any_length(value: Value | None) -> Value | None:
    """A value of a large length where that is a symbol, so that nothing counts on its being a number beside it."""
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None or value.data is not None:
        return value
    lengths = [ANY_LENGTH if symbols_of(d) == {str(d)} else d if isinstance(d, int) else None for d in value.type.shape]
    return Value(value.name, value.type.with_shape(tuple(lengths)))


@dataclass(frozen=True, slots=True)
class Fused:
    """A call for values of the source: ``outputs`` has one for each output of the call, None where nobody reads it.

    The ``region`` is what it replaces, ``made`` are the values on the way to its inputs that no call that was chosen
    before makes, and ``last`` is the place of the last node that it needs.
    """

    proposal: Proposal
    outputs: tuple[Value | None, ...]
    region: tuple[Node, ...]
    made: frozenset[Value]
    last: int

    @property
    def gain(self) -> int:
        return len(self.region) - len(self.made) - (1 if self.proposal.after is None else 2)


class Replacing(Rewriter):
    """Decides about the nodes that give ``replaced`` values alone; what stays has its types from the search."""

    def __init__(
        self, source: Graph, decide: Decision, replaced: Container[Value] = (), *, outer: Rewriter | None = None
    ) -> None:
        super().__init__(source, decide, outer=outer)
        self.replaced = replaced

    def is_settled(self, node: Node) -> bool:
        return self.node is not None and not any(v in self.replaced for v in self.node.outputs if v is not None)


class Search:
    """One search over a graph, or ``among`` some of its nodes."""

    #: How many nodes a call must stand for, and how many fewer it must leave by itself.
    least, least_gain = 2, 1.0
    replacing = Replacing

    def __init__(
        self, graph: Graph, templates: Templates, spots: Sequence[Op], *, among: Container[Node] | None = None
    ) -> None:
        self.graph, self.templates, self.spots = graph, templates, spots
        #: The nodes whose values a call may stand for.
        self.heads: Sequence[Node] = graph.nodes
        self.normal = Normalizer(graph, among=among)
        self.normal.run()
        self.sources: dict[Value, Value] = {}
        for value in graph.values():
            self.sources.setdefault(self.normal.mapping.get(value, value), value)
        self.present = frozenset(node.op for node in self.normal.graph.nodes if isinstance(node.op, Op))
        self.position = {node: place for place, node in enumerate(graph.nodes)}
        self.readers = graph.uses()
        self.results = frozenset(graph.outputs)
        self.strict, self.loose = (Matcher(self.normal.associative, loose=loose) for loose in (False, True))
        #: Values of the normal form that the source has not, and calls that were chosen have as inputs.
        self.wanted: set[Value] = set()
        self.brought: dict[Value, Value] = {}

    def run(self) -> Graph | None:
        """The graph with what was found, None where nothing was."""
        found: dict[Value, Fused] = {}
        taken: set[Node] = set()
        shared: dict[frozenset[Value], list[Fused]] = {}

        def take(fused: Fused) -> None:
            taken.update(fused.region)
            self.wanted |= fused.made
            found.update((v, fused) for v in fused.outputs if v is not None)

        for node in reversed(self.heads):
            read = self._read(node)
            if len(read) != 1 or node in taken:
                continue
            best = self._best(read[0], taken)
            if best is not None and best.gain >= self.least_gain:
                take(best)
            elif best is not None:
                shared.setdefault(best.made, []).append(best)
        for made, calls in shared.items():  # what is too much for one call may pay for several
            apart = [call for call in calls if not taken.intersection(call.region)]
            if sum(len(call.region) - 1 for call in apart) > len(made - self.wanted):
                for call in apart:
                    if not taken.intersection(call.region):
                        take(call)
        return self.rewritten(found) if found else None

    def rewritten(self, found: Mapping[Value, Fused]) -> Graph:
        """The graph with these calls."""
        places: dict[Node, float] = dict(self.position)
        for each in found.values():
            places.update((node, max(places[node], each.last + 0.5)) for node in each.region)
        self.graph.nodes.sort(key=places.__getitem__)
        made: dict[Value, Value] = {}

        def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
            value = None if call.node is None else next((v for v in call.node.outputs if v in found), None)
            if value is None:
                return None
            if value not in made:
                made.update(self.called(rewriter, found[value]))
            return [made[value]] if value in made else None

        fused = self.replacing(self.graph, decide, found.keys()).run()
        drop_dead_nodes(fused)
        return fused

    def called(self, rewriter: Rewriter, fused: Fused) -> dict[Value, Value]:
        """The results of the call, which are put where the first of them is needed."""
        proposal = fused.proposal
        inputs = [None if v is None else self.brought_to(rewriter, v) for v in proposal.inputs]
        results = Builder.call(rewriter, proposal.op, inputs, proposal.attributes, len(fused.outputs))
        pairs = itertools.zip_longest(fused.outputs, results)
        given = {wanted: result for wanted, result in pairs if wanted is not None and result is not None}
        node = next(result.producer for result in given.values() if result.producer is not None)
        kept = {*given.values(), *results[: proposal.outputs]}
        node.outputs = tuple(v if v in kept else None for v in node.outputs[: len(fused.outputs)])
        if proposal.after is not None and (first := fused.outputs[0]) is not None:
            given[first] = proposal.after(given[first])
        for wanted, result in given.items():
            result.name = wanted.name
        return given

    def brought_to(self, rewriter: Rewriter, value: Value) -> Value:
        """A value of the normal form in the new graph: that of the source, or computed once from some of the source."""
        if value in self.sources:
            return rewriter.copy(self.sources[value])
        if value.data is not None:
            return rewriter.intern_constant(value)
        if value not in self.brought:
            node = value.producer
            assert node is not None
            assert isinstance(node.op, Op)
            inputs, attributes = bind(node)
            given = [None if v is None else self.brought_to(rewriter, v) for v in inputs]
            results = Builder.call(rewriter, node.op, given, attributes, len(node.outputs))
            self.brought.update(
                (v, r) for v, r in zip(node.outputs, results, strict=False) if v is not None and r is not None
            )
        return self.brought[value]

    # ----- what is found ----------------------------------------------------------------------------------------------

    def _best(self, value: Value, taken: set[Node]) -> Fused | None:
        """The call that replaces most of what leads to a value."""
        root = self.normal.mapping.get(value)
        best: Fused | None = None
        if root is None or root.producer is None or not isinstance(root.type, TensorType):
            return best
        templates = self.templates.of(root, self.present)
        traced = (template.proposals(root, self.loose, self.normal) for template in templates)
        for proposals in (self._guessed(root), *traced):
            for proposal in proposals:
                given, made = self._needed(proposal)
                replaced = len(self._region((value,), given, alone=True))
                if replaced < self.least or (best is not None and replaced - len(made) - 1 <= best.gain):
                    continue
                results = self._proven(proposal, root, alone=len(self._region((value,), given)) == replaced)
                if results is None:
                    continue
                ways = (self._placed(value, proposal, found) for found in (results, results[:1]))
                large = [w for w in ways if w is not None and len(w.region) >= self.least]
                better = [w for w in large if not taken & set(w.region)]
                best = max([*better, *([] if best is None else [best])], key=lambda way: way.gain, default=None)
                break
        return best

    def _guessed(self, root: Value) -> Iterator[Proposal]:
        """What the rules ``spot`` propose."""
        for op in self.spots:
            rule = find_rule(op, "spot")
            assert rule is not None
            try:
                with foreseeing(op.title, [root], {}), interpreting(self.normal):
                    guesses = list(rule(root))
            except TenonnxError:  # what must be known is not
                continue
            for inputs, attributes, *more in guesses:
                padded = (*inputs, *[None] * (len(op.signature.inputs) - len(inputs)))
                yield Proposal(op, {**op.signature.attributes, **attributes}, padded, *more)

    def _placed(self, value: Value, proposal: Proposal, results: Sequence[Value | None]) -> Fused | None:
        """What a call for a value, and for other ``results`` of it that the source has, makes needless.

        None where it cannot be put before all that reads them.
        """
        given, made = self._needed(proposal)
        others = [None if r is None else self.sources.get(r) for r in results[1:]]
        outputs = (value, *(None if o is None or o.producer is None or o in given else o for o in others))
        region = self._region(outputs, given)
        inside = set(region)
        outputs = tuple(
            v if v is value or (v is not None and (v in self.results or not inside.issuperset(self.readers.get(v, ()))))
            else None for v in outputs
        )  # fmt: skip
        while outputs[-1] is None:
            outputs = outputs[:-1]
        outputs += (None,) * (proposal.outputs - len(outputs))
        made_by = [v.producer for v in outputs if v is not None and v.producer is not None]
        if any(node not in inside or len(self._read(node)) > 1 for node in made_by):
            return None
        last = max((self.position[v.producer] for v in given if v.producer is not None), default=-1)
        readers = [node for v in outputs if v is not None for node in self.readers.get(v, ()) if node not in inside]
        early = any(self.position[node] <= last for node in readers)
        return None if early else Fused(proposal, outputs, tuple(region), frozenset(made), last)

    def _read(self, node: Node) -> list[Value]:
        """The outputs of a node that somebody reads."""
        return [v for v in node.outputs if v is not None and (v in self.readers or v in self.results)]

    def _needed(self, proposal: Proposal) -> tuple[set[Value], set[Value]]:
        """The values of the source that the inputs are or are computed from, and those that are made on the way."""
        given: set[Value] = set()
        made: set[Value] = set()
        pending = [v for v in proposal.inputs if v is not None]
        while pending:
            value = pending.pop()
            if value in self.sources:
                given.add(self.sources[value])
            elif value.producer is not None and value not in made:
                made.add(value)
                pending += value.producer.uses
        return given, made - self.wanted

    def _region(self, outputs: Sequence[Value | None], given: set[Value], *, alone: bool = False) -> list[Node]:
        """The nodes that nobody needs once the outputs are there, found from these back; ``alone``, as if none did."""
        heads = {v for v in outputs if v is not None}
        pending = {v.producer for v in heads if v.producer is not None}
        queue = [(-self.position[node], id(node), node) for node in pending]
        heapq.heapify(queue)
        region: set[Node] = set()
        found: list[Node] = []
        while queue:
            node = heapq.heappop(queue)[2]
            needless = alone or all(
                v is None or v in heads or (v not in self.results and region.issuperset(self.readers.get(v, ())))
                for v in node.outputs
            )
            if not needless:
                continue
            region.add(node)
            found.append(node)
            for value in node.uses:
                source = value.producer
                if value not in given and source is not None and source not in pending:
                    pending.add(source)
                    heapq.heappush(queue, (-self.position[source], id(source), source))
        return found

    def _proven(self, proposal: Proposal, root: Value, *, alone: bool) -> Sequence[Value | None] | None:
        """What the call gives, in normal form, if the first of it is what the graph computes; that ``alone`` will do
        where nobody reads what is inside.
        """
        op, inputs, attributes, after = proposal.op, proposal.inputs, proposal.attributes, proposal.after
        count = None if op.signature.counts_outputs else 1
        try:
            op.requirements.check([_of_any_length(v) for v in inputs], attributes)
            infer_call(op, inputs, attributes, count)
            if alone and after is None and self.templates.prove(proposal, root, self.strict):
                return [root]
            with interpreting(self.normal):
                if after is None and root.producer is not None and root.producer.op is op:  # a word of the normal form
                    results = self.normal.call(op, inputs, attributes, count)
                else:
                    results = self.normal.expand(Call(op, inputs, attributes, count))
                if after is not None and results[0] is not None:
                    results = (after(results[0]), *results[1:])
        except TenonnxError:
            return None
        same = results[0] is not None and any(self.strict.match(results[0], root, Match(), frozenset()))
        return results if same else None
