"""Comparing a graph with its source in several calls."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

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

#: Half turns within this distance of pi may have either sign.
_NEAR_PI = 1e-5


class UnverifiedWarning(UserWarning):
    """A graph was not completely verified: running its source may have side effects, or crashed a process."""


def not_verified(source: str, reason: str | WorkerEnded, graph: Graph) -> Verification:
    """The verification of a graph that is not compared, with the reason."""
    result = Verification(source)
    _leave_out(result, reason if isinstance(reason, str) else one_line(reason), graph)
    return result


def warn_unverified(found: Verification) -> None:
    """Warn about a verification that was skipped or crashed, at the position of the caller's caller."""
    for note in found.notes:
        if note.startswith(f"not verified against {found.reference}"):
            warnings.warn(UnverifiedWarning(note), stacklevel=3)


def _leave_out(found: Verification, reason: str, graph: Graph, where: str = "") -> None:
    """Note why calls from ``where`` on are skipped; outputs without any comparison are unverified."""
    compared = {each.name for each in found.outputs}
    place = f" at {where}" if compared and where else ""
    note = f"not verified against {found.reference}{place}: {reason}"
    found.note(note)
    for value in graph.outputs:
        if value.name not in compared:
            found.unverified.setdefault(value.name, note)


def one_line(error: Exception) -> str:
    """An error of a source as one line; errors in a worker process as raised there."""
    if isinstance(error, WorkerEnded):
        return "; ".join(filter(None, (error.what, error.given, error.do)))
    kind, text = (error.kind, error.given) if isinstance(error, CallFailed) else (type(error).__name__, str(error))
    first = text.strip().split("\n")[0]
    return f"{kind}: {first}"


@dataclass(frozen=True)
class SourceCall:
    """A call to compare: ``expected`` computes the outputs of the source, ``feeds`` returns those of the graph.

    An error of ``expected`` means that the source rejects the call. ``description`` describes the call, such as
    ``"batch=1"``.
    """

    feeds: Callable[[], Mapping[str, Any]]
    expected: Callable[[], Sequence[Any]]
    description: str = ""


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
    """Compare ``graph`` on onnxruntime or numpy with a source, after checking it by ``onnx.checker``.

    Backends based on the source's own framework are avoided, since they could share its interpretation.

    ``coarse`` is a tolerance that replaces a finer default; ``unverified`` maps outputs to the reasons for not
    comparing them. Integers may differ by ``steps``. ``seen`` converts outputs of the graph before the comparison.
    Calls that the source rejects are noted, and so are calls skipped after a crash or the limit ``seconds``.
    """
    found = Verification(source, notes=left_out_backends(), unverified=dict(unverified))
    found.problems += [f"onnx.checker: {problem}" for problem in structure_problems(graph)]
    if found.problems:
        return found
    backend, terms = default_backends()[-1], accumulation(graph)
    has_angles = any(node.op_type in ("Atan", "Atan2") for node in graph.walk())
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
                near, given, rule = allowed.around(array, terms, coarse), seen(actual[value.name]), ""
                difference = compare(given, array, accumulation=terms, tolerance=near, steps=steps)
                if not difference.equal and has_angles:
                    array, rule = same_half_turns(given, array)
                    difference = compare(given, array, accumulation=terms, tolerance=near, steps=steps)
                outputs.append(OutputDifference(value.name, program.backend, difference, rule=rule, run=where))
        return outputs

    began, most = time.monotonic(), limits.current().seconds
    for call in calls:
        if found.outputs and time.monotonic() - began > most:
            _leave_out(found, f"the calls before took more than the limit of {most} s", graph, call.description)
            break
        where = ", ".join(part for part in (program.backend, call.description) if part)
        try:
            expected = list(call.expected())
        except OutOfTime:
            raise
        except WorkerEnded as error:
            _leave_out(found, one_line(error), graph, call.description)
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
            _leave_out(found, one_line(error), graph, call.description)
            break
        except TenonnxError as error:
            found.problems.append(f"{where}: {error}")
            continue
        outputs = compared(actual, expected, call.description)
        if not all(each.equal for each in outputs) and file_of(graph) is not None and program.backend == backend:
            outputs = _in_a_session_of_ours(graph, backend, call, found, outputs, partial(compared, expected=expected))
        found.outputs += outputs
        found.add_run(call.description or "the examples", graph, feeds)
    return found.leave_empty(graph)


def same_half_turns(actual: Any, expected: Any) -> tuple[Any, str]:
    """``expected`` with the sign of ``actual`` where one is pi and the other -pi, and the rule if there are any.

    These are the same direction: the sign is that of an imaginary part of 0, or of its rounding error.
    """
    if getattr(expected, "dtype", None) not in (np.float32, np.float64) or np.shape(actual) != expected.shape:
        return expected, ""
    turned = (np.abs(np.abs(expected) - np.pi) < _NEAR_PI) & (np.abs(actual + expected) < _NEAR_PI)
    if not turned.any():
        return expected, ""
    places = f"{int(turned.sum())} of {expected.size} elements"
    return np.where(turned, -expected, expected), f"pi is the same angle as -pi, at {places}"


def _in_a_session_of_ours(
    graph: Graph,
    backend: str,
    call: SourceCall,
    found: Verification,
    outputs: list[OutputDifference],
    compared: Callable[..., list[OutputDifference]],
) -> list[OutputDifference]:
    """Retry with other session options; if the outputs are right, return these, with a note on the default options."""
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
