"""Checks of broadcasting: operands with an axis of length 1, and operands of lower rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenonnx.extend.testing import type_of
from tenonnx_testing import oracles, schemas
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.inference import inferred_beside_ones
from tenonnx_testing.models import single_node
from tenonnx_testing.mutations import called, has_subgraph, with_input
from tenonnx_testing.repro import note_line
from tenonnx_testing.run import Failure, Outputs, is_index, is_random


def broadcast_agrees(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that inferred types match the results, also onnxruntime's, where an operand is broadcast.

    A changed call is compared if the op accepts it and its results keep their shapes.
    """
    if any(isinstance(contents, np.ndarray) and not contents.size for contents in drawn.inputs):
        return False
    if any(isinstance(each, list) for each in (*drawn.inputs, *expected)):
        return False  # sequences do not broadcast
    inferred_beside_ones(case, drawn, expected)
    compared = False
    for changed in _narrowed(case, drawn):
        try:
            outputs = called(case.op, changed)
        except Exception:  # noqa: S112 - a rejected call is fine here; the check "bad input" tests the error
            continue
        if [np.shape(o) for o in outputs] != [np.shape(e) for e in expected]:
            continue
        compared = True
        try:
            inferred_beside_ones(case, changed, outputs)
            if not is_random(case.op, drawn):
                _agrees_with_onnxruntime(case, changed, outputs)
        except Failure as failure:
            failure.add_note(f"with an operand that is broadcast: {note_line(case.op, changed)}")
            failure.call = changed
            raise
    return compared


def applies(case: Case) -> bool:
    """Whether an input of the op can have an axis that broadcasts."""
    return bool(case.op.signature.inputs)


def _narrowed(case: Case, drawn: Call) -> Iterator[Call]:
    """Yield the call with one axis of one operand cut to length 1, or with leading axes of an operand removed."""
    for place, contents in enumerate(() if has_subgraph(drawn) else drawn.inputs):
        if not isinstance(contents, np.ndarray) or is_index(case.op, place) or not contents.size:
            continue
        for axis, size in enumerate(contents.shape):
            if size > 1:
                yield with_input(drawn, place, contents.take([0], axis))
        for fewer in range(1, contents.ndim + 1):
            yield with_input(drawn, place, np.asarray(contents[(0,) * fewer]))


def _agrees_with_onnxruntime(case: Case, drawn: Call, outputs: Outputs) -> None:
    """Raise ``Failure`` if onnxruntime returns other types; other checks compare the numbers."""
    newest = oracles.newest_of_onnxruntime() if oracles.has_onnxruntime() else 0
    version = schemas.versions(case.op)[-1]
    version = min(version, newest) if case.op.domain == "ai.onnx" else version
    trial = single_node(case.op, drawn, version, outputs, newest) if newest else None
    if trial is None:
        return
    try:
        actual = oracles.run_onnxruntime(trial)
    except oracles.Refused:
        return
    for position, (ours, theirs) in enumerate(zip(trial.expected, actual, strict=False)):
        if type_of(ours) != type_of(theirs):
            given = f"output {position} is {type_of(ours)}, and {type_of(theirs)} by onnxruntime"
            raise Failure(f"{case.op.title} with an operand that is broadcast: {given}")
