"""Grouped-query attention with a cache of keys and values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import REQUIRED, Dim, DType, TensorType, TypeMismatch, Value, constant, dims, elements, holds, op
from tenonnx.graph import symbolic
from tenonnx_contrib_ms.attention_arrays import attend
from tenonnx_standard import rotary
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import check_shape
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat, split
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import and_, greater, less, where
from tenonnx_standard.math import reciprocal, sqrt
from tenonnx_standard.normalization import rms_normalization
from tenonnx_standard.shapes import expand, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.trigonometry import tanh


@op("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(
    query, key=None, value=None, past_key=None, past_value=None, seqlens_k=REQUIRED, total_sequence_length=REQUIRED,
    cos_cache=None, sin_cache=None, position_ids=None, attention_bias=None, head_sink=None, k_scale=None, v_scale=None,
    q_norm_weight=None, k_norm_weight=None, *,
    causal=1, do_rotary=0, k_quant_type="NONE", kv_cache_bit_width=0, kv_num_heads: int, local_window_size=-1,
    num_heads: int, qk_norm_epsilon=1e-6, qk_output=0, rotary_interleaved=0, scale=0.0, sliding_window_cache=0,
    smooth_softmax=-1,
    softcap=0.0, v_quant_type="NONE",
):  # fmt: skip
    """Attention whose query heads share keys and values in ``kv_num_heads`` groups; these are appended to the past.

    Instance b has ``seqlens_k[b] + 1`` keys in all. Where ``total_sequence_length`` is the length of the query this is
    a prompt and any past is ignored; else the new keys follow the instance's own past, and what lies behind them in
    ``present`` is 0. A query sees the keys up to its own position (``causal``), at most ``local_window_size`` of them.
    ``head_sink`` is one more logit for each head, 0 with ``smooth_softmax``, that only takes part in the sum.
    ``qk_output`` asks for the logits (1) or the probabilities (2) as output 4; what is not seen is 0 there.
    """
    q, k, v = _heads(query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = rms_normalization(q, q_norm_weight, epsilon=qk_norm_epsilon)
        k = rms_normalization(k, k_norm_weight, epsilon=qk_norm_epsilon)
    lengths = reshape(cast(seqlens_k, to=DType.int64), [-1, 1]) + 1
    sequence = dims(q)[2]
    total, start = sequence, None
    if past_key is not None:
        total = reshape(cast(total_sequence_length, to=DType.int64), [])
        continues = less(sequence, total)
        start = (lengths - sequence) * cast(continues, to=DType.int64)
    steps = reshape(range_(0, sequence, 1), [1, -1])
    rows = steps if start is None else start + steps
    if do_rotary:
        positions = rows
        if position_ids is not None:
            positions = position_ids[:1, :1] + steps
            positions = positions if start is None else where(continues, position_ids, positions)
        q, k = (_rotated(x, cos_cache, sin_cache, positions, rotary_interleaved) for x in (q, k))
    if past_key is not None and past_value is not None and start is not None:
        place = _places(past_key, sequence, start, total)
        k, v = _appended(past_key, k, *place), _appended(past_value, v, *place)
    keys, values = (k, v) if start is None else (k[:, :, :total], v[:, :, :total])

    stage = DType.float32 if q.dtype.bits < 32 else q.dtype
    factor = scale or _factor(q, stage)
    logits = matmul(_grouped(_to(q, stage) * factor, kv_num_heads), transpose(_to(keys, stage), perm=[0, 1, 3, 2]))
    logits = reshape(logits, [0, num_heads, -1, 0])
    if softcap:
        logits = tanh(logits / softcap) * softcap
    if attention_bias is not None:
        logits = logits + _to(attention_bias, stage)
    visible = _visible(rows, lengths, total, causal, local_window_size)
    probabilities = _probabilities(where(visible, logits, float(np.finfo(stage.numpy).min)), head_sink, smooth_softmax)
    y = matmul(_grouped(probabilities, kv_num_heads), _to(values, stage))
    y = transpose(reshape(y, [0, num_heads, -1, 0]), perm=[0, 2, 1, 3])
    y = _to(reshape(y, [0, 0, -1]), query.dtype)
    if not qk_output:
        return y, k, v
    return y, k, v, _to(where(visible, logits if qk_output == 1 else probabilities, 0.0), query.dtype)


def _heads(query: Value, key: Value | None, value: Value | None, count: int, groups: int) -> list[Value]:
    """Queries, keys and values as [batch, heads, sequence, size]; all may lie in ``query``, one behind the other."""
    if key is None or value is None:
        parts = split(reshape(query, [0, 0, count + 2 * groups, -1]), [count, groups, groups], axis=2)
    else:
        parts = [reshape(x, [0, 0, n, -1]) for x, n in ((query, count), (key, groups), (value, groups))]
    return [transpose(x, perm=[0, 2, 1, 3]) for x in parts]


def _factor(q: Value, dtype: DType) -> Any:
    """One by the root of the length of a head."""
    size = dims(q)[3]
    return reciprocal(sqrt(cast(size, to=dtype))) if isinstance(size, Value) else 1 / math.sqrt(size)


def _to(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else cast(x, to=dtype)


def _grouped(x: Value, groups: int) -> Value:
    """The heads of a group one below the other, so that they are multiplied as one matrix."""
    return reshape(x, [0, groups, -1, 0])


def _rotated(x: Value, cos_cache: Value, sin_cache: Value, positions: Value, interleaved: int) -> Value:
    batch, _, sequence, size = dims(x)
    half = cos_cache.shape[-1]
    width = 2 * half if isinstance(half, int) and not (isinstance(size, int) and 2 * half == size) else 0
    return rotary.rotary_embedding(
        x,
        cos_cache,
        sin_cache,
        expand(positions, [batch, sequence]),
        interleaved=interleaved,
        rotary_embedding_dim=width,
    )


def _places(past: Value, sequence: Any, start: Value, total: Value) -> tuple[Value, Value]:
    """For each instance and place of the new cache its place in past and new keys together, and whether it has one."""
    batch, _, capacity, _ = dims(past)
    limit = where(less(total, capacity), capacity, total)
    columns = reshape(range_(0, limit, 1), [1, -1])
    filled = less(columns, start + sequence)
    places = where(less(columns, start), columns, columns - start + capacity)
    first = reshape(range_(0, batch, 1), [-1, 1]) * (capacity + sequence)
    return where(filled, places, 0) + first, unsqueeze(filled, [1, 3])


def _appended(past: Value, new: Value, places: Value, filled: Value) -> Value:
    rows = reshape(transpose(concat(past, new, axis=2), perm=[0, 2, 1, 3]), [-1, *dims(new)[1::2]])
    return where(filled, transpose(gather(rows, places), perm=[0, 2, 1, 3]), 0.0)


def _visible(rows: Value, lengths: Value, total: Any, causal: int, window: int) -> Value:
    """Which keys each query sees, as [batch, 1, query, key]."""
    columns = range_(0, total, 1)
    limits = lengths
    if causal:
        ahead = rows + 1
        limits = where(less(ahead, lengths), ahead, lengths)
    visible = less(columns, unsqueeze(limits, [1, 3]))
    if causal and window > 0:
        visible = and_(visible, greater(columns, unsqueeze(rows - window, [1, 3])))
    return visible


def _probabilities(logits: Value, sink: Value | None, smooth: int) -> Value:
    if sink is None and smooth <= 0:
        return softmax(logits)
    column = constant(0.0, logits.dtype) if sink is None else reshape(_to(sink, logits.dtype), [1, -1, 1, 1])
    batch, count, sequence, _ = dims(logits)
    with_sink = concat(logits, expand(column, [batch, count, sequence, 1]), axis=-1)
    return softmax(with_sink)[..., :-1]


# ----- rules ----------------------------------------------------------------------------------------------------------


@group_query_attention.type
def _(
    query,
    key,
    value,
    past_key,
    past_value,
    seqlens_k,
    total_sequence_length,
    *others,
    num_heads,
    kv_num_heads,
    **attributes,
):
    problem = check(num_heads=num_heads, kv_num_heads=kv_num_heads, **attributes)
    if problem:
        raise TypeMismatch(f"{group_query_attention.title}: {problem}")
    attributes |= {"num_heads": num_heads, "kv_num_heads": kv_num_heads}
    _check_inputs(query, key, value, past_key, past_value, seqlens_k, total_sequence_length, others, attributes)
    batch, sequence, width = query.shape
    size = symbolic.floor_div(width, num_heads if key is not None else num_heads + 2 * kv_num_heads)
    total: Dim = sequence
    cache = query.dtype
    if past_key is not None:
        known = elements(total_sequence_length)
        total = known[0] if known else None
        cache = past_key.dtype
    capacity = total if past_key is None or past_key.rank is None else symbolic.maximum(total, past_key.shape[2])
    present = TensorType(cache, (batch, kv_num_heads, capacity, size))
    types = (TensorType(query.dtype, (batch, sequence, symbolic.multiply(num_heads, size))), present, present)
    if not attributes["qk_output"]:
        return types
    return *types, TensorType(query.dtype, (batch, num_heads, sequence, total))


def _check_inputs(query, key, value, past_key, past_value, seqlens_k, total, others, attributes) -> None:
    cos_cache, sin_cache, positions, bias, sink, k_scale, v_scale, q_weight, k_weight = others
    title = group_query_attention.title
    for a, b, names in (
        (key, value, "key and value"),
        (past_key, past_value, "past_key and past_value"),
        (cos_cache, sin_cache, "cos_cache and sin_cache"),
        (q_weight, k_weight, "q_norm_weight and k_norm_weight"),
    ):
        if (a is None) != (b is None):
            raise TypeMismatch(f"{title}: {names} must be given together")
    if attributes["do_rotary"] and cos_cache is None:
        raise TypeMismatch(f"{title}: do_rotary needs cos_cache and sin_cache")
    quantised = (
        {attributes["k_quant_type"], attributes["v_quant_type"]} != {"NONE"}
        or k_scale is not None
        or v_scale is not None
    )
    if quantised or attributes["sliding_window_cache"]:
        what = "a quantised cache" if quantised else "sliding_window_cache"
        raise TypeMismatch(f"{title}: {what} is not supported", do="keep com.microsoft in the target's domains")
    for value_ in (query, key, value, past_key, past_value, cos_cache, sin_cache, bias, sink, q_weight, k_weight):
        if value_ is not None and (value_.dtype is not query.dtype or not value_.dtype.is_float):
            raise TypeMismatch(f"{title}: the inputs must be floats of one dtype", given=f"{query!r}, {value_!r}")
    ranks = {2: (cos_cache, sin_cache, positions), 3: (query, key, value), 4: (past_key, past_value, bias)}
    for value_, rank in ((each, rank) for rank, inputs in ranks.items() for each in inputs):
        if value_ is not None and value_.rank not in (None, rank):
            raise TypeMismatch(
                f"{title}: an input has the wrong number of axes", given=f"{value_!r} instead of {rank} axes"
            )
    for name, value_ in (("key", key), ("value", value)):
        check_shape(group_query_attention, name, value_, [*query.shape[:2], None])
    if past_key is not None and past_key.rank is not None:
        held = [query.shape[0], attributes["kv_num_heads"], *past_key.shape[2:]]
        check_shape(group_query_attention, "past_key", past_key, held)
        check_shape(group_query_attention, "past_value", past_value, held)
    count = attributes["num_heads"] if key is not None else attributes["num_heads"] + 2 * attributes["kv_num_heads"]
    if isinstance(query.shape[2], int) and query.shape[2] % count:
        raise TypeMismatch(f"{title}: the last axis of query must hold {count} heads", given=repr(query))
    for value_ in (seqlens_k, total):
        if not value_.dtype.is_integer:
            raise TypeMismatch(f"{title}: lengths must be integers", given=repr(value_))


def check(*, num_heads: int, kv_num_heads: int, causal: int, local_window_size: int, **_: Any) -> str | None:
    """What the attributes contradict."""
    if num_heads < 1 or kv_num_heads < 1 or num_heads % kv_num_heads:
        return f"kv_num_heads must divide num_heads, and here they are {kv_num_heads} and {num_heads}"
    if causal not in (0, 1):
        return f"causal must be 0 or 1, and here it is {causal}"
    if not causal and local_window_size != -1:
        return f"local_window_size must be -1 where causal is 0, and here it is {local_window_size}"
    return None


group_query_attention.requires(holds(check))
group_query_attention.numpy(attend)
