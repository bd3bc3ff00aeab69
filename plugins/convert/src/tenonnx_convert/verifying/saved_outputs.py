"""Comparison of a model with saved outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall, OutOfTime, TenonnxError, UnsupportedOp, listing
from tenonnx.graph.graph import Graph
from tenonnx_convert.verifying.compare_outputs import Judge, Limit, limit_of, rules_of_outputs
from tenonnx_convert.verifying.default_session import safe_program
from tenonnx_convert.verifying.precision import accumulation, half_precision
from tenonnx_convert.verifying.verification import Verification
from tenonnx_convert.verifying.verify import default_backends, left_out_backends
from tenonnx_run.compare import Tolerances


def verify_outputs(
    graph: Graph,
    feeds: Mapping[str, Any],
    saved: Mapping[str, Any],
    source: str,
    *,
    backends: Sequence[str] | None = None,
    atol: Limit = None,
    rtol: Limit = None,
    exact: bool = False,
) -> Verification:
    """Compare the outputs of ``graph`` for ``feeds`` with those ``saved`` in a file called ``source``.

    Outputs without saved ones are ``unverified``. Raises ``InvalidCall`` if none was saved, and ``UnsupportedOp`` if no
    backend runs the graph.
    """
    names = [value.name for value in graph.outputs]
    known = [name for name in names if name in saved]
    if not known:
        raise InvalidCall(f'"{source}" holds no output of the model', given=listing(saved), available=listing(names))
    rules = Tolerances(accumulation(graph), limit_of("", atol), limit_of("", rtol), half_precision(graph))
    limits = rules_of_outputs(graph, rules, atol, rtol)
    judge = Judge(graph, source, feeds, saved, rules, exact, itself=True, by_output=limits)
    found = Verification(source, notes=[] if backends else left_out_backends())
    found.unverified = {name: f"{source} does not hold it" for name in names if name not in saved}
    unable: list[UnsupportedOp] = []
    for backend in backends or default_backends():
        try:
            actual = safe_program(graph, backend)(feeds)
        except UnsupportedOp as error:
            unable.append(error)
            found.note(f"not compared on {backend}: {error.what}")
        except OutOfTime:
            raise
        except TenonnxError as error:
            found.problems.append(f"{backend}: {error}")
        else:
            found.add_outputs([judge.judged(name, backend, actual[name]) for name in known])
    if unable and not found.outputs and not found.problems:
        raise unable[0]
    return found.leave_empty(graph)
