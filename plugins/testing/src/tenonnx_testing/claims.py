"""Checks of traits and rules: data movement, elementwise, symbolic dims, rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, TenonnxError, TypeMismatch, Value, find_rule, moves_data
from tenonnx.extend.transforms import Builder, invoke
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.run import (
    Failure,
    Outputs,
    blaming,
    evaluate,
    expect,
    is_index,
    is_random,
    present,
    run_graph,
    trace,
)

#: Errors by which a symbolic rule declines to compute.
_UNKNOWN = (ArithmeticError, AttributeError, TypeError, TypeMismatch)


def moves_alone(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check ``data_movement``: the op moves, selects or compares float64 elements as it does narrower ones."""
    if not moves_data(case.op, drawn.attributes):
        return False
    wide = replace(drawn, inputs=tuple(_widened(v) for v in drawn.inputs))
    if all(a is b for a, b in zip(wide.inputs, drawn.inputs, strict=True)):
        return _check_integers(case, drawn)
    try:
        found = present(evaluate(case.op, wide))
    except TenonnxError:  # the op does not accept float64
        return False
    for position, (output, narrow) in enumerate(zip(found, present(expected), strict=True)):
        if isinstance(output, np.ndarray) and output.dtype != object:
            wanted = _widened(narrow) if output.dtype == np.float64 else narrow
            if not np.array_equal(output, wanted, equal_nan=output.dtype == np.float64):
                raise Failure(
                    f"{case.op.title} has the trait data_movement, and computes: output {position} is another where "
                    "the same numbers are float64"
                )
    return True


def _check_integers(case: Case, drawn: Call) -> bool:
    """Check that output integers come from the inputs, positions or attributes; return whether any were checked."""
    plain = [k for k, v in enumerate(drawn.inputs) if _is_of_integers(v) and not is_index(case.op, k)]
    call = replace(drawn, inputs=tuple(_spread(v) if k in plain else v for k, v in enumerate(drawn.inputs)))
    try:
        found = present(evaluate(case.op, call)) if plain else []
    except TenonnxError:  # the requirements restrict the numbers
        return False
    given = [call.inputs[k] for k in plain]
    known = {n for v in call.inputs if _is_of_integers(v) for n in v.reshape(-1).tolist()}
    known |= {n for n in drawn.attributes.values() if isinstance(n, int)}
    known |= set(range(max((v.size for v in given), default=0)))
    for position, output in enumerate(found):
        moved = _is_of_integers(output) and any(output.dtype == v.dtype for v in given)
        if moved and not set(output.reshape(-1).tolist()) <= known | {0}:
            raise Failure(
                f"{case.op.title} has the trait data_movement, and computes: output {position} has integers that no "
                "input has"
            )
    return bool(given)


