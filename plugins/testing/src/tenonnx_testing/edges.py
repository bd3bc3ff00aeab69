"""What drawn calls seldom are: laid out otherwise in memory, empty along an axis, not finite, or very large."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import DType, TenonnxError, find_rule, limits
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import refuse_or_agree, with_input
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, expect_new, is_index, is_random, present

Array: TypeAlias = np.ndarray[Any, Any]

#: Narrower floats than float32 overflow soon, in a body at every step.
LARGE = {DType.float16: 3e2, DType.float32: 1e4, DType.float64: 1e4, DType.bfloat16: 1e4}

#: Integers that float32 does not hold, and those of 64 bits that 32 do not.
LARGE_INTEGERS = {DType.int32: 2**24 + 1, DType.uint32: 2**24 + 1, DType.int64: 2**33 + 1, DType.uint64: 2**33 + 1}

#: Elements of the largest tensor that planted numbers may ask for.
LARGE_TENSOR = 1 << 16


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
        expect_new(case.op.title, laid, found, expected)
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
            with limits.override(elements=LARGE_TENSOR):  # a large number may be a size
                by_rule, by_body = evaluate(case.op, there), evaluate(case.op, there, body_of=case.op)
        except TenonnxError:
            continue
        try:
            expect(case, there, f"its body where an input holds {name}", present(by_body), present(by_rule))
        except Failure as failure:
            failure.add_note(f"planted: {one_line(case.op, there)}")
            failure.call = there
            raise
        compared = True
    return compared


def planted(case: Case, drawn: Call) -> Iterator[tuple[str, Call]]:
    """The call with a NaN, an infinity or a large number somewhere; of integers, with a large one."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    contents = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    floats, integers = ([k for k, v in contents.items() if _holds(v, kinds)] for kinds in (LARGE, LARGE_INTEGERS))
    for name in ("NaN", "an infinity", "a large number") if floats else ("a large integer",) if integers else ():
        place = (floats or integers)[random.integers(len(floats or integers))]
        array = drawn.inputs[place].copy()
        large = (LARGE | LARGE_INTEGERS)[DType.of(array.dtype)]
        number = {"NaN": np.nan, "an infinity": np.inf}.get(name, large)
        sign = random.choice([-1, 1]) if array.dtype.kind != "u" else 1
        array.reshape(-1)[random.integers(array.size)] = sign * number
        yield name, with_input(drawn, place, array)


def _holds(contents: Array, kinds: Mapping[DType, float]) -> bool:
    return contents.size > 0 and contents.dtype != object and DType.of(contents.dtype) in kinds


# ----- shapes ---------------------------------------------------------------------------------------------------------


def empty_axes_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Where an axis has no elements, or a tensor is one number, that is refused, or computed alike everywhere.

    Of two calls one after the other, each has half of what there is to try; of four, one has numbers for all tensors.
    """
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    numbers = {k: v.reshape(-1)[:1].reshape(()) for k, v in given.items() if v.ndim and v.size}
    tried = [*_emptied(drawn, given), *(_with_inputs(drawn, {k: number}) for k, number in numbers.items())]
    chosen = tried[drawn.turn % 2 :: 2]
    if len(numbers) > 1 and drawn.turn % 4 == 1:  # once in four calls, as many as there are
        chosen.append(_with_inputs(drawn, numbers))
    for changed in chosen:
        refuse_or_agree(case, changed, expected, symbolic=False)
    return bool(tried)


def _emptied(drawn: Call, given: Mapping[int, Array]) -> Iterator[Call]:
    """The call without the axes of each size in turn."""
    for size in sorted({n for v in drawn.inputs if isinstance(v, np.ndarray) for n in v.shape} - {0}):
        yield _with_inputs(drawn, {k: _without(v, size) for k, v in given.items()})


def _with_inputs(drawn: Call, changed: Mapping[int, Array]) -> Call:
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))


def _without(array: Array, size: int) -> Array:
    """The array with no elements along every axis of a size."""
    return array[(*(slice(0) if n == size else slice(None) for n in array.shape), ...)]


# ----- axes -----------------------------------------------------------------------------------------------------------


def names_axes(case: Case) -> bool:
    return any(requirement.word == "axis" for requirement in case.op.requirements.declared)


def axes_count_from_either_end(case: Case, drawn: Call, expected: Outputs) -> bool:
    """An axis may be counted from the other end, where the op says that it is one (``axis("axis", of="X")``)."""
    compared = False
    for requirement in case.op.requirements.declared:
        turned = _turned(case, drawn, *requirement.names) if requirement.word == "axis" else None
        if turned is not None:
            with blaming(f"{case.op.title} with axes counted from the other end"):
                found = evaluate(case.op, turned)
            expect(case, turned, "itself with axes counted from the other end", present(found), present(expected))
            compared = True
    return compared


def _turned(case: Case, drawn: Call, name: str, of: str) -> Call | None:
    """The call with an axis, or several, of one of its inputs counted from the other end; None where it gives none."""
    names = [case.op.signature.input_at(k).name for k in range(len(drawn.inputs))]
    rank = getattr(drawn.inputs[names.index(of)] if of in names else None, "ndim", 0)
    place = names.index(name) if name in names else None
    given = drawn.attributes.get(name) if place is None else drawn.inputs[place]
    if given is None or not rank or not np.size(given):
        return None
    axes = np.asarray(given)
    turned = np.where(axes < 0, axes + rank, axes - rank)
    if place is not None:
        return with_input(drawn, place, turned.astype(axes.dtype))
    return replace(drawn, attributes={**drawn.attributes, name: turned.tolist()})
