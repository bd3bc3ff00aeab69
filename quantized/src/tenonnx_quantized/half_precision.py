"""Operators that stay in float32, since their schemas do not allow float16."""

from tenonnx_quantized.fourbit import matmul_fpq4
from tenonnx_quantized.products import dynamic_quantize_matmul
from tenonnx_quantized.recurrent import dynamic_quantize_lstm

for _op in (dynamic_quantize_lstm, dynamic_quantize_matmul, matmul_fpq4):
    _op.traits(needs_float32="its schema has no half floats there")
