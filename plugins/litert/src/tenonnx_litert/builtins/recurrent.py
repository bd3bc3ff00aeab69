"""Recurrent layers over the steps of a sequence."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_litert.builtins.builtin import builtin


@builtin("variable_tensor", elementwise=True, pure=False)
def variable_tensor(x):
    """``x`` in a variable tensor, which kernels of recurrent layers require for a state. Written as a CAST.

    Each run assigns it again, so that no state is kept between runs.
    """
    return ops.identity(x)


@builtin("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", pure=False)
def unidirectional_sequence_lstm(
    input,
    input_to_input,
    input_to_forget,
    input_to_cell,
    input_to_output,
    recurrent_to_input,
    recurrent_to_forget,
    recurrent_to_cell,
    recurrent_to_output,
    cell_to_input=None,
    cell_to_forget=None,
    cell_to_output=None,
    input_bias=None,
    forget_bias=None,
    cell_bias=None,
    output_bias=None,
    projection=None,
    projection_bias=None,
    hidden=None,
    cell=None,
    *,
    fused_activation_function="TANH",
    time_major=False,
):
    """The hidden states of all steps of an LSTM without projection.

    The input is (time, batch, features) if ``time_major``, else (batch, time, features). ``hidden`` and ``cell`` are
    the initial states, results of ``variable_tensor``.
    """
    inputs = input_to_input, input_to_output, input_to_forget, input_to_cell
    recurrent = recurrent_to_input, recurrent_to_output, recurrent_to_forget, recurrent_to_cell
    biases = [input_bias, output_bias, forget_bias, cell_bias]
    biases += [ops.zeros_like(each) for each in biases]
    peepholes = cell_to_input, cell_to_output, cell_to_forget
    kind = {"TANH": "Tanh", "RELU": "Relu"}[fused_activation_function]
    x = input if time_major else ops.transpose(input, perm=[1, 0, 2])
    rows, *_ = ops.lstm(
        x,
        _together(*inputs),
        _together(*recurrent),
        _together(*biases),
        None,
        ops.unsqueeze(hidden, [0]),
        ops.unsqueeze(cell, [0]),
        None if cell_to_input is None else _together(*peepholes),
        hidden_size=recurrent_to_forget.shape[1],
        activations=["Sigmoid", kind, kind],
    )
    y = ops.squeeze(rows, [1])
    return y if time_major else ops.transpose(y, perm=[1, 0, 2])


def _together(*parts: Value) -> Any:
    """Concatenate the weights of the gates, with an axis for the one direction."""
    return ops.unsqueeze(ops.concat(*parts, axis=0), [0])
