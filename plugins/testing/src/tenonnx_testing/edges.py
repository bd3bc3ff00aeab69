"""Edge cases: memory layouts, empty axes, special values, negative axes."""

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
from tenonnx_testing.repro import note_line, one_line
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, expect_new, is_index, is_random, present

Array: TypeAlias = np.ndarray[Any, Any]

#: Large numbers by dtype; float16 overflows early, since a body rounds at every step.
LARGE = {DType.float16: 3e2, DType.float32: 1e4, DType.float64: 1e4, DType.bfloat16: 1e4}

#: Integers that are not exact in float32, or for 64 bits in float64.
LARGE_INTEGERS = {DType.int32: 2**24 + 1, DType.uint32: 2**24 + 1, DType.int64: 2**53 + 1, DType.uint64: 2**53 + 1}

#: Denormal numbers by dtype, with a finite reciprocal where possible.
DENORMAL = {DType.float16: 2e-5, DType.float32: 5e-39, DType.float64: 1e-308, DType.bfloat16: 5e-39}

ZERO, NEGATIVE_ZERO, A_DENORMAL = "zero", "a negative zero", "a denormal number"

#: Special values by name and dtype, each planted into one element of an input.
SPECIAL: dict[str, Mapping[DType, float]] = {
    "NaN": dict.fromkeys(LARGE, np.nan),
    "an infinity": dict.fromkeys(LARGE, np.inf),
    "a large number": LARGE,
    ZERO: dict.fromkeys(LARGE, 0.0),
    NEGATIVE_ZERO: dict.fromkeys(LARGE, -0.0),
    A_DENORMAL: DENORMAL,
    "a large integer": LARGE_INTEGERS,
}

#: Special values that references of cases are compared on, too.
COMMON = ("a large number", "a large integer", "white space", "unusual text", HALVES, BEYOND_HALVES, EQUAL, SMALL)

#: A rule flushes denormal numbers to zero if it returns zero where the body's result is nonzero and below this.
HARDLY = 1e-30

#: Texts with significant white space, leading zeros or special letters.
TEXTS = (" a", "b\t", "\n", "x  y ", "007", "", "Straße")

#: Size limit of tensors, since a planted number may be a size.
LARGE_TENSOR = 1 << 16


# ----- memory ---------------------------------------------------------------------------------------------------------


def _in_fortran_order(array: Array) -> Array:
    return array.copy("F")


def _strided(array: Array) -> Array:
    """Return an equal view with stride -2 along the last axis of a larger array."""
    if not array.ndim:
        return array
    buffer = np.repeat(array[..., ::-1], 2, axis=-1)
    return buffer[..., ::-2]


def _permuted(array: Array) -> Array:
    """Return an equal view whose second axis is outermost in memory, with gaps between its elements."""
    if array.ndim < 2:
        return np.repeat(array, 2)[::2].reshape(array.shape)
    order = (1, 0, *range(2, array.ndim))
    buffer = np.repeat(array.transpose(order), 2, axis=0)
    return buffer[::2].transpose(order)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "Fortran order": _in_fortran_order,
    "strides": _strided,
    "permuted axes": _permuted,
}


def most_axes(drawn: Call) -> int:
    """Largest number of axes longer than 1 of an input; with fewer than two, all memory layouts are the same."""
    return max((sum(side > 1 for side in v.shape) for v in drawn.inputs if isinstance(v, np.ndarray)), default=0)


