"""What drawn calls seldom are: laid out otherwise in memory, empty along an axis, not finite, or very large."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import DType, TenonnxError, find_rule
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import refuse_or_agree, with_input
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, is_index, is_random, present

Array: TypeAlias = np.ndarray[Any, Any]

#: Narrower floats than float32 overflow soon, in a body at every step.
LARGE = {DType.float16: 3e2, DType.float32: 1e4, DType.float64: 1e4, DType.bfloat16: 1e4}


# ----- memory ---------------------------------------------------------------------------------------------------------


def _in_fortran_order(array: Array) -> Array:
    return array.copy("F")


def _strided(array: Array) -> Array:
    """Every second element of an array twice as long, from the last one back."""
    if not array.ndim:
        return array
    held = np.repeat(array[..., ::-1], 2, axis=-1)
    return held[..., ::-2]


LAYOUTS: dict[str, Callable[[Array], Array]] = {"Fortran order": _in_fortran_order, "strides": _strided}


def any_layout_serves(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Arrays that are not contiguous give the same numbers."""
    for name, lay in LAYOUTS.items():
        laid = replace(drawn, inputs=tuple(lay(v) if isinstance(v, np.ndarray) else v for v in drawn.inputs))
        with blaming(f"{case.op.title} on arrays with {name}"):
            found = evaluate(case.op, laid)
        expect(case, laid, f"itself on arrays with {name}", present(found), present(expected))
    return True


# ----- contents -------------------------------------------------------------------------------------------------------


def has_rule_and_body(case: Case) -> bool:
    """Whether there are two ways to compute the op that may disagree."""
    return not case.op.primitive and find_rule(case.op, "numpy") is not None


def special_values_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """The numpy rule and the body give the same where an input holds a NaN, an infinity or a large number."""
    if is_random(case.op, drawn):
        return False
    compared = False
    for name, there in planted(case, drawn):
        try:
            by_rule, by_body = evaluate(case.op, there), evaluate(case.op, there, body_of=case.op)
        except TenonnxError:
            continue
        try:
            expect(case, there, f"its body where an input holds {name}", present(by_body), present(by_rule))
        except Failure as failure:
            failure.add_note(f"planted: {one_line(case.op, there)}")
            raise
        compared = True
    return compared


def planted(case: Case, drawn: Call) -> Iterator[tuple[str, Call]]:
    """The call with a NaN, an infinity or a large number somewhere."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    places = [k for k, v in enumerate(drawn.inputs) if _holds_floats(v) and not is_index(case.op, k)]
    for name in ("NaN", "an infinity", "a large number") if places else ():
        place = places[random.integers(len(places))]
        array = drawn.inputs[place].copy()
        number = {"NaN": np.nan, "an infinity": np.inf}.get(name, LARGE.get(DType.of(array.dtype), 1e4))
        array.reshape(-1)[random.integers(array.size)] = random.choice([-1, 1]) * number
        yield name, with_input(drawn, place, array)


def _holds_floats(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.size > 0 and DType.of(contents.dtype) in LARGE


# ----- shapes ---------------------------------------------------------------------------------------------------------


def empty_axes_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Where an axis has no elements, or a tensor is one number, that is refused, or computed alike everywhere.

    Of two calls one after the other, each has half of what there is to try.
    """
    tried = list(_emptied(case, drawn))
    for changed in tried[drawn.turn % 2 :: 2]:
        refuse_or_agree(case, changed, expected, symbolic=False)
    return bool(tried)


def _emptied(case: Case, drawn: Call) -> Iterator[Call]:
    """The call without the axes of each size in turn, and with a number for each tensor in turn."""
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    for size in sorted({n for v in drawn.inputs if isinstance(v, np.ndarray) for n in v.shape} - {0}):
        emptied = {k: _without(v, size) for k, v in given.items()}
        yield replace(drawn, inputs=tuple(emptied.get(k, v) for k, v in enumerate(drawn.inputs)))
    for place, contents in given.items():
        if contents.ndim and contents.size:
            yield with_input(drawn, place, contents.reshape(-1)[:1].reshape(()))


def _without(array: Array, size: int) -> Array:
    """The array with no elements along every axis of a size."""
    return array[tuple(slice(0) if n == size else slice(None) for n in array.shape)]
