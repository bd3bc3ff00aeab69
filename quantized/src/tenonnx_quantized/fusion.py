"""What fusion puts only where it is asked for by name: ops that onnxruntime has no kernel for on CPUs."""

from __future__ import annotations

from tenonnx_quantized import (
    block_floats,
    blocks,
    float_products,
    ordered,
    ordered_attention,
    packed_formats,
    products,
)

RARE = (
    block_floats.dequantize_bfp, block_floats.quantize_bfp, blocks.matmul_nbits_mlp, blocks.matmul_nbits_qkv,
    blocks.matmul_nbits_qlora, packed_formats.gather_packed, packed_formats.matmul_packed, packed_formats.moe_packed,
    float_products.gemm_float8, float_products.matmul_fp4_weight, float_products.matmul_fp8_weight,
    ordered.dequantize_with_order, ordered.qordered_gelu, ordered.qordered_layer_normalization,
    ordered.qordered_matmul, ordered.quantize_with_order, ordered_attention.qordered_attention,
    ordered_attention.qordered_longformer_attention, products.mul_integer, products.reduce_sum_integer,
)  # fmt: skip


for _op in RARE:
    _op.traits(on_request=True)
