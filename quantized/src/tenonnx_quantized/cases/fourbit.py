"""Cases of 4-bit weights in special block formats."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.cases.blocks import stacked
from tenonnx_quantized.fourbit import matmul_bnb4, matmul_fpq4
from tenonnx_testing import Gap, call, cases, tensors


@cases(
    matmul_bnb4,
    gradient=["A", "absmax"],
    gaps=[
        Gap(
            "onnxruntime",
            "without transB onnxruntime's kernel reads the weights [N, K] as [K, N], and still transposes them",
            when=lambda c: not c.attributes["transB"],
        )
    ],
)
def matmul_bnb4_cases(draw):
    rows, columns, block = draw(st.sampled_from([16, 32, 40])), draw(st.integers(1, 5)), draw(st.sampled_from([16, 32]))
    count, trans = rows * columns, draw(st.integers(0, 1))
    quantized = draw(tensors("uint8", shape=((count + 1) // 2,), min_value=0, max_value=255))
    absmax = draw(tensors("float32", shape=(-(-count // block),), min_value=0.1, max_value=2))
    return call(
        stacked(draw, rows if trans else columns, "float32"),
        quantized,
        absmax,
        K=rows,
        N=columns,
        block_size=block,
        quant_type=draw(st.integers(0, 1)),
        transB=trans,
        training_mode=draw(st.integers(0, 1)),
    )


def blob(draw, kind, rows, columns):
    """Draw blocks, each with a scale, an optional zero point and quantized values."""
    length, head = {0: (32, 4), 1: (32, 5), 2: (64, 4)}[kind]
    blocks = -(-rows // length)
    contents = draw(tensors("uint8", shape=(columns, blocks, head + length // 2), min_value=0, max_value=255))
    scale = draw(tensors("float32", shape=(columns, blocks, 1), min_value=-1, max_value=1))
    contents[:, :, :4] = scale.view(np.uint8)
    contents[:, :, 4:head] &= 15
    return contents.reshape(-1)


@cases(matmul_fpq4, gradient=["A"])
def matmul_fpq4_cases(draw):
    kind, rows, columns = draw(st.integers(0, 1)), draw(st.sampled_from([32, 40, 64])), draw(st.integers(1, 5))
    return call(stacked(draw, rows, "float32"), blob(draw, kind, rows, columns), [rows, columns], blk_quant_type=kind)


@cases(matmul_fpq4, gradient=["A"])
def matmul_fpq4_cases_2(draw):
    """Blocks of 64, which onnxruntime's kernel does not support: it reads them as type 1 and rejects their length."""
    rows, columns = draw(st.sampled_from([32, 64, 96])), draw(st.integers(1, 5))
    return call(stacked(draw, rows, "float32"), blob(draw, 2, rows, columns), [rows, columns], blk_quant_type=2)
