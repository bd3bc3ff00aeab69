"""Cases of DynamicQuantizeLSTM."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.recurrent import dynamic_quantize_lstm
from tenonnx_testing import Tolerance, call, cases, tensors

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def quantized(draw, directions, rows, hidden):
    """Draw weights, and their scales and zero points per direction or per column."""
    kind = draw(st.sampled_from(["int8", "uint8"]))
    shape = draw(st.sampled_from([(directions,), (directions, 4 * hidden)]))
    contents = draw(tensors(kind, shape=(directions, rows, 4 * hidden), min_value=-200, max_value=200))
    scale = draw(tensors("float32", shape=shape, min_value=0.002, max_value=0.01))
    return contents, scale, draw(tensors(kind, shape=shape, min_value=-3, max_value=3))


@cases(
    dynamic_quantize_lstm,
    gradient=False,
    tolerance=Tolerance(0.02, 0.02, "a state that differs in its last bit is rounded to another of 255 integers"),
)
def dynamic_quantize_lstm_cases(draw):
    direction = draw(st.sampled_from(list(DIRECTIONS)))
    count, hidden, inputs = DIRECTIONS[direction], draw(st.integers(1, 4)), draw(st.integers(1, 3))
    length, batch = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def drawn(*shape):
        return draw(tensors("float32", shape=shape, min_value=-1, max_value=1)) if draw(st.booleans()) else None

    (w, w_scale, w_zero), (r, r_scale, r_zero) = (quantized(draw, count, rows, hidden) for rows in (inputs, hidden))
    lengths = None
    if draw(st.booleans()):
        lengths = np.sort(draw(tensors("int32", shape=(batch,), min_value=1, max_value=length)))[::-1].copy()
        lengths[0] = length
    chosen = {
        "activations": ["HardSigmoid", "LeakyRelu", "ScaledTanh"] * count,
        "activation_alpha": [0.3, 0.1, 0.9] * count,
        "activation_beta": [0.4, 0.0, 0.8] * count,
    }
    return call(
        draw(tensors("float32", shape=(length, batch, inputs), min_value=-1, max_value=1)),
        w,
        r,
        drawn(count, 8 * hidden),
        lengths,
        drawn(count, batch, hidden),
        drawn(count, batch, hidden),
        drawn(count, 3 * hidden),
        w_scale,
        w_zero,
        r_scale,
        r_zero,
        hidden_size=hidden,
        direction=direction,
        input_forget=draw(st.integers(0, 1)),
        **draw(st.sampled_from([{}, {"clip": 2.0}])),
        **draw(st.sampled_from([{}, chosen])),
    )
