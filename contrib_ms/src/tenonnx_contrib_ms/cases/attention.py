"""Cases of Attention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.attention import attention
from tenonnx_testing import call, cases, tensors

#: Mask value: large enough to hide keys, small enough for float32 to distinguish rows without visible keys.
HIDDEN = -20.0


def mask_of(draw, batch, length, total, kinds):
    """Draw a mask of one of the supported shapes."""
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return None
    if kind == "keys":
        return draw(tensors("int32", shape=(batch, total), min_value=0, max_value=1))
    if kind == "pairs":
        return draw(tensors("int32", shape=(batch, length, total), min_value=0, max_value=1))
    ends = draw(tensors("int32", shape=(batch,), min_value=1, max_value=total))
    if kind == "ends":
        return ends
    if kind == "spans":
        return np.concatenate([ends, draw(tensors("int32", shape=(batch,), min_value=0, max_value=total))])
    sums = np.arange(batch + 1, dtype=np.int32)
    return np.concatenate([ends, sums * length, sums * total]).astype(np.int32)


def projected(draw, batch, sizes, dtype="float32"):
    length, width = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    shapes = [(batch, length, width), (width, sum(sizes)), (sum(sizes),)]
    return length, [draw(tensors(dtype, shape=shape, min_value=-1, max_value=1)) for shape in shapes]


@cases(attention, gradient=["input", "weights", "bias", "attention_bias"])
def attention_cases(draw):
    """Without a past; the values may have another size."""
    batch, heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    width = heads * draw(st.integers(1, 4))
    sizes = draw(st.sampled_from([None, [heads * size, heads * size, width]]))
    length, inputs = projected(draw, batch, sizes or [heads * size] * 3)
    kinds = ["none", "keys", "pairs", "ends", "spans", "sums"]
    mask = mask_of(draw, batch, length, length, kinds)
    bias = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), length, length
        bias = draw(tensors(shape=shape, min_value=-1, max_value=1))
    scale = draw(st.sampled_from([{}, {"scale": 0.3}]))
    attributes = {"num_heads": heads, "qkv_hidden_sizes": sizes, "mask_filter_value": HIDDEN, **scale}
    return call(*inputs, mask, None, bias, **attributes, unidirectional=draw(st.integers(0, 1)), _outputs=1)


@cases(attention, gradient=["input", "weights", "bias", "past"])
def attention_cases_2(draw):
    """With a past, or with ``present`` outputs for the next call."""
    batch, heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    length, inputs = projected(draw, batch, [heads * size] * 3)
    before, past = 0, None
    if draw(st.booleans()):
        before = draw(st.integers(1, 3))
        past = draw(tensors(shape=(2, batch, heads, before, size), min_value=-1, max_value=1))
    mask = mask_of(draw, batch, length, before + length, ["none", "keys", "pairs", "ends"])
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN, "unidirectional": draw(st.integers(0, 1))}
    return call(*inputs, mask, past, **attributes, _outputs=2)


@cases(attention, gradient=["input", "weights", "bias", "past"])
def attention_cases_3(draw):
    """Features only of GPU kernels: rotation, a buffer for the past, Megatron's mask."""
    batch, heads, size = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 4
    length, inputs = projected(draw, batch, [heads * size] * 3)
    attributes = {"num_heads": heads, "mask_filter_value": HIDDEN}
    before = draw(st.integers(0, 2))
    past = draw(tensors(shape=(2, batch, heads, before + length + 1, size), min_value=-1, max_value=1))
    side = before + length + draw(st.integers(0, 2))
    mask = draw(tensors("int32", shape=(batch, 1, side, side), min_value=0, max_value=1))
    mask = mask if draw(st.booleans()) else None
    attributes |= draw(st.sampled_from([{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_embedding_dim": 2}]))
    counts = np.array([before], np.int32)
    return call(*inputs, mask, past, None, counts, **attributes, past_present_share_buffer=1, _outputs=2)
