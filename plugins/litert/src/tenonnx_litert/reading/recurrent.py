"""Recurrent layers of TFLite: as LSTM and RNN of ONNX if these compute the same, else as loops."""

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

#: The order of the gates in TFLite's inputs (input, forget, cell, output), and in ONNX (input, output, forget, cell).
_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_OF_ONNX = (_INPUT, _OUTPUT, _FORGET, _CELL)


def fixed(x: Value, step: float) -> Value:
    """Quantize and dequantize ``x`` in int16 with the scale ``step``."""
    scale, zero = constant(np.asarray(step, np.float32)), constant(np.asarray(0, np.int16))
    return dequantized(quantize_linear(x, scale, zero), scale, zero)


def _stepped(x: Value, starts: Sequence[Value], step: Callable[..., list[Value]]) -> list[Value]:
    """Loop over the rows of ``x``: all states after the last row, then the first state after each row."""

    def body(count: Value, going: Value, *states: Value) -> list[Value]:
        after = step(ops.gather(x, count, axis=0), *states)
        return [ops.identity(value) for value in (going, *after, after[0])]

    formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ()))]
    body_graph = subgraph(body, [*formals, *((f"state_{k}", start.type) for k, start in enumerate(starts))])
    length = ops.gather(ops.shape(x), constant(np.asarray(0)))
    return list(ops.loop(length, None, *starts, body=body_graph))


def _by_time(call: Call, run: Callable[[Value], Value], backwards: bool = False, *, raw: bool = False) -> Value:
    """Run a layer on the first input with time as its first axis (time-major), and restore the order of the axes.

    If ``raw``, the layer takes and returns quantized values.
    """
    by_batch = not call.option("TimeMajor", False)
    if raw:
        x = ops.transpose(call.raw(0), perm=[1, 0, 2]) if by_batch else call.raw(0)
    else:
        x = call.turned(0, [1, 0, 2]) if by_batch else call.real(0)
    y = run(_reversed(x) if backwards else x)
    y = _reversed(y) if backwards else y
    return ops.transpose(y, perm=[1, 0, 2]) if by_batch else y


def _reversed(rows: Value) -> Value:
    return ops.slice_(rows, [-1], [np.iinfo(np.int64).min], [0], [-1])


def _activation(call: Call) -> str:
    activation = {1: "Relu", 4: "Tanh"}.get(call.option("FusedActivationFunction", 4))
    if activation is None:
        raise NotRepresentable(
            "the activation of a recurrent layer is neither Tanh nor Relu", given=call.operator.title
        )
    return activation


def _product(call: Call, x: Value, weights: Value, hybrid: bool) -> Value:
    """Rows times weights; ``hybrid`` quantizes each row at run time, as the hybrid kernels do."""
    rows = as_quantized(x, [1], bool(call.option("AsymmetricQuantizeInputs", False))) if hybrid else x
    return ops.matmul(rows, weights)


# ----- LSTM -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lstm:
    """An LSTM, by the positions of its inputs: first weights, hidden state, cell state, first normalization scale."""

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
        """Whether there is an input gate; without one (CIFG), its value is 1 minus the forget gate."""
        return self.call.has(self.weights)

    @property
    def is_plain(self) -> bool:
        """Whether ONNX's LSTM computes the same."""
        clipped = self.call.option("CellClip", 0.0) or self.call.option("ProjClip", 0.0)
        more = [self.weights + 15, *(self.norm + k for k in range(4) if self.norm is not None)]
        return not (self.hybrid or clipped or any(map(self.call.has, more))) and self.has_input_gate

    @property
    def states(self) -> list[Value | None]:
        return [self.call.real(k) if self.call.has(k) else None for k in (self.hidden, self.cell)]

    def run(self, x: Value) -> Value:
        """The hidden states of all steps; the final states are assigned to their variables."""
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
        projection = self.transposed(15, 0) if self.call.has(self.weights + 15) else None

        def step(row: Value, hidden: Value, cell: Value) -> list[Value]:
            def total(gate: int, cell: Value | None = None) -> Value:
                return gates[gate].total(self, row, hidden, cell)

            forget, candidate = ops.sigmoid(total(_FORGET, cell)), self._activated(total(_CELL))
            input_gate = ops.sigmoid(total(_INPUT, cell)) if self.has_input_gate else ops.sub(number(1, forget), forget)
            cell = self._clipped(ops.add(ops.mul(forget, cell), ops.mul(input_gate, candidate)), "CellClip")
            output = ops.sigmoid(total(_OUTPUT, cell))
            return [self._projected(ops.mul(output, self._activated(cell)), projection), cell]

        *left, rows = _stepped(x, [hidden, cell], step)
        return [rows, *left]

    def _projected(self, x: Value, weights: Value | None) -> Value:
        if weights is None:
            return x
        y = _product(self.call, x, weights, self.hybrid)
        bias = self.part(16, 0)
        return self._clipped(y if bias is None else ops.add(y, bias), "ProjClip")

    def transposed(self, offset: int, gate: int) -> Value:
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
        return _Gate(layer.transposed(0, gate), layer.transposed(4, gate), bias, peephole, norm)

    def total(self, layer: _Lstm, row: Value, hidden: Value, cell: Value | None) -> Value:
        """The sum before the gate's activation; ``cell`` is the cell state that its peephole reads."""
        of_input = _product(layer.call, row, self.weights, layer.hybrid)
        parts = [_product(layer.call, hidden, self.recurrent, layer.hybrid)]
        if self.peephole is not None and cell is not None:
            parts.append(ops.mul(cell, self.peephole))
        total = of_input if self.norm is not None else ops.add(of_input, self.bias)
        for part in parts:
            total = ops.add(total, part)
        if self.norm is None:
            return total
        difference = ops.sub(total, ops.reduce_mean(total, [1], keepdims=1))
        spread = ops.reduce_mean(ops.mul(difference, difference), [1], keepdims=1)
        unit = ops.div(difference, ops.sqrt(ops.add(spread, number(1e-8, spread))))
        return ops.add(ops.mul(unit, self.norm), self.bias)


