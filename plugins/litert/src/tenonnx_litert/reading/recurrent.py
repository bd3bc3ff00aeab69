"""Recurrent layers of TFLite: layers of ONNX where these compute alike, else loops that round where the kernels do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, subgraph
from tenonnx_litert.reading.calls import Call, QuantizedResult, activated, dequantized, lite_rule
from tenonnx_litert.reading.integer_lstm import IntegerLstm
from tenonnx_litert.reading.layers import as_quantized, is_hybrid, sizes_of
from tenonnx_quantized.quantize import quantize_linear
from tenonnx_tensorflow.tracked_values import number

#: The order of gates in TFLite's inputs: input, forget, cell, output; and how ONNX wants them: input, output, forget, cell.
_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_OF_ONNX = (_INPUT, _OUTPUT, _FORGET, _CELL)


def fixed(x: Value, step: float) -> Value:
    """Round numbers to quantized values of 16 bits."""
    scale, zero = constant(np.asarray(step, np.float32)), constant(np.asarray(0, np.int16))
    return dequantized(quantize_linear(x, scale, zero), scale, zero)


def _stepped(x: Value, starts: Sequence[Value], step: Callable[..., list[Value]]) -> list[Value]:
    """States of a layer after the last row of ``x``, and the first states after each of them."""

    def body(count: Value, going: Value, *held: Value) -> list[Value]:
        left = step(ops.gather(x, count, axis=0), *held)
        return [ops.identity(value) for value in (going, *left, left[0])]

    formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ()))]
    made = subgraph(body, [*formals, *((f"state_{k}", start.type) for k, start in enumerate(starts))])
    length = ops.gather(ops.shape(x), constant(np.asarray(0)))
    return list(ops.loop(length, None, *starts, body=made))


def _by_time(call: Call, run: Callable[[Value], Value], backwards: bool = False, *, raw: bool = False) -> Value:
    """A layer over the steps of the first input, which lie along its first axis or behind that of the batch.

    The layer takes and returns quantized values where ``raw``.
    """
    by_batch = not call.option("TimeMajor", False)
    if raw:
        x = ops.transpose(call.raw(0), perm=[1, 0, 2]) if by_batch else call.raw(0)
    else:
        x = call.turned(0, [1, 0, 2]) if by_batch else call.real(0)
    found = run(_reversed(x) if backwards else x)
    found = _reversed(found) if backwards else found
    return ops.transpose(found, perm=[1, 0, 2]) if by_batch else found


def _reversed(rows: Value) -> Value:
    return ops.slice_(rows, [-1], [np.iinfo(np.int64).min], [0], [-1])


def _activation(call: Call) -> str:
    found = {1: "Relu", 4: "Tanh"}.get(call.option("FusedActivationFunction", 4))
    if found is None:
        raise NotRepresentable(
            "the activation of a recurrent layer is neither Tanh nor Relu", given=call.operator.title
        )
    return found


def _product(call: Call, x: Value, weights: Value, hybrid: bool) -> Value:
    """Rows by weights; those of floats by quantized values as the kernels do it, with a scale for each row."""
    rows = as_quantized(x, [1], bool(call.option("AsymmetricQuantizeInputs", False))) if hybrid else x
    return ops.matmul(rows, weights)


# ----- LSTM -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lstm:
    """An LSTM by the positions of its inputs: the first of its weights, its states, and of its normalization."""

    call: Call
    weights: int
    hidden: int
    cell: int
    norm: int | None = None

    def __post_init__(self) -> None:
        if self.call.option("DiagonalRecurrentTensors", False):
            raise NotRepresentable(
                "recurrent weights are diagonals instead of matrices", given=self.call.operator.title
            )

    @property
    def hybrid(self) -> bool:
        return is_hybrid(self.call, self.weights + 1)

    def part(self, offset: int, gate: int) -> Value | None:
        position = self.weights + offset + gate
        return self.call.real(position) if self.call.has(position) else None

    @property
    def has_input_gate(self) -> bool:
        """Whether there is an input gate; otherwise its value is one less the forget gate."""
        return self.call.has(self.weights)

    @property
    def is_plain(self) -> bool:
        """Whether it is one of ONNX."""
        clipped = self.call.option("CellClip", 0.0) or self.call.option("ProjClip", 0.0)
        more = [self.weights + 15, *(self.norm + k for k in range(4) if self.norm is not None)]
        return not (self.hybrid or clipped or any(map(self.call.has, more))) and self.has_input_gate

    @property
    def states(self) -> list[Value | None]:
        return [self.call.real(k) if self.call.has(k) else None for k in (self.hidden, self.cell)]

    def run(self, x: Value) -> Value:
        """The hidden states of all steps; what is left of the states is kept."""
        rows, *left = self._of_onnx(x) if self.is_plain else self._looped(x)
        for position, state in zip((self.hidden, self.cell), left, strict=True):
            self.call.keep(position, state)
        return rows

    def _of_onnx(self, x: Value) -> list[Value]:
        def together(offset: int, order: Sequence[int], axis: int = 0) -> Any:
            return ops.concat(*(self.call.real(self.weights + offset + k) for k in order), axis=axis)

        bias = together(11, _OF_ONNX)
        biases = ops.unsqueeze(ops.concat(bias, ops.zeros_like(bias), axis=0), [0])
        peepholes = None
        if self.call.has(self.weights + 9):
            peepholes = ops.unsqueeze(together(8, (0, 2, 1)), [0])
        kind = _activation(self.call)
        starts = [None if state is None else ops.unsqueeze(state, [0]) for state in self.states]
        rows, *left = ops.lstm(
            x,
            ops.unsqueeze(together(0, _OF_ONNX), [0]),
            ops.unsqueeze(together(4, _OF_ONNX), [0]),
            biases,
            None,
            starts[0],
            starts[1],
            peepholes,
            hidden_size=int(sizes_of(self.call, self.weights + 4 + _FORGET)[1]),
            activations=["Sigmoid", kind, kind],
        )
        return [ops.squeeze(rows, [1]), *(ops.squeeze(state, [0]) for state in left)]

    def _looped(self, x: Value) -> list[Value]:
        hidden, cell = self.states
        if hidden is None or cell is None:
            raise NotRepresentable("an LSTM lacks a state", given=self.call.operator.title)
        gates = {gate: _Gate.of(self, gate) for gate in range(4) if gate or self.has_input_gate}
        turned = self.turned(15, 0) if self.call.has(self.weights + 15) else None

        def step(row: Value, hidden: Value, cell: Value) -> list[Value]:
            def total(gate: int, cell: Value | None = None) -> Value:
                return gates[gate].total(self, row, hidden, cell)

            forget, candidate = ops.sigmoid(total(_FORGET, cell)), self._activated(total(_CELL))
            taken = ops.sigmoid(total(_INPUT, cell)) if self.has_input_gate else ops.sub(number(1, forget), forget)
            cell = self._clipped(ops.add(ops.mul(forget, cell), ops.mul(taken, candidate)), "CellClip")
            output = ops.sigmoid(total(_OUTPUT, cell))
            return [self._projected(ops.mul(output, self._activated(cell)), turned), cell]

        *left, rows = _stepped(x, [hidden, cell], step)
        return [rows, *left]

    def _projected(self, found: Value, weights: Value | None) -> Value:
        if weights is not None:
            found = _product(self.call, found, weights, self.hybrid)
            bias = self.part(16, 0)
            found = self._clipped(found if bias is None else ops.add(found, bias), "ProjClip")
        return found

    def turned(self, offset: int, gate: int) -> Value:
        return self.call.turned(self.weights + offset + gate, [1, 0])

    def _activated(self, x: Value) -> Value:
        return ops.tanh(x) if _activation(self.call) == "Tanh" else ops.relu(x)

    def _clipped(self, x: Value, option: str) -> Value:
        most = self.call.option(option, 0.0)
        return ops.clip(x, number(-most, x), number(most, x)) if most else x


@dataclass(frozen=True)
class _Gate:
    """Parameters of a gate: its weights, transposed, and its bias."""

    weights: Value
    recurrent: Value
    bias: Value
    peephole: Value | None
    norm: Value | None

    @staticmethod
    def of(layer: _Lstm, gate: int) -> _Gate:
        call = layer.call
        norm = call.real(layer.norm + gate) if layer.norm is not None and call.has(layer.norm + gate) else None
        peephole = None if gate == _CELL else layer.part(8, {_INPUT: 0, _FORGET: 1, _OUTPUT: 2}[gate])
        bias = call.real(layer.weights + 11 + gate)
        return _Gate(layer.turned(0, gate), layer.turned(4, gate), bias, peephole, norm)

    def total(self, layer: _Lstm, row: Value, hidden: Value, cell: Value | None) -> Value:
        """The share of the input, to which those of the states are added; ``cell`` is what its peephole sees."""
        seen = _product(layer.call, row, self.weights, layer.hybrid)
        parts = [_product(layer.call, hidden, self.recurrent, layer.hybrid)]
        if self.peephole is not None and cell is not None:
            parts.append(ops.mul(cell, self.peephole))
        total = seen if self.norm is not None else ops.add(seen, self.bias)
        for part in parts:
            total = ops.add(total, part)
        if self.norm is None:
            return total
        apart = ops.sub(total, ops.reduce_mean(total, [1], keepdims=1))
        spread = ops.reduce_mean(ops.mul(apart, apart), [1], keepdims=1)
        unit = ops.div(apart, ops.sqrt(ops.add(spread, number(1e-8, spread))))
        return ops.add(ops.mul(unit, self.norm), self.bias)


def _integers(call: Call) -> IntegerLstm | None:
    """The LSTM of an operator whose input is quantized."""
    first = call.ins[0]
    return None if first is None or first.quantization is None else IntegerLstm(call, 1, 18, 19, 20)


@lite_rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(call: Call) -> Any:
    """Inputs: 0 x, 1 to 4 weights, 5 to 8 of the state, 9 to 11 peepholes, 12 to 15 biases, 16 and 17 a projection,
    18 and 19 the states, 20 to 23 scales of a normalization."""
    if (integers := _integers(call)) is not None:
        return QuantizedResult(_by_time(call, lambda x: integers.run(x, _stepped), raw=True))
    return _by_time(call, _Lstm(call, 1, 18, 19, 20).run)


@lite_rule("LSTM")
def single_lstm(call: Call) -> Any:
    """One step of it."""
    if call.option("KernelType", 0):
        raise NotRepresentable(
            "an LSTM does not have weights for each gate", given=f"{call.operator.title} of the kind BASIC"
        )
    if (integers := _integers(call)) is not None:
        return QuantizedResult(ops.squeeze(integers.run(ops.unsqueeze(call.raw(0), [0]), _stepped), [0]))
    layer = _Lstm(call, 1, 18, 19, 20)
    return ops.squeeze(layer.run(call.moved(0, lambda x: ops.unsqueeze(x, [0]))), [0])


def _both_ways(call: Call, forwards: Callable[[Value], Value], backwards: Callable[[Value], Value]) -> Any:
    found = [_by_time(call, forwards), _by_time(call, backwards, backwards=True)]
    return ops.concat(*found, axis=2) if call.option("MergeOutputs", False) else found


@lite_rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(call: Call) -> Any:
    """As above for each direction, 1 to 17 and 18 to 34; then the states."""
    if call.has(39):
        raise NotRepresentable("an LSTM of both directions has two inputs", given=call.operator.title)
    return _both_ways(call, _Lstm(call, 1, 35, 36).run, _Lstm(call, 18, 37, 38).run)


# ----- other layers ---------------------------------------------------------------------------------------------------


def _rnn(call: Call, first: int) -> Callable[[Value], Value]:
    """Weights, those of the state, a bias and the state stand from ``first`` on."""

    def run(x: Value) -> Value:
        bias, state = call.real(first + 2), call.real(first + 3)
        kind = _activation(call)
        if is_hybrid(call, first):
            turned = [call.turned(first + k, [1, 0]) for k in (0, 1)]

            def step(row: Value, held: Value) -> list[Value]:
                parts = [_product(call, *each, hybrid=True) for each in zip((row, held), turned, strict=True)]
                total = ops.add(ops.add(*parts), bias)
                return [ops.tanh(total) if kind == "Tanh" else ops.relu(total)]

            last, rows = _stepped(x, [state], step)
        else:
            biases = ops.unsqueeze(ops.concat(bias, ops.zeros_like(bias), axis=0), [0])
            found, left = ops.rnn(
                x,
                ops.unsqueeze(call.real(first), [0]),
                ops.unsqueeze(call.real(first + 1), [0]),
                biases,
                None,
                ops.unsqueeze(state, [0]),
                hidden_size=sizes_of(call, first + 1)[1],
                activations=[kind],
            )
            rows, last = ops.squeeze(found, [1]), ops.squeeze(left, [0])
        call.keep(first + 3, last)
        return rows

    return run


@lite_rule("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(call: Call) -> Value:
    return _by_time(call, _rnn(call, 1))


@lite_rule("RNN")
def single_rnn(call: Call) -> Value:
    return ops.squeeze(_rnn(call, 1)(call.moved(0, lambda x: ops.unsqueeze(x, [0]))), [0])


@lite_rule("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(call: Call) -> Any:
    if call.has(9):
        raise NotRepresentable("a layer of both directions has two inputs", given=call.operator.title)
    return _both_ways(call, _rnn(call, 1), _rnn(call, 5))


@lite_rule("SVDF")
def svdf(call: Call) -> Value:
    """Features of a step join those of the steps before, in the state; each filter is a row of rank one."""
    filters, memory = sizes_of(call, 2)
    rank = int(call.option("Rank", 1))
    feature = _product(call, call.real(0), call.turned(1, [1, 0]), is_hybrid(call, 1))
    held = call.ins[4]
    step = held.quantization if held is not None else None
    if step is not None:
        feature = fixed(feature, float(step.scales[0]))
    state = ops.reshape(call.real(4), [-1, filters, memory])
    moved = ops.concat(ops.slice_(state, [1], [np.iinfo(np.int64).max], [2]), ops.unsqueeze(feature, [2]), axis=2)
    call.keep(4, ops.reshape(moved, [-1, filters * memory]))
    products = ops.reduce_sum(ops.mul(moved, call.real(2)), [2], keepdims=0)
    summed = ops.reduce_sum(ops.reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    found = ops.add(summed, call.real(3)) if call.has(3) else summed
    return found if step is not None else activated(call, found)  # that of quantized values has no function behind it
