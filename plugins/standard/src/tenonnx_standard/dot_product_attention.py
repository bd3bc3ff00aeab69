"""Scaled dot-product attention, with cache, masks and sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenonnx.extend import DType, InvalidCall, TypeMismatch, Value, constant, differ, dims, shapes
from tenonnx.extend import op as define
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import sqrt
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_max
from tenonnx_standard.shapes import expand, reshape, transpose
from tenonnx_standard.trigonometry import tanh

RAW, CAPPED, BIASED, PROBABILITIES = range(4)


@define("Attention", since=23)
def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads: int | None = None,
    left_window_size=-1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode=0,
    right_window_size=-1,
    scale: float | None = None,
    softcap=0.0,
    softmax_precision: int | None = None,
    _outputs=None,
):
    """``softmax(Q K^T * scale + bias) V`` for each head (Vaswani et al. 2017, arXiv:1706.03762).

    Inputs are (batch, heads, sequence, size) or (batch, sequence, heads * size); several heads of ``Q`` may share one
    of ``K`` and ``V``. The bias is the mask, and minus infinity for every key beyond the causal limit, the window and
    the first ``nonpad_kv_seqlen`` keys. Queries without any key result in zeros.
    """
    _check(Q, K, V, past_key, past_value, nonpad_kv_seqlen, (left_window_size, right_window_size))
    flat = Q.ndim == 3
    if not flat and (q_num_heads is not None or kv_num_heads is not None):
        given = f"q_num_heads={q_num_heads}, kv_num_heads={kv_num_heads}, {Q!r}"
        raise InvalidCall("Attention: a number of heads is given for inputs of rank 4", given=given)
    q, k, v = (
        split_heads(x, count, "Attention") if flat else x
        for x, count in ((Q, q_num_heads), (K, kv_num_heads), (V, kv_num_heads))
    )
    past = 0
    if past_key is not None:
        past = dims(past_key)[2]
        k, v = concat(past_key, k, axis=2), concat(past_value, v, axis=2)
    dtype = q.dtype
    queries, keys = dims(q)[2], dims(k)[2]

    raw = grouped_scores(q, k, scale)
    capped = tanh(raw / softcap) * softcap if softcap else raw
    right = 0 if is_causal else right_window_size
    allowed = _visible(queries, keys, past, nonpad_kv_seqlen, left_window_size, right)
    bias = None if attn_mask is None else _full_length(_additive(attn_mask, dtype), k)
    if allowed is not None:
        nothing = constant(-math.inf, dtype)
        bias = where(allowed, constant(0.0, dtype) if bias is None else bias, nothing)
    biased = capped if bias is None else capped + bias
    empty = None
    if attn_mask is not None or nonpad_kv_seqlen is not None or left_window_size >= 0:
        empty = equal(reduce_max(bias, [-1]), constant(-math.inf, dtype))
    precision = float_dtype("Attention", softmax_precision) if softmax_precision else dtype
    probabilities = _probabilities(biased, empty, precision)
    y = grouped_product(probabilities, v)
    shown = {RAW: raw, CAPPED: capped, BIASED: biased, PROBABILITIES: probabilities}
    if qk_matmul_output_mode not in shown:
        given = f"qk_matmul_output_mode={qk_matmul_output_mode}"
        raise InvalidCall("Attention: qk_matmul_output_mode is not 0, 1, 2 or 3", given=given)
    results = (join_heads(y) if flat else y, k, v, shown[qk_matmul_output_mode])
    return results if _outputs is None else results[:_outputs]


attention.until(25, lacks=["left_window_size", "right_window_size"])


@attention.until(24)
def attention_of_full_masks(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    *,
    is_causal=0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode=0,
    scale: float | None = None,
    softcap=0.0,
    softmax_precision: int | None = None,
    _outputs=None,
):
    """Attention whose mask broadcasts along the keys; in later versions it may cover only the first keys."""
    _check(Q, K, V, past_key, past_value, None, (-1,))
    attributes: dict[str, Any] = {
        "is_causal": is_causal,
        "kv_num_heads": kv_num_heads,
        "q_num_heads": q_num_heads,
        "scale": scale,
        "qk_matmul_output_mode": qk_matmul_output_mode,
        "softcap": softcap,
        "softmax_precision": softmax_precision,
    }
    if attn_mask is not None and attn_mask.ndim and not _as_long(attn_mask, K, past_key):
        *rest, length = dims(attn_mask)
        if length == 1 or not isinstance(length, int):
            keys = dims(K)[1 if K.ndim == 3 else 2] + (0 if past_key is None else dims(past_key)[2])
            attn_mask = expand(attn_mask, [*rest, keys])
    return attention(Q, K, V, attn_mask, past_key, past_value, **attributes, _outputs=_outputs)


for _made in (attention, attention_of_full_masks):
    _made.requires(shapes(past_key="_ _ _ _", past_value="_ _ _ _"))


@attention.lower(to=attention_of_full_masks)
def attention_to_attention_of_full_masks(
    Q,
    K,
    V,
    attn_mask,
    past_key,
    past_value,
    nonpad_kv_seqlen,
    *,
    left_window_size,
    right_window_size,
    _outputs=None,
    **attributes,
):
    if nonpad_kv_seqlen is not None or left_window_size != -1 or right_window_size != -1:
        return None
    if attn_mask is not None and not (attn_mask.rank and _as_long(attn_mask, K, past_key)):
        return None
    return attention_of_full_masks(Q, K, V, attn_mask, past_key, past_value, **attributes, _outputs=_outputs)


def _as_long(mask: Value, K: Value, past_key: Value | None) -> bool:
    """Whether the mask surely has one column for each key."""
    keys = K.shape[1 if K.ndim == 3 else 2]
    past = 0 if past_key is None else past_key.shape[2]
    return keys is not None and past is not None and mask.shape[-1] == keys + past


# ----- heads ----------------------------------------------------------------------------------------------------------


def split_heads(x: Value, count: int | None, title: str) -> Value:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    if not count:
        raise InvalidCall(f"{title}: the number of heads is missing for an input of rank 3", given=repr(x))
    batch, sequence, width = dims(x)
    if isinstance(width, int) and width % count:
        raise TypeMismatch(f"{title}: last axis is not divisible by the number of heads", given=f"{x!r}, {count}")
    return transpose(reshape(x, [batch, sequence, count, width // count]), perm=[0, 2, 1, 3])


def join_heads(x: Value) -> Value:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, sequence, size = dims(x)
    return reshape(transpose(x, perm=[0, 2, 1, 3]), [batch, sequence, heads * size])


def grouped_scores(q: Value, k: Value, scale: float | None) -> Value:
    """The scaled products of queries and keys: (batch, heads of ``q``, queries, keys)."""
    if differ(q.shape[3], k.shape[3]):
        raise TypeMismatch("head sizes of query and key differ", given=f"{q!r}, {k!r}")
    factor = _root_of_scale(q, scale)
    rows, columns = q * factor, transpose(k * factor, perm=[0, 1, 3, 2])
    if _same_heads(q, k):
        return rows @ columns
    batch, heads, queries, _ = dims(q)
    return reshape(_in_groups(rows, k) @ columns, [batch, heads, queries, dims(k)[2]])


def grouped_product(probabilities: Value, v: Value) -> Value:
    """The values weighted by the probabilities, per head, in the dtype of the probabilities."""
    v = v if v.dtype is probabilities.dtype else cast(v, to=probabilities.dtype)
    if _same_heads(probabilities, v):
        return probabilities @ v
    batch, heads, queries, _ = dims(probabilities)
    return reshape(_in_groups(probabilities, v) @ v, [batch, heads, queries, dims(v)[3]])


def _same_heads(q: Value, k: Value) -> bool:
    return q.shape[1] is not None and q.shape[1] == k.shape[1]


def _in_groups(x: Value, shared: Value) -> Value:
    """``x`` with the heads that share a head of ``shared`` stacked as rows, so that the shared head is not repeated."""
    batch, heads, rows, size = dims(x)
    groups = dims(shared)[1]
    if isinstance(heads, int) and isinstance(groups, int) and (not groups or heads % groups):
        given = f"{heads} heads of the query, {groups} of key and value"
        raise TypeMismatch("number of query heads is not a multiple of those of key and value", given=given)
    return reshape(x, [batch, groups, heads // groups * rows, size])


def _root_of_scale(q: Value, scale: float | None) -> Any:
    """The square root of the scale, applied to queries and keys so that neither overflows."""
    if scale is not None:
        return math.sqrt(scale) if scale >= 0 else math.nan
    size = dims(q)[3]
    if isinstance(size, int):
        return (size or 1) ** -0.25
    wide = DType.float64 if q.dtype is DType.float64 else DType.float32
    return cast(1.0 / sqrt(sqrt(cast(size, to=wide))), to=q.dtype)


# ----- masks ----------------------------------------------------------------------------------------------------------


def _visible(queries: Any, keys: Any, past: Any, filled: Value | None, left: int, right: int) -> Value | None:
    """Mask of the keys visible to each query, by position and number of ``filled`` keys; None if all are."""
    if filled is None and left < 0 and right < 0:
        return None
    key = range_(0, keys, 1)
    allowed = []
    if left >= 0 or right >= 0:
        offset = past if filled is None else reshape(filled, [-1, 1, 1, 1]) - queries
        position = reshape(range_(0, queries, 1), [-1, 1]) + offset
        if right >= 0:
            allowed.append(key <= (position + right if right else position))
        if left >= 0:
            allowed.append(key >= (position - left if left else position))
    if filled is not None:
        allowed.append(key < reshape(filled, [-1, 1, 1, 1]))
    visible = allowed[0]
    for condition in allowed[1:]:
        visible = visible & condition
    return visible


def _additive(mask: Value, dtype: DType) -> Value:
    if mask.dtype is DType.bool:
        return where(mask, constant(0.0, dtype), constant(-math.inf, dtype))
    return mask if mask.dtype is dtype else cast(mask, to=dtype)


def _full_length(bias: Value, k: Value) -> Value:
    """``bias`` padded with minus infinity for the keys beyond the mask."""
    if bias.ndim == 0 or (bias.shape[-1] is not None and bias.shape[-1] == k.shape[2]):
        return bias
    missing = dims(k)[2] - dims(bias)[-1]
    if isinstance(missing, int) and missing < 0:
        raise TypeMismatch("Attention: the mask is longer than the keys", given=f"{bias!r}, keys {k!r}")
    return pad(bias, [*[0] * (2 * bias.ndim - 1), missing], constant(-math.inf, bias.dtype))


def _probabilities(biased: Value, empty: Value | None, dtype: DType) -> Value:
    """The softmax computed in ``dtype``; ``empty`` rows are zeros, so that their gradient is zero too."""
    back = biased.dtype
    if empty is not None:
        biased = where(empty, constant(0.0, back), biased)
    result = softmax(biased) if dtype is back else cast(softmax(cast(biased, to=dtype)), to=back)
    return result if empty is None else where(empty, constant(0.0, back), result)


def float_dtype(title: str, softmax_precision: int) -> DType:
    dtype = DType(softmax_precision) if softmax_precision in iter(DType) else DType.undefined
    if not dtype.is_float:
        given = f"softmax_precision={softmax_precision}"
        raise InvalidCall(f"{title}: softmax_precision is not the number of a float type", given=given)
    return dtype


# ----- checks ---------------------------------------------------------------------------------------------------------


def _check(
    Q: Value,
    K: Value,
    V: Value,
    past_key: Value | None,
    past_value: Value | None,
    filled: Value | None,
    windows: Sequence[int],
) -> None:
    if not Q.ndim == K.ndim == V.ndim or Q.ndim not in (3, 4):
        raise TypeMismatch("Attention: Q, K and V do not all have rank 3, or all rank 4", given=f"{Q!r}, {K!r}, {V!r}")
    if differ(Q.shape[0], K.shape[0]) or differ(K.shape[0], V.shape[0]):
        raise TypeMismatch("Attention: batch sizes of Q, K and V differ", given=f"{Q!r}, {K!r}, {V!r}")
    if (past_key is None) != (past_value is None):
        raise InvalidCall("Attention: only one of past_key and past_value is given")
    if filled is not None and past_key is not None:
        raise InvalidCall("Attention: nonpad_kv_seqlen and past_key are given together")
    if filled is not None and (filled.ndim != 1 or differ(filled.shape[0], Q.shape[0])):
        given = f"{filled!r} for {Q!r}"
        raise TypeMismatch("Attention: nonpad_kv_seqlen does not have one number for each batch entry", given=given)
    if min(windows) < -1:
        raise InvalidCall("Attention: a window size is less than -1", given=str(tuple(windows)))
