"""Caches of keys and values, as (batch, heads, length, size)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, dtypes, op, same_dtype, shapes, symbolic
from tenonnx_standard.checking import dim_of
from tenonnx_standard.symbolic_ints import counts_from, everywhere

#: A position beyond the end of any cache.
NOWHERE = 1 << 40


def written(cache: Value, new: Value, start: Value, places: Value | None = None) -> tuple[Value, Value]:
    """Return a cache with ``new`` written from ``start`` on, and its contents up to the end of ``new``.

    With ``places``, the past part of the contents is gathered from these flat positions (see ``gather_flat``).
    """
    past = cache[:, :, :start]
    used = ops.concat(past, new, axis=2)
    present = ops.concat(used, cache[:, :, start + dim_of(new, 2) :], axis=2)
    return present, used if places is None else ops.concat(gather_flat(past, places), new, axis=2)


def places_of_beams(beams: Value, length: Value) -> Value:
    """Flat positions of the past of each beam, from the source beams ``beams`` (batch, beams, capacity)."""
    batch, width = dim_of(beams, 0), dim_of(beams, 1)
    first = ops.reshape(ops.range_(0, batch, 1), [-1, 1, 1]) * width
    rows = ops.cast(beams[:, :, :length], to=DType.int64) + first
    return ops.reshape(rows * length + ops.range_(0, length, 1), [batch * width, -1])


def gather_flat(cache: Value, places: Value) -> Value:
    """The elements at flat positions ``places`` (batch, length), counted across all sequences of a cache."""
    rows = ops.reshape(ops.transpose(cache, perm=[0, 2, 1, 3]), [-1, dim_of(cache, 1), dim_of(cache, 3)])
    return ops.transpose(ops.gather(rows, places), perm=[0, 2, 1, 3])


@op("CacheUpdate", domain="tenonnx")
def updated(past_key, past_value, key, value, rows, total):
    """Caches with new elements written at ``rows`` (batch, length), extended to at least ``total`` (1) keys."""
    capacity = dim_of(past_key, 2)
    behind = ops.concat([0] * 6, ops.maximum(total, capacity) - capacity, [0], axis=0)
    longer = (ops.pad(x, behind) for x in (past_key, past_value))
    places = ops.unsqueeze(rows, [1, 3])
    return tuple(
        ops.scatter_elements(x, ops.expand(places, [1, dim_of(n, 1), 1, dim_of(n, 3)]), n, axis=2)
        for x, n in zip(longer, (key, value), strict=True)
    )


updated.requires(
    shapes(
        past_key="batch heads capacity size",
        past_value="batch heads capacity value_size",
        key="batch heads length size",
        value="batch heads length value_size",
        rows="batch length",
        total="1",
    ),
    same_dtype("past_key", "key"),
    same_dtype("past_value", "value"),
    dtypes(past_key="bool number", past_value="bool number", rows="int64", total="int64"),
)


@updated.rule("normal")
def updated_normal(past_key, past_value, key, value, rows, total):
    """Concatenate if the rows start after the entire past."""
    capacity, length = past_key.shape[2], key.shape[2]
    appended = counts_from(rows) == capacity is not None and everywhere(total) == symbolic.add(capacity, length)
    return tuple(ops.concat(*x, axis=2) for x in ((past_key, key), (past_value, value))) if appended else None


@updated.numpy
def updated_numpy(past_key, past_value, key, value, rows, total):
    instances, length = np.arange(len(rows))[:, None], int(total[0])

    def written(past, new):
        batch, heads, capacity, size = past.shape
        present = np.zeros((batch, heads, max(capacity, length), size), past.dtype)
        present[:, :, :capacity] = past
        present[instances, :, rows] = new.transpose(0, 2, 1, 3)
        return present

    return written(past_key, key), written(past_value, value)


def extended(
    past: tuple[Value, Value], new: Sequence[Value], rows: Value, total: Value
) -> tuple[Sequence[Value], list[Value], Value]:
    """Return the updated caches, their contents up to ``total`` keys, and the positions of these keys."""
    count = ops.reshape(ops.cast(total, to=DType.int64), [1])
    (past_key, past_value), (key, value) = past, new
    present = updated(past_key, past_value, key, value, rows, count)
    return present, [ops.slice_(x, [0], count, [2]) for x in present], ops.range_(0, ops.reshape(count, []), 1)


class SlidingWindow:
    """Caches of the most recent positions, stored from row 0 on; ``rows`` are the positions of the new elements.

    A full cache drops everything except the last ``window`` positions at once.
    """

    def __init__(self, past: Value, rows: Value, start: Value, lengths: Value, window: int) -> None:
        self.capacity: Any = dim_of(past, 2)
        self.columns = ops.range_(0, self.capacity, 1)
        self.slack = self.capacity - window + 1
        self.start, self.lengths = start, lengths
        self.first = start - self._resident(start)
        last = self.first + self.columns
        self.positions = ops.concat(ops.where(last < start, last, NOWHERE), rows, axis=1)

    def _resident(self, length: Value) -> Value:
        """Number of positions in a cache."""
        beyond = ops.maximum(length - self.capacity, 0) + (self.slack - 1)
        return length - beyond // self.slack * self.slack

    def extended(self, past: tuple[Value, Value], new: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """The updated caches, and keys and values for the current queries."""
        states = [ops.concat(p, n, axis=2) for p, n in zip(past, new, strict=True)]
        return [self.updated(x) for x in states], states

    def updated(self, joined: Value) -> Value:
        """Contents of a cache after the call; ``joined`` is the past concatenated with the new elements."""
        wanted = ops.minimum(self.lengths - self._resident(self.lengths) + self.columns, self.lengths - 1)
        places = wanted - ops.where(wanted < self.start, self.first, self.start - self.capacity)
        batch, length = dim_of(joined, 0), dim_of(joined, 2)
        return gather_flat(joined, places + ops.reshape(ops.range_(0, batch, 1), [-1, 1]) * length)

    def columns_of(self, bias: Value) -> Value:
        """The columns of a bias (batch or 1, heads or 1, queries, all positions) for the cached positions."""
        batch, length = dims(self.positions)
        last = dim_of(bias, 3) - 1
        sides = [batch, dim_of(bias, 1), dim_of(bias, 2)]
        places = ops.unsqueeze(ops.minimum(self.positions, last), [1, 2])
        return ops.gather_elements(ops.expand(bias, [*sides, 1]), ops.expand(places, [*sides, length]), axis=3)


# ----- quantized caches -----------------------------------------------------------------------------------------------


class Quantization(NamedTuple):
    """Quantization of key and value caches: scales that broadcast to each, None for a float cache."""

    scales: Sequence[Value | None]
    bits: int

    @classmethod
    def of(cls, scales: Sequence[Value | None], kinds: Sequence[str], heads: int, bits: int) -> Quantization:
        """Create from the ``kinds`` NONE, PER_TENSOR and PER_CHANNEL."""
        shapes = {"PER_TENSOR": [], "PER_CHANNEL": [1, heads, 1, -1]}
        pairs = zip(scales, kinds, strict=True)
        return cls([None if s is None or k == "NONE" else ops.reshape(s, shapes[k]) for s, k in pairs], bits or 8)

    def quantized(self, new: Sequence[Value]) -> list[Value]:
        """Quantize new keys and values."""
        pairs = zip(new, self.scales, strict=True)
        return [x if s is None else quantized(x, s, self.bits) for x, s in pairs]

    def restored(self, quantized: Sequence[Value], dtype: DType) -> list[Value]:
        """Dequantize keys and values."""
        pairs = zip(quantized, self.scales, strict=True)
        return [x if s is None else restored(x, s, self.bits, dtype) for x, s in pairs]


def quantized(x: Value, scale: Value, bits: int) -> Value:
    """``x`` divided by ``scale`` as int8, or as uint8 with two 4-bit numbers each, the first in the low bits."""
    low, high = (-128.0, 127.0) if bits == 8 else (-8.0, 7.0)
    whole = ops.clip(ops.round_(ops.cast(x, to=DType.float32) / scale), low, high)
    if bits == 8:
        return ops.cast(whole, to=DType.int8)
    pairs = ops.reshape(whole + 8.0, [0, 0, 0, dim_of(x, 3) // 2, 2]) * constant([1.0, 16.0], DType.float32)
    return ops.cast(ops.reduce_sum(pairs, [4], keepdims=0), to=DType.uint8)


def restored(x: Value, scale: Value, bits: int, dtype: DType) -> Value:
    """Dequantize ``x``, the approximate inverse of ``quantized``."""
    if bits == 4:
        wide = ops.unsqueeze(ops.cast(x, to=DType.int32), [4])
        pairs = ops.concat(wide % 16, wide / 16, axis=4)
        x = ops.reshape(pairs, [0, 0, 0, 2 * dim_of(x, 3)]) - 8
    return ops.cast(ops.cast(x, to=DType.float32) * scale, to=dtype)
