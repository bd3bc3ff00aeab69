"""Checks of large tensors: outputs and run time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tenonnx.extend import TenonnxError, find_rule, limits
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.run import Failure, Outputs, evaluate, expect, is_index, is_random, present

#: Elements of the largest tensor of a large call, and of smaller calls that have to run within ``BUDGET`` before it.
MANY, STEPS = 1 << 17, (1 << 10, 1 << 13)

#: Seconds of a smaller call above which no larger one is tried.
BUDGET = 0.02

#: A rule may take ``TIMES`` times as long as the body, plus ``SECONDS``.
TIMES, SECONDS = 10, 0.02


def many_elements_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check on 2 ** 17 elements that the numpy rule equals the body and takes at most ten times as long."""
    if is_random(case.op, drawn) or find_rule(case.op, "numpy") is None:
        return False
    larger = enlarged(case, drawn)
    if larger is None:
        return False
    try:
        if (smaller := enlarged(case, drawn, STEPS[-1])) is not None:  # with all pairs, the larger call fills memory
            _check_speed(case, smaller, STEPS[-1])
        by_rule, by_body = evaluate(case.op, larger), evaluate(case.op, larger, body_of=case.op)
    except TenonnxError:  # the check "variations" reports calls that only one of them rejects
        return False
    expect(case, larger, f"its body of {MANY} elements", present(by_body), present(by_rule))
    _check_speed(case, larger, MANY)
    return True


def _check_speed(case: Case, drawn: Call, elements: int) -> None:
    if is_slower(partial(evaluate, case.op, drawn), partial(evaluate, case.op, drawn, body_of=case.op)):
        raise Failure(
            f"the numpy rule of {case.op.title} takes {TIMES} times as long as its body, of {elements} elements: leave "
            "it out, or compute whole arrays in time that grows with their size"
        )


def enlarged(case: Case, drawn: Call, most: int = MANY) -> Call | None:
    """Return the call with its longest axis extended to ``most`` elements; None if it is rejected or slow."""
    larger = None
    for elements in (each for each in (*STEPS, MANY) if each <= most):
        larger = _longer(case, drawn, elements)
        if larger is None:
            return None
        try:
            begin = time.thread_time()
            with limits.override(elements=4 * MANY), np.errstate(all="ignore"):
                outputs = evaluate(case.op, larger, body_of=None if case.op.primitive else case.op)
            if elements < MANY and time.thread_time() - begin > BUDGET:
                return None
        except TenonnxError:
            return None
        if any(getattr(output, "size", 0) > 2 * MANY for output in outputs):
            return None
    return larger


def _longer(case: Case, drawn: Call, elements: int) -> Call | None:
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    largest = max(given.values(), key=lambda v: v.size, default=np.zeros(0))
    if not largest.size or not largest.ndim or any(isinstance(v, list | dict) for v in drawn.inputs):
        return None
    size = max(largest.shape)
    places = int(elements / (largest.size / size ** largest.shape.count(size)) ** 1.0)
    if largest.shape.count(size) > 1 or places <= size:
        return None
    changed = {k: _repeated(v, size, places) for k, v in given.items()}
    if any(v.size > elements for v in changed.values()):
        return None
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))


def _repeated(array: Any, size: int, places: int) -> Any:
    for axis, found in enumerate(array.shape):
        if found == size and size > 1:
            array = array.take(np.arange(places) % size, axis)
    return array


def is_slower(one: Callable[[], Any], other: Callable[[], Any]) -> bool:
    """Whether ``one`` takes more than ``TIMES`` times as long as ``other``, in thread time and up to three attempts."""
    first, second = _seconds(one), _seconds(other)
    if first <= TIMES * second + SECONDS:
        return False
    return min(first, _seconds(one), _seconds(one)) > TIMES * max(second, _seconds(other)) + SECONDS


def _seconds(function: Callable[[], Any]) -> float:
    begin = time.thread_time()
    with np.errstate(all="ignore"):
        function()
    return time.thread_time() - begin
