"""Edge cases: memory layouts, empty axes, special values, very large numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import DType, TenonnxError, find_rule, limits
from tenonnx_testing import precision
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.extremes import BEYOND_HALVES, EQUAL, HALVES, SMALL, ZEROS, extremes
from tenonnx_testing.mutations import refuse_or_agree, with_input
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, expect_new, is_index, is_random, present

Array: TypeAlias = np.ndarray[Any, Any]

#: Narrower floats than float32 overflow soon, in a body at every step.
LARGE = {DType.float16: 3e2, DType.float32: 1e4, DType.float64: 1e4, DType.bfloat16: 1e4}

#: Integers that float32 does not hold, and those of 64 bits that float64 does not.
LARGE_INTEGERS = {DType.int32: 2**24 + 1, DType.uint32: 2**24 + 1, DType.int64: 2**53 + 1, DType.uint64: 2**53 + 1}

#: Numbers below the least normal one of their type, whose inverse is finite where that can be.
DENORMAL = {DType.float16: 2e-5, DType.float32: 5e-39, DType.float64: 1e-308, DType.bfloat16: 5e-39}

ZERO, NEGATIVE_ZERO, A_DENORMAL = "zero", "a negative zero", "a denormal number"

#: What is planted in floats and integers, by their types.
SPECIAL: dict[str, Mapping[DType, float]] = {
    "NaN": dict.fromkeys(LARGE, np.nan),
    "an infinity": dict.fromkeys(LARGE, np.inf),
    "a large number": LARGE,
    ZERO: dict.fromkeys(LARGE, 0.0),
    NEGATIVE_ZERO: dict.fromkeys(LARGE, -0.0),
    A_DENORMAL: DENORMAL,
    "a large integer": LARGE_INTEGERS,
}

#: What is planted and must be computed by all that take the call at all.
COMMON = ("a large number", "a large integer", "white space", "unusual text", HALVES, BEYOND_HALVES, EQUAL, SMALL)

#: What a rule gives as zero is less than that where it takes denormal numbers for zero, and not where it rounds.
HARDLY = 1e-30

#: Text whose white space and zeros are part of it, and of which letters are special.
TEXTS = (" a", "b\t", "\n", "x  y ", "007", "", "Straße")

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


def _permuted(array: Array) -> Array:
    """The second axis, of those that there are, lies outermost in memory, with room between its elements."""
    if array.ndim < 2:
        return np.repeat(array, 2)[::2].reshape(array.shape)
    order = (1, 0, *range(2, array.ndim))
    held = np.repeat(array.transpose(order), 2, axis=0)
    return held[::2].transpose(order)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "Fortran order": _in_fortran_order,
    "strides": _strided,
    "permuted axes": _permuted,
}


def most_axes(drawn: Call) -> int:
    """Number of axes of the inputs with several places: with fewer than two, there is one layout."""
    return max((sum(side > 1 for side in v.shape) for v in drawn.inputs if isinstance(v, np.ndarray)), default=0)


def any_layout_serves(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Arrays that are not contiguous give the same numbers: all of them or, of two calls, once all but one."""
    places = [k for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray)]
    spared = places[drawn.turn // 2 % len(places)] if len(places) > 1 and drawn.turn % 2 else None
    for name, lay in LAYOUTS.items():
        laid = _with_inputs(drawn, {k: lay(drawn.inputs[k]) for k in places if k != spared})
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
    """The numpy rule and the body give the same where an input holds a NaN, a large number, white space or the like.

    What is zero, or a negative zero, is so in both where an input holds a zero or a denormal number, and the rule keeps
    the digits that the body keeps.
    """
    if is_random(case.op, drawn):
        return False
    compared = False
    for name, there in chain(planted(case, drawn), extremes(case, drawn, expected)):
        try:
            with limits.override(elements=LARGE_TENSOR), np.errstate(all="ignore"):  # a large number may be a size
                by_rule, by_body = evaluate(case.op, there), evaluate(case.op, there, body_of=case.op)
        except TenonnxError:
            continue
        try:
            expect(case, there, f"its body where an input holds {name}", present(by_body), present(by_rule))
            if name in (ZERO, NEGATIVE_ZERO, ZEROS, A_DENORMAL):
                _same_zeros(case, name, present(by_body), present(by_rule))
        except Failure as failure:
            failure.add_note(f"planted: {one_line(case.op, there)}")
            failure.call = there
            raise
        compared = True
    if not drawn.turn % 2:
        compared |= precision.keeps_digits(case, drawn)
    return compared


def _same_zeros(case: Case, name: str, by_body: list[Any], by_rule: list[Any]) -> None:
    """Raise ``Failure`` where zeros differ by their sign, or the rule alone gives zero for what is hardly more."""
    for position, (one, other) in enumerate(zip(by_body, by_rule, strict=True)):
        if not isinstance(one, np.ndarray) or one.dtype == object or DType.of(one.dtype) not in DENORMAL:
            continue
        one, other = one.astype(np.float64), other.astype(np.float64)
        differing = (
            ((other == 0) & (one != 0) & (np.abs(one) < HARDLY))
            if name == A_DENORMAL
            else (one == other) & (np.signbit(one) != np.signbit(other))
        )
        if differing.any():
            place = tuple(map(int, np.argwhere(differing)[0]))
            raise Failure(
                f"{case.op.title} differs from its body where an input holds {name}: output {position} at "
                f"{list(place)}: {other[place]} and {one[place]}"
            )


def planted(case: Case, drawn: Call) -> Iterator[tuple[str, Call]]:
    """The call with a NaN, an infinity, a negative zero or the like somewhere; of integers, with a large one."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    contents = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    for name, numbers in SPECIAL.items():
        places = [k for k, v in contents.items() if _holds(v, numbers)]
        if not places or (name == "a large integer" and any(_holds(v, LARGE) for v in contents.values())):
            continue
        place = places[random.integers(len(places))]
        array = drawn.inputs[place].copy()
        sign = random.choice([-1, 1]) if array.dtype.kind != "u" and name not in (ZERO, NEGATIVE_ZERO) else 1
        array.reshape(-1)[random.integers(array.size)] = sign * numbers[DType.of(array.dtype)]
        yield name, with_input(drawn, place, array)
    texts = [k for k, v in contents.items() if v.size and v.dtype == object and DType.of(v.dtype) is DType.string]
    if texts:
        place = texts[random.integers(len(texts))]
        array = drawn.inputs[place].copy()
        array.reshape(-1)[random.integers(array.size)] = TEXTS[random.integers(len(TEXTS) - 1)]
        yield "white space", with_input(drawn, place, array)
        several = {k: _texts(random, contents[k]) for k in texts}
        yield "unusual text", _with_inputs(drawn, several)


def _texts(random: np.random.Generator, array: Array) -> Array:
    return np.asarray(random.choice(np.array(TEXTS, object), array.shape), object)


def floats_first(drawn: Call) -> int:
    """Number of axes with several places, of calls with floats; other calls come behind all of these."""
    arrays = (v for v in drawn.inputs if isinstance(v, np.ndarray) and v.dtype != object)
    return most_axes(drawn) if any(DType.of(v.dtype).is_float for v in arrays) else -1


def holds_negative_zero(call: Call) -> bool:
    """Whether an input has a negative zero: a condition of gaps, of what adds to a zero of its own."""
    floats = (v for v in call.inputs if isinstance(v, np.ndarray) and v.dtype.kind not in "OUSb")
    return any(bool(((v == 0) & np.signbit(v.astype(np.float64))).any()) for v in floats)


def _holds(contents: Array, kinds: Mapping[DType, float]) -> bool:
    return contents.size > 0 and contents.dtype != object and DType.of(contents.dtype) in kinds


# ----- shapes ---------------------------------------------------------------------------------------------------------


def empty_axes_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Empty axes, and numbers in place of tensors, are refused, or computed alike everywhere.

    No numpy rule breaks where the body computes. Of two calls one after the other, each has half of what there is to
    try; of four, one has numbers for all tensors.
    """
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    numbers = {k: v.reshape(-1)[:1].reshape(()) for k, v in given.items() if v.ndim and v.size}
    tried = [*_emptied(drawn, given), *(_with_inputs(drawn, {k: number}) for k, number in numbers.items())]
    places = {k: v[:0] for k, v in enumerate(drawn.inputs) if _is_places(case, k, v)}
    tried += [_with_inputs(drawn, {k: none}) for k, none in places.items()]
    chosen = tried[drawn.turn % 2 :: 2]
    if len(numbers) > 1 and drawn.turn % 4 == 1:  # once in four calls, as many as there are
        chosen.append(_with_inputs(drawn, numbers))
    for changed in chosen:
        refuse_or_agree(case, drawn, changed, expected, symbolic=False, by_body="broken")
    return bool(tried)


def _is_places(case: Case, place: int, contents: Any) -> bool:
    """Whether an input holds positions, sizes or axes along its first axis."""
    return isinstance(contents, np.ndarray) and is_index(case.op, place) and contents.ndim > 0 and contents.size > 0


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
