"""Cases of GroupQueryAttention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.attention import group_query_attention
from tenonnx_testing import call, cases, tensors

FLOATS = ["float32", "float16"]
POSITIONS = 12


def heads_of(draw):
    groups = draw(st.integers(1, 2))
    return {"num_heads": groups * draw(st.integers(1, 2)), "kv_num_heads": groups}


def projections(draw, dtype, batch, length, size, heads):
    """Query, key and value, apart or packed."""
    widths = [heads["num_heads"] * size, heads["kv_num_heads"] * size, heads["kv_num_heads"] * size]
    q, k, v = (draw(tensors(dtype, shape=(batch, length, width), min_value=-2, max_value=2)) for width in widths)
    return (np.concatenate([q, k, v], axis=-1), None, None) if draw(st.booleans()) else (q, k, v)


def options(draw, dtype, batch, length, total, size, heads):
    """Further inputs, from the caches of the rotation on, and attributes."""
    attributes = dict(heads)
    inputs = [None] * 5
    if draw(st.booleans()):
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1))}
        inputs[:2] = [draw(tensors(dtype, shape=(POSITIONS, size // 2), min_value=-1, max_value=1)) for _ in range(2)]
        if draw(st.booleans()):
            reach = POSITIONS - 1 if length < total else POSITIONS - length
            inputs[2] = draw(tensors("int64", shape=(batch, length), min_value=0, max_value=reach))
    if draw(st.booleans()):
        sides = (draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads["num_heads"]])), length, total)
        inputs[3] = draw(tensors(dtype, shape=sides, min_value=-1, max_value=1))
    choice = draw(st.sampled_from(["", "smooth", "sink"]))
    if choice == "sink":
        inputs[4] = draw(tensors(dtype, shape=(heads["num_heads"],), min_value=-1, max_value=1))
    elif choice:
        attributes["smooth_softmax"] = 1
    attributes |= draw(st.sampled_from([{}, {"causal": 0}, {"local_window_size": 2}, {"scale": 0.3, "softcap": 1.5}]))
    return inputs, attributes


DIFFERENTIABLE = [
    "query", "key", "value", "past_key", "past_value", "cos_cache", "sin_cache", "attention_bias", "head_sink",
]  # fmt: skip


@cases(group_query_attention, gradient=DIFFERENTIABLE)
def _(draw):
    """A prompt, with or without a place for the past."""
    dtype, batch, length = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, size = heads_of(draw), 16
    packed = projections(draw, dtype, batch, length, size, heads)
    past = [None, None]
    if draw(st.booleans()):
        capacity = draw(st.sampled_from([0, length + 1]))
        past = [np.zeros((batch, heads["kv_num_heads"], capacity, size), dtype) for _ in range(2)]
    lengths = np.full(batch, length - 1, np.int32)
    inputs, attributes = options(draw, dtype, batch, length, length, size, heads)
    return call(*packed, *past, lengths, np.array(length, np.int32), *inputs, **attributes)


@cases(group_query_attention, gradient=DIFFERENTIABLE)
def _(draw):
    """The next elements after a past, of which a single instance may have several."""
    dtype, batch = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 3))
    length = 1 if batch > 1 else draw(st.integers(1, 2))
    heads, size = heads_of(draw), 16
    packed = projections(draw, dtype, batch, length, size, heads)
    capacity = draw(st.integers(1, 4))
    past = [
        draw(tensors(dtype, shape=(batch, heads["kv_num_heads"], capacity, size), min_value=-2, max_value=2))
        for _ in range(2)
    ]
    lengths = np.array([draw(st.integers(length, capacity + length - 1)) for _ in range(batch)], np.int32)
    total = int(lengths.max()) + 1
    inputs, attributes = options(draw, dtype, batch, length, total, size, heads)
    return call(*packed, *past, lengths, np.array(total, np.int32), *inputs, **attributes)


@cases(group_query_attention, gradient=DIFFERENTIABLE)
def _(draw):
    """Logits or probabilities as the fourth output."""
    batch, length = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, size = heads_of(draw), 16
    packed = projections(draw, "float32", batch, length, size, heads)
    attributes = heads | draw(st.sampled_from([{}, {"softcap": 1.5}])) | {"qk_output": draw(st.integers(1, 2))}
    return call(*packed, None, None, np.full(batch, length - 1, np.int32), np.array(length, np.int32), **attributes)
