"""Checks of gradients at kinks: ties, 0 and large numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import TenonnxError
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.gradients import differentiable, is_wide, vector_jacobian, widened
from tenonnx_testing.repro import note_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, is_random

#: Constants that fill the differentiable inputs, so that all elements are ties.
POINTS = (0.0, 100.0, -100.0, 1.5)

#: Two steps for one-sided slopes, and the relative difference up to which their slopes agree.
STEPS, AGREEMENT = (1e-4, 1e-5), 1e-2

#: Accepted distance of the product from the interval of the one-sided slopes, relative to them.
MARGIN = 1e-3


def between_both_sides(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that gradients lie between the one-sided slopes, for one and for two inputs at a kink."""
    wide = Call(tuple(widened(v) for v in drawn.inputs), drawn.attributes, drawn.outputs, drawn.version)
    wrt = differentiable(case, wide)
    if not wrt or is_random(case.op, wide):
        return False
    point = POINTS[drawn.turn % len(POINTS)]
    turn = drawn.turn // len(POINTS)
    # with ties of three inputs, a valid gradient may lie outside the interval of the slopes
    pair = sorted({wrt[turn % len(wrt)], wrt[(turn + 1) % len(wrt)]})
    chosen = {tuple(pair), (pair[turn % len(pair)],)}
    compared = [_check_at(case, wide, point, places, wrt) for places in sorted(chosen)]
    return any(compared)


def _check_at(case: Case, wide: Call, point: float, places: Sequence[int], wrt: Sequence[int]) -> bool:
    """Check inputs at ``places`` filled with ``point``; return False where one-sided slopes do not exist."""
    inputs = tuple(np.full_like(v, point) if p in places else v for p, v in enumerate(wide.inputs))
    call = Call(inputs, wide.attributes, wide.outputs, wide.version)
    random = np.random.default_rng(0)
    directions = {p: random.uniform(0.5, 1, inputs[p].shape) * random.choice([-1, 1], inputs[p].shape) for p in wrt}
    sides = _slopes(case, call, directions)
    if sides is None:
        return False
    outputs, left, right = sides
    cotangents = [
        random.uniform(0.5, 1.5, o.shape) * random.choice([-1, 1], o.shape) if is_wide(o) else None for o in outputs
    ]
    given = [c for c, o in zip(cotangents, outputs, strict=True) if o is not None]
    names = " and ".join(case.op.signature.input_at(p).name for p in places)
    what = f"the gradient of {case.op.title} where {names} {'is' if len(places) == 1 else 'are'} {point:g}"
    with blaming(what):
        products = vector_jacobian(case, call, given, wrt, symbolic=False)
    found = float(sum(np.sum(p * directions[k]) for k, p in zip(wrt, products, strict=True)))
    pairs = [(c * a, c * b) for c, a, b in zip(cotangents, left, right, strict=True) if c is not None]
    low, high = (float(sum(np.sum(choose(a, b)) for a, b in pairs)) for choose in (np.minimum, np.maximum))
    margin = MARGIN * max(1.0, float(sum(np.sum(np.abs(a) + np.abs(b)) for a, b in pairs)))
    if not low - margin <= found <= high + margin:
        failure = Failure(f"{what} is {found:.9g} along a direction, and on both sides {low:.6g} to {high:.6g}")
        failure.add_note(f"there: {note_line(case.op, call)}")
        failure.call = call
        raise failure
    return True


def _slopes(case: Case, drawn: Call, directions: dict[int, Any]) -> tuple[Outputs, list[Any], list[Any]] | None:
    """Outputs of a call and their one-sided slopes; None if these do not exist or the op rejects the call."""

    def at(step: float) -> Outputs:
        moved = tuple(v + step * directions[p] if p in directions else v for p, v in enumerate(drawn.inputs))
        return evaluate(case.op, Call(moved, drawn.attributes, drawn.outputs))

    try:
        with np.errstate(all="ignore"):
            outputs = at(0.0)
            found = [[_slope(outputs, at(sign * step), sign * step) for step in STEPS] for sign in (-1, 1)]
    except (TenonnxError, ArithmeticError, ValueError, IndexError, TypeError):
        return None
    if not any(is_wide(o) and o.size for o in outputs):
        return None
    for wide, narrow in found:
        for output, a, b in zip(outputs, wide, narrow, strict=True):
            if not is_wide(output):
                continue
            if a is None or b is None or not (np.isfinite(a) & np.isfinite(b)).all():
                return None
            if (np.abs(a - b) > AGREEMENT * np.maximum(1.0, np.abs(b))).any():
                return None
    return outputs, found[0][-1], found[1][-1]


def _slope(outputs: Outputs, moved: Outputs, step: float) -> list[Any]:
    return [
        (b - a) / step if is_wide(a) and is_wide(b) and a.shape == b.shape else None
        for a, b in zip(outputs, moved, strict=True)
    ]
