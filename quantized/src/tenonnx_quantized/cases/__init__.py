"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""

from tenonnx_testing import unwritten

UNWRITTEN = """
    DequantizeBFP DequantizeLinear DequantizeWithOrder DynamicQuantizeLSTM DynamicQuantizeMatMul
    GatherBlockQuantized GemmFloat8 MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulBnb4
    MatMulFpQ4 MatMulInteger16 MatMulIntegerToFloat MatMulNBits MatMulNBitsMlp MatMulNBitsQkv MulInteger
    QAttention QEmbedLayerNormalization QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv
    QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
    QLinearWhere QMoE QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention
    QOrderedMatMul QuantizeBFP QuantizeLinear QuantizeWithOrder ReduceSumInteger
"""

unwritten("com.microsoft", UNWRITTEN.split(), reason="not written yet: the ops of the example models came first")
