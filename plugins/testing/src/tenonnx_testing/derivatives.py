"""Comparison of ``vjp`` rules with the gradient of the body, in all float types and at special values."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TenonnxError, Value, find_rule, limits
from tenonnx.extend.transforms import Builder, invoke
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.edges import LARGE
from tenonnx_testing.extremes import LITTLE
from tenonnx_testing.gradients import jacobian_function
from tenonnx_testing.mutations import as_dtype, is_admitted
from tenonnx_testing.repro import note_line, one_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, is_index, is_random
from tenonnx_testing.sizes import STEPS, TIMES, enlarged, is_slower

#: Accepted difference between two formulas of a gradient, in machine epsilons.
EPSILONS = 300

#: Absolute part of the tolerance, in the same unit, for gradients that are small because their terms cancel.
CANCELLED = 0.05

#: Where the gradients differ, the body is also evaluated at ``SIDES`` nearby points. Their relative distance is
#: ``ASIDE``, or ``ASIDE_DOUBLE`` in float64.
ASIDE, ASIDE_DOUBLE, SIDES = 2e-3, 1e-10, 64

Products = Callable[[Sequence[Any]], list[Any]]


def applies(case: Case) -> bool:
    return not case.op.primitive and find_rule(case.op, "vjp") is not None


def equals_that_of_the_body(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the vjp rule equals the gradient of the body where that is finite.

    It is compared in the drawn float types and in float16 or float64; at ties, zeros, large numbers and infinities;
    and on large tensors, where the rule may not be much slower.
    """
    if is_random(case.op, drawn):
        return False
    other = _as_floats(case.op, drawn, "float16" if drawn.turn % 2 else "float64")
    compared = _compare_gradients(case, drawn)
    if other is not None:
        compared |= _compare_gradients(case, other)
    larger = enlarged(case, drawn) if not drawn.turn % 2 else None
    if larger is not None:
        for call in filter(None, (enlarged(case, drawn, STEPS[-1]), larger)):  # all pairs of the larger fill memory
            compared |= _compare_gradients(case, call, many=True)
    return compared


