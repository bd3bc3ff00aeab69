"""Check of the relative error of numpy rules in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import TenonnxError, limits
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import as_dtype, is_admitted
from tenonnx_testing.repro import note_line
from tenonnx_testing.run import Failure, evaluate, is_index, present

Array: TypeAlias = np.ndarray[Any, Any]

#: Factors of the drawn floats: the first saturates many functions, the others overflow or underflow products.
FACTORS = (8.0, 1e10, 1e-10)

#: Relative error up to which the body counts as exact, and above which the rule is wrong.
EXACT, WRONG = 1e-3, 0.1

#: Range of results with the full precision of float32.
LEAST, GREATEST = 1e-30, 1e30


def keeps_digits(case: Case, drawn: Call) -> bool:
    """Check the float32 error of the numpy rule; return whether anything was compared.

    Both the rule and the body in float32 are compared with the body in float64. Raises ``Failure`` if the relative
    error of the rule exceeds 10 %, while that of the body is at most 0.1 %.
    """
    places = [k for k, v in enumerate(drawn.inputs) if _is_single(v) and not is_index(case.op, k)]
    compared = False
    for factor in FACTORS if places else ():
        scaled = (_times(v, factor) if k in places else v for k, v in enumerate(drawn.inputs))
        call = replace(drawn, inputs=tuple(scaled))
        wide = replace(call, inputs=tuple(as_dtype(v, "float64") if _is_single(v) else v for v in call.inputs))
        if not is_admitted(case.op, wide):
            return compared
        try:
            with limits.override(elements=1 << 16), np.errstate(all="ignore"):
                right = present(evaluate(case.op, wide, body_of=case.op))
                by_body, by_rule = (present(evaluate(case.op, call, body_of=op)) for op in (case.op, None))
        except TenonnxError:
            continue
        for position, (exact, body, rule) in enumerate(zip(right, by_body, by_rule, strict=False)):
            if not _is_single(rule) or exact.shape != rule.shape or body.shape != rule.shape:
                continue
            compared = True
            if (wrong := _lost(exact, body, rule)).any():
                place = tuple(map(int, np.argwhere(wrong)[0]))
                failure = Failure(
                    f"the numpy rule of {case.op.title} loses digits that its body keeps: output {position} at "
                    f"{list(place)} is {rule[place]}, and {body[place]} by the body"
                )
                failure.add_note(f"of: {note_line(case.op, call)}")
                failure.call = call
                raise failure
    return compared


def _lost(exact: Array, body: Array, rule: Array) -> Any:
    """Mask of the elements that the rule computes wrongly and the body precisely."""
    size = np.abs(exact)
    with np.errstate(all="ignore"):
        known = (size > LEAST) & (size < GREATEST) & (np.abs(body - exact) <= EXACT * size)
        return known & ~(np.abs(rule - exact) <= WRONG * size)


def _is_single(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.dtype == np.float32


def _times(contents: Array, factor: float) -> Array:
    return np.asarray(contents * np.float32(factor))
