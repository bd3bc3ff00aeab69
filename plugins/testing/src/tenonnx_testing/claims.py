"""Checks of claims: data movement, dims, and rewrites."""

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

#: How a symbolic rule says that it cannot tell.
_UNTOLD = (ArithmeticError, AttributeError, TypeError, TypeMismatch)


def moves_alone(case: Case, drawn: Call, expected: Outputs) -> bool:
    """A call that is said to only move, choose or compare elements does the same to wider ones."""
    if not moves_data(case.op, drawn.attributes):
        return False
    wide = replace(drawn, inputs=tuple(_widened(v) for v in drawn.inputs))
    if all(a is b for a, b in zip(wide.inputs, drawn.inputs, strict=True)):
        return _has_given_integers(case, drawn)
    try:
        found = present(evaluate(case.op, wide))
    except TenonnxError:  # it takes no wider ones
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


def _has_given_integers(case: Case, drawn: Call) -> bool:
    """Whether there are integers to compare: of those far apart, each is one of the inputs, a place or an attribute."""
    plain = [k for k, v in enumerate(drawn.inputs) if _is_of_integers(v) and not is_index(case.op, k)]
    there = replace(drawn, inputs=tuple(_apart(v) if k in plain else v for k, v in enumerate(drawn.inputs)))
    try:
        found = present(evaluate(case.op, there)) if plain else []
    except TenonnxError:  # its requirements are of the numbers
        return False
    given = [there.inputs[k] for k in plain]
    known = {n for v in there.inputs if _is_of_integers(v) for n in v.reshape(-1).tolist()}
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


def _apart(contents: Any) -> Any:
    """Small integers far apart."""
    with np.errstate(over="ignore"):
        return np.asarray(contents * contents.dtype.type(9) + contents.dtype.type(40))


def _widened(contents: Any) -> Any:
    if not isinstance(contents, np.ndarray) or contents.dtype == object:
        return contents
    dtype = DType.of(contents.dtype)
    return contents.astype(np.float64) if dtype.is_float and 8 < dtype.bits < 64 else contents


def elementwise_alone(case: Case, drawn: Call, expected: Outputs) -> bool:
    """A call that is said to be elementwise has, of the elements of one place alone, the element of that place.

    With its places in another order, so are the results.
    """
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
        there = replace(drawn, inputs=tuple(v if v is None else _taken(v, places) for v in drawn.inputs))
        try:
            found = present(evaluate(case.op, there))
        except TenonnxError:  # its requirements are of more
            continue
        wanted = [_taken(v, places) for v in present(expected)]
        expect(case, drawn, f"itself on {what}, though it is said to be elementwise", found, wanted)
    return True


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _taken(array: np.ndarray[Any, Any], places: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """The elements at places along each axis of what the array broadcasts to."""
    for axis in range(-array.ndim, 0):
        if array.shape[axis] > 1:
            array = array.take(places[axis], axis)
    return array


def symbolic_alike(case: Case, drawn: Call, expected: Outputs) -> bool:
    """The symbolic rule gives of ints what the op gives, where it can tell."""
    rule = find_rule(case.op, "symbolic")
    assert rule is not None, "the check applies to ops that have one"
    arrays = [v for v in drawn.inputs if v is not None]
    if not all(isinstance(v, np.ndarray) and v.dtype in (np.int64, np.int32) for v in arrays):
        return False
    try:
        with blaming(f"the symbolic rule of {case.op.title}", passing=_UNTOLD):
            dims = [None if v is None else v.astype(object) for v in drawn.inputs]
            found = invoke(case.op, rule, dims, drawn.attributes, drawn.outputs)
    except _UNTOLD:
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
    """Results of the rules rewrite and rewrite.if_fewer are the same.

    They are asked with known and symbolic dims, and where all inputs but the first are constant.
    """
    compared = [_said_alike(case, drawn, expected, consumer) for consumer in ("rewrite", "rewrite.if_fewer")]
    return any(compared)


def _said_alike(case: Case, drawn: Call, expected: Outputs, consumer: str) -> bool:
    rule = find_rule(case.op, consumer)
    if rule is None:
        return False

    def said(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        if drawn.turn % 3 == 2:
            values = [v if k == 0 else _constant(builder, v, drawn.inputs[k]) for k, v in enumerate(values)]
        found = rule(*values, **drawn.attributes)
        return () if found is None or isinstance(found, Graph) else found if isinstance(found, tuple) else (found,)

    what = f"the {consumer} rule of {case.op.title}"
    try:
        with blaming(what, passing=TenonnxError):
            graph, feeds = trace(case.op, drawn, said, symbolic=drawn.turn % 3 == 1)
    except TenonnxError:  # what must be known is not
        return False
    wanted = present(expected)
    if not graph.outputs or len(graph.outputs) < len(wanted):  # what says fewer results than a call has is not taken
        return False
    with blaming(f"what {what} says"):
        found = run_graph(graph, feeds)
    expect(case, drawn, f"what its rule {consumer} says", found[: len(wanted)], wanted)
    return True


def _constant(builder: Builder, value: Value | None, contents: Any) -> Value | None:
    known = value is None or value.data is not None or not isinstance(contents, np.ndarray)
    return value if known else builder.constant(contents, DType.of(contents.dtype))
