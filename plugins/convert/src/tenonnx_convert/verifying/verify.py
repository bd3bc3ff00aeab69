"""Verification: structure of a model, its outputs on two backends, and the node where they diverge."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.errors import InvalidCall, InvalidFeed, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.loading import is_onnx_file, load
from tenonnx_convert.output_formats import WrittenFile
from tenonnx_convert.verifying.compare_outputs import Judge, Limit, limit_of, rules_of_outputs
from tenonnx_convert.verifying.compare_run import Compared, compare_run
from tenonnx_convert.verifying.coverage import Coverage, DrawnInputs
from tenonnx_convert.verifying.default_session import safe_program
from tenonnx_convert.verifying.drawn import DRAWN, drawn_outputs
from tenonnx_convert.verifying.generate import InputShapes, generate_feeds, usual_sizes
from tenonnx_convert.verifying.precision import accumulation, half_precision
from tenonnx_convert.verifying.sizes import feasible_feeds
from tenonnx_convert.verifying.structure import beyond_the_specification, structure_problems
from tenonnx_convert.verifying.verification import Verification
from tenonnx_convert.verifying.work import check_work
from tenonnx_run.base import load_backend
from tenonnx_run.compare import Tolerances
from tenonnx_run.compiling import compile_graph
from tenonnx_run.worker import WorkerEnded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx


def verify(
    graph: Graph,
    other: Graph | str | os.PathLike[str] | onnx.ModelProto | None = None,
    *,
    feeds: Mapping[str, Any] | None = None,
    backends: Sequence[str] | None = None,
    input_shapes: InputShapes | None = None,
    seed: int = 0,
    atol: Limit = None,
    rtol: Limit = None,
    structure: bool = True,
    unlike: Mapping[str, int] | None = None,
    exact: bool = False,
    cover: bool = True,
    file: WrittenFile | None = None,
) -> Verification:
    """Compare ``graph`` with ``other`` on each backend, or ``graph`` itself across backends.

    ``other`` should be equivalent: it is run on every backend, and must pass ``onnx.checker`` if ``graph`` does. Each
    output has to equal that of ``graph`` on the same backend or on the first one. If the graph quantizes values on the
    way, rounding ties may add a measured difference. Each output gets a grade and the rule that was applied
    (``Verification.outputs``); outputs that were not compared are in ``unverified``. Without ``feeds``, inputs are
    drawn at random by ``seed`` and ``input_shapes``. The default backends are numpy and onnxruntime; a note says why
    one cannot be used. ``atol`` and ``rtol`` override all tolerances, or those of outputs by name, with "" for the
    others; ``exact`` requires equal bits; ``unlike`` are excluded sizes of symbols in random inputs.

    Additional runs cover what the first missed: branches, loops of 0, 1 and several trips, and each dynamic dim at 1
    and another size, one at a time. A branch that no inputs reach runs separately on its captures. All runs together
    cost at most ten times the first. ``runs`` lists what each covers, ``never_ran`` and ``notes`` what none covers.
    Given inputs are not varied; ``cover=False`` allows only one run. ``file`` is ``other`` in another format, which is
    then compared instead of ``other`` on the backends.

    Raises ``InvalidCall`` and ``PluginError`` for an unusable backend in ``backends``, ``UnsupportedOp`` if a graph
    cannot run, ``InvalidFeed`` if it cannot run on these inputs, ``OutOfTime`` at the deadline of ``limits.within``,
    ``LimitExceeded`` before a run that exceeds the limit ``work``.
    """
    if exact and (atol is not None or rtol is not None):
        raise InvalidCall("a tolerance was given for a bitwise comparison", given="exact with atol or rtol")
    against = graph if other is None else other if isinstance(other, Graph) else load(other, registry=graph.registry)
    for name in set(backends or ()) - {"numpy", "auto"}:
        load_backend(name)
    chosen = list(backends or default_backends())
    result = Verification(chosen[0], notes=[] if backends or file else left_out_backends())
    if structure and against is not graph:
        _compare_structure(graph, against if isinstance(other, Graph) else other, against, result)
    result.problems += _interface_problems(graph, against)
    if result.problems:
        return result
    check_work(graph, {name: np.shape(each) for name, each in feeds.items()} if feeds else input_shapes)
    started = time.monotonic()
    program = compile_graph(graph, chosen[0])
    programs: dict[str, Program] = {}
    drawn = None
    if feeds is None:
        programs = _programs(graph, set(chosen) - {chosen[0]})
        given, expected, sizes = _random_inputs(graph, [program, *programs.values()], seed, input_shapes, unlike)
        if sizes:
            result.note(f"random inputs were drawn with {', '.join(f'{n}={size}' for n, size in sizes.items())}")
        drawn = DrawnInputs(
            {**usual_sizes(graph, input_shapes), **sizes},
            functools.partial(generate_feeds, graph, seed, input_shapes),
            sizes,
            unlike or {},
        )
    else:
        given, expected = dict(feeds), program(feeds)
    others = dict.fromkeys([file.name] if file is not None else chosen if other is not None else chosen[1:])
    if not others:
        result.unverified = dict.fromkeys(expected, f"computed on {chosen[0]} alone")
        return result
    rules = Tolerances(accumulation(graph), limit_of("", atol), limit_of("", rtol), half_precision(graph))
    judge = Judge(
        graph,
        chosen[0],
        given,
        expected,
        rules,
        exact,
        itself=other is None,
        by_output=rules_of_outputs(graph, rules, atol, rtol),
        programs=programs,
        make=safe_program,
        unrounded=None if file is None else file.unrounded,
    )
    random = drawn_outputs(against)
    result.unverified = {name: DRAWN for name in expected if name in random}
    names = [name for name in expected if name not in random]
    compared = Compared(against, list(others), names, file=file)
    compare_run(judge, compared, result)
    if cover and result.equal:
        described = "the inputs given" if drawn is None else f"random inputs (seed {seed})"
        Coverage(judge, compared, program, result, drawn, described, started).run()
    return result.leave_empty(graph)


def _programs(graph: Graph, backends: Collection[str]) -> dict[str, Program]:
    """Programs of the graph on the backends that support it."""
    result = {}
    for backend in backends:
        with contextlib.suppress(TenonnxError):
            result[backend] = safe_program(graph, backend)
    return result


def _random_inputs(
    graph: Graph,
    programs: Sequence[Program],
    seed: int,
    input_shapes: InputShapes | None,
    unlike: Mapping[str, int] | None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Inputs that all programs accept, or else the first one, with the first one's outputs and non-default sizes."""

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        # the slow reference runs last, on inputs that the others accept
        *_, expected = [program(feeds) for program in reversed(programs)]
        return expected

    if len(programs) > 1:
        with contextlib.suppress(InvalidFeed, WorkerEnded):
            return feasible_feeds(graph, run, seed, input_shapes, unlike)
    return feasible_feeds(graph, programs[0], seed, input_shapes, unlike)


