"""QDQ: float ops between DequantizeLinear and QuantizeLinear, weights as quantized values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Op, Value
from tenonnx.extend.transforms import Call, Rewriter, leaving_defaults, prune
from tenonnx_quantized import contrib_quantize
from tenonnx_quantized.attention import qattention
from tenonnx_quantized.blocks import matmul_nbits, matmul_nbits_mlp, matmul_nbits_qkv, unpacked_blocks
from tenonnx_quantized.convolution import conv_integer, qlinear_conv_channels_last
from tenonnx_quantized.elementwise import qlinear_concat, qlinear_softmax
from tenonnx_quantized.embedding import qembed_layer_normalization
from tenonnx_quantized.forms.quantized_nodes import QuantizationRewriter, is_meaning, producer
from tenonnx_quantized.granularity import is_single
from tenonnx_quantized.matrix import matmul_integer
from tenonnx_quantized.products import dynamic_quantize_matmul
from tenonnx_quantized.qlinear import QLINEAR, numbers
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear

#: Ops whose bodies consist of DequantizeLinear, QuantizeLinear, and ops with a rule in this module.
_EXPANDED = (
    *(op for made in QLINEAR.values() for op, _ in made),
    qlinear_softmax,
    qlinear_concat,
    qlinear_conv_channels_last,
    qembed_layer_normalization,
    qattention,
    dynamic_quantize_matmul,
    matmul_nbits_mlp,
    matmul_nbits_qkv,
    contrib_quantize.quantize_linear,
    contrib_quantize.dequantize_linear,
)

_RULES: dict[Op, Callable[..., Value | None]] = {}


def _rule(op: Op) -> Callable[[Callable[..., Value | None]], Callable[..., Value | None]]:
    """Register the QDQ form of an op, from a function of the rewriter and its inputs; None keeps the call."""

    def register(function: Callable[..., Value | None]) -> Callable[..., Value | None]:
        takes = op.signature.attributes.keys()
        _RULES.update((meaning, function) for meaning in op.meanings if meaning.signature.attributes.keys() == takes)
        return function

    return register


@leaving_defaults
def to_qdq(graph: Graph) -> Graph:
    """Convert to QDQ form: float ops between DequantizeLinear and QuantizeLinear; weights stay quantized.

    QLinear and integer ops of ai.onnx and com.microsoft are replaced; MatMulNBits becomes a product with blocked
    weights of that many bits. Ops without a QDQ form stay.
    """

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        rule = _RULES.get(call.op)
        if rule is not None:
            result = rewriter.inside(rule, rewriter, *call.inputs, **call.attributes)
            return None if result is None else (result,)
        surrogate = call.op.rules.get("vjp.surrogate")
        if surrogate is not None:
            result = rewriter.inside(surrogate, *call.inputs, **call.attributes)
            return None if result is None else (result,)
        return rewriter.expand(call) if is_meaning(call.op, *_EXPANDED) else None

    return prune(QuantizationRewriter(graph, decide).run())


@_rule(ops.mul)
def mul_rule(rewriter, A, B):
    """Match an integer product multiplied by its scales, the result of dynamic quantization."""
    for product, scales in ((A, B), (B, A)):
        cast, scaled = producer(product, ops.cast), producer(scales, ops.mul)
        sums = None if cast is None else producer(cast.inputs[0], matmul_integer, conv_integer)
        if sums is None or scaled is None or cast.attributes.get("to") != DType.float32:
            continue
        x, w, x_zero, w_zero = [*sums.inputs, None, None][:4]
        for x_scale, w_scale in (scaled.inputs, scaled.inputs[::-1]):
            if _scales(x_scale, x) and (w_scale.is_constant or _scales(w_scale, w)):
                return _rescaled(sums, x, w, x_zero, w_zero, x_scale, w_scale)
    return None


def _scales(scale: Value, quantized: Value) -> bool:
    """Whether a scale belongs to quantized values of DynamicQuantizeLinear."""
    node = producer(quantized, dynamic_quantize_linear)
    return node is not None and node.outputs[1] is scale


def _rescaled(sums, x, w, x_zero, w_zero, x_scale, w_scale):
    if is_meaning(sums.op, matmul_integer):
        a, b = numbers(x, x_scale, x_zero, -2), numbers(w, w_scale, w_zero, -1)
        return None if a is None or b is None else ops.matmul(a, b)
    w_scale = w_scale if is_single(w_scale) else ops.reshape(w_scale, [-1])
    image, weights = numbers(x, x_scale, x_zero, 1), numbers(w, w_scale, w_zero, 0)
    return None if image is None or weights is None else ops.conv(image, weights, **dict(sums.attributes))


@_rule(matmul_nbits)
def matmul_nbits_rule(
    rewriter, A, B, scales, zero_points, g_idx, bias, *, K, N, bits, block_size, weight_prepacked, **_
):
    """The weights as ``[K, N]`` in the type with that many bits, unpacked lazily."""
    found = unpacked_blocks(B, scales, zero_points, g_idx, columns=N, rows=K, bits=bits, block_size=block_size)
    if found is None or weight_prepacked:
        return None
    weights, scale, zero = (
        rewriter.place(f"{B.name}/{name}", value)
        for name, value in zip(("quantized", "scale", "zero_point"), found, strict=True)
    )
    y = ops.matmul(A, dequantize_linear(weights, scale, zero, axis=0, block_size=block_size))
    return y if bias is None else y + bias
