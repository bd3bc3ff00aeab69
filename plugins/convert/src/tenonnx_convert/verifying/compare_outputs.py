"""Comparison of outputs with the original on the same backend, with its definition, or within quantization steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenonnx.errors import InvalidCall, OutOfTime, TenonnxError, did_you_mean, listing
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx_convert.verifying.precision import grade_of, same_bits
from tenonnx_convert.verifying.quantization import compared_by_steps, moved_by_roundings, outputs_behind_quantization
from tenonnx_convert.verifying.verification import GRADES, OutputDifference
from tenonnx_run.compare import Difference, Tolerances, compare_by
from tenonnx_run.compiling import compile_graph

#: A tolerance for all outputs, or by name, with "" for the others.
Limit = float | Mapping[str, float] | None


def limit_of(name: str, limit: Limit) -> float | None:
    """The tolerance of an output; "" applies to outputs without their own."""
    return limit.get(name, limit.get("")) if isinstance(limit, Mapping) else limit


def rules_of_outputs(graph: Graph, rules: Tolerances, atol: Limit, rtol: Limit) -> dict[str, Tolerances]:
    """The tolerances of outputs that have their own. Raises ``InvalidCall`` for an unknown output."""
    named = [name for limit in (atol, rtol) if isinstance(limit, Mapping) for name in limit if name]
    names = [value.name for value in graph.outputs]
    for name in named:
        if name not in names:
            do = did_you_mean(name, names)
            what = f'a tolerance is set for "{name}", which is not an output of the model'
            raise InvalidCall(what, available=listing(names), do=do)
    return {name: replace(rules, absolute=limit_of(name, atol), relative=limit_of(name, rtol)) for name in named}


@dataclass
class Judge:
    """Judges another model's outputs by ``graph``, whose outputs on the backend ``reference`` are ``expected``.

    With ``itself`` the other model is ``graph``, so that backends are compared. ``exact`` requires equal bits; explicit
    tolerances in ``rules`` override all others, and ``by_output`` has those of single outputs. ``programs`` caches
    programs of ``graph`` by backend; ``make`` compiles them. ``unrounded`` is ``graph`` without the roundings in which
    the other model may differ.
    """

    graph: Graph
    reference: str
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    rules: Tolerances
    exact: bool = False
    itself: bool = False
    by_output: Mapping[str, Tolerances] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    make: Callable[[Graph, str], Program] = compile_graph
    unrounded: Graph | None = None
    _on: dict[str, Mapping[str, Any] | TenonnxError] = field(default_factory=dict)

    def of_run(self, feeds: Mapping[str, Any], expected: Mapping[str, Any]) -> Judge:
        """The judge of another run of the same models."""
        return replace(self, feeds=feeds, expected=expected, _on={})

    def original_on(self, backend: str) -> Mapping[str, Any] | TenonnxError:
        """Outputs of the first model on a backend, or the error if it fails."""
        if backend == self.reference:
            return self.expected
        if backend not in self._on:
            try:
                if backend not in self.programs:
                    self.programs[backend] = self.make(self.graph, backend)
                self._on[backend] = self.programs[backend](self.feeds)
            except OutOfTime:
                raise
            except TenonnxError as error:
                self._on[backend] = error
        return self._on[backend]

    def judged(self, name: str, backend: str, actual: Any) -> OutputDifference:
        """The verdict on one output by the first rule that it satisfies, else by the first applicable rule."""
        attempts: list[tuple[str, Any]] = list(self._references(backend, name))
        rules = self.by_output.get(name, self.rules)
        found = [OutputDifference(name, backend, compare_by(rules, actual, each), rule=how) for how, each in attempts]
        if self.exact:
            return self._judged_exactly(name, backend, actual, attempts[0][1])
        for each, (_, expected) in zip(found, attempts, strict=True):
            if each.equal:
                return OutputDifference(name, backend, each.difference, grade_of(actual, expected, rules), each.rule)
        if rules.absolute is None and rules.relative is None and name in self._behind_quantization:
            for _, expected in attempts:
                difference, how = compared_by_steps(actual, expected, self._rounding_effects.get(name, 0.0), rules)
                if difference.equal:
                    return OutputDifference(name, backend, difference, GRADES[-1], how)
        return found[0]

    def _references(self, backend: str, name: str) -> Iterator[tuple[str, Any]]:
        """References of an output, each with its description."""
        own = None if self.itself else self.original_on(backend)
        if isinstance(own, Mapping):
            yield "", own[name]
        if own is not self.expected:
            yield "" if self.itself else f"by the original on {self.reference}", self.expected[name]

    def _judged_exactly(self, name: str, backend: str, actual: Any, expected: Any) -> OutputDifference:
        difference = compare_by(Tolerances(absolute=0.0, relative=0.0), actual, expected)
        if difference.equal and not same_bits(actual, expected):
            difference = Difference(False, path=(), reason="different bits: signs of zero, or NaN payloads")
        return OutputDifference(name, backend, difference, GRADES[0] if difference.equal else "")

    def describe_differences(self, backend: str, names: Sequence[str]) -> str:
        """Differences of outputs of the first model between the reference and a backend, as text; empty if equal."""
        own = self.original_on(backend)
        if not isinstance(own, Mapping) or self.itself:
            return ""
        rules = {name: self.by_output.get(name, self.rules) for name in names}
        found = [(name, compare_by(rules[name], own[name], self.expected[name])) for name in names]
        wrong = [(name, difference) for name, difference in found if not difference.equal]
        if not wrong:
            return ""
        name, worst = max(wrong, key=lambda each: each[1].absolute)
        size = f" by up to {worst.absolute:.3g}" if math.isfinite(worst.absolute) and worst.absolute else ""
        return f"the original itself differs between {self.reference} and {backend}, in {name}{size}"

    @functools.cached_property
    def _behind_quantization(self) -> set[str]:
        return outputs_behind_quantization(self.graph)

    @functools.cached_property
    def _rounding_effects(self) -> dict[str, float]:
        return moved_by_roundings(self.graph, self.feeds, self.expected, self.unrounded)
