"""The result of a verification, output by output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tenonnx.errors import OutOfTime, TenonnxError, VerificationFailed
from tenonnx.graph.graph import Graph
from tenonnx.registry.extensions import html_of
from tenonnx_convert.verifying.regions import RegionCoverage
from tenonnx_run.compare import Difference

#: Grades of agreement, best first. After quantization, a number may additionally differ by one quantization step.
GRADES = ("bit for bit", "within rounding", "within tolerance", "within one quantization step")

#: Status of an output: compared and equal within tolerance, not compared, or different.
VERIFIED, NOT_VERIFIED, DIFFERENT = "verified", "not verified", "different"


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """Difference of one output between the other model on ``backend`` and the first model.

    ``grade`` is one of ``GRADES`` if they match; ``rule`` is the rule that was applied, unless it was comparison with
    the first model on the same backend by the table of tolerances. ``run`` names an additional run, such as
    ``"batch=1"``, and is empty for the first.
    """

    name: str
    backend: str
    difference: Difference
    grade: str = ""
    rule: str = ""
    run: str = ""

    @property
    def location(self) -> str:
        """The backend and the run."""
        return ", ".join(part for part in (self.backend, self.run) if part)

    @property
    def equal(self) -> bool:
        return self.difference.equal

    def to_dict(self) -> dict[str, Any]:
        found = self.difference
        return {
            "name": self.name,
            "backend": self.backend,
            "run": self.run or None,
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
            return f"{self.name} ({self.location}): {found.reason}"
        numbers = f"{found.absolute:.3g} absolute, {found.relative:.3g} relative"
        how = "; ".join(part for part in (self.grade, self.rule) if part)
        return f"{self.name} ({self.location}): {numbers}" + (f"; {how}" if how else "")


@dataclass(frozen=True, slots=True)
class OutputState:
    """Status of one output: verified, with its worst grade; or not verified or different, with the reason."""

    name: str
    state: str
    grade: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "grade": self.grade or None, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of both models: its feeds, and what it covers in addition to earlier runs.

    ``feeds`` are ``"random inputs (seed 0)"``, a change of these such as ``"batch=1"``, or a separate run of a branch,
    ``"by itself"``, which no inputs reached. ``covers`` lists sizes of dims, branches, and loop bodies with trip
    counts. ``grade`` is that of a separate branch, whose values are not outputs of the model.
    """

    feeds: str
    covers: tuple[str, ...] = ()
    grade: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"feeds": self.feeds, "covers": list(self.covers), "grade": self.grade or None}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first node, in the order of the other model, whose output differs from the first model's."""

    node: str
    value: str
    backend: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        return {"node": self.node, "value": self.value, "backend": self.backend, "reason": self.reason}

    def __str__(self) -> str:
        return f'{self.node} computes "{self.value}" ({self.backend}): {self.reason}'


@dataclass(frozen=True, slots=True)
class DefaultSession:
    """Whether the other model has the same outputs in a session of a backend with default options.

    Otherwise ``reason`` says what differs, ``helps`` which option avoids it, and ``original_too`` whether the first
    model is affected, too.
    """

    backend: str
    equal: bool
    reason: str = ""
    helps: str = ""
    original_too: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "helps": self.helps or None}

    def __str__(self) -> str:
        if self.equal:
            return f"the same in a plain session of {self.backend}"
        too = "; so does the original" if self.original_too else ""
        helps = f"; {self.helps} helps" if self.helps else "; no known session option helps"
        return f"not the same in a plain session of {self.backend}, by its default options: {self.reason}{too}{helps}"


def _badness(output: OutputDifference) -> tuple[bool, int, float]:
    grade = GRADES.index(output.grade) if output.grade else len(GRADES)
    return not output.equal, grade, output.difference.absolute


