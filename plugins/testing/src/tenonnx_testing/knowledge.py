"""Checks that constant inputs change no result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Value, find_rule
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.testing import constant_value
from tenonnx.extend.transforms import Builder, infer_call, invoke
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.gradients import differentiable, is_wide, vector_jacobian, widened
from tenonnx_testing.inference import contradiction, values_of
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, is_random, present, run_graph, trace


def constants_are_alike(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that constant inputs give the same outputs (by rule and body), types and gradient as fed ones.

    Calls alternate between constants for all inputs, for all but the first, and for the first only.
    """
    places = [k for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray)]
    known = (places, places[1:], places[:1])[drawn.turn % 3]
    if not known or is_random(case.op, drawn):
        return False
    what = f"where {', '.join(case.op.signature.input_at(k).name for k in known)} are constants"
    _compare_outputs(case, drawn, expected, known, what)
    _check_types(case, drawn, expected, known, what)
    if case.gradient is not False and len(known) < len(places):
        _compare_gradients(case, drawn, known, what)
    return True


def _compare_outputs(case: Case, drawn: Call, expected: Outputs, known: Sequence[int], what: str) -> None:
    op = case.op

    def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return builder.call(op, values, drawn.attributes, drawn.outputs)

    def body(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return invoke(op, op.function, values, drawn.attributes, drawn.outputs)

    with blaming(f"{op.title} in a graph {what}"):
        graph, feeds = trace(op, drawn, the_op, symbolic=False, known=known)
        names = (value.name for value in graph.inputs)
        found = tuple(compile_graph(graph, "numpy")(dict(zip(names, feeds, strict=True))).values())
    expect(case, drawn, f"itself {what}", found, present(expected))
    if not op.primitive:
        with blaming(f"the body of {op.title} {what}"):
            found = run_graph(*trace(op, drawn, body, symbolic=False, known=known))
        expect(case, drawn, f"its body {what}", found, present(expected))


def _check_types(case: Case, drawn: Call, expected: Outputs, known: Sequence[int], what: str) -> None:
    if find_rule(case.op, "type") is None:
        return
    values, _ = values_of(case, drawn)
    for k in known:
        values[k] = constant_value(drawn.inputs[k], DType.of(drawn.inputs[k].dtype), None, f"input{k}")
    with blaming(f"type inference of {case.op.title} {what}"):
        entries = infer_call(case.op, values, drawn.attributes, drawn.outputs)
    for entry, contents in zip(entries, expected, strict=False):
        if problem := contradiction(None if entry is None else entry.type, contents, {}):
            raise Failure(f"{case.op.title} {what} is inferred otherwise than it is: {problem}")


def _compare_gradients(case: Case, drawn: Call, known: Sequence[int], what: str) -> None:
    wide = Call(tuple(widened(v) for v in drawn.inputs), drawn.attributes, drawn.outputs, drawn.version)
    wrt = [k for k in differentiable(case, wide) if k not in known]
    outputs = evaluate(case.op, wide)
    random = np.random.default_rng(0)
    cotangents: list[Any] = [random.uniform(0.5, 1.5, o.shape) if is_wide(o) else None for o in present(outputs)]
    if not wrt or all(c is None for c in cotangents):
        return
    with blaming(f"the gradient of {case.op.title} {what}"):
        fed, found = (
            vector_jacobian(case, wide, cotangents, wrt, symbolic=False, known=places) for places in ((), known)
        )
    expect(case, wide, f"its gradient {what}", found, fed)
