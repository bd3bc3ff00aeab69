"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""

from tenonnx_testing import unwritten

UNWRITTEN = """
    AttnLSTM BeamSearch BiasDropout BifurcationDetector BitmaskBiasDropout BitmaskDropout
    ConvTransposeWithDynamicPads CropAndResize DecoderAttention DecoderMaskedSelfAttention DynamicSparseAttention
    DynamicTimeWarping EPContext GatedDeltaNet GatedRelativePositionBias GemmaRotaryEmbedding GreedySearch
    GridSample LongformerAttention MRotaryEmbedding MaxpoolWithMask MurmurHash3 NGramHashMapping NGramRepeatBlock
    PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer PagedAttention RelativePositionBias
    RemovePadding RestorePadding Sampling Snpe SparseAttention SparseAttentionIndexer SparsePagedAttention
    SparseToDenseMatMul VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch WordConvEmbedding
"""

unwritten("com.microsoft", UNWRITTEN.split(), reason="not written yet: the ops of the example models came first")
