"""Checks of export: equal outputs at every opset, and lossless writing and reading."""

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

#: Oldest opset to export to; numpy-style broadcasting began there.
OLDEST = 7


def versions(case: Case) -> Sequence[int]:
    """Versions of ``ai.onnx`` to export to."""
    return range(OLDEST, oracles.newest_of_onnx() + 1)


def equals_exported(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the call exported to ``ai.onnx`` ops at one opset gives the same outputs, here and in onnxruntime.

    Returns False if the op cannot be expressed at that opset.
    """
    assert drawn.version is not None
    what = f"{case.op.title} exported to ai.onnx {drawn.version}"
    graph, feeds, is_clean = _traced_and_checked(case, drawn)
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
    _record_version(case, case.op.version)
    return True


#: Cache of the last traced call: the next one is often the same at another version.
_latest: tuple[Call, tuple[Graph, list[Any], bool]] | None = None


def _traced_and_checked(case: Case, drawn: Call) -> tuple[Graph, list[Any], bool]:
    """Return the call as a single-node graph, its feeds, and whether ONNX's own shape inference accepts it.

    Every third call has constants for all inputs but the first.
    """
    global _latest
    if _latest is None or _latest[0].inputs is not drawn.inputs or _latest[0].attributes is not drawn.attributes:
        with blaming(f"{case.op.title} in a graph"):
            graph, feeds = _traced(case, drawn)
            graph.opsets = {case.op.domain: case.op.version}
        _check_round_trip(case, graph)
        _latest = drawn, (graph, feeds, _is_clean(case.op.domain, graph))
    return _latest[1]


def _traced(case: Case, drawn: Call) -> tuple[Graph, list[Any]]:
    def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return builder.call(case.op, values, drawn.attributes, drawn.outputs)

    known = range(1, len(drawn.inputs)) if drawn.turn % 3 == 2 else ()
    return trace(case.op, drawn, the_op, symbolic=False, known=known)


# ----- a domain's own versions ---------------------------------------------------------------------------------------


def own_versions(case: Case) -> Sequence[int]:
    """Versions of the op's own domain at which its meaning or signature changes."""
    registered = default_registry().meanings(case.op.domain, case.op.name)
    meanings = registered if case.op in registered else tuple(case.op.meanings)
    return sorted({version for meaning in meanings for version in schemas.versions(meaning)})


def has_versions(case: Case) -> bool:
    """Whether an op of another domain than ai.onnx has several versions."""
    return case.op.domain != "ai.onnx" and len(own_versions(case)) > 1


def keeps_meaning(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the call gives the same outputs at another version of the op's own domain, and converted back.

    Returns False if the call cannot be expressed at that version.
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
    _record_version(case, drawn.version)
    return True


# ----- comparisons ----------------------------------------------------------------------------------------------------


def _record_version(case: Case, version: int) -> None:
    """Record a version as compared, for an op without a schema of ONNX or onnxruntime."""
    if not schemas.history(case.op.domain, case.op.name):
        case.reached.add(version)


def _is_clean(domain: str, graph: Graph) -> bool:
    """Whether the full ``onnx.checker`` accepts the op; it rejects the bodies of some ONNX functions."""
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


def _check_round_trip(case: Case, graph: Graph) -> None:
    """Check that the model is the same to the byte after it was written, read and written again."""
    with blaming(f"writing and reading {case.op.title}"):
        once = to_model(graph)
        again = to_model(read(once, registry=graph.registry))
    if once.SerializeToString(deterministic=True) != again.SerializeToString(deterministic=True):
        raise Failure(
            f"{case.op.title}: written, read and written again, the model differs:\n{once.graph}\n{again.graph}"
        )
