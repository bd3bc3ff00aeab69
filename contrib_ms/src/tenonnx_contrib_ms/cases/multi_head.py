"""Cases of MultiHeadAttention and DecoderMaskedMultiHeadAttention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.cases.attention import HIDDEN, mask_of
from tenonnx_contrib_ms.multi_head import decoder_masked_multi_head_attention, multi_head_attention
from tenonnx_testing import Gap, call, cases, tensors


def drawn(draw, *shape):
    return draw(tensors(shape=shape, min_value=-1, max_value=1))


def bias_of(draw, batch, heads, length, total):
    if draw(st.booleans()):
        return None
    return drawn(draw, draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), length, total)


def as_declared(call):
    """Declare the type of the logits output, which onnxruntime requires."""
    return call.outputs == 4


UNTYPED = Gap("onnxruntime", "its fourth output has no type unless the file declares it", when=as_declared)
LATER = Gap(
    "onnxruntime",
    "its last query attends to all keys, also with fewer queries than new keys",
    when=lambda call: call.attributes["unidirectional"] and call.inputs[0].shape[1] != call.inputs[1].shape[-2],
)


@cases(multi_head_attention, gradient=["query", "key", "value", "bias", "attention_bias"], gaps=[LATER])
def multi_head_attention_cases(draw):
    """Separate queries, keys and values; keys and values may come from an encoder."""
    batch, heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    length, total = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    query = drawn(draw, batch, length, heads * size)
    bias = None
    if draw(st.booleans()):
        key, value = (drawn(draw, batch, heads, total, size) for _ in range(2))
    else:
        width = heads * draw(st.integers(1, 4))
        key, value = drawn(draw, batch, total, heads * size), drawn(draw, batch, total, width)
        bias = drawn(draw, 2 * heads * size + width) if draw(st.booleans()) else None
    mask = mask_of(draw, batch, length, total, ["none", "keys", "pairs", "ends", "sums"])
    scale = draw(st.sampled_from([{}, {"scale": 0.3}, {"unidirectional": 1}]))
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN, **scale}
    more = bias_of(draw, batch, heads, length, total)
    return call(query, key, value, bias, mask, more, **attributes, _outputs=draw(st.sampled_from([1, 3])))


@cases(multi_head_attention, gradient=["query", "key", "value", "past_key", "past_value"])
def multi_head_attention_cases_2(draw):
    """With a past, or a buffer that contains it, for one or several beams."""
    beams = draw(st.integers(1, 2))
    batch, heads, size = beams * draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    length, before = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    buffer = draw(st.booleans())
    capacity = before + 2 if buffer else before
    flat = [drawn(draw, batch, length, heads * size) for _ in range(3)]
    past = [drawn(draw, batch, heads, capacity, size) for _ in range(2)]
    mask = mask_of(draw, batch, length, before + length, ["none", "keys", "pairs"])
    bias = bias_of(draw, batch, heads, length, before + length)
    more = []
    if buffer:
        made_in = draw(tensors("int32", shape=(batch // beams, beams, capacity), min_value=0, max_value=beams - 1))
        more = [np.array([before], np.int32), made_in if length == 1 and beams > 1 else None]
        mask = bias = None
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN, "unidirectional": draw(st.integers(0, 1))}
    return call(*flat, None, mask, bias, *past, *more, **attributes, _outputs=3)


@cases(multi_head_attention, gradient=["query", "key", "value", "bias"], gaps=[UNTYPED])
def multi_head_attention_cases_3(draw):
    """Calls that also return the logits."""
    batch, heads, size, length = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 3, draw(st.integers(1, 3))
    flat = [drawn(draw, batch, length, heads * size) for _ in range(3)]
    mask = mask_of(draw, batch, length, length, ["none", "keys"])
    return call(*flat, None, mask, num_heads=heads, mask_filter_value=HIDDEN, _outputs=4)


@cases(multi_head_attention, gradient=["query", "key", "bias"])
def multi_head_attention_cases_4(draw):
    """Query, key and value packed in one tensor, or only key and value."""
    batch, heads, size, length = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 3, draw(st.integers(1, 3))
    if draw(st.booleans()):
        inputs = [drawn(draw, batch, length, heads, 3, size), None, None, drawn(draw, 3 * heads * size)]
    else:
        inputs = [drawn(draw, batch, 2, heads * size), drawn(draw, batch, length, heads, 2, size)]
    return call(*inputs, num_heads=heads, _outputs=1)


@cases(
    decoder_masked_multi_head_attention,
    gradient=["query", "key", "value", "attention_bias", "past_key", "past_value", "bias"],
    gaps=[UNTYPED],
)
def decoder_masked_multi_head_attention_cases(draw):
    """One query and its past, for one or several beams; without ``attention_bias``, whose heads the kernel mixes up."""
    beams = draw(st.integers(1, 2))
    batch, heads, size = beams * draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    before = draw(st.integers(1, 3))
    total = before + 1
    flat = [drawn(draw, batch, 1, heads * size) for _ in range(3)]
    past = [drawn(draw, batch, heads, before + 2, size) for _ in range(2)]
    mask = mask_of(draw, batch, 1, total, ["none", "keys"])
    made_in = None
    if beams > 1:
        made_in = draw(tensors("int32", shape=(batch // beams, beams, before + 2), min_value=0, max_value=beams - 1))
    more = None if beams > 1 else bias_of(draw, batch, heads, 1, total)
    bias = drawn(draw, 3 * heads * size) if draw(st.booleans()) else None
    shown = draw(st.integers(0, 1))
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN, "past_present_share_buffer": 1, "output_qk": shown}
    counts = np.array([before], np.int32), np.array([beams], np.int32)
    return call(*flat, mask, more, *past, *counts, made_in, bias, **attributes, _outputs=3 + shown)


@cases(decoder_masked_multi_head_attention, gradient=["query", "key", "value", "bias"])
def decoder_masked_multi_head_attention_cases_2(draw):
    """Keys and values of an encoder."""
    batch, heads, size, total = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 3, draw(st.integers(1, 4))
    inputs = [drawn(draw, batch, 1, heads * size), *(drawn(draw, batch, heads, total, size) for _ in range(2))]
    mask = mask_of(draw, batch, 1, total, ["none", "keys"])
    bias = drawn(draw, 3 * heads * size) if draw(st.booleans()) else None
    scale = draw(st.sampled_from([{}, {"scale": 0.3}]))
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN, **scale}
    return call(*inputs, mask, *[None] * 6, bias, **attributes, _outputs=1)
