"""Check of requirements: each is violated on purpose by changing a drawn call."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pytest

from tenonnx.extend import ArrayConstant, DType, Op, Requirement, TenonnxError, TypeMismatch, Value
from tenonnx.extend.testing import UNFORESEEN, type_of
from tenonnx.extend.transforms import infer_call
from tenonnx_testing.cases import Call, collected
from tenonnx_testing.kit import STUBBORN, calls, pool_size
from tenonnx_testing.mutations import DTYPES, as_dtype, called, others, with_input
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Failure

Array: TypeAlias = np.ndarray[Any, Any]


def check_requirements(op: Op, examples: int) -> None:
    """Check that every requirement of an op rejects a call that violates it, with an error that names op and parameter.

    Raises ``Failure`` if one does not, or if no changed call violates it first.
    """
    waiting = list(op.requirements.declared)
    gaps = [gap for case in collected(op) for gap in case.gaps_of("requirements")]
    counts = [max(2, pool_size(examples)), *([] if gaps else [4 * STUBBORN])]
    for drawn in chain.from_iterable(calls(case, count) for count in counts for case in collected(op)):
        for requirement in list(waiting):
            broken = next((c for c in changed(op, drawn, requirement) if first_broken(op, c) is requirement), None)
            if broken is not None:
                _expect_refusal(op, broken, requirement)
                waiting.remove(requirement)
        if not waiting:
            break
    if waiting and gaps:
        pytest.xfail("; ".join(gap.reason for gap in gaps))
    if gaps:
        raise Failure(f"{op.title}: the gap of requirements is stale, each can be broken: {gaps[0].reason}")
    if waiting:
        raise Failure(
            f"{op.title}: no change to a call of its cases breaks {', '.join(map(repr, waiting))}; "
            "leave out what others imply, or draw calls that come near"
        )


def _expect_refusal(op: Op, broken: Call, requirement: Requirement) -> None:
    attributes = op.signature.complete(op, broken.attributes)
    ways: dict[str, Callable[[], Any]] = {
        "where contents are known": lambda: infer_call(op, as_values(broken), attributes, broken.outputs)
    }
    if first_broken(op, broken, contents=False) is requirement:  # eager calls check types only
        ways["when called"] = lambda: called(op, broken)
    for way, run in ways.items():
        try:
            run()
        except TenonnxError as error:
            said = _words(error.what.removeprefix(op.title))
            if op.title not in str(error) or not _is_named(requirement, str(error)):
                message = f"the error does not say, {way}, that {requirement!r} of {op.title} is broken: {error}"
            elif requirement.names and not _parameters(op, requirement) & said:
                message = f"the text of {requirement!r} of {op.title} names no parameter of it: {error.what}"
            else:
                continue
            failure = Failure(message)
        except Exception as error:
            failure = Failure(
                f"{way}, {op.title} raises a {type(error).__name__} for what breaks {requirement!r}: {error}"
            )
        else:
            failure = Failure(f"{op.title} accepts, {way}, a call that breaks {requirement!r}")
        failure.add_note(f"reproduce: {one_line(op, broken)}")
        raise failure


def _is_named(requirement: Requirement, text: str) -> bool:
    return not requirement.names or any(name in text for name in (*requirement.names, *requirement.dims))


def _parameters(op: Op, requirement: Requirement) -> set[str]:
    """Names of the inputs and attributes of an op, and of the dims of a requirement."""
    return {*(p.name for p in op.signature.inputs), *op.signature.attributes, *requirement.names, *requirement.dims}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def first_broken(op: Op, drawn: Call, *, contents: bool = True) -> Requirement | None:
    """Return the first violated requirement; None if there is none or the arguments do not fit the signature."""
    values = as_values(drawn, contents=contents)
    try:
        op.signature.check_inputs(op, values)
        call = op.requirements.arguments(values, op.signature.complete(op, drawn.attributes))
    except TenonnxError:
        return None
    for requirement in op.requirements.declared:
        try:
            requirement.check(call)
        except TypeMismatch:
            return requirement
        except UNFORESEEN:
            return None
    return None


def as_values(drawn: Call, *, contents: bool = True) -> list[Value | None]:
    """Return the inputs of a call as typed values, with or without known contents."""
    return [None if v is None else _value(v, contents) for v in drawn.inputs]


def _value(given: Any, contents: bool) -> Value:
    known = contents and isinstance(given, np.ndarray)
    return Value("", type_of(given), data=ArrayConstant(given) if known else None)


# ----- changes --------------------------------------------------------------------------------------------------------


#: Values to try for attributes that are None, by kind.
_SAMPLES: dict[str, list[Any]] = {
    "int": [1, -1, 9],
    "float": [1.0, -1.0],
    "str": ["nonsense"],
    "ints": [[1], [9], [0, 0]],
    "floats": [[1.0], [1.0, 1.0]],
    "strs": [["nonsense"]],
}


# ----- changes --------------------------------------------------------------------------------------------------------


def changed(op: Op, drawn: Call, requirement: Requirement) -> Iterator[Call]:
    """Yield the call with one change to something that a requirement reads, always in the same order."""
    names = requirement.names or tuple(drawn.attributes)
    places = {k: op.signature.input_at(k).name for k in range(len(drawn.inputs))}
    for name in names:
        for other in _other_attributes(op, name, drawn.attributes[name]) if name in drawn.attributes else ():
            yield replace(drawn, attributes={**drawn.attributes, name: other})
            yield replace(drawn, attributes={**drawn.attributes, **dict.fromkeys(names, other)})
    for place, name in places.items():
        if name in names:
            yield from (with_input(drawn, place, other) for other in _other_inputs(drawn, drawn.inputs[place]))
    for place, contents in enumerate(drawn.inputs):
        if isinstance(contents, np.ndarray):
            yield from (with_input(drawn, place, other) for other in _other_lengths(contents))
    given = [k for k, v in enumerate(drawn.inputs) if v is not None and op.signature.input_at(k).optional]
    for left_out in (given[k:] for k in range(len(given))):
        yield replace(drawn, inputs=tuple(None if k in left_out else v for k, v in enumerate(drawn.inputs)))
    yield from _other_sizes(drawn)
    yield from _other_types(drawn)


def _other_attributes(op: Op, name: str, given: Any) -> Iterator[Any]:
    if given is None:
        yield from _SAMPLES.get(op.signature.attribute_types.get(name, ""), ())
        return
    if not isinstance(given, int | float | str | list):
        return
    yield from others(given)
    if isinstance(given, float):
        yield math.nan
    if isinstance(given, list):
        yield from ([*given, *given], [*given, 9], [-9 for _ in given])
    yield None


def _other_inputs(drawn: Call, contents: Any) -> Iterator[Any]:
    if contents is None:
        yield from (other for other in drawn.inputs if isinstance(other, np.ndarray))
    if not isinstance(contents, np.ndarray):
        return
    yield from (as_dtype(contents, dtype) for dtype in DTYPES)
    yield contents[None]
    yield contents[None, None]
    if contents.size and contents.ndim:
        yield contents[0]
        yield contents.reshape(-1)[0].reshape(())
    if contents.size and contents.dtype.kind in "iu":
        yield from (np.full_like(contents, number) for number in (0, 1, 100))
        yield from (contents + 100, np.where(np.arange(contents.size).reshape(contents.shape), contents, 100))
    if contents.size and DType.of(contents.dtype).is_float:
        with np.errstate(all="ignore"):
            yield from (np.full_like(contents, number) for number in (0, -1, math.nan))
    yield None


def _other_lengths(contents: Array) -> Iterator[Array]:
    for axis in range(contents.ndim):
        yield from (_resized(contents, axis, size) for size in _sizes(contents.shape[axis]))


def _other_types(drawn: Call) -> Iterator[Call]:
    """Convert all inputs of one dtype to another."""
    for dtype in dict.fromkeys(v.dtype for v in drawn.inputs if isinstance(v, np.ndarray)):
        for name in DTYPES:
            yield replace(
                drawn,
                inputs=tuple(
                    as_dtype(v, name) if isinstance(v, np.ndarray) and v.dtype == dtype else v for v in drawn.inputs
                ),
            )


def _other_sizes(drawn: Call) -> Iterator[Call]:
    """Resize all axes of one length."""
    for size in sorted({size for v in drawn.inputs if isinstance(v, np.ndarray) for size in v.shape}):
        for other in _sizes(size):
            yield replace(drawn, inputs=tuple(_all_resized(v, size, other) for v in drawn.inputs))


def _sizes(size: int) -> tuple[int, ...]:
    return size + 1, max(size - 1, 0), 0, 1, size + 2


def _all_resized(contents: Any, size: int, other: int) -> Any:
    if isinstance(contents, np.ndarray):
        for axis, found in enumerate(contents.shape):
            contents = _resized(contents, axis, other) if found == size else contents
    return contents


def _resized(array: Array, axis: int, size: int) -> Array:
    if size > array.shape[axis] and not array.shape[axis]:
        return np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    return array.take([k % max(array.shape[axis], 1) for k in range(size)], axis)
