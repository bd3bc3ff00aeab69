"""LSTM of integers: activations and weights of 8 bits, and gates and a cell of 16 bits.

The loop computes what the kernels compute, with integers in float64: sums that are rescaled by a multiplier of 32 bits,
and tables of Sigmoid and Tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_litert.reading.calls import Call
from tenonnx_litert.reading.fixed_point import sigmoid_table, tanh_table
from tenonnx_litert.reading.reader import Quantization

#: The steps of sums before a gate's function, and of its results.
_SUM, _UNIT = 2.0**-12, 2.0**-15

#: The steps of a cell for which there are kernels.
_CELL_STEPS = tuple(2.0**-n for n in range(9, 16))

#: Places of a normalization's integers behind the point, and the number by which it divides squares.
_NORM_STEP, _SQUARES = 1024, 2**20


@dataclass(frozen=True)
class IntegerLstm:
    """An LSTM by the positions of its inputs: the first of its weights, its states, and of its normalization."""

    call: Call
    weights: int
    hidden: int
    cell: int
    norm: int | None = None

    def __post_init__(self) -> None:
        if len(self.call.operator.intermediates) > 5:
            raise NotRepresentable("the gates of an LSTM do not have 16 bits", given=self.call.operator.title)
        if self.cell_step not in _CELL_STEPS:
            raise NotRepresentable(
                "the cell of an LSTM has a step for which the kernel computes nothing",
                given=f"{self.cell_step:.9g} in {self.call.operator.title}",
                available="powers of 2 from 2**-15 to 2**-9",
            )

    @property
    def cell_step(self) -> float:
        return float(self._quantization(self.cell).scales[0])

    def run(self, x: Value, loop: Callable[..., list[Value]]) -> Value:
        """The hidden states of all steps, which lie along the first axis of ``x``; all of them are quantized values."""
        gates = [self._gate(k) if k or self.call.has(self.weights) else None for k in range(4)]
        project = self._projection() if self.call.has(self.weights + 15) else _same
        inside = self.call.intermediate(4)
        limit = self._limit("CellClip", self.cell_step, 2**15 - 1)
        shift = 2.0**30 * self.cell_step

        def step(row: Value, hidden: Value, cell: Value) -> list[Value]:
            before = _wide(cell)
            taken, forget, candidate = (
                None if gate is None else gate(_wide(row), _wide(hidden), before) for gate in gates[:3]
            )
            assert forget is not None
            forget, candidate = self._table(forget, _SUM, "sigmoid"), self._table(candidate, _SUM, "tanh")
            taken = _of(2**15 - 1) - forget if taken is None else self._table(taken, _SUM, "sigmoid")
            cell = _saturated(_halved(forget * before, 2.0**-15) + _halved(taken * candidate, 1 / shift), 16)
            cell = cell if limit is None else ops.clip(cell, _of(-limit), _of(limit))
            assert gates[3] is not None
            output = self._table(gates[3](_wide(row), _wide(hidden), cell), _SUM, "sigmoid")
            product = output * self._table(cell, self.cell_step, "tanh")
            found = _rescaled(product, _UNIT * _UNIT / float(inside.scales[0])) + _of(inside.zero_points[0])
            found = project(_saturated(found, 8))
            return [ops.cast(found, to=DType.int8), ops.cast(cell, to=DType.int16)]

        *left, rows = loop(x, [self.call.raw(self.hidden), self.call.raw(self.cell)], step)
        for position, state in zip((self.hidden, self.cell), left, strict=True):
            self.call.keep_raw(position, state)
        return rows

    def _gate(self, gate: int) -> Callable[[Value, Value, Value], Value]:
        """The sum before a gate's function, of a row, the hidden state and the cell."""
        call, first = self.call, self.weights
        normalized = self.norm is not None and call.has(self.norm + gate)
        step = float(call.intermediate(gate).scales[0]) if normalized else _SUM
        seen = self._product(0, first + gate, step, None if normalized else first + 11 + gate)
        recalled = self._product(self.hidden, first + 4 + gate, step, None)
        place = None if gate == 2 else first + 8 + {0: 0, 1: 1, 3: 2}[gate]
        peephole = _wide(call.raw(place)) if place is not None and call.has(place) else None
        weight = (
            np.float32(self.cell_step) * self._step(place) / np.float32(step)
            if place is not None and peephole is not None
            else np.float32(0)
        )

        def total(row: Value, hidden: Value, cell: Value) -> Value:
            found = _saturated(seen(row), 16)
            found = _saturated(found + recalled(hidden), 16)
            if peephole is not None:
                found = _saturated(found + _rescaled(cell * peephole, weight), 16)
            return self._normalized(found, gate) if normalized else found

        return total

    def _product(self, source: int, weights: int, step: float, bias: int | None) -> Callable[[Value], Value]:
        """Rows by weights in steps of ``step``."""
        zero = _of(self._quantization(source).zero_points[0])
        turned = ops.transpose(_wide(self.call.raw(weights)), perm=[1, 0])
        added = None if bias is None or not self.call.has(bias) else _wide(self.call.raw(bias))
        scale = self._step(weights) * self._step(source) / np.float32(step)

        def product(x: Value) -> Value:
            found = ops.matmul(x - zero, turned)
            return _rescaled(found if added is None else found + added, scale)

        return product

    def _normalized(self, x: Value, gate: int) -> Value:
        assert self.norm is not None
        place, bias = self.norm + gate, self.weights + 11 + gate
        size = self.call.ins[place].shape[0]  # type: ignore[union-attr, index]
        total, squares = (ops.reduce_sum(each, [1], keepdims=1) for each in (x, x * x))
        mean = _truncated(total * _of(_NORM_STEP) / _of(size))  # type: ignore[arg-type]
        spread = _truncated((squares * _of(_SQUARES // size) - mean * mean) / _of(_SQUARES))  # type: ignore[operator]
        inverse = ops.reciprocal(ops.sqrt(ops.maximum(spread, _of(1))))
        unit = ops.round_((x * _of(_NORM_STEP) - mean) * inverse)
        found = unit * _wide(self.call.raw(place)) + _wide(self.call.raw(bias))
        found = _halved(found, 1 / _NORM_STEP)
        return _saturated(_rescaled(found, self._step(place) * np.float32(2.0**12)), 16)

    def _projection(self) -> Callable[[Value], Value]:
        inside, weights = self.call.intermediate(4), self.weights + 15
        turned = ops.transpose(_wide(self.call.raw(weights)), perm=[1, 0])
        bias = _wide(self.call.raw(weights + 1)) if self.call.has(weights + 1) else None
        own = self._quantization(self.hidden)
        scale = self._step(weights) * np.float32(inside.scales[0]) / np.float32(own.scales[0])
        limit = self._limit("ProjClip", float(own.scales[0]), 2**7 - 1)

        def projected(x: Value) -> Value:
            found = ops.matmul(x - _of(inside.zero_points[0]), turned)
            found = _rescaled(found if bias is None else found + bias, scale) + _of(own.zero_points[0])
            found = _saturated(found, 8)
            return found if limit is None else ops.clip(found, _of(-limit), _of(limit))

        return projected

    def _table(self, x: Value | None, step: float, name: str) -> Value:
        """A function of 16 bits as the kernels approximate it."""
        assert x is not None
        bits = 15 + round(math.log2(step))
        table = sigmoid_table if name == "sigmoid" else tanh_table
        held = self.call.builder.table(f"{name}_{bits}", lambda: table(bits))
        return _wide(ops.gather(held, ops.cast(x + _of(2**15), to=DType.int64), axis=0))

    def _quantization(self, position: int) -> Quantization:
        tensor = self.call.ins[position]
        if tensor is None or tensor.quantization is None:
            raise NotRepresentable(
                "a tensor of an LSTM of integers has no scale", given=f"input {position} of {self.call.operator.title}"
            )
        return tensor.quantization

    def _step(self, position: int) -> np.float32:
        return np.float32(self._quantization(position).scales[0])

    def _limit(self, option: str, step: float, most: int) -> int | None:
        given = self.call.option(option, 0.0)
        return min(int(given / step), most) if given > 0 else None


def _same(x: Value) -> Value:
    return x


def _wide(x: Value) -> Value:
    return x if x.dtype is DType.float64 else ops.cast(x, to=DType.float64)  # type: ignore[no-any-return]


def _of(number: float | int | Sequence[int] | np.ndarray[Any, Any]) -> Value:
    return constant(np.asarray(number, np.float64))


def _saturated(x: Value, bits: int) -> Value:
    return ops.clip(x, _of(-(2 ** (bits - 1))), _of(2 ** (bits - 1) - 1))  # type: ignore[no-any-return]


def _truncated(x: Value) -> Value:
    return ops.sign(x) * ops.floor(ops.absolute(x))  # type: ignore[no-any-return]


def _halved(x: Value, factor: float) -> Value:
    """A product with a power of 2, where halves are rounded away from zero."""
    return ops.sign(x) * ops.floor(ops.absolute(x) * _of(factor) + _of(0.5))  # type: ignore[no-any-return]


def _rescaled(x: Value, scale: float | np.float32) -> Value:
    """A product as kernels compute it: with a multiplier of 32 bits, and then a power of 2, each rounded."""
    fraction, exponent = math.frexp(float(scale))
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    high = ops.floor(x * _of(multiplier * 2.0 ** (max(exponent, 0) - 31)) + _of(0.5))
    return high if exponent >= 0 else _halved(high, 2.0**exponent)