def default_backends() -> tuple[str, ...]:
    """numpy, and onnxruntime if it can be used."""
    return ("numpy",) if _unusable() else ("numpy", "onnxruntime")


def left_out_backends() -> list[str]:
    """A note for each default backend that cannot be used, with the reason."""
    error = _unusable()
    if error is None:
        return []
    why = f"{error.what}: {error.given}" if error.given else error.what
    return [f"not compared on onnxruntime: {why}" + (f"; {error.do}" if error.do else "")]


def _unusable() -> TenonnxError | None:
    try:
        load_backend("onnxruntime")
    except TenonnxError as error:
        return error
    return None


def _compare_structure(graph: Graph, source: Any, against: Graph, found: Verification) -> None:
    from_disk = isinstance(source, str | os.PathLike) and is_onnx_file(source)
    problems = structure_problems(source if from_disk else against, graph=against)
    beyond = sorted({f"{n.domain}::{n.op_type}@{n.version}" for n in beyond_the_specification(against)})
    if beyond:
        found.notes.append(f"supported by some runtimes, but not in the specification: {', '.join(beyond)}")
    if problems and beyond_the_specification(graph) and not beyond:
        # without shape inference, as the original had errors in it, too
        left = structure_problems(source if from_disk else against, graph=against, inferred=False)
        found.notes += [f"onnx.checker infers other types than are declared: {p}" for p in problems if p not in left]
        problems = left
    if not problems:
        return
    own = structure_problems(graph)
    if own:
        found.notes.append(f"onnx.checker rejects the original too: {own[0]}")
    else:
        found.problems += [f"onnx.checker: {problem}" for problem in problems]


def _interface_problems(graph: Graph, other: Graph) -> list[str]:
    problems = []
    for kind, ours, theirs in (
        ("inputs", graph.inputs, other.inputs),
        ("outputs", graph.outputs, other.outputs),
    ):
        names, found = [v.name for v in ours], [v.name for v in theirs]
        if names != found:
            problems.append(f"{kind} are not {', '.join(names)}, but {', '.join(found)}")
    return problems
