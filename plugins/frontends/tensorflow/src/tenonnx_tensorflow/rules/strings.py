"""Strings: case, length, substrings, joining, replacement, and conversion of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_extensions.strings import string_length
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.patterns import replaced
from tenonnx_tensorflow.rules.ragged import _rows, joined, joined_rows
from tenonnx_tensorflow.rules.unicode import Characters
from tenonnx_tensorflow.tracked_values import as_dtype, axis_of, int64, known, scalar

#: Maximum repetition count in an RE2 pattern.
_MOST = 1000


@rule("StringLower", "StringUpper")
def cased(node: Any, x: Value) -> Value:
    """Change the case: of ASCII only, unless the node specifies an encoding."""
    flat = x if x.rank == 1 else ops.reshape(x, [-1])
    result = ops.string_normalizer(
        flat,
        case_change_action="LOWER" if node.op == "StringLower" else "UPPER",
        locale=None if node.get("encoding", "") else "C",
    )
    return result if x.rank == 1 else ops.reshape(result, ops.shape(x))


@rule("StringStrip")
def strip(node: Any, x: Value) -> Value:
    return replaced(x, r"\A[\t-\r ]+|[\t-\r ]+\z", "")


def _counts_bytes(node: Any) -> bool:
    return bool(node.get("unit", "BYTE") == "BYTE")


@rule("StringLength")
def length(node: Any, x: Value) -> Value:
    return as_dtype(string_length(replaced(x, r"\C", "a") if _counts_bytes(node) else x), DType.int32)


# ----- parts ----------------------------------------------------------------------------------------------------------


@rule("Substr")
def substring(node: Any, x: Value, start: Value, size: Value) -> Value:
    """Substrings. A start beyond the end gives an empty string, where TensorFlow raises an error."""
    first, count = static(start), static(size)
    given = [int(np.reshape(each, -1)[0]) for each in (first, count) if each is not None and np.size(each) == 1]
    if len(given) < 2 or not -_MOST <= given[0] <= _MOST:
        return _chosen_part(x, start, size, _counts_bytes(node))
    one = r"\C" if _counts_bytes(node) else "."
    if given[0] < 0:
        kept = min(max(given[1], 0), -given[0])
        pattern = rf"(?s)\A{one}*?({one}{{{kept}}}){one}{{{-given[0] - kept}}}\z"
    else:
        kept = max(given[1], 0)
        pattern = rf"(?s)\A{one}{{0,{given[0]}}}({_up_to(one, kept)}){one}*\z"
    return replaced(x, pattern, r"\1", everywhere=False)


def _up_to(one: str, count: int) -> str:
    """A pattern of up to ``count`` repetitions; RE2 limits repetition counts to ``_MOST``."""
    whole, rest = divmod(count, _MOST)
    return f"{one}*" if whole > 8 else f"{one}{{0,{_MOST}}}" * whole + f"{one}{{0,{rest}}}"


def _chosen_part(x: Value, start: Value, size: Value, by_bytes: bool) -> Value:
    """Substrings with varying or dynamic bounds: select characters, and join them again."""
    shape = ops.shape(ops.expand(x, ops.shape(start)) if start.rank else x)
    x, first, count = (ops.reshape(ops.expand(each, shape), [-1]) for each in (x, int64(start), int64(size)))
    characters = Characters.of(x)
    rows = _rows(characters.splits)
    if by_bytes:
        begin, end = characters.begin, characters.end
    else:
        places = ops.range_(constant(np.asarray(0)), ops.squeeze(ops.shape(rows), [0]), constant(np.asarray(1)))
        begin = ops.sub(places, ops.gather(characters.splits, rows))
        end = ops.add(begin, constant(np.asarray(1)))
    nothing = ops.expand(constant(np.asarray(0)), ops.shape(x))
    whole = ops.scatter_nd(nothing, ops.unsqueeze(rows, [1]), end, reduction="max")
    first = ops.where(ops.less(first, constant(np.asarray(0))), ops.add(first, whole), first)
    first, last = (ops.gather(each, rows) for each in (first, ops.add(first, count)))
    inside = ops.and_(ops.greater_or_equal(begin, first), ops.less_or_equal(end, last))
    kept, owners = (ops.compress(each, inside, axis=0) for each in (characters.texts, rows))
    return ops.reshape(joined_rows(kept, owners, ops.squeeze(ops.shape(x), [0])), shape)


# ----- joining --------------------------------------------------------------------------------------------------------


@rule("StringJoin")
def join(node: Any, *values: Value) -> Value:
    separator = node.get("separator", "")
    result = values[0]
    for value in values[1:]:
        if separator:
            result = ops.string_concat(result, constant(np.asarray(separator, object)))
        result = ops.string_concat(result, value)
    return result


@rule("ReduceJoin")
def reduce_join(node: Any, x: Value, axes: Value) -> Value:
    """Join strings along axes, in their order."""
    places = [axis_of(int(axis), x) for axis in known(axes, "the axes that text is joined along").reshape(-1)]
    left = list(range(x.ndim))
    for place in places:
        x = joined(x, left.index(place), node.get("separator", ""))
        left.remove(place)
    return ops.unsqueeze(x, sorted(places)) if node.get("keep_dims", False) and places else x


@rule("UnsortedSegmentJoin")
def segment_join(node: Any, x: Value, segments: Value, count: Value) -> Value:
    if x.rank != segments.rank:
        raise NotRepresentable("segments of text are not single strings", given=f"{node.title}: {x.type}")
    owners = ops.reshape(int64(segments), [-1])
    inside = ops.greater_or_equal(owners, constant(np.asarray(0)))
    kept, owners = (ops.compress(each, inside, axis=0) for each in (ops.reshape(x, [-1]), owners))
    return joined_rows(kept, owners, scalar(int64(count)), node.get("separator", ""))


# ----- numbers --------------------------------------------------------------------------------------------------------


@rule("StringToNumber")
def to_number(node: Any, x: Value) -> Value:
    return ops.cast(x, to=dtype_of(node.get("out_type", 1)))


@rule("AsString")
def as_string(node: Any, x: Value) -> Value:
    if x.dtype is DType.bool:
        words = constant(np.asarray(["false", "true"], object))
        return ops.gather(words, ops.cast(x, to=DType.int64))
    text = ops.cast(x, to=DType.string) if x.dtype.numpy.kind in "iu" else _decimal(node, x)
    return _widened(text, int(node.get("width", -1)), node.get("fill", ""))


def _widened(text: Value, width: int, fill: str) -> Value:
    """Pad numbers to at least ``width`` characters, with a ``printf`` flag."""
    if fill in ("+", " "):
        text = replaced(text, r"\A([^-])", rf"{fill}\1", everywhere=False)
    if width < 1:
        return text
    filler = "0" if fill == "0" else " "
    more = constant(np.asarray(filler * width, object))
    if fill == "-":
        return replaced(ops.string_concat(text, more), rf"\A(.{{{width}}}.*?) *\z", r"\1", everywhere=False)
    longer = ops.string_concat(more, text)
    text = replaced(longer, rf"\A{filler}{{0,{width}}}(.{{{width}}})", r"\1", everywhere=False)
    return replaced(text, r"\A(0*)-", r"-\1", everywhere=False) if fill == "0" else text


def _decimal(node: Any, x: Value) -> Value:
    """Numbers with decimals, rounded as in C: exact for float32."""
    digits = int(node.get("precision", -1))
    digits = 6 if digits < 0 else digits
    if x.dtype is DType.float64 or node.get("scientific", False) or node.get("shortest", False) or digits > 8:
        raise NotRepresentable(
            "cannot format numbers as strings: they are float64, in scientific or shortest form, or have more than 8 digits",
            given=f"{node.title}: {x.dtype.name}, {digits} digits",
            do="cast to float32 before as_string, or format numbers after the model",
        )
    whole = ops.absolute(ops.cast(x, to=DType.float64))
    whole = whole if digits else ops.round_(whole)
    scale = constant(np.asarray(10.0**digits))
    rest = ops.sub(whole, ops.floor(whole))
    scaled = ops.cast(ops.round_(ops.mul(rest, scale)), to=DType.int64)
    size = constant(np.asarray(10**digits))
    front = ops.add(ops.cast(ops.floor(whole), to=DType.int64), ops.div(scaled, size))
    text = ops.cast(front, to=DType.string)
    if x.dtype is not DType.float16:
        text = ops.where(ops.greater_or_equal(whole, constant(np.asarray(2.0**63))), _beyond_int64(whole), text)
    if digits:
        text = ops.string_concat(text, constant(np.asarray(".", object)))
    for place in reversed(range(digits)):
        digit = ops.mod(ops.div(scaled, constant(np.asarray(10**place))), constant(np.asarray(10)))
        text = ops.string_concat(text, ops.cast(digit, to=DType.string))
    infinite, undefined = (constant(np.asarray(each, object)) for each in ("inf", "nan"))
    text = ops.where(ops.isinf(whole), infinite, text)
    one = constant(np.asarray(1.0))
    double = ops.cast(x, to=DType.float64)
    is_negative = ops.less(
        ops.where(ops.equal(double, constant(np.asarray(0.0))), ops.div(one, double), double), constant(np.asarray(0.0))
    )
    sign = ops.where(is_negative, constant(np.asarray("-", object)), constant(np.asarray("", object)))
    return ops.where(ops.isnan(whole), undefined, ops.string_concat(sign, text))


def _beyond_int64(whole: Value) -> Value:
    """All digits of float32 numbers from 2**63 to 2**128, from the digits of powers of two.

    Five limbs of nine digits become fifteen groups of three. Leading groups of zeros are empty, and the first other
    group has no leading zeros.
    """
    powers = range(63, 128)
    limbs = np.array([[2 ** (power - 23) // 10 ** (9 * k) % 10**9 for k in range(5)] for power in powers])
    bounds = constant(np.array([2.0**power for power in powers[1:]]))
    power = ops.reduce_sum(
        ops.cast(ops.greater_or_equal(ops.unsqueeze(whole, [-1]), bounds), to=DType.int64), [-1], keepdims=0
    )
    scale = ops.gather(constant(np.array([2.0 ** (23 - power) for power in powers])), power)
    mantissa = ops.cast(ops.mul(whole, scale), to=DType.int64)
    parts = ops.mul(ops.gather(constant(limbs), power), ops.unsqueeze(mantissa, [-1]))
    base, carry, groups = constant(np.asarray(10**9)), constant(np.asarray(0)), []
    for part in ops.split(parts, axis=-1, num_outputs=5):
        sums = ops.add(part, carry)
        carry, rest = ops.div(sums, base), ops.mod(sums, base)
        groups.append(ops.mod(ops.div(rest, constant(np.array([10**6, 10**3, 1]))), constant(np.asarray(1000))))
    digits = ops.concat(*reversed(groups), axis=-1)
    so_far = ops.cumsum(digits, constant(np.asarray(-1)))
    shift = ops.where(ops.equal(so_far, digits), constant(np.asarray(1000)), constant(np.asarray(0)))
    place = ops.where(ops.equal(so_far, constant(np.asarray(0))), constant(np.asarray(2000)), ops.add(digits, shift))
    words = [*(f"{number:03}" for number in range(1000)), *map(str, range(1000)), ""]
    texts = ops.gather(constant(np.array(words, object)), place)
    result, *others = (ops.squeeze(each, [-1]) for each in ops.split(texts, axis=-1, num_outputs=15))
    for each in others:
        result = ops.string_concat(result, each)
    return result
