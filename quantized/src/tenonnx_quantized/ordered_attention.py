"""Self-attention of int8 tensors in cublasLt layouts: QOrderedAttention and QOrderedLongformerAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    dims,
    divides,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
)
from tenonnx_quantized.attention import earlier, heads, merged, scaled_product, visible
from tenonnx_quantized.granularity import scalar
from tenonnx_quantized.matrix import matmul_integer
from tenonnx_quantized.ordered import COL, ROW, as_rows
from tenonnx_quantized.qlinear import dequantized
from tenonnx_quantized.quantize import quantize_linear, to


def _rounded(y: Value, scale: Value) -> Value:
    """Numbers rounded to int8 by ``scale``, and dequantized."""
    return dequantized(_quantized(y, scale), scale, None)


def _quantized(y: Value, scale: Value) -> Value:
    return quantize_linear(y, scalar(scale), output_dtype=int(DType.int8))


def _inverse_root(size: Value | int) -> Any:
    return 1 / math.sqrt(size) if isinstance(size, int) else ops.reciprocal(ops.sqrt(to(size, DType.float32)))


def _projected(quantized: Value, scale: Value, weight: Value, order: int, weight_scale: Value, bias: Value) -> Value:
    sums = matmul_integer(quantized, as_rows(weight, order))
    by = weight_scale if weight_scale.ndim else scalar(weight_scale)
    return to(sums, DType.float32) * (scalar(scale) * by) + bias


@op("QOrderedAttention", domain="com.microsoft")
def qordered_attention(
    input,
    scale_input,
    scale_Q_gemm,
    scale_K_gemm,
    scale_V_gemm,
    Q_weight,
    K_weight,
    V_weight,
    scale_Q_weight,
    scale_K_weight,
    scale_V_weight,
    Q_bias,
    K_bias,
    V_bias,
    scale_QKT_gemm=None,
    scale_QKT_softmax=None,
    scale_values_gemm=REQUIRED,
    mask_index=None,
    past=None,
    attention_bias=None,
    *,
    num_heads: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    qkv_hidden_sizes: list[int] | None = None,
    unidirectional=0,
):
    """Self-attention in which every product, and the softmax, is rounded to int8 by a separate scale."""
    projections = (
        (Q_weight, scale_Q_weight, Q_bias, scale_Q_gemm),
        (K_weight, scale_K_weight, K_bias, scale_K_gemm),
        (V_weight, scale_V_weight, V_bias, scale_V_gemm),
    )
    q, k, v = (
        heads(_rounded(_projected(input, scale_input, w, order_weight, s, b), scale), num_heads)
        for w, s, b, scale in projections
    )
    products = ops.matmul(q, ops.transpose(k, perm=[0, 1, 3, 2]))
    rounded = products if scale_QKT_gemm is None else _rounded(products, scale_QKT_gemm)
    logits = rounded * _inverse_root(dims(q)[3])
    seen = None if mask_index is None else visible(mask_index, q, k)
    if unidirectional:
        seen = earlier(q, k) if seen is None else ops.and_(seen, earlier(q, k))
    if seen is not None:
        logits = ops.where(seen, logits, float(np.finfo(np.float32).min))
    probabilities = ops.softmax(logits)
    if scale_QKT_softmax is not None:
        probabilities = _rounded(probabilities, scale_QKT_softmax)
    return _quantized(merged(ops.matmul(probabilities, v)), scale_values_gemm)


qordered_attention.traits(on_request=True)


def _supported(past, attention_bias, order_input, order_output, order_weight):
    if past is not None or attention_bias is not None:
        return "past and attention_bias are not supported, as the operator's documentation states"
    if (order_input, order_output, order_weight) != (ROW, ROW, COL):
        return "order_input and order_output are not 1, or order_weight is not 0"
    return None


qordered_attention.requires(
    at_least(num_heads=1),
    one_of(unidirectional=(0, 1)),
    holds(_supported),
    shapes(
        input="batch length inputs",
        Q_weight="inputs hidden",
        K_weight="inputs hidden",
        V_weight="inputs hidden",
        Q_bias="hidden",
        K_bias="hidden",
        V_bias="hidden",
        scale_Q_weight="|hidden",
        scale_K_weight="|hidden",
        scale_V_weight="|hidden",
    ),
    at_least(hidden=1),
    divides("num_heads", "hidden"),
    dtypes(input="int8", Q_weight="int8", K_weight="int8", V_weight="int8", mask_index="int32", scale_input="float32"),
    same_dtype(
        "scale_input",
        "scale_Q_gemm",
        "scale_K_gemm",
        "scale_V_gemm",
        "scale_Q_weight",
        "scale_K_weight",
        "scale_V_weight",
        "Q_bias",
        "K_bias",
        "V_bias",
        "scale_QKT_gemm",
        "scale_QKT_softmax",
        "scale_values_gemm",
    ),
)


@op("QOrderedLongformerAttention", domain="com.microsoft")
def qordered_longformer_attention(
    input,
    scale_input,
    weight,
    scale_weight,
    bias,
    scale_bias,
    scale_qkv_gemm,
    mask,
    global_weight,
    scale_global_weight,
    global_bias,
    scale_global_gemm,
    global_,
    scale_output,
    *,
    num_heads: int,
    order_global_weight: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    window: int,
):
    """Longformer attention (Beltagy et al. 2020, arXiv:2004.05150) of quantized int8 values.

    A token attends to tokens at most ``window`` away and to ``global`` ones. A global token attends to all, with
    separate projections. ``mask`` is added to the logits of keys.
    """
    local = _projected(input, scale_input, weight, order_weight, scale_weight, bias)
    whole = _projected(input, scale_input, global_weight, order_global_weight, scale_global_weight, global_bias)
    q, k, v = (heads(x, num_heads) for x in ops.split(_rounded(local, scale_qkv_gemm), axis=-1, num_outputs=3))
    gq, gk, gv = (heads(x, num_heads) for x in ops.split(_rounded(whole, scale_global_gemm), axis=-1, num_outputs=3))
    added = ops.unsqueeze(to(mask, DType.float32), [1, 2])
    marked = ops.not_(ops.equal(global_, 0))
    places = ops.range_(0, dims(input)[1], 1)
    near = ops.less_or_equal(ops.absolute(places - ops.unsqueeze(places, [1])), window)
    seen = ops.or_(near, ops.unsqueeze(marked, [1, 2]))
    of_local = ops.where(seen, scaled_product(q, k) + added, float(np.finfo(np.float32).min))
    y = ops.matmul(ops.softmax(of_local), v)
    of_global = ops.matmul(ops.softmax(scaled_product(gq, gk) + added), gv)
    y = merged(ops.where(ops.unsqueeze(marked, [1, 3]), of_global, y))
    return _quantized(y, scale_output)


qordered_longformer_attention.traits(on_request=True)


def _row_layouts(order_input, order_output, order_weight, order_global_weight):
    if (order_input, order_output, order_weight, order_global_weight) != (ROW, ROW, COL, COL):
        return "order_input and order_output are not 1, or order_weight and order_global_weight not 0"
    return None


qordered_longformer_attention.requires(
    at_least(num_heads=1, window=1),
    holds(_row_layouts),
    floats("mask"),
    dtypes(global_="int32"),
    shapes(
        input="batch length hidden",
        weight="hidden columns",
        bias="columns",
        global_weight="hidden columns",
        global_bias="columns",
        mask="batch length",
        global_="batch length",
        scale_input="|1",
        scale_qkv_gemm="|1",
        scale_global_gemm="|1",
        scale_output="|1",
    ),
    divides("num_heads", "hidden"),
    divides(3, "columns"),
    dtypes(input="int8", weight="int8", global_weight="int8", scale_input="float32"),
    same_dtype(
        "scale_input",
        "scale_weight",
        "bias",
        "scale_bias",
        "scale_qkv_gemm",
        "scale_global_weight",
        "global_bias",
        "scale_global_gemm",
        "scale_output",
    ),
)
