"""Integer LSTM: int8 activations and weights, int16 gates and cell state.

The loop reproduces the integer kernels, with the integers held in float64: sums are rescaled by a 32-bit multiplier, and
Sigmoid and Tanh are lookup tables.
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

#: Scales of a gate's sum before its activation, and of the activation's result.
_SUM, _UNIT = 2.0**-12, 2.0**-15

#: Scales of the cell state that the kernels support.
_CELL_STEPS = tuple(2.0**-n for n in range(9, 16))

#: Fixed-point factor of the layer normalization, and that of its mean of squares.
_NORM_STEP, _SQUARES = 1024, 2**20


@dataclass(frozen=True)
class IntegerLstm:
    """An LSTM, by the positions of its inputs: first weights, hidden state, cell state, first normalization scale."""

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
        """The hidden states of all steps, which lie along the first axis of ``x``; input and output are int8."""
        gates = [self._gate(k) if k or self.call.has(self.weights) else None for k in range(4)]
        project = self._projection() if self.call.has(self.weights + 15) else _same
        inside = self.call.intermediate(4)
        limit = self._limit("CellClip", self.cell_step, 2**15 - 1)
        shift = 2.0**30 * self.cell_step

        def step(row: Value, hidden: Value, cell: Value) -> list[Value]:
            before = _wide(cell)
            input_gate, forget, candidate = (
                None if gate is None else gate(_wide(row), _wide(hidden), before) for gate in gates[:3]
            )
            assert forget is not None
            forget, candidate = self._table(forget, _SUM, "sigmoid"), self._table(candidate, _SUM, "tanh")
            input_gate = _of(2**15 - 1) - forget if input_gate is None else self._table(input_gate, _SUM, "sigmoid")
            cell = _saturated(_halved(forget * before, 2.0**-15) + _halved(input_gate * candidate, 1 / shift), 16)
            cell = cell if limit is None else ops.clip(cell, _of(-limit), _of(limit))
            assert gates[3] is not None
            output = self._table(gates[3](_wide(row), _wide(hidden), cell), _SUM, "sigmoid")
            product = output * self._table(cell, self.cell_step, "tanh")
            hidden = _rescaled(product, _UNIT * _UNIT / float(inside.scales[0])) + _of(inside.zero_points[0])
            hidden = project(_saturated(hidden, 8))
            return [ops.cast(hidden, to=DType.int8), ops.cast(cell, to=DType.int16)]

        *left, rows = loop(x, [self.call.raw(self.hidden), self.call.raw(self.cell)], step)
        for position, state in zip((self.hidden, self.cell), left, strict=True):
            self.call.keep_raw(position, state)
        return rows

    def _gate(self, gate: int) -> Callable[[Value, Value, Value], Value]:
        """Function of a row, the hidden state and the cell state that computes a gate's sum before its activation."""
        call, first = self.call, self.weights
        normalized = self.norm is not None and call.has(self.norm + gate)
        step = float(call.intermediate(gate).scales[0]) if normalized else _SUM
        of_input = self._product(0, first + gate, step, None if normalized else first + 11 + gate)
        of_hidden = self._product(self.hidden, first + 4 + gate, step, None)
        place = None if gate == 2 else first + 8 + {0: 0, 1: 1, 3: 2}[gate]
        peephole = _wide(call.raw(place)) if place is not None and call.has(place) else None
        weight = (
            np.float32(self.cell_step) * self._step(place) / np.float32(step)
            if place is not None and peephole is not None
            else np.float32(0)
        )

        def total(row: Value, hidden: Value, cell: Value) -> Value:
            sum_ = _saturated(of_input(row), 16)
            sum_ = _saturated(sum_ + of_hidden(hidden), 16)
            if peephole is not None:
                sum_ = _saturated(sum_ + _rescaled(cell * peephole, weight), 16)
            return self._normalized(sum_, gate) if normalized else sum_

        return total

    def _product(self, source: int, weights: int, step: float, bias: int | None) -> Callable[[Value], Value]:
        """Function that multiplies rows by weights; the result has the scale ``step``."""
        zero = _of(self._quantization(source).zero_points[0])
        transposed = ops.transpose(_wide(self.call.raw(weights)), perm=[1, 0])
        added = None if bias is None or not self.call.has(bias) else _wide(self.call.raw(bias))
        scale = self._step(weights) * self._step(source) / np.float32(step)

        def product(x: Value) -> Value:
            sums = ops.matmul(x - zero, transposed)
            return _rescaled(sums if added is None else sums + added, scale)

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
        scaled = unit * _wide(self.call.raw(place)) + _wide(self.call.raw(bias))
        scaled = _halved(scaled, 1 / _NORM_STEP)
        return _saturated(_rescaled(scaled, self._step(place) * np.float32(2.0**12)), 16)

    def _projection(self) -> Callable[[Value], Value]:
        inside, weights = self.call.intermediate(4), self.weights + 15
        transposed = ops.transpose(_wide(self.call.raw(weights)), perm=[1, 0])
        bias = _wide(self.call.raw(weights + 1)) if self.call.has(weights + 1) else None
        own = self._quantization(self.hidden)
        scale = self._step(weights) * np.float32(inside.scales[0]) / np.float32(own.scales[0])
        limit = self._limit("ProjClip", float(own.scales[0]), 2**7 - 1)

        def projected(x: Value) -> Value:
            sums = ops.matmul(x - _of(inside.zero_points[0]), transposed)
            sums = _rescaled(sums if bias is None else sums + bias, scale) + _of(own.zero_points[0])
            sums = _saturated(sums, 8)
            return sums if limit is None else ops.clip(sums, _of(-limit), _of(limit))

        return projected

    def _table(self, x: Value | None, step: float, name: str) -> Value:
        """Apply Sigmoid or Tanh by its lookup table."""
        assert x is not None
        bits = 15 + round(math.log2(step))
        table = sigmoid_table if name == "sigmoid" else tanh_table
        entries = self.call.builder.table(f"{name}_{bits}", lambda: table(bits))
        return _wide(ops.gather(entries, ops.cast(x + _of(2**15), to=DType.int64), axis=0))

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
        limit = self.call.option(option, 0.0)
        return min(int(limit / step), most) if limit > 0 else None


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
    """The product with a power of 2, rounded to nearest, ties away from zero."""
    return ops.sign(x) * ops.floor(ops.absolute(x) * _of(factor) + _of(0.5))  # type: ignore[no-any-return]


def _rescaled(x: Value, scale: float | np.float32) -> Value:
    """The product as the kernels compute it: with a 32-bit multiplier, then a power of 2; both are rounded."""
    fraction, exponent = math.frexp(float(scale))
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    high = ops.floor(x * _of(multiplier * 2.0 ** (max(exponent, 0) - 31)) + _of(0.5))
    return high if exponent >= 0 else _halved(high, 2.0**exponent)
