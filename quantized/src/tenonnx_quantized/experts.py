"""QMoE: a mixture of experts with quantized weights."""

from __future__ import annotations

import math
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    differ,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    symbolic,
    together,
)
from tenonnx_quantized.formats import E2M1, looked_up, unpacked
from tenonnx_quantized.granularity import repeated, wrong_blocks
from tenonnx_quantized.quantize import to, wide
from tenonnx_standard.gated_activation import clamped_swiglu

_ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": lambda x: ops.gelu(x, approximate="tanh"),
    "silu": ops.swish,
    "identity": lambda x: x,
    "relu2": lambda x: ops.relu(x) * ops.relu(x),
    "swiglu": None,
    "geglu": None,
}
_BITS = (2, 3, 4, 8)
_FLOAT_BLOCKS = {"fp4": 32, "wfp4afp8": 32, "nvfp4": 16}


@op("QMoE", domain="com.microsoft")
def qmoe(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_scales=None,
    fc1_experts_bias=None,
    fc2_experts_weights=REQUIRED,
    fc2_scales=None,
    fc2_experts_bias=None,
    fc3_experts_weights=None,
    fc3_scales=None,
    fc3_experts_bias=None,
    fc1_zero_points=None,
    fc2_zero_points=None,
    fc3_zero_points=None,
    router_weights=None,
    fc1_global_scale=None,
    fc2_global_scale=None,
    fc1_act_scale=None,
    fc2_act_scale=None,
    fc1_act_block_scale=None,
    fc2_act_block_scale=None,
    *,
    accuracy_level=0,
    activation_alpha=1.0,
    activation_beta=0.0,
    activation_type="relu",
    block_size: int | None = None,
    expert_weight_bits=4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k=1,
    normalize_routing_weights=0,
    quant_type="int",
    swiglu_fusion=0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation=0,
    use_sparse_mixer=0,
    weights_prepacked=-1,
):
    """The weighted sum, for each token, of ``k`` two-layer experts with the highest ``router_probs``.

    Weights are a softmax of the router logits, or come from ``router_weights``, optionally normalized to sum to one.
    Experts are integers of few bits, with scales per output or per block, or 8-bit or 4-bit floats.
    """
    stage = wide(input.dtype)
    x = to(input if input.ndim == 2 else ops.reshape(input, [-1, dims(input)[-1]]), stage)
    form: dict[str, Any] = {"quant_type": quant_type, "block_size": block_size or 0, "stage": stage}
    bits = [b or expert_weight_bits for b in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    first = _weights(fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_global_scale, bits=bits[0], **form)
    second = _weights(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_global_scale, bits=bits[1], **form)
    x = _as_float8(ops.unsqueeze(x, [0]), fc1_act_scale)
    hidden = _layer(x, first, fc1_experts_bias, stage)
    third = None
    if fc3_experts_weights is not None:
        weights = _weights(fc3_experts_weights, fc3_scales, fc3_zero_points, fc1_global_scale, bits=bits[2], **form)
        third = _layer(x, weights, fc3_experts_bias, stage)
    if activation_type == "swiglu":
        gate, linear = _halves(hidden, third, swiglu_fusion)
        limit = swiglu_limit if swiglu_limit is not None and math.isfinite(swiglu_limit) else None
        hidden = clamped_swiglu(
            gate, linear, alpha=activation_alpha, beta=activation_beta, limit=limit, after=swiglu_limit_after_activation
        )
    elif activation_type == "geglu":
        gate, linear = _halves(hidden, None, swiglu_fusion)
        hidden = ops.gelu(gate, approximate="tanh") * linear
    else:
        hidden = _ACTIVATIONS[activation_type](hidden)
        hidden = hidden if third is None else hidden * third
    y = _layer(_as_float8(hidden, fc2_act_scale), second, fc2_experts_bias, stage)
    gates = _gates(router_probs, router_weights, k, normalize_routing_weights, stage)
    total = ops.reduce_sum(y * ops.unsqueeze(ops.transpose(gates, perm=[1, 0]), [2]), [0], keepdims=0)
    return to(total if input.ndim == 2 else ops.reshape(total, dims(input)), input.dtype)


def _unsupported(use_sparse_mixer, weights_prepacked, fc1_act_block_scale, fc2_act_block_scale):
    if use_sparse_mixer or weights_prepacked == 1:
        return "use_sparse_mixer and prepacked weights are not supported"
    if fc1_act_block_scale is not None or fc2_act_block_scale is not None:
        return "scales of activation blocks have no documented meaning"
    return None


def _blocked(
    input,
    fc1_experts_weights,
    fc1_scales,
    fc1_zero_points,
    fc2_scales,
    fc2_zero_points,
    fc2_experts_weights,
    expert_weight_bits,
    fc1_expert_weight_bits,
    fc2_expert_weight_bits,
    quant_type,
    block_size,
):
    """Reason why quantization parameters have inconsistent sizes, or None."""
    if quant_type != "int":
        return None
    if block_size and (block_size < 16 or block_size & (block_size - 1)):
        return "block_size is not a power of two of at least 16"
    layers = (
        ("fc1", fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_expert_weight_bits),
        ("fc2", fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits),
    )
    for name, quantized, scales, zero_points, bits in layers:
        width, sizes = bits or expert_weight_bits, quantized.tensor.shape
        if sizes is None or scales is None or scales.tensor.shape is None:
            continue
        if len(sizes) != 3:
            return f"{name}_experts_weights does not have three axes"
        by_block = len(scales.shape) == 3
        if width == 3 and (not by_block or not isinstance(sizes[2], int)):
            continue
        inputs = sizes[2] * 8 // 3 if width == 3 else symbolic.multiply(sizes[2], 8 // width)
        sizes = (*sizes[:2], inputs) if by_block else sizes[:2]
        problem = wrong_blocks(f"{name}_scales", scales, sizes, -1, (block_size or 0) if by_block else 1)
        if width != 3:
            problem = problem or wrong_blocks(f"{name}_zero_points", zero_points, scales.shape, -1, 8 // width)
        if problem:
            return problem
    return None


qmoe.requires(
    shapes(input="n h | batch length h", router_probs="n e", router_weights="n e"),
    shapes(fc1_experts_weights="e _ _", fc2_experts_weights="e _ _", fc3_experts_weights="e _ _"),
    shapes(fc1_scales="e ...", fc2_scales="e ...", fc3_scales="e ..."),
    shapes(fc1_zero_points="e ...", fc2_zero_points="e ...", fc3_zero_points="e ..."),
    holds(
        lambda router_probs, n, batch, length: (
            "router_probs does not have one row for each token" if differ(n, symbolic.multiply(batch, length)) else None
        )
    ),
    one_of(
        activation_type=_ACTIVATIONS,
        quant_type=("int", "fp8", *_FLOAT_BLOCKS),
        expert_weight_bits=_BITS,
        fc1_expert_weight_bits=(0, *_BITS),
        fc2_expert_weight_bits=(0, *_BITS),
        fc3_expert_weight_bits=(0, *_BITS),
        swiglu_fusion=(0, 1, 2),
    ),
    at_least(k=1, block_size=0),
    floats("input", "router_probs"),
    same_dtype("input", "router_probs", "router_weights"),
    same_dtype("input", "fc1_experts_bias", "fc2_experts_bias", "fc3_experts_bias"),
    same_dtype("fc1_experts_weights", "fc2_experts_weights", "fc3_experts_weights"),
    together("fc1_act_scale", "fc2_act_scale"),
    holds(_unsupported),
    holds(
        lambda activation_type, swiglu_fusion, quant_type, fc3_experts_weights: (
            "quant_type is not int, swiglu_fusion is 0, or fc3_experts_weights is given, with activation_type geglu"
            if activation_type == "geglu"
            and (quant_type != "int" or not swiglu_fusion or fc3_experts_weights is not None)
            else None
        )
    ),
    dtypes(fc1_zero_points="uint8", fc2_zero_points="uint8", fc3_zero_points="uint8"),
    holds(_blocked),
)


def _weights(
    quantized: Value,
    scales: Value | None,
    zero_points: Value | None,
    global_scale: Value | None,
    *,
    bits: int,
    quant_type: str,
    block_size: int,
    stage: DType,
) -> Value:
    """The dequantized weights of a layer of all experts, ``[expert, output, input]``."""
    whole = None if global_scale is None else ops.reshape(to(global_scale, stage), [-1, 1, 1])
    scale = None if scales is None else to(scales, stage)
    if quant_type == "int":
        result = to(unpacked(quantized, bits), stage)
        if scale is None:
            return result
        blocked = scale.ndim == 3
        shift = float(1 << bits - 1)
        if zero_points is not None:
            shift = to(unpacked(zero_points, bits), stage)
            shift = shift[:, :, : dims(scale)[-1]] if blocked else shift[:, : dims(scale)[-1]]
            shift = repeated(shift, result, 2, block_size) if blocked else ops.unsqueeze(shift, [2])
        return (result - shift) * (repeated(scale, result, 2, block_size) if blocked else ops.unsqueeze(scale, [2]))
    if quant_type == "fp8":
        result = to(quantized, stage)
        if block_size and scale is not None:
            result = result * repeated(repeated(scale, result, 1, block_size), result, 2, block_size)
    else:
        result = looked_up(unpacked(quantized, 4), E2M1, stage)
        if scale is not None:
            result = result * repeated(scale, result, 2, _FLOAT_BLOCKS[quant_type])
    return result if whole is None else result * whole


def _as_float8(x: Value, scale: Value | None) -> Value:
    """Activations rounded to float8, by one scale or one per expert, if given."""
    if scale is None:
        return x
    scale = ops.reshape(to(scale, x.dtype), [-1, 1, 1])
    return to(ops.cast(x / scale, to=DType.float8e4m3fn), x.dtype) * scale


def _layer(x: Value, weights: Value, bias: Value | None, stage: DType) -> Value:
    y = ops.matmul(x, ops.transpose(weights, perm=[0, 2, 1]))
    return y if bias is None else y + ops.unsqueeze(to(bias, stage), [1])


def _halves(hidden: Value, third: Value | None, fusion: int) -> tuple[Value, Value]:
    """The gate and linear part of SwiGLU: two layers, or one with both, interleaved or concatenated."""
    if third is not None:
        return hidden, third
    if fusion == 1:
        return hidden[..., ::2], hidden[..., 1::2]
    gate, linear = ops.split(hidden, axis=-1, num_outputs=2)
    return gate, linear


def _gates(router: Value, weights: Value | None, k: int, normalize: int, stage: DType) -> Value:
    """The weight of each expert for each token; 0 for experts not selected."""
    values, chosen = ops.top_k(to(router, stage), [k])
    if weights is None:
        kept = ops.softmax(values)
    else:
        kept = ops.gather_elements(to(weights, stage), chosen, axis=-1)
        kept = kept / ops.reduce_sum(kept, [-1]) if normalize else kept
    return ops.scatter_elements(to(router, stage) * 0.0, chosen, kept, axis=-1)