def _is_of_integers(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.dtype.kind in "iu" and contents.size > 0


def _spread(contents: Any) -> Any:
    """Spread small integers, so that computed results are unlikely to equal an input."""
    with np.errstate(over="ignore"):
        return np.asarray(contents * contents.dtype.type(9) + contents.dtype.type(40))


def _widened(contents: Any) -> Any:
    if not isinstance(contents, np.ndarray) or contents.dtype == object:
        return contents
    dtype = DType.of(contents.dtype)
    return contents.astype(np.float64) if dtype.is_float and 8 < dtype.bits < 64 else contents


def elementwise_alone(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check ``elementwise``: the result for one position, or for permuted positions, selects from the full result."""
    arrays = [v for v in (*drawn.inputs, *expected) if v is not None]
    if is_random(case.op, drawn) or not all(isinstance(v, np.ndarray) for v in arrays) or expected[0].size < 2:
        return False
    shape = expected[0].shape
    if any(len(v.shape) > len(shape) or not _broadcasts(v.shape, shape) for v in drawn.inputs if v is not None):
        raise Failure(f"{case.op.title} is said to be elementwise, and an input does not broadcast to its output")
    random = np.random.default_rng(drawn.turn)
    alone = [[int(random.integers(n))] for n in shape]
    turned = [random.permutation(n).tolist() for n in shape]
    for what, places in (("the elements of one place", alone), ("its elements in another order", turned)):
        call = replace(drawn, inputs=tuple(v if v is None else _select(v, places) for v in drawn.inputs))
        try:
            found = present(evaluate(case.op, call))
        except TenonnxError:  # the requirements forbid such shapes
            continue
        wanted = [_select(v, places) for v in present(expected)]
        expect(case, drawn, f"itself on {what}, though it is said to be elementwise", found, wanted)
    return True


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _select(array: np.ndarray[Any, Any], places: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """Select positions along each axis; axes of length 1 broadcast and stay."""
    for axis in range(-array.ndim, 0):
        if array.shape[axis] > 1:
            array = array.take(places[axis], axis)
    return array


def symbolic_alike(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the symbolic rule computes the same integers as the op, unless it returns None."""
    rule = find_rule(case.op, "symbolic")
    assert rule is not None, "the check applies to ops that have one"
    arrays = [v for v in drawn.inputs if v is not None]
    if not all(isinstance(v, np.ndarray) and v.dtype in (np.int64, np.int32) for v in arrays):
        return False
    try:
        with blaming(f"the symbolic rule of {case.op.title}", passing=_UNKNOWN):
            dims = [None if v is None else v.astype(object) for v in drawn.inputs]
            found = invoke(case.op, rule, dims, drawn.attributes, drawn.outputs)
    except _UNKNOWN:
        return False
    compared = False
    for position, (result, contents) in enumerate(zip(found, expected, strict=False)):
        array = None if result is None else np.asarray(result, dtype=object)
        if array is None or not isinstance(contents, np.ndarray) or contents.dtype.kind not in "iu":
            continue
        compared = True
        known = array.shape == contents.shape and all(
            a is None or a == b for a, b in zip(array.reshape(-1), contents.reshape(-1), strict=True)
        )
        if not known:
            raise Failure(
                f"the symbolic rule of {case.op.title} gives of ints {array.tolist()} as output {position}, and the op "
                f"{contents.tolist()}"
            )
    return compared


def rewritten_alike(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the rules rewrite and rewrite.if_fewer compute the same outputs.

    Calls alternate between known dims, symbolic dims, and constants for all inputs but the first.
    """
    compared = [_rewrite_agrees(case, drawn, expected, consumer) for consumer in ("rewrite", "rewrite.if_fewer")]
    return any(compared)


def _rewrite_agrees(case: Case, drawn: Call, expected: Outputs, consumer: str) -> bool:
    rule = find_rule(case.op, consumer)
    if rule is None:
        return False

    def rewritten(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        if drawn.turn % 3 == 2:
            values = [v if k == 0 else _constant(builder, v, drawn.inputs[k]) for k, v in enumerate(values)]
        found = rule(*values, **drawn.attributes)
        return () if found is None or isinstance(found, Graph) else found if isinstance(found, tuple) else (found,)

    what = f"the {consumer} rule of {case.op.title}"
    try:
        with blaming(what, passing=TenonnxError):
            graph, feeds = trace(case.op, drawn, rewritten, symbolic=drawn.turn % 3 == 1)
    except TenonnxError:  # the rule needs a constant or a dim that is unknown here
        return False
    wanted = present(expected)
    if not graph.outputs or len(graph.outputs) < len(wanted):  # rewrites with fewer outputs are never used
        return False
    with blaming(f"what {what} says"):
        found = run_graph(graph, feeds)
    expect(case, drawn, f"what its rule {consumer} says", found[: len(wanted)], wanted)
    return True


def _constant(builder: Builder, value: Value | None, contents: Any) -> Value | None:
    known = value is None or value.data is not None or not isinstance(contents, np.ndarray)
    return value if known else builder.constant(contents, DType.of(contents.dtype))