@dataclass(slots=True)
class Verification:
    """Comparison of two models. ``problems`` are errors of structure or execution; ``notes`` are limitations.

    ``outputs`` has each output once for each backend, from the run with the largest difference. ``unverified`` maps
    outputs that were not compared to the reason. ``default_session`` is the result in sessions with default options.
    ``never_ran`` maps branches and loop bodies that no run entered to the reason.
    """

    reference: str
    outputs: list[OutputDifference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first_divergence: Divergence | None = None
    unverified: dict[str, str] = field(default_factory=dict)
    default_session: list[DefaultSession] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    never_ran: dict[str, str] = field(default_factory=dict)
    _regions: RegionCoverage | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def equal(self) -> bool:
        return not self.problems and all(output.equal for output in self.outputs)

    @property
    def verified(self) -> bool:
        """Whether nothing differs, every output was compared, and every branch ran."""
        return self.equal and bool(self.outputs) and not self.unverified and not self.never_ran

    @property
    def largest(self) -> OutputDifference | None:
        """The output of the largest absolute difference."""
        return max(self.outputs, key=lambda o: (not o.equal, o.difference.absolute), default=None)

    @property
    def grade(self) -> str:
        """The worst grade of all outputs; empty if something differs or nothing was compared."""
        grades = [output.grade for output in self.outputs]
        if not grades or not self.equal or not all(grades):
            return ""
        return max([*grades, *(run.grade for run in self.runs if run.grade)], key=GRADES.index)

    @property
    def states(self) -> list[OutputState]:
        """Status of each output."""
        left = [OutputState(name, NOT_VERIFIED, reason=why) for name, why in self.unverified.items()]
        return [self._state(name) for name in dict.fromkeys(output.name for output in self.outputs)] + left

    def _state(self, name: str) -> OutputState:
        of = [output for output in self.outputs if output.name == name]
        wrong = next((output for output in of if not output.equal), None)
        if wrong is not None:
            return OutputState(name, DIFFERENT, reason=f"{wrong.location}: {wrong.difference.reason}")
        worst = max(of, key=lambda output: GRADES.index(output.grade) if output.grade else -1)
        return OutputState(name, VERIFIED, worst.grade, worst.rule)

    def add_outputs(self, outputs: Sequence[OutputDifference], run: str = "") -> None:
        """Merge the outputs of a run; for each output and backend the larger difference is kept."""
        places = {(each.name, each.backend): k for k, each in enumerate(self.outputs)}
        for each in outputs:
            place = places.get((each.name, each.backend))
            if place is None:
                self.outputs.append(replace(each, run=run))
            elif _badness(each) > _badness(self.outputs[place]):
                self.outputs[place] = replace(each, run=run)

    def add_run(self, name: str, graph: Graph, feeds: Mapping[str, Any]) -> None:
        """Add a run of ``graph`` that was compared with its source, with its coverage."""
        if self._regions is None:
            self._regions = RegionCoverage(graph)
        covers: list[str] = []
        try:
            covers = self._regions.observe(feeds)[1]
        except OutOfTime:
            raise
        except TenonnxError as error:
            self.note(f"which branches ran is unknown: {error.what}")
        self.runs.append(Run(name, tuple(covers)))
        self.never_ran = {region.title: "no call reaches it" for region in self._regions.never_entered()}

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def add_session(self, session: DefaultSession) -> None:
        """Merge the result of a default session; the worse one for each backend is kept."""
        known = next((k for k, each in enumerate(self.default_session) if each.backend == session.backend), None)
        if known is None:
            self.default_session.append(session)
        elif self.default_session[known].equal:
            self.default_session[known] = session

    def leave_empty(self, graph: Graph) -> Verification:
        """Mark outputs as not verified if all compared tensors were empty, unless they always are; returns itself."""
        some = {each.name for each in self.outputs if not (each.equal and each.difference.empty)}
        never = {v for v in (*graph.inputs, *graph.outputs) if 0 in (getattr(v.type, "shape", None) or ())}
        some |= {v.name for v in graph.outputs if v in never or never.intersection(graph.inputs)}
        why = "these inputs give no number to compare; give others (feeds=, --inputs)"
        self.unverified.update({each.name: why for each in self.outputs if each.name not in some})
        self.outputs = [each for each in self.outputs if each.name in some]
        self.default_session = self.default_session if self.outputs else []
        return self

    def raise_if_failed(self) -> Verification:
        """Raise ``VerificationFailed`` if anything differs; returns itself."""
        if self.equal:
            return self
        wrong = [str(output) for output in self.outputs if not output.equal]
        error = VerificationFailed(
            f"outputs of the model differ from those of the original on {self.reference}",
            given="\n".join([*self.problems, *wrong]),
            also=f"the first node that diverges: {self.first_divergence}" if self.first_divergence else "",
        )
        error.verification = self
        raise error

    def to_dict(self) -> dict[str, Any]:
        """The comparison as data for JSON."""
        return {
            "equal": self.equal,
            "verified": self.verified,
            "grade": self.grade or None,
            "reference": self.reference,
            "states": [state.to_dict() for state in self.states],
            "outputs": [output.to_dict() for output in self.outputs],
            "problems": self.problems,
            "notes": self.notes,
            "default_session": [each.to_dict() for each in self.default_session],
            "runs": [run.to_dict() for run in self.runs],
            "never_ran": self.never_ran,
            "first_divergence": self.first_divergence.to_dict() if self.first_divergence else None,
        }

    @property
    def verdict(self) -> str:
        """Equal, with the worst grade of all outputs; not equal; or not verified if nothing was compared."""
        if self.equal and not self.outputs:
            return "not verified"
        if not self.equal:
            return "not equal"
        parts = ["equal", self.grade, "but not every branch ran" if self.never_ran else ""]
        return ", ".join(part for part in parts if part)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        worst = "" if self.largest is None else f"; largest difference from {self.reference}: {self.largest}"
        return "; ".join([self.verdict, *self.problems]).replace("\n", "\\n") + worst.replace("\n", "\\n")

    def __repr__(self) -> str:
        return f"Verification({self})"

    def summary(self) -> str:
        """The verdict, every output on every backend, and the limitations, as text."""
        lines = [f"{self.verdict}; largest differences from {self.reference}:"]
        lines += [f"  {output}" for output in self.outputs]
        lines += [f"  {name}: not verified: {why}" for name, why in self.unverified.items()]
        lines += [f"  {title}: never ran: {why}" for title, why in self.never_ran.items()]
        lines += [f"  {problem}" for problem in self.problems]
        if self.first_divergence:
            lines.append(f"  the first node that diverges: {self.first_divergence}")
        shown = {output.run for output in self.outputs}
        if further := [run.feeds for run in self.runs[1:] if run.feeds not in shown]:
            lines.append(f"  also run with {'; '.join(further)}")
        lines += [f"  {each}" for each in self.default_session]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(line.replace("\n", "\\n") for line in lines)  # so that names cannot forge lines
