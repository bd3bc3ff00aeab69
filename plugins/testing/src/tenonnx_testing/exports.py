"""Checks of export: outputs are the same at every opset, and a file that was read is written back unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from tenonnx.extend import Graph, NotRepresentable, Value
from tenonnx.extend.formats import to_model
from tenonnx.extend.testing import default_registry, read
from tenonnx.extend.transforms import Builder, retarget
from tenonnx_testing import oracles, schemas
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.models import Trial
from tenonnx_testing.run import Failure, Outputs, blaming, expect, is_random, present, run_graph, trace

#: Older opsets have no broadcasting as it is today.
OLDEST = 7


def versions(case: Case) -> Sequence[int]:
    """The versions of ``ai.onnx`` to export to."""
    return range(OLDEST, oracles.newest_of_onnx() + 1)


def keeps_numbers(case: Case, drawn: Call, expected: Outputs) -> bool:
    """In the ops of ``ai.onnx`` at one opset the call gives the same numbers, here and in onnxruntime.

    An op that has no form there may be refused, and is counted as not compared.
    """
    assert drawn.version is not None
    what = f"{case.op.title} exported to ai.onnx {drawn.version}"
    graph, feeds, is_clean = _written(case, drawn)
    try:
        with blaming(what, passing=NotRepresentable):
            moved = retarget(graph, drawn.version, ["ai.onnx"])
            model = to_model(moved)
    except NotRepresentable as refusal:
        case.refusals.setdefault("export", str(refusal))
        return False
    with blaming(f"onnx.checker on {what}"):
        onnx.checker.check_model(model, full_check=is_clean)
    if is_random(case.op, drawn):
        return True
    with blaming(what):
        actual = run_graph(moved, feeds)
    expect(case, drawn, what, actual, present(expected))
    named = {value.name: contents for value, contents in zip(moved.all_inputs, feeds, strict=True)}
    _agrees_in_onnxruntime(case, drawn, Trial(model, named, expected), what)
    _count(case, case.op.version)
    return True


#: The last call that was written, and what became of it: the next one is often the same at another version.
_latest: tuple[Call, tuple[Graph, list[Any], bool]] | None = None


def _written(case: Case, drawn: Call) -> tuple[Graph, list[Any], bool]:
    """The call as a graph of one node, what to feed it with, and whether ONNX's own inference takes it.

    Of three calls one has constants for all inputs but the first.
    """
    global _latest
    if _latest is None or _latest[0].inputs is not drawn.inputs or _latest[0].attributes is not drawn.attributes:
        with blaming(f"{case.op.title} in a graph"):
            graph, feeds = _traced(case, drawn)
            graph.opsets = {case.op.domain: case.op.version}
        _is_fixpoint(case, graph)
        _latest = drawn, (graph, feeds, _is_clean(case.op.domain, graph))
    return _latest[1]


def _traced(case: Case, drawn: Call) -> tuple[Graph, list[Any]]:
    def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return builder.call(case.op, values, drawn.attributes, drawn.outputs)

    known = range(1, len(drawn.inputs)) if drawn.turn % 3 == 2 else ()
    return trace(case.op, drawn, the_op, symbolic=False, known=known)


# ----- a domain's own versions ---------------------------------------------------------------------------------------


def own_versions(case: Case) -> Sequence[int]:
    """One version for each way that the op's own domain ever had to say or to spell it."""
    held = default_registry().meanings(case.op.domain, case.op.name)
    meanings = held if case.op in held else tuple(case.op.meanings)
    return sorted({version for meaning in meanings for version in schemas.versions(meaning)})


def has_versions(case: Case) -> bool:
    """Whether a domain that ``export`` does not go through has more than one way to say the op."""
    return case.op.domain != "ai.onnx" and len(own_versions(case)) > 1


def keeps_meaning(case: Case, drawn: Call, expected: Outputs) -> bool:
    """At another version of the op's own domain the call gives the same numbers, and back again.

    What has no form there may be refused, and is counted as not compared.
    """
    assert drawn.version is not None
    domain = case.op.domain
    graph, feeds = _traced(case, drawn)
    graph.opsets = {"ai.onnx": oracles.newest_of_onnx(), domain: case.op.version}
    for version in (drawn.version, own_versions(case)[-1]):
        what = f"{case.op.title} at version {version} of {domain}"
        try:
            with blaming(what, passing=NotRepresentable):
                graph = retarget(graph, {**graph.opsets, domain: version})
        except NotRepresentable as refusal:
            case.refusals.setdefault("own versions", str(refusal))
            return False
        with blaming(what):
            actual = run_graph(graph, feeds)
        expect(case, drawn, what, actual, present(expected))
    _count(case, drawn.version)
    return True


# ----- judging --------------------------------------------------------------------------------------------------------


def _count(case: Case, version: int) -> None:
    """Take a version as compared, of an op that nobody else has: it agrees with its other versions and with ONNX."""
    if not schemas.history(case.op.domain, case.op.name):
        case.reached.add(version)


def _is_clean(domain: str, graph: Graph) -> bool:
    """Whether ONNX's own inference takes the op as it is: bodies of some ONNX functions break its rules."""
    if domain not in schemas.domains():
        return True
    try:
        onnx.checker.check_model(to_model(graph), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def _agrees_in_onnxruntime(case: Case, drawn: Call, trial: Trial, what: str) -> None:
    if not oracles.has_onnxruntime() or (drawn.version or 0) > oracles.newest_of_onnxruntime():
        return
    try:
        actual = oracles.run_onnxruntime(trial)
    except oracles.Refused:
        return
    expect(case, drawn, f"onnxruntime on {what}", actual, present(trial.expected))


def _is_fixpoint(case: Case, graph: Graph) -> None:
    """Written, read and written again, the model is the same to the byte."""
    with blaming(f"writing and reading {case.op.title}"):
        once = to_model(graph)
        again = to_model(read(once, registry=graph.registry))
    if once.SerializeToString(deterministic=True) != again.SerializeToString(deterministic=True):
        raise Failure(
            f"{case.op.title}: written, read and written again, the model differs:\n{once.graph}\n{again.graph}"
        )
