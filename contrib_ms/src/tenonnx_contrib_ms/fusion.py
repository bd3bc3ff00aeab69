"""What fusion puts only where it is asked for by name: ops that few builds of onnxruntime have a kernel for on CPUs."""

from __future__ import annotations

from tenonnx.extend import always
from tenonnx_contrib_ms.fused import bias_add, bias_softmax
from tenonnx_contrib_ms.gates import (
    branchwise_rms_norm,
    engram_gate,
    gated_add,
    gated_rms_norm,
    hyper_connection_post_mix,
    hyper_connection_pre_mix,
    scaled_silu,
)
from tenonnx_contrib_ms.gelu import bias_split_gelu
from tenonnx_contrib_ms.layouts import nhwc_conv, nhwc_fused_conv
from tenonnx_contrib_ms.math import complex_mul, complex_mul_conj
from tenonnx_contrib_ms.matrix import gemm_fast_gelu, transpose_matmul
from tenonnx_contrib_ms.rotary import gemma_rotary_embedding

RARE = (
    bias_add, bias_softmax, bias_split_gelu, branchwise_rms_norm, complex_mul, complex_mul_conj, engram_gate, gated_add,
    gated_rms_norm, gemm_fast_gelu, gemma_rotary_embedding, hyper_connection_post_mix, hyper_connection_pre_mix,
    nhwc_conv, nhwc_fused_conv, scaled_silu, transpose_matmul,
)  # fmt: skip


for _op in RARE:
    _op.rule("rare", always)
