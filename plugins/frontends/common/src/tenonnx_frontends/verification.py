"""Verification of a graph against what it was read from, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from tenonnx.extend import Graph, TenonnxError
from tenonnx.extend.backends import file_of
from tenonnx.extend.checks import (
    DefaultSession,
    OutputDifference,
    ProcessCrashed,
    Tolerance,
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
    """A graph was not compared with its source, as running that could have effects."""


def not_verified(source: str, reason: str, graph: Graph) -> Verification:
    """The verification of a graph that is not compared, for a reason."""
    note = f"not verified against {source}: {reason}"
    return Verification(source, notes=[note], unverified={value.name: note for value in graph.outputs})


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
    that the source refuses are noted.
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

    def compared(actual: Mapping[str, Any], expected: Sequence[Any], where: str) -> list[OutputDifference]:
        outputs = []
        for value, array in zip(graph.outputs, expected, strict=True):
            if value.name not in unverified:
                near = allowed.around(array, terms, coarse)
                difference = compare(seen(actual[value.name]), array, accumulation=terms, tolerance=near, steps=steps)
                outputs.append(OutputDifference(value.name, program.backend, difference, run=where))
        return outputs

    for call in calls:
        where = ", ".join(part for part in (program.backend, call.where) if part)
        try:
            expected = list(call.expected())
        except Exception as error:
            said = str(error).split("\n")[0]
            note = f"not compared ({where}): {source} does not take that: {type(error).__name__}: {said}"
            found.notes += [note] if note not in found.notes else []
            continue
        if len(expected) != len(graph.outputs):
            found.problems.append(f"{len(graph.outputs)} outputs, where the source gives {len(expected)}")
            return found
        try:
            feeds = call.feeds()
            actual = program(feeds)
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
