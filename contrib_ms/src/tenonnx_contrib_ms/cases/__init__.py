"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""

from tenonnx_testing import unwritten

UNWRITTEN = """
    AttnLSTM BeamSearch BiasDropout BifurcationDetector BitmaskBiasDropout BitmaskDropout BranchwiseRMSNorm CDist
    CausalConvWithState ComplexMul ComplexMulConj ConvTransposeWithDynamicPads CropAndResize DecoderAttention
    DecoderMaskedSelfAttention DynamicSparseAttention DynamicTimeWarping EPContext EngramGate ExpandDims GatedAdd
    GatedDeltaNet GatedRMSNorm GatedRelativePositionBias GatherND GemmaRotaryEmbedding GreedySearch GridSample
    HyperConnectionPostMix HyperConnectionPreMix Inverse Irfft IsAllFinite LinearAttention LinearAttentionGate
    LongformerAttention MRotaryEmbedding MaxpoolWithMask MoE MurmurHash3 NGramHashMapping NGramRepeatBlock
    PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer Pad PagedAttention Range
    RelativePositionBias RemovePadding RestorePadding Rfft SampleOp Sampling ScaledSiLU Snpe SparseAttention
    SparseAttentionIndexer SparsePagedAttention SparseToDenseMatMul TorchEmbedding Trilu UnfoldTensor Unique
    VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch WordConvEmbedding
"""

unwritten("com.microsoft", UNWRITTEN.split(), reason="not written yet: the ops of the example models came first")
