"""Verification of a graph against its source, call by call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from tenonnx import OutOfTime
from tenonnx.extend import Graph, TenonnxError, limits
from tenonnx.extend.backends import file_of
from tenonnx.extend.checks import (
    CallFailed,
    DefaultSession,
    NoAnswer,
    OutOfMemory,
    OutputDifference,
    ProcessCrashed,
    Tolerance,
    WorkerEnded,
    accumulation,
    compare,
    compared_program,
    default_backends,
    left_out_backends,
    structure_problems,
    worst,
)
from tenonnx.extend.frontends import BY_TABLE, Allowed, Verification


class UnverifiedWarning(UserWarning):
    """A graph was not, or not wholly, compared with its source: running that may have effects, or ended its process."""


def not_verified(source: str, reason: str | WorkerEnded, graph: Graph) -> Verification:
    """The verification of a graph that is not compared, for a reason."""
    found = Verification(source)
    _leave_out(found, reason if isinstance(reason, str) else one_line(reason), graph)
    return found


def warn_unverified(found: Verification) -> None:
    """Warn where the source was not asked, or ended the process that asked it; of the call of the caller's caller."""
    for note in found.notes:
        if note.startswith(f"not verified against {found.reference}"):
            warnings.warn(UnverifiedWarning(note), stacklevel=3)


def _leave_out(found: Verification, reason: str, graph: Graph, where: str = "") -> None:
    """Note why calls from ``where`` on are not compared; outputs that no call compared are unverified."""
    compared = {each.name for each in found.outputs}
    place = f" at {where}" if compared and where else ""
    note = f"not verified against {found.reference}{place}: {reason}"
    found.note(note)
    for value in graph.outputs:
        if value.name not in compared:
            found.unverified.setdefault(value.name, note)


def one_line(error: Exception) -> str:
    """An error of a source in one line; one of a worker process as it was raised there."""
    if isinstance(error, WorkerEnded):
        return "; ".join(filter(None, (error.what, error.given, error.do)))
    kind, text = (error.kind, error.given) if isinstance(error, CallFailed) else (type(error).__name__, str(error))
    first = text.strip().split("\n")[0]
    return f"{kind}: {first}"


@dataclass(frozen=True)
class SourceCall:
    """A call to compare: ``expected`` computes what the source gives, by output; ``feeds`` are those of the graph.

    What ``expected`` raises is a call that the source does not take. ``where`` tells the call from the others, such as
    ``"batch=1"``.
    """

    feeds: Callable[[], Mapping[str, Any]]
    expected: Callable[[], Sequence[Any]]
    where: str = ""


def verify_calls(
    source: str,
    graph: Graph,
    calls: Iterable[SourceCall],
    allowed: Allowed = BY_TABLE,
    coarse: Tolerance | None = None,
    unverified: Mapping[str, str] = MappingProxyType({}),
    steps: int = 0,
    seen: Callable[[Any], Any] = lambda found: found,
) -> Verification:
    """Compare ``graph`` on onnxruntime, or numpy, with a source, after ``onnx.checker`` took it.

    A backend of the library that the source is of would read the graph as the source does.

    ``coarse`` is the tolerance where that of the table is too fine; ``unverified`` are outputs that are not compared,
    each with the reason. Integers may be so many ``steps`` apart. What the graph gives is compared as ``seen``. Calls
    that the source refuses are noted, and those behind one that ends its process, or behind the limit ``seconds``.
    """
    found = Verification(source, notes=left_out_backends(), unverified=dict(unverified))
    found.problems += [f"onnx.checker: {problem}" for problem in structure_problems(graph)]
    if found.problems:
        return found
    backend, terms = default_backends()[-1], accumulation(graph)
    try:
        program = compared_program(graph, backend, found)
    except ProcessCrashed as error:
        found.problems.append(f"{backend}: {error}")
        return found
    except WorkerEnded as error:
        _leave_out(found, one_line(error), graph)
        return found

    def compared(actual: Mapping[str, Any], expected: Sequence[Any], where: str) -> list[OutputDifference]:
        outputs = []
        for value, array in zip(graph.outputs, expected, strict=True):
            if value.name not in unverified:
                near = allowed.around(array, terms, coarse)
                difference = compare(seen(actual[value.name]), array, accumulation=terms, tolerance=near, steps=steps)
                outputs.append(OutputDifference(value.name, program.backend, difference, run=where))
        return outputs

    began, most = time.monotonic(), limits.current().seconds
    for call in calls:
        if found.outputs and time.monotonic() - began > most:
            _leave_out(found, f"the calls before took more than the limit of {most} s", graph, call.where)
            break
        where = ", ".join(part for part in (program.backend, call.where) if part)
        try:
            expected = list(call.expected())
        except OutOfTime:
            raise
        except WorkerEnded as error:
            _leave_out(found, one_line(error), graph, call.where)
            break
        except Exception as error:
            found.note(f"not compared ({where}): {source} does not take that: {one_line(error)}")
            continue
        if len(expected) != len(graph.outputs):
            found.problems.append(f"{len(graph.outputs)} outputs, where the source gives {len(expected)}")
            return found
        try:
            feeds = call.feeds()
            actual = program(feeds)
        except (NoAnswer, OutOfMemory) as error:
            _leave_out(found, one_line(error), graph, call.where)
            break
        except TenonnxError as error:
            found.problems.append(f"{where}: {error}")
            continue
        outputs = compared(actual, expected, call.where)
        if not all(each.equal for each in outputs) and file_of(graph) is not None and program.backend == backend:
            outputs = _in_a_session_of_ours(graph, backend, call, found, outputs, partial(compared, expected=expected))
        found.outputs += outputs
        found.add_run(call.where or "the examples", graph, feeds)
    return found.leave_empty(graph)


def _in_a_session_of_ours(
    graph: Graph,
    backend: str,
    call: SourceCall,
    found: Verification,
    outputs: list[OutputDifference],
    compared: Callable[..., list[OutputDifference]],
) -> list[OutputDifference]:
    """The outputs of a session with other options where these are right, with a note on the default ones."""
    try:
        other = graph.compile(backend, strict=True)(call.feeds())
    except TenonnxError:
        return outputs
    again = compared(other, where=outputs[0].run)
    if not all(each.equal for each in again):
        return outputs
    if not found.default_session:
        found.default_session.append(DefaultSession(backend, False, worst(outputs) or ""))
    return again
