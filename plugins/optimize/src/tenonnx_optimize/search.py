"""Search for calls that replace subgraphs, preferring those that replace most nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenonnx.extend import Node, Op, TenonnxError, TensorType, Value, find_rule, interpreting
from tenonnx.extend.transforms import foreseeing
from tenonnx_optimize.matching import Matcher
from tenonnx_optimize.regions import MOST_REPLACED, Fused, Placement, Subject
from tenonnx_optimize.templates import Proposal, Templates
from tenonnx_optimize.verify_match import Prover


@dataclass(frozen=True, slots=True)
class Worth:
    """Minimum number of nodes that a call must replace, and minimum reduction of the number of nodes."""

    replaced: int = 2
    gain: float = 1.0


USUAL = Worth()


class Search:
    """One search in a graph, by bodies of ops and by rules ``pattern``."""

    def __init__(self, subject: Subject, templates: Templates, patterns: Sequence[Op], worth: Worth) -> None:
        self.subject, self.templates, self.patterns, self.worth = subject, templates, patterns, worth
        self.placement = Placement(subject)
        self.prover = Prover(subject.normal, templates)
        self.matcher = Matcher(subject.normal.associative, loose=True)
        self.matches: dict[Value, Fused] = {}
        self.fused_nodes: set[Node] = set()

    def run(self, heads: Sequence[Node]) -> dict[Value, Fused]:
        """The calls that replace values of ``heads``, by each replaced value."""
        shared: dict[frozenset[Value], list[Fused]] = {}
        for node in reversed(heads):
            read = self.subject.read(node)
            if len(read) != 1 or node in self.fused_nodes:
                continue
            best = self._best(read[0])
            if best is not None and best.gain >= self.worth.gain:
                self._take(best)
            elif best is not None:
                shared.setdefault(best.computed_inputs, []).append(best)
        for created, calls in shared.items():  # a cost too high for one call may pay off for several
            apart = [call for call in calls if not self.fused_nodes.intersection(call.region)]
            if sum(len(call.region) - 1 for call in apart) > len(created - self.placement.outputs):
                for call in apart:
                    if not self.fused_nodes.intersection(call.region):
                        self._take(call)
        return self.matches

    def _take(self, fused: Fused) -> None:
        self.fused_nodes.update(fused.region)
        self.placement.outputs |= fused.computed_inputs
        self.matches.update((v, fused) for v in fused.outputs if v is not None)

    def _best(self, value: Value) -> Fused | None:
        """The call that replaces the most producers of a value."""
        root = self.subject.normal.mapping.get(value)
        best: Fused | None = None
        if root is None or root.producer is None or not isinstance(root.type, TensorType):
            return best
        templates = self.templates.of(root, self.subject.ops)
        traced = (template.proposals(root, self.matcher, self.subject.normal) for template in templates)
        for proposals in (self._proposed(root), *traced):
            for proposal in proposals:
                given, created = self.placement.needed(proposal)
                replaced = len(self.placement.region((value,), given, alone=True))
                if not self.worth.replaced <= replaced <= MOST_REPLACED or (
                    best is not None and replaced - len(created) - 1 <= best.gain
                ):
                    continue
                alone = len(self.placement.region((value,), given)) == replaced
                results = self.prover.results(proposal, root, alone=alone)
                if results is None:
                    continue
                ways = (self.placement.of(value, proposal, found) for found in (results, results[:1]))
                large = [w for w in ways if w is not None and len(w.region) >= self.worth.replaced]
                better = [w for w in large if not self.fused_nodes & set(w.region)]
                best = max([*better, *([] if best is None else [best])], key=lambda way: way.gain, default=None)
                break
        return best

    def _proposed(self, root: Value) -> Iterator[Proposal]:
        """Candidates proposed by rules ``pattern``."""
        for op in self.patterns:
            rule = find_rule(op, "pattern")
            assert rule is not None
            try:
                with foreseeing(op.title, [root], {}), interpreting(self.subject.normal):
                    guesses = list(rule(root))
            except TenonnxError:  # required types or shapes are unknown
                continue
            for inputs, attributes, *more in guesses:
                padded = (*inputs, *[None] * (len(op.signature.inputs) - len(inputs)))
                yield Proposal(op, {**op.signature.attributes, **attributes}, padded, *more)