def _integers(call: Call) -> IntegerLstm | None:
    """The integer LSTM of an operator with a quantized input; None for another."""
    first = call.ins[0]
    return None if first is None or first.quantization is None else IntegerLstm(call, 1, 18, 19, 20)


@lite_rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(call: Call) -> Any:
    """LSTM over a sequence.

    Inputs: 0 x; 1 to 4 input weights; 5 to 8 recurrent weights; 9 to 11 peepholes; 12 to 15 biases; 16 and 17 projection
    weights and bias; 18 and 19 hidden and cell state; 20 to 23 scales of a layer normalization.
    """
    if (integers := _integers(call)) is not None:
        return QuantizedResult(_by_time(call, lambda x: integers.run(x, _stepped), raw=True))
    return _by_time(call, _Lstm(call, 1, 18, 19, 20).run)


@lite_rule("LSTM")
def single_lstm(call: Call) -> Any:
    """One step of an LSTM; inputs as for a sequence."""
    if call.option("KernelType", 0):
        raise NotRepresentable(
            "an LSTM does not have weights for each gate", given=f"{call.operator.title} of the kind BASIC"
        )
    if (integers := _integers(call)) is not None:
        return QuantizedResult(ops.squeeze(integers.run(ops.unsqueeze(call.raw(0), [0]), _stepped), [0]))
    layer = _Lstm(call, 1, 18, 19, 20)
    return ops.squeeze(layer.run(call.moved(0, lambda x: ops.unsqueeze(x, [0]))), [0])


def _both_ways(call: Call, forwards: Callable[[Value], Value], backwards: Callable[[Value], Value]) -> Any:
    results = [_by_time(call, forwards), _by_time(call, backwards, backwards=True)]
    return ops.concat(*results, axis=2) if call.option("MergeOutputs", False) else results


@lite_rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(call: Call) -> Any:
    """LSTM in both directions. Inputs: 1 to 17 forward weights, 18 to 34 backward weights, 35 to 38 the states."""
    if call.has(39):
        raise NotRepresentable("an LSTM of both directions has two inputs", given=call.operator.title)
    return _both_ways(call, _Lstm(call, 1, 35, 36).run, _Lstm(call, 18, 37, 38).run)


# ----- other layers ---------------------------------------------------------------------------------------------------


def _rnn(call: Call, first: int) -> Callable[[Value], Value]:
    """An RNN layer; its inputs from ``first`` on are weights, recurrent weights, bias and state."""

    def run(x: Value) -> Value:
        bias, state = call.real(first + 2), call.real(first + 3)
        kind = _activation(call)
        if is_hybrid(call, first):
            weights = [call.turned(first + k, [1, 0]) for k in (0, 1)]

            def step(row: Value, hidden: Value) -> list[Value]:
                parts = [_product(call, *each, hybrid=True) for each in zip((row, hidden), weights, strict=True)]
                total = ops.add(ops.add(*parts), bias)
                return [ops.tanh(total) if kind == "Tanh" else ops.relu(total)]

            last, rows = _stepped(x, [state], step)
        else:
            biases = ops.unsqueeze(ops.concat(bias, ops.zeros_like(bias), axis=0), [0])
            rows, last = ops.rnn(
                x,
                ops.unsqueeze(call.real(first), [0]),
                ops.unsqueeze(call.real(first + 1), [0]),
                biases,
                None,
                ops.unsqueeze(state, [0]),
                hidden_size=sizes_of(call, first + 1)[1],
                activations=[kind],
            )
            rows, last = ops.squeeze(rows, [1]), ops.squeeze(last, [0])
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
    """Singular value decomposition filter: each filter of rank ``Rank`` applies feature weights, then time weights.

    The state holds the features of the last steps.
    """
    filters, memory = sizes_of(call, 2)
    rank = int(call.option("Rank", 1))
    feature = _product(call, call.real(0), call.turned(1, [1, 0]), is_hybrid(call, 1))
    tensor = call.ins[4]
    quantization = tensor.quantization if tensor is not None else None
    if quantization is not None:
        feature = fixed(feature, float(quantization.scales[0]))
    state = ops.reshape(call.real(4), [-1, filters, memory])
    shifted = ops.concat(ops.slice_(state, [1], [np.iinfo(np.int64).max], [2]), ops.unsqueeze(feature, [2]), axis=2)
    call.keep(4, ops.reshape(shifted, [-1, filters * memory]))
    products = ops.reduce_sum(ops.mul(shifted, call.real(2)), [2], keepdims=0)
    summed = ops.reduce_sum(ops.reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    y = ops.add(summed, call.real(3)) if call.has(3) else summed
    return y if quantization is not None else activated(call, y)  # the integer kernel applies no activation
