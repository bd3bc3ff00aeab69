"""Verification: the structure of a model, then its numbers on two backends, then the node where they part."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenonnx.backend.base import load_backend
from tenonnx.backend.compiling import compile_graph
from tenonnx.checks.compare import Tolerances, compare_by
from tenonnx.checks.deployed import as_used
from tenonnx.checks.divergence import as_taken_by, first_divergence
from tenonnx.checks.generate import InputShapes
from tenonnx.checks.grades import accumulation, half_precision
from tenonnx.checks.judging import Judge
from tenonnx.checks.sizes import feasible_feeds
from tenonnx.checks.structure import beyond_the_specification, structure_problems
from tenonnx.checks.verification import AsUsed, Verification
from tenonnx.errors import InvalidCall, InvalidFeed, OutOfTime, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.late_bindings import late_if_installed
from tenonnx.graph.program import Program
from tenonnx.loading import is_onnx_file, load
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import Call, Rewriter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx


#: What to do about inputs that a backend, but not the other, fails on.
OTHERS = "give inputs that the model accepts (feeds=, --inputs)"

#: Why an output is not compared that depends on a node which draws.
DRAWN = "drawn at random"


def verify(
    graph: Graph,
    other: Graph | str | os.PathLike[str] | onnx.ModelProto | None = None,
    *,
    feeds: Mapping[str, Any] | None = None,
    backends: Sequence[str] | None = None,
    input_shapes: InputShapes | None = None,
    seed: int = 0,
    absolute: float | None = None,
    relative: float | None = None,
    structure: bool = True,
    unlike: Mapping[str, int] | None = None,
    exact: bool = False,
) -> Verification:
    """Compare ``graph`` with ``other``, each on the same backends, or with itself on the further ones.

    ``other`` is claimed to be the same model: it is run on every backend, and its structure has to pass
    ``onnx.checker`` if that of ``graph`` does. An output must be that of ``graph`` on the same backend or on the first;
    where codes are rounded to on its way, it may be as far away as roundings of their ties carry, which is measured.
    Each has a grade, and the rule that was applied (``Verification.outputs``); what was not compared is in
    ``unverified``. Without ``feeds``, inputs are drawn at random from ``seed`` and ``input_shapes``. The backends are
    numpy and onnxruntime, if that can be used; a note says why it cannot. ``absolute`` and ``relative`` replace all
    tolerances, and ``exact`` asks for the same bits; ``unlike`` are sizes of symbols that random inputs are not to
    have. Raises ``InvalidCall`` and ``PluginError`` for one of ``backends`` that cannot be used, ``UnsupportedOp`` when
    a graph cannot run, ``InvalidFeed`` when it cannot with these inputs, ``OutOfTime`` at the end of ``limits.within``.
    """
    if exact and (absolute is not None or relative is not None):
        raise InvalidCall("bitwise comparison takes no tolerance", given="exact with absolute or relative")
    against = graph if other is None else other if isinstance(other, Graph) else load(other, registry=graph.registry)
    for name in set(backends or ()) - {"numpy", "auto"}:
        load_backend(name)
    chosen = list(backends or default_backends())
    found = Verification(chosen[0], notes=[] if backends else left_out_backends())
    if structure and against is not graph:
        _compare_structure(graph, against if isinstance(other, Graph) else other, against, found)
    found.problems += _interface_problems(graph, against)
    if found.problems:
        return found
    program = compile_graph(graph, chosen[0])
    programs: dict[str, Program] = {}
    if feeds is None:
        programs = _programs(graph, set(chosen) - {chosen[0]})
        given, expected, sizes = _made_up(graph, [program, *programs.values()], seed, input_shapes, unlike)
        if sizes:
            found.notes.append(f"random inputs were drawn with {', '.join(f'{n}={size}' for n, size in sizes.items())}")
    else:
        given, expected = dict(feeds), program(feeds)
    others = dict.fromkeys(chosen if other is not None else chosen[1:])
    if not others:
        found.unverified = dict.fromkeys(expected, f"computed on {chosen[0]} alone")
        return found
    rules = Tolerances(accumulation(graph), absolute, relative, half_precision(graph))
    judge = Judge(graph, chosen[0], given, expected, rules, exact, itself=other is None, programs=programs)
    _compare_numbers(judge, against, list(others), found)
    return found.leave_empty(graph)


def _programs(graph: Graph, backends: Collection[str]) -> dict[str, Program]:
    """The graph on those backends that can run it."""
    found = {}
    for backend in backends:
        with contextlib.suppress(TenonnxError):
            found[backend] = compile_graph(graph, backend, strict=True)
    return found


def _made_up(
    graph: Graph,
    programs: Sequence[Program],
    seed: int,
    input_shapes: InputShapes | None,
    unlike: Mapping[str, int] | None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Inputs that all programs take, or else the first, with what the first gives for them and their unusual sizes."""

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        *_, expected = [program(feeds) for program in reversed(programs)]  # the slow reference for what others take
        return expected

    if len(programs) > 1:
        with contextlib.suppress(InvalidFeed):
            return feasible_feeds(graph, run, seed, input_shapes, unlike)
    return feasible_feeds(graph, programs[0], seed, input_shapes, unlike)


