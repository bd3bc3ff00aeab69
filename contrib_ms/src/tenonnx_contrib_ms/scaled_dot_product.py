"""Components of attention: heads, masks and the scaled dot product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    differ,
    divides,
    floats,
    holds,
    op,
    same_dtype,
    shapes,
    symbolic,
)
from tenonnx_standard.checking import dim_of


@op("ScaledDotProductAttention", domain="tenonnx")
def scaled_dot_product_attention(query, key, value, bias=None, sink=None, *, scale=0.0, softcap=0.0):
    """``softmax(scale * query key^T + bias) value``, where all inputs are (batch, heads, length, size).

    Several heads of ``query`` may share one of ``key`` and ``value``. ``bias`` is finite. ``sink`` is an additional
    logit per head in the denominator of the softmax. ``scale`` 0 means 1 / sqrt(size).
    """
    scores = logits(query, key, bias, scale=scale, softcap=softcap)
    y = weighted(ops.softmax(scores), value)
    return y if sink is None else y * share_beside(sink, scores)


def _hold_bias(bias: Any, batch: Any, heads: Any, length: Any, total: Any) -> str | None:
    if bias is None or bias.rank is None:
        return None
    pairs = zip(reversed(bias.shape), (total, length, heads, batch), strict=False)
    fits = bias.rank <= 4 and not any(differ(given, wanted) and differ(given, 1) for given, wanted in pairs)
    return None if fits else "bias does not broadcast to (batch, heads, length, total)"


scaled_dot_product_attention.requires(
    shapes(
        query="batch heads length size",
        key="batch groups total size",
        value="batch groups total _",
        sink="heads|1",
    ),
    floats("query", "key", "value", "bias", "sink"),
    same_dtype("query", "key", "value", "bias", "sink"),
    at_least(heads=1),
    divides("groups", "heads"),
    holds(_hold_bias),
)


@scaled_dot_product_attention.numpy
def scaled_dot_product_attention_numpy(query, key, value, bias, sink, *, scale, softcap):
    dtype = query.dtype
    if dtype.itemsize < 4:
        query, key, value = (x.astype(np.float32) for x in (query, key, value))
    batch, heads, length, size = query.shape
    groups, total = key.shape[1:3]
    shared = heads // (groups or 1) * length
    rows = (query * query.dtype.type(scale or 1 / math.sqrt(size or 1))).reshape(batch, groups, shared, size)
    shares = (rows @ key.swapaxes(2, 3)).reshape(batch, heads, length, total)
    if softcap:
        shares /= softcap
        np.tanh(shares, out=shares)
        shares *= softcap
    if bias is not None:
        shares += bias
    highest = shares.max(axis=-1, keepdims=True, initial=-np.inf)
    shares -= highest
    np.exp(shares, out=shares)
    whole = shares.sum(axis=-1, keepdims=True)
    if sink is not None:
        whole += np.exp(sink.astype(shares.dtype).reshape(-1, 1, 1) - highest)
    shares /= whole
    y = shares.reshape(batch, groups, shared, total) @ value
    return y.reshape(batch, heads, length, value.shape[3]).astype(dtype, copy=False)


def attended(
    query: Value, key: Value, value: Value, bias: Value, sink: Value | None, *, scale: float, softcap: float, shown: int
) -> tuple[Value, Value | None]:
    """Scaled dot product, and a second output by ``shown``: none (0), the logits (1), or the probabilities (2)."""
    if not shown:
        return scaled_dot_product_attention(query, key, value, bias, sink, scale=scale, softcap=softcap), None
    scores = logits(query, key, bias, scale=scale, softcap=softcap)
    shares = ops.softmax(scores)
    if sink is not None:
        shares = shares * share_beside(sink, scores)
    return weighted(shares, value), scores if shown == 1 else shares


def _as_standard(meaning: Any) -> None:
    @scaled_dot_product_attention.lower(to=meaning)
    def scaled_dot_product_attention_to_meaning(query, key, value, bias, sink, *, scale, softcap):
        if sink is not None or scale < 0:
            return None
        length = dim_of(query, 2)
        if bias is not None and bias.ndim == 4 and bias.shape[2] == 1 and length != 1:
            bias = ops.expand(bias, [1, 1, length, 1])  # onnxruntime does not broadcast rows of masks
        return meaning(query, key, value, bias, scale=scale or None, softcap=softcap, _outputs=1)


_as_standard(ops.attention_of_full_masks)
_as_standard(ops.attention)


# ----- products -------------------------------------------------------------------------------------------------------


def logits(query: Value, key: Value, bias: Value | None, *, scale: float = 0.0, softcap: float = 0.0) -> Value:
    """Inputs of the softmax: (batch, heads of ``query``, queries, keys)."""
    result = _by_group(query * (scale or _factor(query)), ops.transpose(key, perm=[0, 1, 3, 2]))
    if softcap:
        result = ops.tanh(result / softcap) * softcap
    return result if bias is None else result + bias


def weighted(probabilities: Value, value: Value) -> Value:
    """The values of each head weighted by its probabilities."""
    return _by_group(probabilities, value)


def share_beside(sink: Value, scores: Value) -> Value:
    """Remaining probability with the logit ``sink`` of each head in the softmax, of shape (batch, heads, length, 1)."""
    return ops.sigmoid(ops.reduce_log_sum_exp(scores, [-1]) - ops.reshape(sink, [1, -1, 1, 1]))


def _factor(query: Value) -> Any:
    size = dim_of(query, 3)
    return (
        ops.reciprocal(ops.sqrt(ops.cast(size, to=query.dtype)))
        if isinstance(size, Value)
        else 1 / math.sqrt(size or 1)
    )


def _by_group(rows: Value, shared: Value) -> Value:
    """Multiply by each shared head, with the rows of all heads of a group stacked."""
    count, groups = dim_of(rows, 1), dim_of(shared, 1)
    if isinstance(count, int) and count == groups:
        return ops.matmul(rows, shared)
    return ops.reshape(ops.matmul(ops.reshape(rows, [0, groups, -1, 0]), shared), [0, count, -1, 0])


# ----- heads ----------------------------------------------------------------------------------------------------------


def split_heads(x: Value, count: int) -> Value:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    width = x.shape[2]
    return ops.transpose(
        ops.reshape(x, [0, 0, count, width // count if isinstance(width, int) else -1]), perm=[0, 2, 1, 3]
    )


def join_heads(x: Value) -> Value:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    _, heads, _, size = x.shape
    width = symbolic.multiply(heads, size)
    return ops.reshape(ops.transpose(x, perm=[0, 2, 1, 3]), [0, 0, width if isinstance(width, int) else -1])


def parted(x: Value, sizes: list[int] | None, axis: int = -1) -> tuple[Value, Value, Value]:
    """Split concatenated query, key and value, of equal size unless ``sizes`` is given."""
    if sizes is None:
        return ops.split(x, axis=axis, num_outputs=3)  # type: ignore[no-any-return]
    return ops.split(x, sizes, axis=axis)  # type: ignore[no-any-return]


# ----- masks ----------------------------------------------------------------------------------------------------------


def lowest(dtype: DType) -> Value:
    """Finite bias that hides keys; a row without visible keys becomes the average of all."""
    return constant(np.finfo(np.float16 if dtype.bits < 32 else dtype.numpy).min, dtype)


def bias_of(mask: Value, filter_value: float, dtype: DType) -> Value:
    """Bias of the logits for a mask: 0 where it is positive, else ``filter_value``."""
    shown = mask if mask.dtype is DType.bool else ops.greater(mask, 0)
    return ops.where(shown, constant(0.0, dtype), constant(filter_value, dtype))


def hidden_bias(seen: Value, dtype: DType) -> Value:
    """Bias that hides all keys except where ``seen`` is true."""
    return ops.where(seen, constant(0.0, dtype), lowest(dtype))


def within(lengths: Value, total: Any, starts: Value | None = None) -> Value:
    """Mask (batch, 1, 1, total) of the keys of each sequence, from its start up to its length."""
    keys = ops.range_(0, total, 1)
    seen = ops.less(keys, _column(lengths))
    return seen if starts is None else seen & (keys >= _column(starts))


def _column(numbers: Value) -> Value:
    return ops.reshape(ops.cast(numbers, to=DType.int64), [-1, 1, 1, 1])


def causal_bias(bias: Value | None, queries: Any, past: Any, total: Any, dtype: DType) -> Value | None:
    """Return ``bias`` that also hides later keys; the first query comes after ``past`` keys."""
    rows = ops.reshape(ops.range_(0, queries, 1), [-1, 1])
    seen = ops.range_(0, total, 1) <= (rows + past)
    return ops.where(seen, constant(0.0, dtype) if bias is None else bias, lowest(dtype))


def added(*biases: Value | None) -> Value | None:
    """The sum of the arguments that are not None."""
    total = None
    for bias in biases:
        if bias is not None:
            total = bias if total is None else total + bias
    return total
