"""String hashes: FarmHash's fingerprint (na::Hash64), SipHash-2-4, and MurmurHash64A.

Texts of integers are computed from their digits, so that their hashes are arithmetic. 64-bit words are int64, whose
sums and products wrap around as in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, subgraph
from tenonnx_extensions.hashing import string_to_hash_bucket, string_to_hash_bucket_fast
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.unicode import bytes_of
from tenonnx_tensorflow.tracked_values import as_dtype

#: Maximum number of digits of a 64-bit integer, and number of characters to process: whole words of 8.
_DIGITS, _LONGEST = 19, 24


def _word(content: int) -> Value:
    """A constant 64-bit word; its highest bit becomes the sign."""
    return constant(np.asarray(content & (2**64 - 1), np.uint64).astype(np.int64))


def _shifted(x: Value, by: int) -> Value:
    """Logical right shift."""
    rest = ops.sub(x, ops.mod(x, _word(1 << by)))
    return ops.mod(ops.div(rest, _word(1 << by)), _word(1 << (64 - by)))


def _rotated(x: Value, by: int) -> Value:
    """Right rotation."""
    return ops.add(_shifted(x, by), ops.mul(x, _word(1 << (64 - by))))


class Text(NamedTuple):
    """Decimal numbers as characters: ``codes[..., k]`` is character ``k``, 0 after the end."""

    codes: Value
    length: Value

    @staticmethod
    def of(x: Value) -> Text:
        below = ops.unsqueeze(ops.minimum(x, ops.neg(x)), [x.ndim])  # the least integer has no positive counterpart
        whole = ops.div(below, constant(10 ** np.arange(_DIGITS, dtype=np.int64)))
        digits = ops.sub(ops.mul(ops.div(whole, _word(10)), _word(10)), whole)
        is_digit = ops.cast(ops.less(whole, _word(0)), to=DType.int64)
        count = ops.maximum(ops.reduce_sum(is_digit, [x.ndim], keepdims=1), _word(1))
        sign = ops.less(ops.unsqueeze(x, [x.ndim]), _word(0))
        length = ops.add(count, ops.cast(sign, to=DType.int64))
        place = constant(np.arange(_LONGEST))
        from_end = ops.sub(ops.sub(length, _word(1)), place)
        position = ops.clip(from_end, _word(0), _word(_DIGITS - 1))
        found = ops.add(ops.gather_elements(digits, position, axis=x.ndim), _word(ord("0")))
        first = ops.and_(sign, ops.equal(place, _word(0)))
        inside = ops.greater_or_equal(from_end, _word(0))
        codes = ops.where(first, _word(ord("-")), ops.where(inside, found, _word(0)))
        return Text(codes, ops.squeeze(length, [x.ndim]))

    def part(self, start: Value | int, count: int = 8) -> Value:
        """Characters from ``start`` on as a number, in little-endian order.

        At most four at a time, since runtimes sum 64-bit integers in floats.
        """
        if count > 4:
            behind = start + 4 if isinstance(start, int) else ops.add(start, _word(4))
            high = ops.mul(self.part(behind, count - 4), _word(1 << 32))
            return ops.add(self.part(start, 4), high)
        axis = self.codes.ndim - 1
        factors = constant(256 ** np.arange(count, dtype=np.int64))
        if isinstance(start, int):
            chosen = ops.slice_(self.codes, [start], [start + count], [axis])
        else:
            places = ops.add(ops.unsqueeze(start, [axis]), constant(np.arange(count)))
            chosen = ops.gather_elements(self.codes, ops.clip(places, _word(0), _word(_LONGEST - 1)), axis=axis)
        return ops.reduce_sum(ops.mul(chosen, factors), [axis], keepdims=0)

    def from_end(self, back: int, count: int = 8) -> Value:
        return self.part(ops.sub(self.length, _word(back)), count)


# ----- FarmHash -------------------------------------------------------------------------------------------------------

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _mixed(x: Value) -> Value:
    return ops.bitwise_xor(x, _shifted(x, 47))


def _of_two(u: Value, v: Value, factor: Value) -> Value:
    first = _mixed(ops.mul(ops.bitwise_xor(u, v), factor))
    return ops.mul(_mixed(ops.mul(ops.bitwise_xor(v, first), factor)), factor)


def fingerprint(text: Text) -> Value:
    """The hash, by the length of the text: up to 3, 7, 16 and 32 characters."""
    length = text.length
    factor = ops.add(_word(_K2), ops.mul(length, _word(2)))

    middle = text.part(ops.div(length, _word(2)), 1)
    y = ops.add(text.part(0, 1), ops.mul(middle, _word(256)))
    z = ops.add(length, ops.mul(text.from_end(1, 1), _word(4)))
    shortest = ops.mul(_mixed(ops.bitwise_xor(ops.mul(y, _word(_K2)), ops.mul(z, _word(_K0)))), _word(_K2))

    head = ops.add(length, ops.mul(text.part(0, 4), _word(8)))
    short = _of_two(head, text.from_end(4, 4), factor)

    a, b = ops.add(text.part(0), _word(_K2)), text.from_end(8)
    c = ops.add(ops.mul(_rotated(b, 37), factor), a)
    d = ops.mul(ops.add(_rotated(a, 25), b), factor)
    long = _of_two(c, d, factor)

    a, b = ops.mul(text.part(0), _word(_K1)), text.part(8)
    c, d = ops.mul(text.from_end(8), factor), ops.mul(text.from_end(16), _word(_K2))
    first = ops.add(ops.add(_rotated(ops.add(a, b), 43), _rotated(c, 30)), d)
    second = ops.add(ops.add(a, _rotated(ops.add(b, _word(_K2)), 18)), c)
    longest = _of_two(first, second, factor)

    result = longest
    for most, of_fewer in ((16, long), (7, short), (3, shortest)):
        result = ops.where(ops.less_or_equal(length, _word(most)), of_fewer, result)
    return result


# ----- SipHash --------------------------------------------------------------------------------------------------------


def _rounds(state: list[Value], count: int) -> list[Value]:
    a, b, c, d = state
    for _ in range(count):
        a, c = ops.add(a, b), ops.add(c, d)
        b, d = ops.bitwise_xor(_rotated(b, 64 - 13), a), ops.bitwise_xor(_rotated(d, 64 - 16), c)
        a = _rotated(a, 32)
        c, a = ops.add(c, b), ops.add(a, d)
        b, d = ops.bitwise_xor(_rotated(b, 64 - 17), c), ops.bitwise_xor(_rotated(d, 64 - 21), a)
        c = _rotated(c, 32)
    return [a, b, c, d]


def _started(length: Value, key: Sequence[int]) -> list[Value]:
    first, second = key
    names = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    like = ops.mul(length, _word(0))
    return [ops.add(like, _word(k ^ name)) for k, name in zip((first, second, first, second), names, strict=True)]


def _compressed(state: list[Value], block: Value) -> list[Value]:
    a, b, c, d = _rounds([*state[:3], ops.bitwise_xor(state[3], block)], 2)
    return [ops.bitwise_xor(a, block), b, c, d]


def _ended(state: list[Value], rest: Value, length: Value) -> Value:
    """The hash after the last block of up to 7 bytes and the length."""
    a, b, c, d = _compressed(state, ops.add(rest, ops.mul(length, _word(1 << 56))))
    a, b, c, d = _rounds([a, b, ops.bitwise_xor(c, _word(0xFF)), d], 4)
    return ops.bitwise_xor(ops.bitwise_xor(a, b), ops.bitwise_xor(c, d))


def sip_hash(text: Text, key: Sequence[int]) -> Value:
    state = _started(text.length, key)
    for start in (0, 8):
        is_whole = ops.greater_or_equal(text.length, _word(start + 8))
        after = _compressed(state, text.part(start))
        state = [ops.where(is_whole, new, old) for new, old in zip(after, state, strict=True)]
    rest = ops.sub(text.length, ops.mod(text.length, _word(8)))
    return _ended(state, text.part(rest, 7), text.length)


def sip_hash_of_bytes(contents: Value, length: Value, key: Sequence[int]) -> Value:
    """The hash of each row of bytes, int64[rows, 8 * blocks], with ``length`` bytes followed by zeros."""
    blocks = ops.reshape(contents, [0, -1, 2, 4])
    halves = ops.reduce_sum(ops.mul(blocks, constant(256 ** np.arange(4))), [3], keepdims=0)
    low, high = (ops.gather(halves, constant(np.asarray(k)), axis=2) for k in range(2))
    words = ops.add(low, ops.mul(high, _word(1 << 32)))

    def body(step: Value, going: Value, *state: Value) -> list[Value]:
        is_whole = ops.less(step, ops.div(length, _word(8)))
        after = _compressed(list(state), ops.gather(words, step, axis=1))
        kept = [ops.where(is_whole, new, old) for new, old in zip(after, state, strict=True)]
        return [ops.identity(going), *kept]

    state = _started(length, key)
    formals: list[tuple[str, Any]] = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ()))]
    formals += [(f"held_{k}", value.type) for k, value in enumerate(state)]
    count = ops.gather(ops.shape(words), constant(np.asarray(1)))
    state = list(ops.loop(count, None, *state, body=subgraph(body, formals)))
    rest = ops.gather_elements(words, ops.unsqueeze(ops.div(length, _word(8)), [1]), axis=1)
    return _ended(state, ops.squeeze(rest, [1]), length)


# ----- buckets --------------------------------------------------------------------------------------------------------


@rule("StringToHashBucketFast", "StringToHashBucketStrong", "StringToHashBucket")
def bucket(node: Any, x: Value) -> Value:
    """Bucket of a string, or of an integer's digits by arithmetic."""
    producer, count, kind = x.producer, int(node["num_buckets"]), node.op.removeprefix("StringToHashBucket")
    numbers = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
    if numbers is not None and (numbers.dtype.numpy.kind not in "iu" or numbers.dtype is DType.uint64):
        numbers = None
    if kind in _OF_TEXT and (numbers is None or kind == "" or count >= 1 << 31):
        result: Value = _OF_TEXT[kind](x, constant(np.asarray([count])))
        return result
    if count >= 1 << 31:
        raise NotRepresentable("text is hashed into 2^31 buckets or more", given=f"{node.title}: {count} buckets")
    key = [int(k) for k in node["key"]] if kind == "Strong" else []
    if numbers is not None:
        text = Text.of(as_dtype(numbers, DType.int64))
        result = fingerprint(text) if kind == "Fast" else sip_hash(text, key)
    else:
        contents, length = bytes_of(ops.reshape(x, [-1]))
        result = ops.reshape(sip_hash_of_bytes(contents, length, key), ops.shape(x))
    low, high = ops.mod(result, _word(1 << 32)), _shifted(result, 32)
    by_high = ops.mul(ops.mod(high, _word(count)), _word((1 << 32) % count))
    return ops.mod(ops.add(by_high, low), _word(count))


#: Ops that hash strings.
_OF_TEXT = {"Fast": string_to_hash_bucket_fast, "": string_to_hash_bucket}
