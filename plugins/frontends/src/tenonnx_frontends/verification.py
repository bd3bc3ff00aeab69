"""Verification of a graph against what it was read from, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tenonnx.extend import Graph, TenonnxError
from tenonnx.extend.checks import (
    OutputDifference,
    Tolerance,
    accumulation,
    compare,
    default_backends,
    left_out_backends,
    structure_problems,
)
from tenonnx.extend.frontends import BY_TABLE, Allowed, Verification


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
    program, terms = graph.compile(default_backends()[-1]), accumulation(graph)
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
            actual = program(call.feeds())
        except TenonnxError as error:
            found.problems.append(f"{where}: {error}")
            continue
        for value, array in zip(graph.outputs, expected, strict=True):
            if value.name not in unverified:
                near = allowed.around(array, terms, coarse)
                difference = compare(seen(actual[value.name]), array, accumulation=terms, tolerance=near, steps=steps)
                found.outputs.append(OutputDifference(value.name, where, difference))
    return found.leave_empty(graph)
