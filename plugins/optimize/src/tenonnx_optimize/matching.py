"""Equality of computations in two graphs in normal form, up to the order of operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import DType, Node, Op, Value, is_trainable
from tenonnx.extend.transforms import bind

#: Constants with a smaller relative difference are equal: files store them with float32 precision or less.
CLOSE = 2e-5

#: The same for dtypes of low precision: about one unit in the last place, as one may be computed from another.
_FEW_DIGITS = {DType.float16: 2.0**-9, DType.bfloat16: 2.0**-7}

#: Maximum number of operands of one product or sum to match in any order.
MOST_OPERANDS = 12


@dataclass(slots=True)
class Match:
    """Values for the inputs of a pattern and, for a loose match, differing numbers."""

    values: dict[Value, Value] = field(default_factory=dict)
    numbers: list[Any] = field(default_factory=list)

    def bound(self, pattern: Value, value: Value) -> Match:
        return Match({**self.values, pattern: value}, self.numbers)

    def noting(self, *numbers: Any) -> Match:
        return Match(self.values, [*self.numbers, *numbers])


class Matcher:
    """Finds ``pattern`` values, whose free inputs match any value, in another graph.

    ``associative`` are the ops whose operands match in any order and grouping. A ``loose`` matcher accepts other
    numbers and attributes, and records them. It caches results, so graphs must not change.
    """

    def __init__(self, associative: Mapping[Op, float], *, loose: bool = False) -> None:
        self.associative = associative
        self.loose = loose
        self._bound: dict[Node, tuple[list[Value | None], dict[str, Any]]] = {}
        self._apart: dict[Value, tuple[list[Value], float] | None] = {}
        self._parts: dict[Value, tuple[list[Value], float]] = {}

    def match(self, pattern: Value, value: Value, match: Match, free: frozenset[Value]) -> Iterator[Match]:
        """All ways to match ``value`` with ``pattern``."""
        if pattern is value:
            yield match
            return
        if pattern in free:
            matched = match.values.get(pattern)
            if matched is None:
                yield match.bound(pattern, value)
            elif matched is value or _equal(matched, value):
                yield match
            return
        if pattern.data is not None or value.data is not None:
            if pattern.data is None or value.data is None:
                return
            if _equal(pattern, value):
                yield match
            elif self.loose and _alike(pattern, value):
                yield match.noting(value.data.array())
            return
        ours, theirs = pattern.producer, value.producer
        if ours is None or theirs is None or ours.op is not theirs.op or not isinstance(ours.op, Op):
            return
        if ours.op in self.associative:
            yield from self._operands(ours.op, pattern, value, match, free)
            return
        if ours.outputs.index(pattern) != theirs.outputs.index(value):
            return
        (inputs, attributes), (others, given) = self._call(ours), self._call(theirs)
        differing = [name for name, a in attributes.items() if a != given.get(name)]
        if differing and not self.loose:
            return
        found = match.noting(*(given.get(name) for name in differing)) if differing else match
        yield from self._in_order(inputs, others, found, free)

    def _call(self, node: Node) -> tuple[list[Value | None], dict[str, Any]]:
        if node not in self._bound:
            self._bound[node] = bind(node)
        return self._bound[node]

    def _in_order(
        self, patterns: Sequence[Value | None], values: Sequence[Value | None], match: Match, free: frozenset[Value]
    ) -> Iterator[Match]:
        if not patterns or not values:
            if all(v is None for v in (*patterns, *values)):
                yield match
            return
        first, other = patterns[0], values[0]
        if first is None or other is None:
            if first is other:
                yield from self._in_order(patterns[1:], values[1:], match, free)
            return
        for found in self.match(first, other, match, free):
            yield from self._in_order(patterns[1:], values[1:], found, free)

    # ----- sums and products ------------------------------------------------------------------------------------------

    def _operands(self, op: Op, pattern: Value, value: Value, match: Match, free: frozenset[Value]) -> Iterator[Match]:
        if pattern not in self._apart:
            self._apart[pattern] = next(self._groupings(op, pattern, None), None)
        told_apart = self._apart[pattern]
        if told_apart is None:
            return
        operands, number = told_apart  # most distinctive operands first
        wanted = sorted(operands, key=lambda v: (v in free and v not in match.values, v in free))
        producer_op = None if not wanted or wanted[0] in free or wanted[0].producer is None else wanted[0].producer.op
        for operands, other in self._groupings(op, value, len(wanted)):
            if producer_op is not None and not any(
                v.producer is not None and v.producer.op is producer_op for v in operands
            ):
                continue
            found = match
            if not math.isclose(number, other, rel_tol=_tolerance(value)):
                if not self.loose:
                    continue
                found = match.noting(other, other / number if number else other)
            yield from self._in_any_order(wanted, operands, found, free)

    def _in_any_order(
        self, patterns: Sequence[Value], values: Sequence[Value], match: Match, free: frozenset[Value]
    ) -> Iterator[Match]:
        if not patterns:
            yield match
            return
        for place, value in enumerate(values):
            if value in values[:place]:
                continue
            for found in self.match(patterns[0], value, match, free):
                yield from self._in_any_order(patterns[1:], [*values[:place], *values[place + 1 :]], found, free)

    def _groupings(self, op: Op, value: Value, count: int | None) -> Iterator[tuple[list[Value], float]]:
        """The operands of a sum or product, grouped to ``count`` if given, and its constant factor or term."""
        pending = [self._split(op, value)]
        tried = 0
        while pending and tried < MOST_OPERANDS * MOST_OPERANDS:
            operands, number = pending.pop()
            tried += 1
            nested = [k for k, v in enumerate(operands) if v.producer is not None and v.producer.op is op]
            if len(operands) == count or (count is None and not nested):
                yield operands, number
            if len(operands) <= (count or MOST_OPERANDS):  # an operand may itself be a sum or product with a number
                for place in nested[: 1 if count is None else None]:
                    opened, inner = self._split(op, operands[place])
                    rest = [*operands[:place], *operands[place + 1 :], *opened]
                    pending.append((rest, number * inner if self.associative[op] == 1 else number + inner))

    def _split(self, op: Op, value: Value) -> tuple[list[Value], float]:
        """The two operands of a value, with a constant number among them returned separately."""
        if value not in self._parts:
            operands, number = [], self.associative[op]
            for operand in () if value.producer is None else value.producer.inputs:
                scalar = None if operand is None else _number(operand)
                if scalar is not None:
                    number = number * scalar if self.associative[op] == 1 else number + scalar
                elif operand is not None:
                    operands.append(operand)
            self._parts[value] = operands, number
        return self._parts[value]


def _number(value: Value) -> float | None:
    """The number in a non-trainable constant of one float element, else None."""
    if value.data is None or is_trainable(value) or value.data.nbytes > 16 or not value.data.type.dtype.is_float:
        return None
    array = value.data.array()
    return float(array.reshape(-1)[0]) if array.size == 1 else None


def _tolerance(x: Value) -> float:
    """The relative tolerance for equal constants of the element type of ``x``."""
    return _FEW_DIGITS.get(x.dtype, CLOSE)


def _equal(a: Value, b: Value) -> bool:
    """Whether two non-trainable constants are equal; scalars match tensors of one element."""
    if is_trainable(a) or is_trainable(b):
        return a is b
    if a.data is None or b.data is None or a.data.type.dtype is not b.data.type.dtype:
        return False
    x, y = a.data.array(), b.data.array()
    if x.shape != y.shape and not x.size == y.size == 1:
        return False
    if x is y:
        return True
    if not a.data.type.dtype.is_float:
        return bool(np.array_equal(x.reshape(-1), y.reshape(-1)))
    wide = x.astype(np.float64).reshape(-1), y.astype(np.float64).reshape(-1)
    return bool(np.allclose(*wide, rtol=_tolerance(a), atol=0, equal_nan=True))


def _alike(a: Value, b: Value) -> bool:
    """Whether two small constants are interchangeable if attributes differ."""
    if a.data is None or b.data is None or is_trainable(a) or is_trainable(b):
        return False
    return a.data.type.dtype is b.data.type.dtype and max(a.data.nbytes, b.data.nbytes) <= 256
