"""What a verification found: of each output whether it is verified, how well, or why not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from tenonnx.checks.compare import Difference
from tenonnx.errors import VerificationFailed
from tenonnx.graph.graph import Graph
from tenonnx.graph.late_bindings import html_of

#: How near two outputs are, the best first. Behind roundings to codes, a number may be a step of these away.
GRADES = ("bit for bit", "within rounding", "within tolerance", "within one quantization step")

#: What becomes of an output: it was compared and is as near as it must be; it was not compared; it is not.
VERIFIED, NOT_VERIFIED, DIFFERENT = "verified", "not verified", "different"


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far one output of the other model on ``backend`` lies from that of the first model.

    ``grade`` is one of ``GRADES`` where it is near enough; ``rule`` says by what it was judged where that is not the
    first model on the same backend by the table of tolerances.
    """

    name: str
    backend: str
    difference: Difference
    grade: str = ""
    rule: str = ""

    @property
    def equal(self) -> bool:
        return self.difference.equal

    def to_json(self) -> dict[str, Any]:
        found = self.difference
        return {
            "name": self.name,
            "backend": self.backend,
            "equal": found.equal,
            "grade": self.grade if found.equal else None,
            "rule": self.rule or None,
            "absolute": found.absolute,
            "relative": found.relative if math.isfinite(found.relative) else None,
            "reason": found.reason,
        }

    def __str__(self) -> str:
        found = self.difference
        if not found.equal:
            return f"{self.name} ({self.backend}): {found.reason}"
        numbers = f"{found.absolute:.3g} absolute, {found.relative:.3g} relative"
        how = "; ".join(part for part in (self.grade, self.rule) if part)
        return f"{self.name} ({self.backend}): {numbers}" + (f"; {how}" if how else "")


@dataclass(frozen=True, slots=True)
class OutputState:
    """What became of one output: ``state`` is verified, with its worst grade, or not verified or different, and why."""

    name: str
    state: str
    grade: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "grade": self.grade or None, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first node, in the order of the other model, that computes a value from which the first model differs."""

    node: str
    value: str
    backend: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"node": self.node, "value": self.value, "backend": self.backend, "reason": self.reason}

    def __str__(self) -> str:
        return f'{self.node} computes "{self.value}" ({self.backend}): {self.reason}'


@dataclass(frozen=True, slots=True)
class AsUsed:
    """Whether the other model gives the same in a plain session of a backend, with the options that are its default.

    Else ``reason`` says what differs, ``helps`` which option mends it, and ``original_too`` whether the first model has
    the same fault.
    """

    backend: str
    equal: bool
    reason: str = ""
    helps: str = ""
    original_too: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "helps": self.helps or None}

    def __str__(self) -> str:
        if self.equal:
            return f"the same in a plain session of {self.backend}"
        too = "; so does the original" if self.original_too else ""
        helps = f"; {self.helps} helps" if self.helps else "; no known session option helps"
        return f"not the same in a plain session of {self.backend}, by its default options: {self.reason}{too}{helps}"


@dataclass(slots=True)
class Verification:
    """What was compared. ``problems`` are what breaks structure or running; ``notes`` limit what was compared.

    ``unverified`` are the outputs that were not compared, each with the reason. ``as_used`` says what the other model
    gives where a backend has the options that are its default.
    """

    reference: str
    outputs: list[OutputDifference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first_divergence: Divergence | None = None
    unverified: dict[str, str] = field(default_factory=dict)
    as_used: list[AsUsed] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.problems and all(output.equal for output in self.outputs)

    @property
    def verified(self) -> bool:
        """Whether nothing differs and every output was compared."""
        return self.equal and bool(self.outputs) and not self.unverified

    @property
    def largest(self) -> OutputDifference | None:
        """The output of the largest absolute difference."""
        return max(self.outputs, key=lambda o: (not o.equal, o.difference.absolute), default=None)

    @property
    def grade(self) -> str:
        """The worst grade of all outputs; empty where something differs or nothing was compared."""
        grades = [output.grade for output in self.outputs]
        return max(grades, key=GRADES.index) if grades and self.equal and all(grades) else ""

    @property
    def states(self) -> list[OutputState]:
        """What became of each output."""
        left = [OutputState(name, NOT_VERIFIED, reason=why) for name, why in self.unverified.items()]
        return [self._state(name) for name in dict.fromkeys(output.name for output in self.outputs)] + left

    def _state(self, name: str) -> OutputState:
        of = [output for output in self.outputs if output.name == name]
        wrong = next((output for output in of if not output.equal), None)
        if wrong is not None:
            return OutputState(name, DIFFERENT, reason=f"{wrong.backend}: {wrong.difference.reason}")
        worst = max(of, key=lambda output: GRADES.index(output.grade) if output.grade else -1)
        return OutputState(name, VERIFIED, worst.grade, worst.rule)

    def leave_empty(self, graph: Graph) -> Verification:
        """Let outputs be not verified of which no number was compared, unless they never have any; returns itself."""
        some = {each.name for each in self.outputs if not (each.equal and each.difference.empty)}
        never = {v for v in (*graph.inputs, *graph.outputs) if 0 in (getattr(v.type, "shape", None) or ())}
        some |= {v.name for v in graph.outputs if v in never or never.intersection(graph.inputs)}
        why = "these inputs give no number to compare; give others (feeds=, --inputs)"
        self.unverified.update({each.name: why for each in self.outputs if each.name not in some})
        self.outputs = [each for each in self.outputs if each.name in some]
        self.as_used = self.as_used if self.outputs else []
        return self

    def raise_if_failed(self) -> Verification:
        """Raise ``VerificationFailed`` unless everything was equal; returns itself."""
        if self.equal:
            return self
        wrong = [str(output) for output in self.outputs if not output.equal]
        raise VerificationFailed(
            f"the model must compute the same outputs as the original on {self.reference}",
            given="\n".join([*self.problems, *wrong]),
            also=f"the first node that diverges: {self.first_divergence}" if self.first_divergence else "",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "verified": self.verified,
            "grade": self.grade or None,
            "reference": self.reference,
            "states": [state.to_json() for state in self.states],
            "outputs": [output.to_json() for output in self.outputs],
            "problems": self.problems,
            "notes": self.notes,
            "as_used": [each.to_json() for each in self.as_used],
            "first_divergence": self.first_divergence.to_json() if self.first_divergence else None,
        }

    @property
    def verdict(self) -> str:
        """Equal, with the worst grade of all outputs, not equal, or not verified where nothing was compared."""
        if self.equal and not self.outputs:
            return "not verified"
        return f"equal, {self.grade}" if self.grade else "equal" if self.equal else "not equal"

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        lines = [f"{self.verdict}; largest differences from {self.reference}:"]
        lines += [f"  {output}" for output in self.outputs]
        lines += [f"  {name}: not verified: {why}" for name, why in self.unverified.items()]
        lines += [f"  {problem}" for problem in self.problems]
        if self.first_divergence:
            lines.append(f"  the first node that diverges: {self.first_divergence}")
        lines += [f"  {each}" for each in self.as_used]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(line.replace("\n", "\\n") for line in lines)  # no name makes a line of its own
