"""Checks of varied calls: other element types, ranks, sizes and attributes, absent optional inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, TenonnxError, TypeMismatch, Value, find_rule
from tenonnx.extend.testing import type_of
from tenonnx_testing import claims, exports, schemas
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import (
    DTYPES,
    as_dtype,
    called,
    check_error_type,
    has_subgraph,
    is_admitted,
    others,
    refuse_or_agree,
    with_input,
)
from tenonnx_testing.repro import note_line
from tenonnx_testing.run import Failure, Outputs, evaluate, expect, is_index, is_random, present, run_reference

#: Axis length and number of elements of the largest tensor in a larger call.
PLACES, ELEMENTS = 17, 1000

#: With more axes of one size than this, axes get the length ``PLACES`` only, since a result may have all of them.
FEW = 2

#: Maximum number of elements of a tensor in a larger call.
TOO_MANY = 1 << 14

RANKS = 5

#: Number of axis sizes to lengthen, one at a time.
SIZES = 3


def varied_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that varied calls are rejected or give the same outputs in every way to run.

    The variations are other dtypes, ranks and sizes, and absent optional inputs. The numpy rule may not reject float16
    or bfloat16 inputs that the body computes.
    """
    given = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and not is_index(case.op, k)}
    narrow = list(_changed(drawn, [_narrowed(given, drawn.turn)]))
    larger = [larger_inputs(given, drawn.turn + k) for k in range(SIZES)]  # some are rejected if operands broadcast
    larger.append(larger_inputs(given, 0, _named_sizes(case, drawn)))
    distinct = {tuple((k, v.shape) for k, v in each.items()): each for each in larger}
    others = [*distinct.values(), _with_an_axis(given, drawn.turn)]
    if drawn.turn % 4 == 2:  # in every fourth call
        others += [_with_rank(given, rank) for rank in range(RANKS)]
        others += _with_other_dtypes(case, drawn, given)
        others += [{k: v[None]} for k, v in enumerate(drawn.inputs) if _is_index_array(case, k, v)]
    tried = [*_changed(drawn, others), *_without_options(case, drawn)]
    for changed in narrow:
        refuse_or_agree(case, drawn, changed, expected, symbolic=False, by_body="refused")
    for changed in tried:
        refuse_or_agree(case, drawn, changed, expected, symbolic=False)
    return bool(narrow or tried)


def _is_index_array(case: Case, place: int, contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and is_index(case.op, place)


def _changed(drawn: Call, changes: Iterable[dict[int, Any]]) -> Iterator[Call]:
    for changed in filter(None, changes):
        yield replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))


def _narrowed(given: dict[int, Any], turn: int) -> dict[int, Any]:
    """Convert all floats to float16 or bfloat16, alternately."""
    wide = (DType.float32, DType.float64)
    name = ("float16", "bfloat16")[turn % 2]
    return {k: as_dtype(v, name) for k, v in given.items() if DType.of(v.dtype) in wide}


