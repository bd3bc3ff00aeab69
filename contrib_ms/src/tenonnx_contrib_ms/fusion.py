"""What fusion puts only where it is asked for by name: ops with no kernel for CPUs in onnxruntime, or in few builds."""

from __future__ import annotations

from tenonnx_contrib_ms import (
    decoder,
    experts,
    fused,
    gated_delta_net,
    gates,
    gelu,
    indexers,
    layouts,
    mamba,
    math,
    matrix,
    normalization,
    packed,
    packed_indexer,
    padding,
    paged,
    position_bias,
    replay,
    rotary,
    selected,
    sparse,
    tensors,
)

ON_REQUEST = (
    decoder.decoder_attention, decoder.decoder_masked_self_attention, fused.bias_add, fused.bias_softmax,
    gates.branchwise_rms_norm, gates.engram_gate, gates.gated_add, gates.gated_rms_norm,
    gates.hyper_connection_low_rank_mix, gates.hyper_connection_post_mix, gates.hyper_connection_pre_mix,
    gates.router_gate_up_proj, gates.scaled_silu, gates.swiglu, gelu.bias_split_gelu,
    packed_indexer.packed_sparse_attention_indexer, packed_indexer.packed_sparse_attention_indexer_merge,
    replay.conv_state_replay, replay.gated_delta_net_state_replay, mamba.mamba2_verify, rotary.rms_norm_rotary,
    experts.moe_group_router, indexers.sparse_attention_indexer, layouts.nhwc_conv,
    layouts.nhwc_fused_conv, math.complex_mul, math.complex_mul_conj, math.irfft, math.is_all_finite, math.rfft,
    matrix.fused_matmul_activation, matrix.gemm_fast_gelu, matrix.transpose_matmul, normalization.group_norm,
    normalization.skip_group_norm, gated_delta_net.gated_delta_net, packed.varlen_causal_conv_with_state,
    padding.gated_relative_position_bias, padding.packed_attention, padding.packed_multi_head_attention,
    padding.remove_padding, padding.restore_padding, paged.paged_attention, position_bias.relative_position_bias,
    rotary.gemma_rotary_embedding, selected.dynamic_sparse_attention, selected.sparse_paged_attention,
    sparse.longformer_attention, tensors.torch_embedding,
    matrix.sparse_to_dense_matmul,  # has one for sparse tensors alone
)  # fmt: skip


for _op in ON_REQUEST:
    _op.traits(on_request=True)
