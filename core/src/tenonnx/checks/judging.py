"""The verdict on outputs: each by the original on the same backend, by its definition, or by what codes allow."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx.backend.compiling import compile_graph
from tenonnx.checks.codes import compared_by_codes, moved_by_roundings, outputs_behind_codes
from tenonnx.checks.compare import Difference, Tolerances, compare_by
from tenonnx.checks.grades import grade_of, same_bits
from tenonnx.checks.verification import GRADES, OutputDifference
from tenonnx.errors import OutOfTime, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program


@dataclass
class Judge:
    """Judges outputs of another model by those of ``graph``, which gives ``expected`` on ``reference``.

    With ``itself`` the other model is ``graph``, so that backends are compared. ``exact`` asks for equality in every
    bit; a tolerance that ``rules`` give replaces all others. ``programs`` are those of ``graph``,
    by backend, that were made already.
    """

    graph: Graph
    reference: str
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    rules: Tolerances
    exact: bool = False
    itself: bool = False
    programs: Mapping[str, Program] = field(default_factory=dict)
    _on: dict[str, Mapping[str, Any] | TenonnxError] = field(default_factory=dict)

    def original_on(self, backend: str) -> Mapping[str, Any] | TenonnxError:
        """What the first model gives on a backend, or why it gives nothing there."""
        if backend == self.reference:
            return self.expected
        if backend not in self._on:
            try:
                program = self.programs.get(backend) or compile_graph(self.graph, backend, strict=True)
                self._on[backend] = program(self.feeds)
            except OutOfTime:
                raise
            except TenonnxError as error:
                self._on[backend] = error
        return self._on[backend]

    def judged(self, name: str, backend: str, actual: Any) -> OutputDifference:
        """The verdict on one output, by the first rule that holds; where none does, by the first that applies."""
        attempts: list[tuple[str, Any]] = list(self._by(backend, name))
        found = [
            OutputDifference(name, backend, compare_by(self.rules, actual, each), rule=how) for how, each in attempts
        ]
        if self.exact:
            return self._judged_exactly(name, backend, actual, attempts[0][1])
        for each, (_, expected) in zip(found, attempts, strict=True):
            if each.equal:
                return OutputDifference(
                    name, backend, each.difference, grade_of(actual, expected, self.rules), each.rule
                )
        if self.rules.absolute is None and self.rules.relative is None and name in self._behind_codes:
            for _, expected in attempts:
                difference, how = compared_by_codes(actual, expected, self._moved.get(name, 0.0), self.rules)
                if difference.equal:
                    return OutputDifference(name, backend, difference, GRADES[-1], how)
        return found[0]

    def _by(self, backend: str, name: str) -> Iterator[tuple[str, Any]]:
        """What an output is compared with, each with how that is said."""
        own = None if self.itself else self.original_on(backend)
        if isinstance(own, Mapping):
            yield "", own[name]
        if own is not self.expected:
            yield "" if self.itself else f"by the original on {self.reference}", self.expected[name]

    def _judged_exactly(self, name: str, backend: str, actual: Any, expected: Any) -> OutputDifference:
        difference = compare_by(Tolerances(absolute=0.0, relative=0.0), actual, expected)
        if difference.equal and not same_bits(actual, expected):
            difference = Difference(False, where=(), reason="different bits: signs of zero, or NaN payloads")
        return OutputDifference(name, backend, difference, GRADES[0] if difference.equal else "")

    def apart(self, backend: str, names: Sequence[str]) -> str:
        """By how much ``names`` of the first model differ between the reference and a backend; empty if near."""
        own = self.original_on(backend)
        if not isinstance(own, Mapping) or self.itself:
            return ""
        found = [(name, compare_by(self.rules, own[name], self.expected[name])) for name in names]
        wrong = [(name, difference) for name, difference in found if not difference.equal]
        if not wrong:
            return ""
        name, worst = max(wrong, key=lambda each: each[1].absolute)
        size = f" by up to {worst.absolute:.3g}" if math.isfinite(worst.absolute) and worst.absolute else ""
        return f"the original itself differs between {self.reference} and {backend}, in {name}{size}"

    @functools.cached_property
    def _behind_codes(self) -> set[str]:
        return outputs_behind_codes(self.graph)

    @functools.cached_property
    def _moved(self) -> dict[str, float]:
        return moved_by_roundings(self.graph, self.feeds, self.expected)
