"""Hashes of elements and of token n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    NotRepresentable,
    Value,
    at_least,
    constant,
    dims,
    dtypes,
    op,
    primitive,
    same_dtype,
    shapes,
)

# ----- MurmurHash3 ----------------------------------------------------------------------------------------------------

#: Multipliers of blocks, and the constant added to the hash after each block (Appleby 2011).
_FIRST, _SECOND, _STEP = 0xCC9E2D51, 0x1B873593, 0xE6546B64
#: Final mixing of the hash: pairs of a right shift and a multiplier.
_MIX = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
_MASK = (1 << 32) - 1


@primitive("MurmurHash3", domain="com.microsoft")
def murmur_hash3(X, *, positive=1, seed=0):
    """The 32-bit hash MurmurHash3_x86_32 of the bytes of each element, as uint32 if ``positive``, else int32."""


@murmur_hash3.lower()
def murmur_hash3_lowering(X, *, positive, seed):
    """Lower to 64-bit integer arithmetic; strings cannot be lowered."""
    if X.dtype is DType.string:
        raise NotRepresentable("ai.onnx has no op for the bytes of strings")
    state = constant(seed & _MASK, DType.uint64)
    blocks = _blocks(X)
    for block in blocks:
        mixed = _times(_rotated_left(_times(block, _FIRST), 15), _SECOND)
        state = _low(_rotated_left(ops.bitwise_xor(state, mixed), 13) * _number(5) + _number(_STEP))
    state = ops.bitwise_xor(state, _number(4 * len(blocks)))
    for shift, factor in _MIX:
        state = _times(ops.bitwise_xor(state, state / _number(1 << shift)), factor)
    if positive:
        return ops.cast(state, to=DType.uint32)
    signed = ops.cast(state, to=DType.int64)
    return ops.cast(ops.where(signed >= 1 << 31, signed - (1 << 32), signed), to=DType.int32)


def _blocks(x: Value) -> list[Value]:
    """Convert elements to blocks of four bytes, as uint64."""
    if x.dtype.is_float:
        x = ops.bitcast(x, to=DType.int32 if x.dtype.bits == 32 else DType.int64)
    if x.dtype.bits == 32:
        return [ops.cast(ops.cast(x, to=DType.uint32), to=DType.uint64)]
    whole = ops.cast(x, to=DType.uint64)
    return [_low(whole), whole / _number(1 << 32)]


def _number(number: int) -> Value:
    return constant(number, DType.uint64)


def _low(x: Value) -> Value:
    """The lower 32 bits."""
    return ops.mod(x, _number(1 << 32))


def _times(x: Value, factor: int) -> Value:
    return _low(x * _number(factor))


def _rotated_left(x: Value, bits: int) -> Value:
    """32 bits rotated to the left."""
    return _low(x * _number(1 << bits)) + x / _number(1 << (32 - bits))


@murmur_hash3.numpy
def murmur_hash3_numpy(X, *, positive, seed):
    data = [text.encode() for text in X.reshape(-1)] if X.dtype == object else [e.tobytes() for e in X.reshape(-1)]
    result = np.array([_murmur(item, seed & _MASK) for item in data], np.uint32).reshape(X.shape)
    return result if positive else result.view(np.int32)


def _murmur(data: bytes, state: int) -> int:
    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) & _MASK

    whole = len(data) - len(data) % 4
    for start in range(0, len(data), 4):
        block = int.from_bytes(data[start : start + 4], "little")
        state ^= rotated(block * _FIRST & _MASK, 15) * _SECOND & _MASK
        if start < whole:
            state = (rotated(state, 13) * 5 + _STEP) & _MASK
    state ^= len(data)
    for shift, factor in _MIX:
        state = (state ^ state >> shift) * factor & _MASK
    return state


murmur_hash3.requires(dtypes(X="float32 float64 int32 int64 uint32 uint64 string"))


@murmur_hash3.type
def murmur_hash3_type(X, *, positive, seed):
    return X.tensor.with_dtype(DType.uint32 if positive else DType.int32)


# ----- n-grams --------------------------------------------------------------------------------------------------------


@op("NGramHashMapping", domain="com.microsoft")
def ngram_hash_mapping(
    input_ids,
    multipliers,
    vocab_sizes,
    past_ids=None,
    head_offsets=None,
    eos_token_id=None,
    segment_ids=None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos=0,
):
    """Hashes of the n-grams that end at each token, several per length; and the last tokens.

    A hash is the XOR of tokens times ``multipliers``, modulo a size. Tokens before the first one, an end of sequence or
    a change of segment are replaced by ``eos_token_id``, or by ``pad_id`` without it.
    """
    batch, length = dims(input_ids)
    reach = max_ngram_size - 1
    fill = fill_of(input_ids, eos_token_id, pad_id)
    before = ops.expand(fill, [batch, reach]) if past_ids is None else past_ids
    ids = ops.concat(before, input_ids, axis=1)
    segments = None
    if segment_ids is not None:  # earlier tokens belong to the first segment
        segments = ops.concat(ops.expand(segment_ids[:, :1], [batch, reach]), segment_ids, axis=1)

    def back(x: Value, steps: int) -> Value:
        return x[:, reach - steps : reach - steps + length]

    end = eos_token_id if reset_on_eos else None
    groups = None if segments is None else lambda steps: back(segments, steps)
    shifted = shifted_ids(lambda steps: back(ids, steps), groups, reach, end, fill)
    hashes = hashes_of(shifted, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    return hashes, ids[:, length:]


def fill_of(ids: Value, eos: Value | None, pad_id: int) -> Value:
    return constant(pad_id, ids.dtype) if eos is None else ops.reshape(eos, [])


def shifted_ids(ids: Any, segments: Any, reach: int, end: Value | None, fill: Value) -> list[Value]:
    """The tokens, and the tokens 1, 2, ... steps before within the same sequence and segment."""
    result, same = [ids(0)], None
    for steps in range(1, reach + 1):
        checks = [] if same is None else [same]
        if end is not None:
            checks.append(ops.not_(ops.equal(ids(steps), end)))
        if segments is not None:
            checks.append(ops.equal(segments(steps), segments(steps - 1)))
        for check in checks:
            same = check if same is None or same is check else ops.and_(same, check)
        result.append(ids(steps) if same is None else ops.where(same, ids(steps), fill))
    return result


def hashes_of(shifted: Sequence[Value], multipliers: Value, sizes: Value, offsets: Value | None, heads: int) -> Value:
    """The hashes of n-grams of length 2, 3, ... along a new last axis."""
    mixed = shifted[0] * multipliers[0]
    runs = []
    for k, ids in enumerate(shifted[1:], 1):
        mixed = ops.bitwise_xor(mixed, ids * multipliers[k])
        runs.append(ops.mod(ops.unsqueeze(mixed, [-1]), sizes[(k - 1) * heads : k * heads]))
    result = ops.concat(*runs, axis=-1)
    return result if offsets is None else result + offsets


def _words(**more: str) -> Any:
    return shapes(vocab_sizes="v", head_offsets="v", **more)


ngram_hash_mapping.requires(
    _words(input_ids="b s", segment_ids="b s"),
    dtypes(input_ids="int32 int64", segment_ids="int32"),
    same_dtype("input_ids", "multipliers", "vocab_sizes", "past_ids", "head_offsets", "eos_token_id"),
    at_least(max_ngram_size=2, n_head_per_ngram=1),
)
