"""Cases of AttnLSTM, DynamicTimeWarping and WordConvEmbedding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.sequence import attn_lstm, dynamic_time_warping, word_conv_embedding
from tenonnx_testing import Gap, call, cases, shapes, tensors

DIFFERENTIABLE = ["X", "W", "R", "B", "initial_h", "initial_c", "P", "QW", "MW", "V", "M", "AW"]


@cases(attn_lstm, gradient=DIFFERENTIABLE)
def attn_lstm_cases(draw):
    length, batch, width, hidden, size = draw(shapes(5, 5, 1, 2))
    steps, depth = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1

    def drawn(*shape, maybe=False):
        result = draw(tensors(shape=shape, min_value=-1, max_value=1))
        return draw(st.sampled_from([None, result])) if maybe else result

    joined = drawn(count, depth + hidden, 2, maybe=True)
    seen = depth if joined is None else 2
    lengths = draw(st.none() | tensors("int32", shape=(batch,), min_value=1, max_value=length))
    inputs = [drawn(length, batch, width), drawn(count, 4 * hidden, width + seen), drawn(count, 4 * hidden, hidden)]
    inputs += [drawn(count, 8 * hidden, maybe=True), lengths]
    inputs += [drawn(count, batch, hidden, maybe=True) for _ in range(2)]
    inputs += [drawn(count, 3 * hidden, maybe=True), drawn(count, hidden, size), drawn(count, depth, size)]
    inputs += [drawn(count, size), drawn(batch, steps, depth)]
    inputs += [draw(st.none() | tensors("int32", shape=(batch,), min_value=1, max_value=steps)), joined]
    parameters = {"activation_alpha": [0.02] * count, "activation_beta": [0.5] * count}
    bent = {"activations": ["HardSigmoid", "Tanh", "Sigmoid"] * count, **parameters}
    attributes = draw(st.sampled_from([{}, bent, {"clip": 20.0}, {"input_forget": 1}]))
    return call(*inputs, direction=direction, hidden_size=hidden, **attributes)


@cases(
    dynamic_time_warping, gradient=False, gaps=[Gap("special values", "the path chosen next to a NaN is not specified")]
)
def dynamic_time_warping_cases(draw):
    shape = draw(shapes(2, 2, 1, 5))
    return call(draw(tensors(shape=draw(st.sampled_from([shape, (1, *shape)])), min_value=0)))


@cases(word_conv_embedding, gradient=["W", "B", "C"])
def word_conv_embedding_cases(draw):
    """Without empty words, whose outputs onnxruntime leaves unwritten."""
    count, length, results, width, size = draw(shapes(5, 5, 1, 3))
    length += width - 1
    words = draw(tensors("int32", shape=(count, length), min_value=1, max_value=5))
    words[np.arange(length) >= np.array([[draw(st.integers(1, length))] for _ in range(count)])] = 0
    w = draw(tensors(shape=(results, 1, width, size), min_value=-1, max_value=1))
    attributes = draw(st.sampled_from([{}, {"embedding_size": results, "conv_window_size": width}]))
    attributes |= draw(st.sampled_from([{}, {"char_embedding_size": size}]))
    b, c = draw(tensors(shape=(results,))), draw(tensors(shape=(6, size), min_value=-1, max_value=1))
    return call(words, w, b, c, **attributes)
