"""Cases of removing padding. onnxruntime implements these on GPUs only: see tests/test_attention_formulas.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.remove_padding import (
    gated_relative_position_bias,
    packed_attention,
    packed_multi_head_attention,
    remove_padding,
    restore_padding,
)
from tenonnx_testing import call, cases, tensors


def drawn(draw, *shape, dtype="float32"):
    return draw(tensors(dtype, shape=shape, min_value=-1, max_value=1))


def lengths_of(draw):
    """Draw lengths of sequences, the maximum length, and token offsets: those of tokens, then those of padding."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    counts = draw(tensors("int32", shape=(batch,), min_value=1, max_value=length))
    kept = (np.arange(length) < counts[:, None]).reshape(-1)
    places = np.arange(batch * length, dtype=np.int32)
    offset = np.concatenate([places[kept], places[~kept]]).reshape(batch, length)
    return counts, offset, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


@cases(remove_padding, gradient=["input"])
def remove_padding_cases(draw):
    counts, offset, _ = lengths_of(draw)
    return call(drawn(draw, *offset.shape, 3, dtype=draw(st.sampled_from(["float32", "float16"]))), counts)


@cases(restore_padding, gradient=["input"])
def restore_padding_cases(draw):
    _, offset, sums = lengths_of(draw)
    return call(drawn(draw, int(sums[-1]), 3, dtype=draw(st.sampled_from(["float32", "float16"]))), offset)


def bias_of(draw, batch, heads, length):
    if draw(st.booleans()):
        return None
    return drawn(draw, draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), length, length)


@cases(packed_attention, gradient=["input", "weights", "bias", "attention_bias"])
def packed_attention_cases(draw):
    _, offset, sums = lengths_of(draw)
    heads, size, width = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    sizes = draw(st.sampled_from([None, [heads * size, heads * size, 2 * heads]]))
    whole = sum(sizes) if sizes else 3 * heads * size
    inputs = [drawn(draw, int(sums[-1]), width), drawn(draw, width, whole), drawn(draw, whole)]
    more = bias_of(draw, offset.shape[0], heads, offset.shape[1])
    scale = draw(st.sampled_from([{}, {"scale": 0.3}]))
    return call(*inputs, offset, sums, more, num_heads=heads, qkv_hidden_sizes=sizes, **scale)


@cases(packed_multi_head_attention, gradient=["query", "key", "value", "bias", "attention_bias"])
def packed_multi_head_attention_cases(draw):
    _, offset, sums = lengths_of(draw)
    heads, size, tokens = draw(st.integers(1, 2)), draw(st.integers(1, 3)), int(sums[-1])
    width = heads * size
    if draw(st.booleans()):
        inputs = [drawn(draw, tokens, heads, 3, size), None, None]
        wide = width
    else:
        wide = heads * draw(st.integers(1, 3))
        inputs = [drawn(draw, tokens, width), drawn(draw, tokens, width), drawn(draw, tokens, wide)]
    bias = drawn(draw, 2 * width + wide) if draw(st.booleans()) else None
    more = bias_of(draw, offset.shape[0], heads, offset.shape[1])
    scale = draw(st.sampled_from([{}, {"scale": 0.3}, {"mask_filter_value": -30.0}]))
    return call(*inputs, bias, offset, sums, more, num_heads=heads, **scale)


@cases(gated_relative_position_bias)
def gated_relative_position_bias_cases(draw):
    _, offset, sums = lengths_of(draw)
    heads, size, gates = draw(st.integers(1, 2)), draw(st.integers(1, 3)), 2 * draw(st.integers(1, 2))
    batch, length = offset.shape
    packed = draw(st.booleans())
    query = drawn(draw, int(sums[-1]), heads * size) if packed else drawn(draw, batch, length, heads * size)
    others = [(heads * size,), (1, heads, length, length), (size, gates), (gates,), (1, heads, 1, 1)]
    return call(query, *(drawn(draw, *shape) for shape in others), offset if packed else None, num_heads=heads)
