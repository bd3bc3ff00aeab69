"""Comparison of two models on the inputs of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenonnx.errors import OutOfTime, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx_convert.output_formats import Run, WrittenFile
from tenonnx_convert.verifying.compare_outputs import Judge
from tenonnx_convert.verifying.default_session import (
    default_program,
    has_default_session,
    not_loaded,
    safe_program,
    spoiled,
    worst,
)
from tenonnx_convert.verifying.divergence import as_taken_by, first_divergence
from tenonnx_convert.verifying.verification import GRADES, DefaultSession, OutputDifference, Verification
from tenonnx_run.compare import compare_by
from tenonnx_run.compiling import compile_graph
from tenonnx_run.worker import NoAnswer, OutOfMemory

#: Advice for inputs that fail on one backend only.
OTHERS = "give inputs that the model accepts (feeds=, --inputs)"


@dataclass(slots=True)
class Compared:
    """The other model, the ``names`` of outputs to compare, and its programs by backend, compiled once for all runs.

    ``file`` is its file in another format; then ``backends`` has only the name of that.
    """

    graph: Graph
    backends: Sequence[str]
    names: Sequence[str]
    programs: dict[str, Program] = field(default_factory=dict)
    file: WrittenFile | None = None

    def program(self, backend: str, *, by_default: bool) -> Run:
        """The model on a backend: its file in a default session, or compiled with our options."""
        if self.file is not None:
            return self.file.run
        if backend not in self.programs:
            make = default_program if by_default else safe_program
            self.programs[backend] = make(self.graph, backend)
        return self.programs[backend]


def compare_run(
    judge: Judge,
    other: Compared,
    found: Verification,
    run: str = "",
    feeds: Mapping[str, Any] | None = None,
) -> bool:
    """Run the other model on each backend that supports both models; ``run`` is the name of the run.

    ``feeds`` are those of the other model if its inputs differ. Returns False if its file rejects them because of a
    known limit. Raises ``UnsupportedOp`` if no backend can run both.
    """
    against = other.graph
    unable: list[TenonnxError] = []
    taken = as_taken_by(against, judge.feeds if feeds is None else feeds)
    for backend in other.backends:
        by_default = not judge.itself and has_default_session(backend)
        where = ", ".join(filter(None, (backend, run)))
        try:
            actual = other.program(backend, by_default=by_default)(taken)
        except UnsupportedOp as error:
            unable.append(error)
            found.note(f"not compared on {backend}: {error.what}")
            if by_default:
                found.add_session(not_loaded(judge, against, backend, other.names, error))
            continue
        except (NoAnswer, OutOfMemory) as error:
            unable.append(error)
            found.note(f"not compared on {where}: {error.what}; {error.do}")
            continue
        except OutOfTime:
            raise
        except TenonnxError as error:
            if other.file is not None and (limit := other.file.limit(run)):
                found.note(f"the file does not take {run}: it needs {limit}")
                return False
            if (
                other.file is None
                and backend != found.reference
                and isinstance(judge.original_on(backend), TenonnxError)
            ):
                unable.append(error)
                do = f"; {OTHERS}" if not run else ""
                found.note(f"not compared on {where}: the original fails there, too: {error.what}{do}")
            else:
                found.problems.append(f"{where}: {error}")
            continue
        outputs = [judge.judged(name, backend, actual[name]) for name in other.names]
        if by_default and not judge.exact:
            outputs, actual = _default_session(judge, against, backend, taken, outputs, actual, found)
        found.add_outputs(outputs, run)
        if apart := judge.describe_differences(backend, other.names):
            found.note(apart)
        if other.file is None and found.first_divergence is None and not all(output.equal for output in outputs):
            _note_divergence(judge, against, backend, actual, other.names, found)
    if len(unable) == len(other.backends):
        raise unable[0]
    return True


def _default_session(
    judge: Judge,
    against: Graph,
    backend: str,
    feeds: Mapping[str, Any],
    outputs: list[OutputDifference],
    actual: dict[str, Any],
    found: Verification,
) -> tuple[list[OutputDifference], dict[str, Any]]:
    """Outputs of a default session; if they are wrong, those of a session with corrective options."""
    problem, names = worst(outputs), [each.name for each in outputs]
    coarse = any(each.grade == GRADES[-1] for each in outputs)
    if problem is None and not coarse:
        found.add_session(DefaultSession(backend, equal=True))
        return outputs, actual
    again, other = outputs, actual
    try:
        other = compile_graph(against, backend, strict=True)(feeds)
        again = [judge.judged(name, backend, other[name]) for name in names]
    except OutOfTime:
        raise
    except TenonnxError:
        pass
    if problem is None and any(each.grade == GRADES[-1] for each in again):
        found.add_session(DefaultSession(backend, equal=True))
        return outputs, actual
    if worst(again) is not None:
        return outputs, actual
    found.add_session(spoiled(judge, against, backend, feeds, names, problem or _largest_by_rounding(outputs)))
    return again, other


def _largest_by_rounding(outputs: Sequence[OutputDifference]) -> str:
    """The largest difference that is explained by quantization rounding, as text."""
    largest = max(outputs, key=lambda each: each.difference.absolute)
    return f"{largest.name} differs by up to {largest.difference.absolute:.3g}"


def _note_divergence(
    judge: Judge, against: Graph, backend: str, actual: Mapping[str, Any], names: Sequence[str], found: Verification
) -> None:
    """Add a note on where different outputs diverge, and whether their numbers differ."""
    near = replace(judge.rules, numbers=True)
    own = judge.original_on(backend)
    alike = isinstance(own, dict) and not judge.itself
    reference, expected = (backend, own) if isinstance(own, dict) and alike else (judge.reference, judge.expected)
    found.first_divergence = first_divergence(judge.graph, against, reference, backend, judge.feeds, near)
    if not judge.exact and all(compare_by(near, actual[name], expected[name]).equal for name in names):
        found.note(f"only element types differ on {backend}: the values are close")
