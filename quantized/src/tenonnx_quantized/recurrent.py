"""DynamicQuantizeLSTM."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    constant,
    dims,
    dtypes,
    floats,
    op,
    same_dtype,
    shapes,
)
from tenonnx_quantized.products import dynamic_quantize_matmul, matmul_integer_to_float
from tenonnx_quantized.quantize import dynamic_quantize_linear
from tenonnx_standard.recurrent import LSTM, decided, memory_step, over_time, stacked
from tenonnx_standard.recurrent_activations import ON_VALUES


@op("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    W_scale=REQUIRED,
    W_zero_point=REQUIRED,
    R_scale=REQUIRED,
    R_zero_point=REQUIRED,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    input_forget=0,
):
    """LSTM with quantized weights ``[directions, inputs, 4 * hidden]``, with one scale per direction or per column.

    The entire input, and the hidden state of each step, are quantized by DynamicQuantizeLinear.
    """
    backwards, functions, own = decided(
        LSTM._replace(op=dynamic_quantize_lstm),
        ON_VALUES,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        layout=0,
        input_forget=input_forget,
    )
    quantized, scale, zero_point = dynamic_quantize_linear(X)
    zero = ops.expand(constant(np.zeros((1, 1)), DType.float32), [dims(X)[1], dims(R)[1]])
    columns = []
    for place, backward in enumerate(backwards):
        w, w_scale, w_zero = W[place], W_scale[place], W_zero_point[place]
        shares = matmul_integer_to_float(quantized, w, scale, w_scale, zero_point, w_zero)
        if B is not None:
            of_input, of_state = ops.split(B[place], axis=-1, num_outputs=2)
            shares = shares + (of_input + of_state)
        peepholes = None if P is None else P[place]

        def recurrence(hidden, r=R[place], r_scale=R_scale[place], r_zero=R_zero_point[place]):
            return dynamic_quantize_matmul(hidden, r, r_scale, r_zero)

        step = memory_step(ON_VALUES, functions[place], recurrence, peepholes, **own)
        states = [zero if v is None else v[place] for v in (initial_h, initial_c)]
        columns.append(over_time(step, shares, states, sequence_lens, backward))
    return tuple(stacked(values, axis) for axis, values in zip((1, 0, 0), zip(*columns, strict=True), strict=True))


dynamic_quantize_lstm.requires(
    shapes(
        X="length batch inputs",
        W="directions inputs columns",
        R="directions hidden columns",
        B="directions _",
        P="directions _",
        initial_h="directions batch hidden",
        initial_c="directions batch hidden",
        sequence_lens="batch",
        W_scale="directions|directions columns",
        R_scale="directions|directions columns",
        W_zero_point="directions|directions columns",
        R_zero_point="directions|directions columns",
    ),
    floats("X"),
    same_dtype("X", "B", "P", "initial_h", "initial_c", "W_scale", "R_scale"),
    dtypes(W="int8 uint8", R="int8 uint8", sequence_lens="int32"),
    same_dtype("W", "W_zero_point"),
    same_dtype("R", "R_zero_point"),
)
