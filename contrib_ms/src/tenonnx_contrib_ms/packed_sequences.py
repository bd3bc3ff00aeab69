"""Packed sequences: sequences of different lengths, concatenated along the first axis.

``cumulative_sequence_length`` has the start of each sequence, followed by the end of the last one.
"""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, dims


class PackedSequences:
    """Positions of packed elements: sequence index and offset of each, and the first element of each sequence."""

    def __init__(self, bounds: Value, total: Any) -> None:
        self.total = total
        self.bounds = ops.cast(bounds, to=DType.int64)
        self.positions = ops.range_(0, total, 1)
        begun = ops.cast(ops.reshape(self.positions, [-1, 1]) >= self.bounds[1:], to=DType.int64)
        self.sequence = ops.reduce_sum(begun, [1], keepdims=0)
        self.starts, self.ends = self.bounds[:-1], self.bounds[1:]
        self.local = self.positions - ops.gather(self.starts, self.sequence)

    def back(self, x: Value, before: Value, steps: Any) -> Value:
        """The element ``steps`` before each one, from ``before`` (sequence, offset, ...) if it precedes ``x``.

        ``steps`` is a number, or a vector for a further axis.
        """
        reach, places, local, sequence = dims(before)[1], self.positions, self.local, self.sequence
        if isinstance(steps, Value):
            places, local, sequence = (ops.unsqueeze(each, [1]) for each in (places, local, sequence))
            sequence = ops.expand(sequence, ops.shape(places - steps))
        own = ops.gather(x, ops.maximum(places - steps, 0))
        past = ops.gather_nd(before, _pairs(sequence, ops.clip(local - steps + reach, 0, reach - 1)))
        return ops.where(_as_rank(local >= steps, own.ndim), own, past)

    def state_at(self, x: Value, before: Value, ends: Value) -> Value:
        """For each sequence, the last elements before position ``ends``, as many as ``before`` has."""
        reach = dims(before)[1]
        steps = ops.reshape(ends, [-1, 1]) - reach + ops.range_(0, reach, 1)
        starts = ops.reshape(self.starts, [-1, 1])
        own = ops.gather(x, ops.clip(steps, 0, self.total - 1))
        past_place = ops.clip(steps - starts + reach, 0, reach - 1)
        rows = ops.expand(ops.reshape(ops.range_(0, dims(before)[0], 1), [-1, 1]), ops.shape(past_place))
        past = ops.gather_nd(before, _pairs(rows, past_place))
        return ops.where(_as_rank(steps >= starts, own.ndim), own, past)

    def captured(self, count: Value, capacity: int) -> list[tuple[Value, Value]]:
        """For the first ``capacity`` elements of each sequence: the position after each, and whether it is captured."""
        lengths = self.ends - self.starts
        limit = ops.minimum(ops.cast(count, to=DType.int64), lengths)
        return [(self.starts + (slot + 1), limit > slot) for slot in range(capacity)]


def _pairs(a: Value, b: Value) -> Value:
    return ops.concat(ops.unsqueeze(a, [-1]), ops.unsqueeze(b, [-1]), axis=-1)


def _as_rank(condition: Value, rank: int) -> Value:
    return ops.unsqueeze(condition, list(range(condition.ndim, rank))) if rank > condition.ndim else condition


def holds_bounds(name: str, bounds: Value | None) -> str | None:
    empty = bounds is not None and bounds.tensor.shape == (0,)
    return f"{name} is empty" if empty else None


def holds_captures(capacity: int, count: Value | None) -> str | None:
    return (
        None
        if bool(capacity) == (count is not None)
        else "only one of capture_count and a positive state_update_capacity is given"
    )