def _with_other_dtypes(case: Case, drawn: Call, given: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """Yield conversions of one tensor, or of all tensors of one dtype, to every other dtype that the op accepts."""
    alike = {kind: [k for k, v in given.items() if v.dtype == kind] for kind in {v.dtype for v in given.values()}}
    groups = [[k] for k in given] + [places for places in alike.values() if len(places) > 1]
    for places in groups:
        for name in DTYPES:
            arrays = {k: as_dtype(given[k], name) for k in places}
            if name != DType.of(given[places[0]].dtype).name and is_admitted(case.op, next(_changed(drawn, [arrays]))):
                yield arrays


def _with_rank(given: dict[int, Any], rank: int) -> dict[int, Any]:
    """Change the highest rank: prepend axes of length 1 to those tensors, or remove leading axes."""
    highest = max((v.ndim for v in given.values()), default=0)
    if highest == rank or not all(v.size for v in given.values()):
        return {}
    if rank > highest:
        more = rank - highest
        return {k: v.reshape((1,) * more + v.shape) for k, v in given.items() if v.ndim == highest}
    return {k: v[(0,) * (v.ndim - rank) + (...,)] if v.ndim > rank else v for k, v in given.items()}


def _named_sizes(case: Case, drawn: Call) -> list[int]:
    """Sizes of the axes that attributes refer to."""
    result = []
    names = [case.op.signature.input_at(k).name for k in range(len(drawn.inputs))]
    for requirement in case.op.requirements.declared:
        name, of = requirement.names if requirement.constructor == "axis" else ("", "")
        array, axis = drawn.inputs[names.index(of)] if of in names else None, drawn.attributes.get(name)
        if isinstance(array, np.ndarray) and isinstance(axis, int) and -array.ndim <= axis < array.ndim:
            result.append(array.shape[axis])
    return result


def _with_an_axis(given: dict[int, Any], turn: int) -> dict[int, Any]:
    """Stack one tensor twice along a new first axis."""
    places = list(given)
    return {k: np.stack([given[k], given[k]]) for k in places[turn % max(1, len(places)) :][:1]}


def larger_inputs(given: dict[int, Any], turn: int, sizes: Sequence[int] | None = None) -> dict[int, Any]:
    """Lengthen all axes of one size, so that the largest tensor has about ``ELEMENTS`` elements."""
    largest = max(given.values(), key=lambda v: v.size, default=np.zeros(0))
    sizes = sizes if sizes is not None else sorted(set(largest.shape)) if largest.size else []
    for size in (*sizes[turn % max(1, len(sizes)) :], *sizes[: turn % max(1, len(sizes))]):
        times = largest.shape.count(size)
        if not times:
            continue
        beside = sum(v.shape.count(size) for v in given.values())
        wanted = math.ceil((ELEMENTS / (largest.size / size**times)) ** (1 / times))
        places = PLACES if beside > FEW else max(PLACES, wanted)
        if all(v.size * (places / size) ** v.shape.count(size) <= TOO_MANY for v in given.values()):
            return {k: _repeated(v, size, places) for k, v in given.items()}
    return {}


def _repeated(array: Any, size: int, places: int) -> Any:
    for axis, found in enumerate(array.shape):
        if found == size:
            array = array.take(_indices(size, places), axis)
    return array


def _indices(size: int, count: int) -> Any:
    """Return ``count`` indices of an axis: all in order, then random ones."""
    more = np.random.default_rng(count).integers(0, size, max(0, count - size))
    return np.concatenate([np.arange(min(size, count)), more])


def _without_options(case: Case, drawn: Call) -> Iterator[Call]:
    """Yield the call without one of its optional inputs, in rotation."""
    if has_subgraph(drawn):  # a loop without its condition never ends
        return
    given = [
        k
        for k, v in enumerate(drawn.inputs)
        if v is not None and case.op.signature.input_at(k).optional and not case.op.signature.input_at(k).variadic
    ]
    if given:
        yield with_input(drawn, given[drawn.turn % len(given)], None)


# ----- attributes -----------------------------------------------------------------------------------------------------


def has_other_ways(case: Case) -> bool:
    """Whether the op has attributes, and rules or versions to compare."""
    consumers = ("numpy", "rewrite", "rewrite.if_fewer") if not case.op.primitive else ("rewrite", "rewrite.if_fewer")
    rules = any(find_rule(case.op, consumer) is not None for consumer in consumers)
    return bool(case.op.signature.attributes) and (rules or len(exports.own_versions(case)) > 1)


def other_attributes_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the body, rewrites and other versions agree for attribute values that no drawn call has."""
    if is_random(case.op, drawn):
        return False
    compared = False
    versions = exports.own_versions(case)
    for place, call in enumerate(_with_other_attributes(case, drawn)):
        outputs = _try_call(case, call)
        if outputs is None:
            if not schemas.history(case.op.domain, case.op.name):  # with a schema, the check "bad input" reports errors
                check_error_type(case.op, drawn, call)
            continue
        tried = versions if len(versions) <= FEW + 1 else [versions[(drawn.turn // 2 + place) % len(versions)]]
        call = replace(call, version=tried[0])
        try:
            compared |= _equals_body(case, call, outputs)
            compared |= _equals_reference(case, drawn, call, expected, outputs)
            compared |= claims.rewritten_alike(case, call, outputs)
            if not any(
                getattr(output, "dtype", None) == np.float64 for output in outputs
            ):  # stored attributes have 32 bits
                for version in tried if len(versions) > 1 else ():
                    compared |= exports.keeps_meaning(case, replace(call, version=version), outputs)
        except Failure as failure:
            failure.add_note(f"with another attribute, which its requirements take: {note_line(case.op, call)}")
            failure.call = call
            raise
    return compared


def _equals_body(case: Case, drawn: Call, outputs: Outputs) -> bool:
    """Compare the body; with a schema, it may reject the call, because the check "bad input" reports such errors."""
    if case.op.primitive or find_rule(case.op, "numpy") is None:
        return False
    try:
        by_body = evaluate(case.op, drawn, body_of=case.op)
    except TenonnxError as error:
        if schemas.history(case.op.domain, case.op.name):
            return False
        raise Failure(f"{case.op.title} accepts, when called, what its body refuses: {error}") from error
    expect(case, drawn, "its body", present(by_body), present(outputs))
    return True


def _equals_reference(case: Case, drawn: Call, changed: Call, expected: Outputs, outputs: Outputs) -> bool:
    """Compare the reference of the case, which may reject the call.

    If it does, or if there is none, NaN and infinities are reported that the drawn attributes do not give.
    """
    if schemas.history(case.op.domain, case.op.name):
        return False
    found: Sequence[Any] | None = None
    if case.reference is not None:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error")
                found = run_reference(case, changed)
        except Exception:
            found = None
    if found is not None:
        expect(case, changed, "the reference of its case", found, present(outputs)[: len(found)])
        return True
    if not all(map(_is_finite, (*drawn.inputs, *expected))):
        return False
    if not all(map(_is_finite, outputs)):
        names = [name for name, value in changed.attributes.items() if value != drawn.attributes[name]]
        values = ", ".join(f"{name}={changed.attributes[name]!r}" for name in names)
        raise Failure(
            f"{case.op.title} with {values} gives NaN or infinity for finite inputs: refuse the value by a "
            "requirement, or draw it in a case with a reference"
        )
    return False


def _is_finite(contents: Any) -> bool:
    if not isinstance(contents, np.ndarray) or contents.dtype == object or not DType.of(contents.dtype).is_float:
        return True
    return bool(np.isfinite(contents.astype(np.float64)).all())


def _try_call(case: Case, drawn: Call) -> Outputs | None:
    """Return the outputs of a call, or None if it is rejected."""
    try:
        return called(case.op, drawn)
    except Exception:
        return None


def _with_other_attributes(case: Case, drawn: Call) -> Iterator[Call]:
    """Yield the call with one attribute changed to another valid value, and with undrawn combinations of values."""
    known = {name: items for each in case.op.requirements.declared for name, items in each.choices.items()}
    for name, value in drawn.attributes.items():
        if not isinstance(value, int | float | str | list):
            continue
        tried = [v for v in (*known.get(name, ()), *others(value)) if type(v) is type(value) and v != value]
        tried = [
            v for v in tried if _meets_requirements(case, replace(drawn, attributes={**drawn.attributes, name: v}))
        ]
        for turn in sorted({drawn.turn % len(tried), (drawn.turn + len(tried) // 2) % len(tried)} if tried else ()):
            yield replace(drawn, attributes={**drawn.attributes, name: tried[turn]})
    floats = [name for name, value in drawn.attributes.items() if isinstance(value, float)]
    if len(floats) > 1 and not schemas.history(case.op.domain, case.op.name):  # equal bounds of a range, say
        one, other = (floats[(drawn.turn + k) % len(floats)] for k in (0, 1))
        equal = replace(drawn, attributes={**drawn.attributes, one: drawn.attributes[other]})
        if _meets_requirements(case, equal):
            yield equal
    for place in range(2 * drawn.turn, 2 * drawn.turn + 2) if case.combinations else ():
        chosen = case.combinations[place % len(case.combinations)]
        combined = {name: float(np.float32(v)) if isinstance(v, float) else v for name, v in chosen.items()}
        call = replace(drawn, attributes={**drawn.attributes, **combined})
        if _meets_requirements(case, call):
            yield call


def _meets_requirements(case: Case, drawn: Call) -> bool:
    contents = [None if v is None else Value("", type_of(v)) for v in drawn.inputs]
    try:
        case.op.requirements.check(contents, case.op.signature.complete(case.op, drawn.attributes))
    except (TypeMismatch, InvalidCall):
        return False
    return True
