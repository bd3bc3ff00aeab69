"""QuantizeBFP and DequantizeBFP: block floating point, with one exponent per block.

ONNX Runtime declares these ops but has no kernel for them. Its documentation defines the formats (bits of sign,
mantissa and exponent, and the block size, there called bounding box) but not the order of bits. Here a block is stored
as its exponent, biased as in float32, followed by its elements, lowest bit first: a mantissa, then a sign bit.
"""

from __future__ import annotations

import math

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Index,
    TensorType,
    Value,
    axis,
    constant,
    dims,
    dtypes,
    elements,
    floats,
    holds,
    one_of,
    op,
    shapes,
    static,
)
from tenonnx_quantized.granularity import wrong_count
from tenonnx_quantized.quantize import to

#: Bits of a mantissa, by ``bfp_type``.
_MANTISSAS = {0: 8, 1: 4}
_BOX = 16


def _with_blocks_last(x: Value, block_dim: int) -> tuple[Value, list[int]]:
    """``x`` transposed so that the axis of the blocks is last, and the permutation."""
    last = block_dim % x.ndim
    order = [*(k for k in range(x.ndim) if k != last), last]
    return (x if order == sorted(order) else ops.transpose(x, perm=order)), order


def _powers(exponent: Value, mantissa: int) -> Value:
    """Value of the lowest bit of the mantissas in a block, from its exponent."""
    return ops.gather(constant(np.exp2(np.arange(256.0) - 126 - mantissa), DType.float32), to(exponent, DType.int32))


@op("QuantizeBFP", domain="com.microsoft")
def quantize_bfp(x, *, bfp_type: int, block_dim=-1):
    """Quantize blocks of 16 elements along an axis to mantissas that share the largest exponent, rounded half to even.

    The other outputs are the shape of ``x`` and its strides in elements. Subnormal float32 numbers become 0.
    """
    mantissa = _MANTISSAS[bfp_type]
    turned, _ = _with_blocks_last(to(x, DType.float32), block_dim)
    *outer, length = dims(turned)
    missing = -length % _BOX if isinstance(length, int) else ops.mod(-length, _BOX)
    if not isinstance(missing, int) or missing:
        turned = ops.pad(turned, [0] * (2 * len(outer) + 1) + [missing])
    boxes = ops.reshape(turned, [-1, _BOX])
    greatest = ops.reduce_max(ops.absolute(boxes), [1])
    bounds = constant(np.exp2(np.arange(1.0, 255) - 127), DType.float32)
    reached = ops.reduce_sum(to(ops.greater_or_equal(greatest, bounds), DType.int32), [1])
    units = ops.round_(boxes / _powers(reached, mantissa))
    quantized = to(ops.clip(ops.absolute(units), 0.0, float((1 << mantissa) - 1)), DType.int32)
    quantized = quantized + to(ops.less(units, 0.0), DType.int32) * (1 << mantissa)
    places = constant(1 << np.arange(mantissa + 1), DType.int32)
    bits = ops.reshape(ops.mod(ops.unsqueeze(quantized, [2]) / places, 2), [0, -1, 8])
    data = ops.reduce_sum(bits * constant(1 << np.arange(8), DType.int32), [2], keepdims=0)
    y = ops.reshape(to(ops.concat(reached, data, axis=1), DType.uint8), [-1])
    return y, ops.shape(x), _strides(x)


quantize_bfp.traits(on_request=True)


def _strides(x: Value) -> Value:
    sizes = dims(x)
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    return ops.reshape(ops.concat(*(ops.reshape(_number(s), [1]) for s in strides), axis=0), [-1])


def _number(size: Value | int) -> Value:
    return constant(np.asarray(size), DType.int64) if isinstance(size, int) else size


@op("DequantizeBFP", domain="com.microsoft")
def dequantize_bfp(x, shape: Index, strides: Index, *, bfp_type: int, block_dim=-1, dtype=1):
    """Dequantize the output of QuantizeBFP to a contiguous tensor of ``shape``; ``strides`` are not read."""
    mantissa = _MANTISSAS[bfp_type]
    boxes = ops.reshape(x, [-1, 1 + _BOX * (mantissa + 1) // 8])
    data = to(boxes[:, 1:], DType.int32)
    bits = ops.mod(ops.unsqueeze(data, [2]) / constant(1 << np.arange(8), DType.int32), 2)
    quantized = ops.reshape(bits, [0, _BOX, mantissa + 1]) * constant(1 << np.arange(mantissa + 1), DType.int32)
    size = ops.reduce_sum(quantized[:, :, :-1], [2], keepdims=0)
    units = ops.where(ops.greater(quantized[:, :, -1], 0), -size, size)
    numbers = to(units, DType.float32) * _powers(boxes[:, :1], mantissa)
    rank = shape.shape[0]
    last = block_dim % rank
    order = [*(k for k in range(rank) if k != last), last]
    sides = [shape[k] for k in order]
    turned = ops.reshape(numbers, [*sides[:-1], -1])[..., : sides[-1]]
    back = [order.index(k) for k in range(rank)]
    return to(turned if back == sorted(back) else ops.transpose(turned, perm=back), DType(dtype))


dequantize_bfp.traits(on_request=True)


@dequantize_bfp.type
def dequantize_bfp_type(x, shape, strides, *, bfp_type, block_dim, dtype):
    """Type of the output, even if its rank, which the body needs, is unknown."""
    sides, rank = elements(shape), shape.shape[0]
    if sides is None and isinstance(rank, int):
        sides = [None] * rank
    return TensorType(DType(dtype), None if sides is None else tuple(sides))


def _blocks_fit(x, shape, block_dim, bfp_type):
    rank = None if shape is None or shape.rank != 1 else shape.shape[0]
    if isinstance(rank, int) and not -rank <= block_dim < rank:
        return f"block_dim lies outside [{-rank}, {rank - 1}]"
    sides = static(shape)
    if sides is None:
        return None
    boxes = -(-sides[block_dim] // _BOX) * math.prod(np.delete(sides, block_dim).tolist())
    return wrong_count("x", x, int(boxes) * (1 + _BOX * (_MANTISSAS[bfp_type] + 1) // 8))


quantize_bfp.requires(floats("x"), axis("block_dim", of="x"), one_of(bfp_type=_MANTISSAS))
dequantize_bfp.requires(
    dtypes(x="uint8", shape="int64", strides="int64"),
    shapes(x="_", shape="rank", strides="rank"),
    one_of(bfp_type=_MANTISSAS, dtype=(1, 10, 16)),
    holds(_blocks_fit),
)
