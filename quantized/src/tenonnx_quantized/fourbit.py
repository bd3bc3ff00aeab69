"""4-bit weights in special block formats: MatMulBnb4 and MatMulFpQ4."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Index,
    Value,
    at_least,
    constant,
    differ,
    dims,
    dtypes,
    floats,
    holds,
    limits,
    one_of,
    op,
    same_dtype,
    shapes,
    static,
)
from tenonnx_quantized.formats import FP4, NF4, high_first, looked_up
from tenonnx_quantized.granularity import wrong_count
from tenonnx_quantized.quantize import to, wide


@op("MatMulBnb4", domain="com.microsoft")
def matmul_bnb4(A, B, absmax, *, K: int, N: int, block_size: int, quant_type: int, training_mode=0, transB=1):
    """``A`` times weights ``[N, K]`` in FP4 (``quant_type`` 0) or NF4 (1), or times their transpose with ``transB``.

    The flattened weights are split into blocks, each scaled by its maximum magnitude ``absmax``. The first of two
    quantized values is in the high half of a byte.
    """
    stage, count = wide(A.dtype), N * K
    blocks = -(-count // block_size)
    limits.check_elements([count], matmul_bnb4.title)
    quantized = high_first(ops.reshape(B, [(count + 1) // 2]))[:count]
    scale = ops.gather(to(ops.reshape(absmax, [blocks]), stage), constant(np.arange(count) // block_size))
    weights = ops.reshape(looked_up(quantized, NF4 if quant_type else FP4, stage) * scale, [N, K])
    return to(ops.matmul(to(A, stage), ops.transpose(weights, perm=[1, 0]) if transB else weights), A.dtype)


def _fitting(B, absmax, K, N, block_size):
    if block_size & (block_size - 1):
        return "block_size is not a power of two"
    return wrong_count("B", B, (N * K + 1) // 2) or wrong_count("absmax", absmax, -(-N * K // block_size))


matmul_bnb4.requires(
    floats("A"),
    same_dtype("A", "absmax"),
    dtypes(B="uint8"),
    one_of(quant_type=(0, 1)),
    at_least(K=1, N=1, block_size=16),
    holds(_fitting),
)


#: For each quantization type, the number of quantized values per block, and whether it has a zero point.
LAYOUTS = {0: (32, False), 1: (32, True), 2: (64, False)}


@op("MatMulFpQ4", domain="com.microsoft")
def matmul_fpq4(A, B, B_shape: Index, *, blk_quant_type=1):
    """``A`` times a matrix of shape ``B_shape``, in blocks of 4-bit quantized values, column by column.

    A block has a float32 scale, with type 1 a zero point byte (else 8), and the quantized values: of each 32, the first
    half is in the low halves of 16 bytes, the second half in the high ones.
    """
    length, shifted = LAYOUTS[blk_quant_type]
    head = 5 if shifted else 4
    blocks = ops.reshape(B, [B_shape[1], -1, head + length // 2])
    scale = _float_of_bytes(blocks[:, :, :4])
    halves = ops.reshape(blocks[:, :, head:], [0, 0, length // 32, 16])
    quantized = ops.reshape(
        ops.concat(ops.bitwise_and(halves, 15), ops.bitshift(halves, np.uint8(4), direction="RIGHT"), axis=-1),
        [0, 0, -1],
    )
    shift = to(blocks[:, :, 4:5], DType.float32) if shifted else 8.0
    weights = ops.reshape((to(quantized, DType.float32) - shift) * ops.unsqueeze(scale, [2]), [B_shape[1], -1])
    return ops.matmul(A, ops.transpose(to(weights[:, : dims(A)[-1]], A.dtype), perm=[1, 0]))


def _whole(A, B, B_shape, blk_quant_type):
    sides, (length, shifted) = static(B_shape), LAYOUTS[blk_quant_type]
    if sides is None:
        return None
    rows, columns = sides.tolist()
    if A.tensor.shape and differ(A.shape[-1], rows):
        return f'"A" does not have {rows} columns, the rows of B_shape'
    return wrong_count("B", B, columns * -(-rows // length) * ((5 if shifted else 4) + length // 2))


matmul_fpq4.requires(
    floats("A"),
    dtypes(B="uint8", B_shape="int64"),
    shapes(A="... _", B_shape="2"),
    one_of(blk_quant_type=LAYOUTS),
    holds(_whole),
)


def _float_of_bytes(b: Value) -> Value:
    """The finite float32 stored in four little-endian bytes along the last axis."""
    low, mid, high, top = (to(b[..., k], DType.int32) for k in range(4))
    exponent = ops.bitwise_and(top, 127) * 2 + high / 128
    mantissa = to(low + mid * 256 + ops.bitwise_and(high, 127) * 65536, DType.float32)
    powers = constant(np.exp2(np.maximum(np.arange(255.0), 1) - 150), DType.float32)
    size = ops.where(ops.equal(exponent, 0), mantissa, mantissa + float(1 << 23)) * ops.gather(powers, exponent)
    return ops.where(ops.equal(top / 128, 0), size, -size)
