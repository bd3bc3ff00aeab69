"""Cases of decoder attention. onnxruntime implements it on GPUs only: see tests/test_attention_formulas.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.decoder import decoder_attention, decoder_masked_self_attention
from tenonnx_testing import call, cases, tensors


def drawn(draw, *shape):
    return draw(tensors(shape=shape, min_value=-1, max_value=1))


@cases(decoder_attention, gradient=["query", "key", "q_weight", "kv_weight", "bias", "key_cache", "value_cache"])
def decoder_attention_cases(draw):
    batch, heads, size = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    length, before, hidden = draw(st.integers(1, 3)), draw(st.integers(1, 3)), heads * size
    static, past, state, masked = (draw(st.booleans()) for _ in range(4))
    keys = before if past and state else length
    query, key = drawn(draw, length, batch, hidden), drawn(draw, keys if static else length, batch, hidden)
    weights = drawn(draw, hidden, hidden), drawn(draw, hidden, 2 * hidden), drawn(draw, 3 * hidden)
    total = length if not (past and state) else before if static else before + length
    total = keys if static else total
    mask = draw(tensors("bool", shape=(batch, total))) if masked or draw(st.booleans()) else None
    cache = [None, None]
    if (past and state) or draw(st.booleans()):
        cache = [drawn(draw, batch, heads, before, size) for _ in range(2)]
    flags = (np.array([flag]) for flag in (static, past, state, masked))
    return call(query, key, *weights, mask, *cache, *flags, num_heads=heads, mask_filter_value=-20.0)


@cases(decoder_masked_self_attention, gradient=["input", "weights", "bias", "past", "attention_bias"])
def decoder_masked_self_attention_cases(draw):
    beams = draw(st.integers(1, 2))
    batch, heads, size = beams * draw(st.integers(1, 2)), draw(st.integers(1, 2)), 4
    before, hidden, width = draw(st.integers(1, 3)), heads * size, draw(st.integers(1, 3))
    buffer = draw(st.booleans())
    capacity = before + 2 if buffer else before
    inputs = [drawn(draw, batch, 1, width), drawn(draw, width, 3 * hidden), drawn(draw, 3 * hidden)]
    mask = draw(tensors("int32", shape=(batch, before + 1), min_value=0, max_value=1)) if draw(st.booleans()) else None
    past = drawn(draw, 2, batch, heads, capacity, size)
    bias = drawn(draw, 1, heads, 1, before + 1) if draw(st.booleans()) else None
    count, made_in = np.array([before], np.int32), None
    if buffer and beams > 1:
        made_in = draw(tensors("int32", shape=(batch // beams, beams, capacity), min_value=0, max_value=beams - 1))
    attributes = {"num_heads": heads, "mask_filter_value": -20.0, "past_present_share_buffer": int(buffer)}
    attributes |= draw(st.sampled_from([{}, {"do_rotary": 1}, {"scale": 0.3}]))
    return call(*inputs, mask, past, bias, count, np.array([beams], np.int32), made_in, **attributes)
