"""Cases of GroupQueryAttention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.grouped_query import group_query_attention
from tenonnx_testing import call, cases, tensors

FLOATS = ["float32", "float16"]
POSITIONS = 12


def heads_of(draw):
    groups = draw(st.integers(1, 2))
    return {"num_heads": groups * draw(st.integers(1, 2)), "kv_num_heads": groups}


def projections(draw, dtype, batch, length, size, heads):
    """Draw query, key and value, separate or packed."""
    widths = [heads["num_heads"] * size, heads["kv_num_heads"] * size, heads["kv_num_heads"] * size]
    q, k, v = (draw(tensors(dtype, shape=(batch, length, width), min_value=-2, max_value=2)) for width in widths)
    return (np.concatenate([q, k, v], axis=-1), None, None) if draw(st.booleans()) else (q, k, v)


def held(draw, dtype, shape, starts, low=-2, high=2):
    """Draw a cache that is filled before ``starts`` and zero after it, since onnxruntime clears the rest."""
    values = draw(tensors(dtype, shape=shape, min_value=low, max_value=high))
    return np.where(np.arange(shape[2])[:, None] < starts.reshape(-1, 1, 1, 1), values, 0).astype(values.dtype)


def options(draw, dtype, batch, length, total, size, heads):
    """Draw the inputs from the rotary caches on, and attributes."""
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
    "query",
    "key",
    "value",
    "past_key",
    "past_value",
    "cos_cache",
    "sin_cache",
    "attention_bias",
    "head_sink",
]


@cases(group_query_attention, gradient=DIFFERENTIABLE)
def group_query_attention_cases(draw):
    """A prompt, optionally with an empty past."""
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
def group_query_attention_cases_2(draw):
    """New tokens after a past; several only for a batch of one."""
    dtype, batch = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 3))
    length = 1 if batch > 1 else draw(st.integers(1, 2))
    heads, size = heads_of(draw), 16
    packed = projections(draw, dtype, batch, length, size, heads)
    capacity = draw(st.integers(1, 4))
    lengths = np.array([draw(st.integers(length, capacity + length - 1)) for _ in range(batch)], np.int32)
    starts = lengths + 1 - length
    past = [held(draw, dtype, (batch, heads["kv_num_heads"], capacity, size), starts) for _ in range(2)]
    total = int(lengths.max()) + 1
    inputs, attributes = options(draw, dtype, batch, length, total, size, heads)
    return call(*packed, *past, lengths, np.array(total, np.int32), *inputs, **attributes)


@cases(group_query_attention, gradient=DIFFERENTIABLE)
def group_query_attention_cases_3(draw):
    """Attention logits or probabilities as fourth output."""
    batch, length = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, size = heads_of(draw), 16
    packed = projections(draw, "float32", batch, length, size, heads)
    attributes = heads | draw(st.sampled_from([{}, {"softcap": 1.5}])) | {"qk_output": draw(st.integers(1, 2))}
    return call(*packed, None, None, np.full(batch, length - 1, np.int32), np.array(length, np.int32), **attributes)


@cases(group_query_attention, gradient=False)
def group_query_attention_cases_4(draw):
    """Caches of 8 or 4 bits."""
    dtype, length, before = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 3)), draw(st.integers(0, 4))
    heads, size = heads_of(draw), 16
    groups, bits = heads["kv_num_heads"], draw(st.sampled_from([8, 4]))
    packed = projections(draw, dtype, 1, length, size, heads)
    kept = (1, groups, draw(st.sampled_from([before, before + length, 9])), size if bits == 8 else size // 2)
    cache, low, high = ("int8", -128, 127) if bits == 8 else ("uint8", 0, 255)
    past = [held(draw, cache, kept, np.array([before]), low, high) for _ in range(2)]
    kind = draw(st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]))
    shape, unit = (1,) if kind == "PER_TENSOR" else (1, groups, 1, size), 1 if bits == 8 else 16
    scales = [draw(tensors("float32", shape=shape, min_value=0.01 * unit, max_value=0.02 * unit)) for _ in range(2)]
    lengths, total = np.array([before + length - 1], np.int32), np.array(before + length, np.int32)
    attributes = heads | {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    return call(*packed, *past, lengths, total, *[None] * 5, *scales, **attributes)


@cases(group_query_attention, gradient=["query", "key", "value", "past_key", "past_value", "attention_bias"])
def group_query_attention_cases_5(draw):
    """Sliding-window caches, full after the call."""
    batch, window = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    length = draw(st.integers(1, 6)) if batch == 1 else 1
    before = draw(st.integers(max(window - length, 1), 9))
    heads, size = heads_of(draw), 16
    packed = projections(draw, "float32", batch, length, size, heads)
    shape, total = (batch, heads["kv_num_heads"], window, size), before + length
    past = [draw(tensors(shape=shape, min_value=-2, max_value=2)) for _ in range(2)]
    lengths = np.full(batch, total - 1, np.int32)
    bias = None
    if draw(st.booleans()):
        bias = draw(tensors(shape=(1, heads["num_heads"], length, total), min_value=-1, max_value=1))
    attributes = heads | {"sliding_window_cache": 1, "local_window_size": window}
    return call(*packed, *past, lengths, np.array(total, np.int32), None, None, None, bias, **attributes)


@cases(group_query_attention, gradient=["query", "key", "value", "q_norm_weight", "k_norm_weight"])
def group_query_attention_cases_6(draw):
    """Queries and keys normalized first, which only GPU kernels support."""
    batch, length, size = draw(st.integers(1, 2)), draw(st.integers(1, 3)), 16
    heads = heads_of(draw)
    packed = projections(draw, "float32", batch, length, size, heads)
    weights = [draw(tensors(shape=(size,), min_value=0.5, max_value=2)) for _ in range(2)]
    counts = np.full(batch, length - 1, np.int32), np.array(length, np.int32)
    epsilons = draw(st.sampled_from([{"qk_norm_epsilon": 1e-5}, {"q_norm_epsilon": 1e-2, "k_norm_epsilon": 1e-3}]))
    return call(*packed, None, None, *counts, *[None] * 7, *weights, **heads, **epsilons)


@cases(group_query_attention, gradient=["query", "key", "value", "past_key", "past_value"])
def group_query_attention_cases_7(draw):
    """Chunked prefill: several sequences, each with its own past."""
    batch, length, capacity, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), 8, 16
    heads = heads_of(draw)
    packed = projections(draw, "float32", batch, length, size, heads)
    starts = np.array([draw(st.integers(0, capacity - length)) for _ in range(batch)], np.int32)
    past = [held(draw, "float32", (batch, heads["kv_num_heads"], capacity, size), starts) for _ in range(2)]
    inputs = [starts + length - 1, np.array(capacity, np.int32), *[None] * 9, np.full(batch, length, np.int32)]
    return call(*packed, *past, *inputs, **heads, **draw(st.sampled_from([{}, {"local_window_size": 2}])))