def _compare_gradients(case: Case, drawn: Call, *, many: bool = False) -> bool:
    try:
        with limits.override(elements=1 << 20):
            outputs = evaluate(case.op, drawn)
    except TenonnxError:
        return False
    wrt = [k for k, v in enumerate(drawn.inputs) if is_float(v) and v.size and not is_index(case.op, k)]
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode() if not many else b"many"))
    cotangents = [random.uniform(0.5, 1.5, o.shape).astype(o.dtype) if is_float(o) else None for o in outputs]
    given = [c for c, o in zip(cotangents, outputs, strict=True) if o is not None]
    if not wrt or all(c is None for c in given):
        return False

    def body(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return invoke(case.op, case.op.function, values, drawn.attributes, drawn.outputs)

    try:
        by_body = jacobian_function(case, drawn, given, wrt, by=body)
        by_body(drawn.inputs)
    except TenonnxError:  # the body has no gradient
        return False
    what = f"the vjp of {case.op.title}"
    with blaming(f"{what} on {', '.join(sorted({str(drawn.inputs[k].dtype) for k in wrt}))}"):
        by_rule = jacobian_function(case, drawn, given, wrt)
        by_rule(drawn.inputs)
    if many:
        _check_speed(what, by_rule, by_body, drawn)
    epsilon = max(_epsilon(v.dtype) for v in (*(drawn.inputs[k] for k in wrt), *outputs) if is_float(v))
    names = [case.op.signature.input_at(k).name for k in wrt]
    for where, inputs in [("", drawn.inputs)] if many else _points(random, drawn, wrt):
        with np.errstate(all="ignore"):
            found, wanted = by_rule(inputs), by_body(inputs)
            differing = _differing(random, by_body, inputs, wrt, found, wanted, epsilon)
        for name, mask, a, b in zip(names, differing, found, wanted, strict=True):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                found_type, right = (f"{v.dtype}{list(v.shape)}" for v in (a, b))
                raise Failure(f'{what} with respect to "{name}" is {found_type}, and {right} by its body')
            if mask.any():
                place = tuple(int(i) for i in np.argwhere(mask)[0])
                call = replace(drawn, inputs=tuple(inputs))
                failure = Failure(
                    f'{what} differs from the gradient of its body with respect to "{name}"{where}, in '
                    f"{a.dtype}: {a[place]} at {list(place)}, and {b[place]} by the body"
                )
                if not many:
                    failure.add_note(f"there: {note_line(case.op, call)}")
                failure.call = call
                raise failure
    return True


def _check_speed(what: str, by_rule: Products, by_body: Products, drawn: Call) -> None:
    if is_slower(lambda: by_rule(drawn.inputs), lambda: by_body(drawn.inputs)):
        count = max(v.size for v in drawn.inputs if isinstance(v, np.ndarray))
        raise Failure(
            f"{what} takes {TIMES} times as long as the gradient of its body, of {count} elements: leave it out, or "
            "compute it in time that grows with the size of the inputs"
        )


def is_float(contents: Any) -> bool:
    """Whether contents are an array of float16, bfloat16, float32 or float64."""
    if not isinstance(contents, np.ndarray) or contents.dtype == object:
        return False
    dtype = DType.of(contents.dtype)
    return dtype.is_float and dtype in LARGE


def _as_floats(op: Op, drawn: Call, name: str) -> Call | None:
    """Return the call with its floats converted to dtype ``name``; None if the op rejects it or nothing changes."""
    others = {"float32", "float64"} - {name}
    inputs = tuple(as_dtype(v, name) if is_float(v) and v.dtype.name in others else v for v in drawn.inputs)
    changed = replace(drawn, inputs=inputs)
    same = all(a is b for a, b in zip(inputs, drawn.inputs, strict=True))
    return changed if not same and is_admitted(op, changed) else None


def _points(random: np.random.Generator, drawn: Call, wrt: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the drawn inputs, then with a special value, with small numbers, and with ties, each with a description."""
    yield "", list(drawn.inputs)
    for what in ("an infinity", "a large number", "zero"):
        inputs = list(drawn.inputs)
        place = wrt[int(random.integers(len(wrt)))]
        array = inputs[place].copy()
        number = {"an infinity": np.inf, "a large number": LARGE[DType.of(array.dtype)], "zero": 0.0}[what]
        array.reshape(-1)[random.integers(array.size)] = number * random.choice([-1, 1])
        inputs[place] = array
        yield f" where it holds {what}" if len(wrt) == 1 else f" where an input holds {what}", inputs
    yield " where all is small", [(v * LITTLE).astype(v.dtype) if k in wrt else v for k, v in enumerate(drawn.inputs)]
    if len(wrt) > 1:
        place = wrt[drawn.turn % len(wrt)]
        small = (drawn.inputs[place] * LITTLE).astype(drawn.inputs[place].dtype)
        yield " where one input is small", [small if k == place else v for k, v in enumerate(drawn.inputs)]
    for number in (0.75, 100.0):
        yield (
            f" where all is {number:g}",
            [np.full_like(v, number) if k in wrt else v for k, v in enumerate(drawn.inputs)],
        )


def _differing(
    random: np.random.Generator,
    by_body: Products,
    inputs: Sequence[Any],
    wrt: Sequence[int],
    found: Sequence[Any],
    wanted: Sequence[Any],
    epsilon: float,
) -> list[Any]:
    """Masks of elements outside the range of the body's gradients nearby: at a kink, any subgradient is accepted."""
    low, high = [w.copy() for w in wanted], [w.copy() for w in wanted]
    cancelled = CANCELLED * max([1.0, *(1 / size for k in wrt if 0 < (size := float(np.abs(inputs[k]).max())) < 1)])
    for side in range(SIDES + 1):
        pairs = zip(found, wanted, low, high, strict=True)
        differing = [_outside(a, b, x, y, epsilon, cancelled) for a, b, x, y in pairs]
        if side == SIDES or not any(mask.any() for mask in differing):
            break
        moved = list(inputs)
        for k in wrt:
            v = inputs[k]
            shape = v.shape if side % 2 else ()  # shift each element by its own step, or all by the same
            aside = random.choice([-1, 1], shape) * random.uniform(0.5, 1, shape)
            finite = np.where(np.isfinite(v), v, np.finfo(np.float16).max * np.sign(v))
            step = (ASIDE_DOUBLE if v.dtype == np.float64 else ASIDE) * (1 + np.abs(finite)).astype(np.float64) * aside
            moved[k] = np.where(np.isfinite(v), finite + step, v).astype(v.dtype)
        for place, near in enumerate(by_body(moved)):
            low[place], high[place] = np.fmin(low[place], near), np.fmax(high[place], near)
    return differing


def _outside(found: Any, wanted: Any, low: Any, high: Any, epsilon: float, cancelled: float) -> Any:
    """Mask of elements that are outside ``low`` to ``high`` or NaN, where the body's gradient is finite.

    Terms of a gradient that cancel may be as large as ``cancelled``: the inverse of a small input.
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return np.ones(wanted.shape or (1,), bool)
    finite = np.isfinite(wanted)
    if not finite.any():
        return np.zeros(wanted.shape, bool)
    sizes = np.abs(wanted.astype(np.float64))
    margin = EPSILONS * epsilon * (sizes + sizes[finite].mean() + cancelled)
    one, below, above = (v.astype(np.float64) for v in (found, low, high))
    return finite & ~((one >= below - margin) & (one <= above + margin))


def _epsilon(dtype: Any) -> float:
    return 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps)