def any_layout_serves(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that non-contiguous inputs give the same outputs. Every second call keeps one input contiguous."""
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
    """Whether the op has both a numpy rule and a body."""
    return not case.op.primitive and find_rule(case.op, "numpy") is not None


def special_values_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the numpy rule equals the body on special values such as NaN, large numbers and white space.

    The signs of zeros have to agree for inputs with zeros, the rule may not flush denormal numbers to zero, and it has
    to be about as precise as the body.
    """
    if is_random(case.op, drawn):
        return False
    compared = False
    in_gap: Failure | None = None
    for name, call in chain(planted(case, drawn), extremes(case, drawn, expected)):
        try:
            with limits.override(elements=LARGE_TENSOR), np.errstate(all="ignore"):  # a large number may be a size
                by_rule, by_body = evaluate(case.op, call), evaluate(case.op, call, body_of=case.op)
        except TenonnxError:
            continue
        try:
            expect(case, call, f"its body where an input holds {name}", present(by_body), present(by_rule))
            if name in (ZERO, NEGATIVE_ZERO, ZEROS, A_DENORMAL):
                _check_zeros(case, name, present(by_body), present(by_rule))
        except Failure as failure:
            failure.add_note(f"planted: {note_line(case.op, call)}")
            failure.call = call
            if not any(gap.covers(call) for gap in case.gaps_of("special values")):
                raise
            in_gap = failure  # a gap of some values does not cover those that follow
        compared = True
    if in_gap is not None:
        raise in_gap
    if not drawn.turn % 2:
        compared |= precision.keeps_digits(case, drawn)
    return compared


def _check_zeros(case: Case, name: str, by_body: list[Any], by_rule: list[Any]) -> None:
    """Raise ``Failure`` if signs of zeros differ, or if only the rule flushes denormal results to zero."""
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
    """Yield the call with one special value in an input, for each kind of special value, with its name."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    contents = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    for name, numbers in SPECIAL.items():
        places = [k for k, v in contents.items() if _has_dtype(v, numbers)]
        if not places or (name == "a large integer" and any(_has_dtype(v, LARGE) for v in contents.values())):
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
    """Sort key: the number of axes longer than 1 for calls with floats, -1 for others."""
    arrays = (v for v in drawn.inputs if isinstance(v, np.ndarray) and v.dtype != object)
    return most_axes(drawn) if any(DType.of(v.dtype).is_float for v in arrays) else -1


def holds_negative_zero(call: Call) -> bool:
    """Whether an input has a negative zero: a condition for gaps of ops that add 0.0."""
    floats = (v for v in call.inputs if isinstance(v, np.ndarray) and v.dtype.kind not in "OUSb")
    return any(bool(((v == 0) & np.signbit(v.astype(np.float64))).any()) for v in floats)


def _has_dtype(contents: Array, kinds: Mapping[DType, float]) -> bool:
    return contents.size > 0 and contents.dtype != object and DType.of(contents.dtype) in kinds


# ----- shapes ---------------------------------------------------------------------------------------------------------


def empty_axes_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that empty axes, and scalars for tensors, are rejected or give the same outputs in every way to run.

    The numpy rule may not raise a foreign error where the body computes. Each call tries half of the variants; every
    fourth call tries scalars for all tensors.
    """
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    numbers = {k: v.reshape(-1)[:1].reshape(()) for k, v in given.items() if v.ndim and v.size}
    tried = [*_emptied(drawn, given), *(_with_inputs(drawn, {k: number}) for k, number in numbers.items())]
    places = {k: v[:0] for k, v in enumerate(drawn.inputs) if _is_index_list(case, k, v)}
    tried += [_with_inputs(drawn, {k: none}) for k, none in places.items()]
    chosen = tried[drawn.turn % 2 :: 2]
    if len(numbers) > 1 and drawn.turn % 4 == 1:  # in every fourth call, scalars for all tensors
        chosen.append(_with_inputs(drawn, numbers))
    for changed in chosen:
        refuse_or_agree(case, drawn, changed, expected, symbolic=False, by_body="broken")
    return bool(tried)


def _is_index_list(case: Case, place: int, contents: Any) -> bool:
    """Whether an input is a non-empty list of indices, sizes or axes."""
    return isinstance(contents, np.ndarray) and is_index(case.op, place) and contents.ndim > 0 and contents.size > 0


def _emptied(drawn: Call, given: Mapping[int, Array]) -> Iterator[Call]:
    """Yield the call with all axes of one size made empty, for each size."""
    for size in sorted({n for v in drawn.inputs if isinstance(v, np.ndarray) for n in v.shape} - {0}):
        yield _with_inputs(drawn, {k: _without(v, size) for k, v in given.items()})


def _with_inputs(drawn: Call, changed: Mapping[int, Array]) -> Call:
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))


def _without(array: Array, size: int) -> Array:
    """Return the array with every axis of length ``size`` made empty."""
    return array[(*(slice(0) if n == size else slice(None) for n in array.shape), ...)]


# ----- axes -----------------------------------------------------------------------------------------------------------


def names_axes(case: Case) -> bool:
    return any(requirement.constructor == "axis" for requirement in case.op.requirements.declared)


def axes_count_from_either_end(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that negative axes equal positive ones for parameters declared as axes (``axis("axis", of="X")``)."""
    compared = False
    for requirement in case.op.requirements.declared:
        turned = _with_flipped_axes(case, drawn, *requirement.names) if requirement.constructor == "axis" else None
        if turned is not None:
            with blaming(f"{case.op.title} with axes counted from the other end"):
                found = evaluate(case.op, turned)
            expect(case, turned, "itself with axes counted from the other end", present(found), present(expected))
            compared = True
    return compared


def _with_flipped_axes(case: Case, drawn: Call, name: str, of: str) -> Call | None:
    """Return the call with the sign convention of its axes flipped (k to k - rank or back); None if it has no axes."""
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
