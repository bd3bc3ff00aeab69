"""A model as users run it: on a backend with the options that it has by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.backend.base import backends, load_backend
from tenonnx.checks.judging import Judge
from tenonnx.checks.verification import AsUsed, OutputDifference
from tenonnx.errors import OutOfTime, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph


def as_used(judge: Judge, graph: Graph, backend: str, feeds: Mapping[str, Any], names: Sequence[str]) -> AsUsed | None:
    """Whether a graph gives on a plain session of a backend what it should, else what differs and which option helps.

    None where the backend has no such session (``plain``), or does not take the graph only as it is too large for it.
    """
    module = load_backend(backend) if backend in backends() else None
    plain = getattr(module, "plain", None)
    if plain is None:
        return None
    problem = _problem(judge, backend, plain, graph, feeds, names)
    if problem is None:
        return AsUsed(backend, equal=True)
    helps = ""
    for option, program in getattr(module, "remedies", lambda graph: ())(graph):
        if _problem(judge, backend, lambda _, found=program: found, graph, feeds, names) is None:
            helps = option
            break
    own = _problem(judge, backend, plain, judge.graph, judge.feeds, names) if judge.graph is not graph else None
    return AsUsed(backend, equal=False, reason=problem, helps=helps, original_too=own is not None)


def _problem(
    judge: Judge, backend: str, make: Any, graph: Graph, feeds: Mapping[str, Any], names: Sequence[str]
) -> str | None:
    """What keeps a plain session from giving what it should."""
    try:
        actual = make(graph)(feeds)
    except OutOfTime:
        raise
    except UnsupportedOp as error:
        return f"{error.what}: {error.given}" if error.given else error.what
    except TenonnxError as error:
        return str(error.what)
    found: list[OutputDifference] = [judge.judged(name, backend, actual[name]) for name in names]
    wrong = [each for each in found if not each.equal]
    if not wrong:
        return None
    worst = max(wrong, key=lambda each: each.difference.absolute)
    return f"{worst.name} differs by up to {worst.difference.absolute:.3g} ({worst.difference.relative:.3g} relative)"