def default_backends() -> tuple[str, ...]:
    """numpy, and onnxruntime where it can be used."""
    return ("numpy",) if _unusable() else ("numpy", "onnxruntime")


def left_out_backends() -> list[str]:
    """A note for each backend that would be compared on if it could be used: why it cannot."""
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
        # of the original no shapes could be inferred, so that what inference objects to may be as it was there
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


def _compare_numbers(judge: Judge, against: Graph, backends: Sequence[str], found: Verification) -> None:
    """Run the other model on each backend that can, and that the original can run on. Raises what keeps all of them."""
    drawn = drawn_outputs(against)
    names = [name for name in judge.expected if name not in drawn]
    found.unverified = {name: DRAWN for name in judge.expected if name in drawn}
    unable: list[TenonnxError] = []
    taken = as_taken_by(against, judge.feeds)
    for backend in backends:
        try:
            program = compile_graph(against, backend, strict=True)
            actual = program(taken)
        except UnsupportedOp as error:
            unable.append(error)
            found.notes.append(f"not compared on {backend}: {error.what}")
            continue
        except OutOfTime:
            raise
        except TenonnxError as error:
            if backend != found.reference and isinstance(judge.original_on(backend), TenonnxError):
                unable.append(error)
                found.notes.append(f"not compared on {backend}: the original fails there, too: {error.what}; {OTHERS}")
            else:
                found.problems.append(f"{backend}: {error}")
            continue
        outputs = [judge.judged(name, backend, actual[name]) for name in names]
        found.outputs += outputs
        if apart := judge.apart(backend, names):
            found.notes.append(apart)
        if not judge.itself and not judge.exact and all(output.equal for output in outputs):
            same = getattr(program, "is_plain", False)
            used = AsUsed(backend, equal=True) if same else as_used(judge, against, backend, taken, names)
            found.as_used += [used] if used is not None else []
        if found.first_divergence is None and not all(output.equal for output in outputs):
            _tell_difference(judge, against, backend, actual, names, found)
    if len(unable) == len(backends):
        raise unable[0]


def _tell_difference(
    judge: Judge, against: Graph, backend: str, actual: Mapping[str, Any], names: Sequence[str], found: Verification
) -> None:
    """Say where outputs that differ part, and whether their numbers do."""
    near = replace(judge.rules, numbers=True)
    own = judge.original_on(backend)
    alike = isinstance(own, dict) and not judge.itself
    reference, expected = (backend, own) if isinstance(own, dict) and alike else (judge.reference, judge.expected)
    found.first_divergence = first_divergence(judge.graph, against, reference, backend, judge.feeds, near)
    if not judge.exact and all(compare_by(near, actual[name], expected[name]).equal for name in names):
        found.notes.append(f"only element types differ on {backend}: the values are close")


def _interface_problems(graph: Graph, other: Graph) -> list[str]:
    problems = []
    for kind, ours, theirs in (
        ("inputs", graph.inputs, other.inputs),
        ("outputs", graph.outputs, other.outputs),
    ):
        names, found = [v.name for v in ours], [v.name for v in theirs]
        if names != found:
            problems.append(f"the {kind} must be {', '.join(names)}; they are {', '.join(found)}")
    return problems


# ----- what is drawn ---------------------------------------------------------------------------------------------


def drawn_outputs(graph: Graph) -> set[str]:
    """The outputs that depend on a node that draws random numbers; one that is not in use, as a Dropout, does not."""
    if not any(map(_draws, graph.nodes)):
        return set()
    graph = (late_if_installed("simplify") or _drawing_expanded)(graph)
    drawn: set[Value] = set()
    for node in graph.nodes:
        if _draws(node) or any(v in drawn for v in node.uses):
            drawn.update(v for v in node.outputs if v is not None)
    return {v.name for v in graph.outputs if v in drawn}


def _drawing_expanded(graph: Graph) -> Graph:
    """The graph with the bodies of ops that may draw: those that are not in use call none that does."""

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        return None if call.op.pure or call.op.primitive else rewriter.expand(call)

    return Rewriter(graph, decide).run()


def _draws(node: Node) -> bool:
    inside = (inner for subgraph in node.subgraphs for inner in subgraph.walk())
    return any(isinstance(n.op, Op) and not n.op.pure for n in (node, *inside))
