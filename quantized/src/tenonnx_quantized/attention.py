"""QAttention: self-attention of quantized values."""

from __future__ import annotations

import math

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    dims,
    divides,
    dtypes,
    floats,
    holds,
    op,
    same_dtype,
    shapes,
)
from tenonnx_quantized.products import matmul_integer_to_float
from tenonnx_quantized.quantize import to


@op("QAttention", domain="com.microsoft")
def qattention(
    input,
    weight,
    bias,
    input_scale,
    weight_scale,
    mask_index=None,
    input_zero_point=None,
    weight_zero_point=None,
    past=None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional=0,
    _outputs=None,
):
    """Self-attention with quantized products for queries, keys and values; the second output has keys and values.

    ``mask_index`` has the length of each sequence, optionally followed by its start, or a mask with 0 for hidden keys.
    ``weight`` may have a scale and a zero point per column. ``do_rotary`` has no effect, as in onnxruntime's kernel.
    """
    total = matmul_integer_to_float(input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias)
    q, k, v = (heads(part, num_heads) for part in ops.split(total, axis=-1, num_outputs=3))
    if past is not None:
        k, v = ops.concat(past[0], k, axis=2), ops.concat(past[1], v, axis=2)
    logits = scaled_product(q, k, scale)
    if mask_index is not None:
        filtered = -10000.0 if mask_filter_value is None else mask_filter_value
        logits = logits + ops.where(visible(mask_index, q, k), 0.0, to(constant(filtered), logits.dtype))
    if unidirectional:
        logits = ops.where(earlier(q, k), logits, lowest(logits.dtype))
    y = merged(ops.matmul(ops.softmax(logits), v))
    if _outputs is None or _outputs < 2:
        return y
    return y, ops.concat(ops.unsqueeze(k, [0]), ops.unsqueeze(v, [0]), axis=0)


def _unsupported(past, past_present_share_buffer):
    if past is not None and past_present_share_buffer:
        return "past_present_share_buffer is not supported, as by onnxruntime: no input has the length of the past"
    return None


qattention.requires(
    at_least(num_heads=1),
    shapes(
        input="batch length inputs",
        weight="inputs columns",
        bias="columns",
        past="2 batch num_heads _ _",
        input_scale="|1",
        weight_scale="|1|columns",
    ),
    divides("num_heads", "columns"),
    divides(3, "columns"),
    at_least(columns=1),
    dtypes(input="int8 uint8", weight="int8 uint8"),
    dtypes(mask_index="int32"),
    floats("bias"),
    same_dtype("bias", "input_scale", "weight_scale", "past"),
    same_dtype("input", "input_zero_point"),
    same_dtype("weight", "weight_zero_point"),
    holds(_unsupported),
)


def lowest(dtype: DType) -> float:
    """The lowest finite number of a float type."""
    return float(np.nextafter(dtype.numpy.type(-np.inf), dtype.numpy.type(0)))


def heads(x: Value, count: int) -> Value:
    """``[batch, length, heads * size]`` as ``[batch, heads, length, size]``."""
    return ops.transpose(ops.reshape(x, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def merged(x: Value) -> Value:
    """The inverse of ``heads``."""
    return ops.reshape(ops.transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])


def scaled_product(q: Value, k: Value, scale: float | None = None) -> Value:
    """The products of queries and keys, times ``scale`` or 1 / sqrt(size)."""
    products, size = ops.matmul(q, ops.transpose(k, perm=[0, 1, 3, 2])), dims(q)[3]
    if scale or isinstance(size, int):
        return products * (scale or 1 / math.sqrt(size))
    return products / ops.sqrt(to(size, q.dtype))


def visible(mask_index: Value, q: Value, k: Value) -> Value:
    """Mask of visible keys, broadcastable to ``[batch, heads, query, key]``."""
    if mask_index.ndim > 1:
        axes = {2: [1, 2], 3: [1], 4: []}[mask_index.ndim]
        seen = ops.not_(ops.equal(mask_index, 0))
        return ops.unsqueeze(seen, axes) if axes else seen
    batch, total = dims(q)[0], dims(k)[2]
    columns = to(ops.range_(0, total, 1), DType.int32)
    zeros = ops.expand(constant(np.zeros(1), DType.int32), [batch])
    starts = ops.concat(mask_index, zeros, axis=0)[batch : batch + batch]  # 0 unless starts are given
    ends, starts = (ops.reshape(v, [-1, 1, 1, 1]) for v in (mask_index[:batch], starts))
    return ops.and_(ops.less(columns, ends), ops.greater_or_equal(columns, starts))


def earlier(q: Value, k: Value) -> Value:
    """Causal mask: the keys not after each query."""
    length, total = dims(q)[2], dims(k)[2]
    rows = ops.range_(0, length, 1) + (total - length)
    return ops.less_or_equal(ops.range_(0, total, 1), ops.unsqueeze(rows, [1]))
