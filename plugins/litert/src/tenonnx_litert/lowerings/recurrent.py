"""Lowering of ONNX's LSTM to UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, static
from tenonnx_litert.builtins import movement
from tenonnx_litert.builtins.recurrent import unidirectional_sequence_lstm, variable_tensor
from tenonnx_litert.lowerings.registry import int32, unless

#: Indices in ONNX's order of gates of LiteRT's gates: input, forget, cell, output.
_GATES = (0, 2, 3, 1)


def lstm_layer(
    x: Value,
    weights: Value,
    recurrent: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    hidden: Value | None = None,
    cell: Value | None = None,
    peepholes: Value | None = None,
    *,
    direction: str = "forward",
    activations: list[str] | None = None,
    clip: float | None = None,
    input_forget: int = 0,
    layout: int = 0,
    **_: Any,
) -> tuple[Value, Value, None]:
    """LSTM of ONNX: the hidden states of all steps, and of the last step; the last cell state is not available.

    Raises ``NotRepresentable`` if no kernel fits.
    """
    unless(x.dtype is not DType.float32 or x.shape is None, "the kernel takes float32 only")
    unless(not isinstance(x.shape[1], int), "variable tensors have static shapes")
    unless(lengths is not None or bool(clip) or bool(input_forget) or bool(layout), "the kernel has no such LSTM")
    unless(any(f not in ("Sigmoid", "Tanh") for f in activations or ()), "the kernel has other activations")
    unless((activations or ["Sigmoid", "Tanh", "Tanh"])[:3] != ["Sigmoid", "Tanh", "Tanh"], "other activations")
    known = [None if each is None else static(each) for each in (weights, recurrent, bias, peepholes)]
    unless(known[0] is None or known[1] is None, "the weights are computed")
    unless(any(v is not None and k is None for v, k in zip((bias, peepholes), known[2:], strict=True)), "computed")
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    size = int(recurrent.shape[2])  # type: ignore[index]
    start = constant(np.zeros((1, x.shape[1], size), np.float32))
    rows, last = [], []
    for place, way in enumerate(ways):
        parts = [None if each is None else np.asarray(each)[place] for each in known]
        states = [
            variable_tensor(ops.squeeze(_row(start if each is None else each, 0 if each is None else place), [0]))
            for each in (hidden, cell)
        ]
        steps = movement.reverse_v2(x, int32([0])) if way == "reverse" else x
        y = unidirectional_sequence_lstm(steps, *_weights(parts, size), None, None, *states, time_major=True)
        last.append(ops.squeeze(ops.slice_(y, [-1], [np.iinfo(np.int64).max], [0]), [0]))
        rows.append(movement.reverse_v2(y, int32([0])) if way == "reverse" else y)
    return _stacked(rows, 1), _stacked(last, 0), None


def _weights(parts: list[Any], size: int) -> list[Value | None]:
    """Weights, recurrent weights, peepholes and biases of the gates, in the order of the kernel's inputs."""

    def gates(array: Any) -> list[Value | None]:
        return [constant(np.ascontiguousarray(array[k * size : (k + 1) * size])) for k in _GATES]

    weights, recurrent, bias, peepholes = parts
    bias = np.zeros(8 * size, np.float32) if bias is None else bias
    of_cell: list[Value | None] = [None] * 3
    if peepholes is not None:
        of_cell = [constant(np.ascontiguousarray(peepholes[k * size : (k + 1) * size])) for k in (0, 2, 1)]
    return [*gates(weights), *gates(recurrent), *of_cell, *gates(bias[: 4 * size] + bias[4 * size :])]


def _row(states: Value, place: int) -> Any:
    return ops.slice_(states, [place], [place + 1], [0])


def _stacked(values: list[Value], axis: int) -> Any:
    parts = [ops.unsqueeze(each, [axis]) for each in values]
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=axis)
