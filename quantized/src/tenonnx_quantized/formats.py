"""Quantized values packed into bytes, and code books of formats."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims

#: 4-bit floats of QLoRA (Dettmers et al. 2023, arXiv:2305.14314): NF4 are quantiles of the normal distribution.
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


def _with_signs(*magnitudes: float) -> tuple[float, ...]:
    return (*magnitudes, *(-x for x in magnitudes))


#: FP4 of bitsandbytes: a sign and eight magnitudes.
FP4 = _with_signs(0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)

#: E2M1, the float4 of ONNX and of the OCP microscaling formats.
E2M1 = _with_signs(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@functools.cache
def float8() -> tuple[float, ...]:
    """Decode bytes as float8e4m3fn."""
    return tuple(np.arange(256).astype(np.uint8).view(DType.float8e4m3fn.numpy).astype(np.float32).tolist())


def unpacked(packed: Value, bits: int) -> Value:
    """Unpack bytes to integers of ``bits`` along the last axis; the first integer of a byte is in its low bits."""
    if bits == 8:
        return packed
    *outer, length = dims(packed)
    if 8 % bits:
        count = length * 8 // bits
        single = ops.reshape(unpacked(packed, 1)[..., : count * bits], [*outer, count, bits])
        weighted = ops.cast(single, to=DType.int32) * constant(1 << np.arange(bits), DType.int32)
        return ops.cast(ops.reduce_sum(weighted, [-1], keepdims=0), to=DType.uint8)
    shifts = constant(np.arange(0, 8, bits), DType.uint8)
    apart = ops.bitwise_and(ops.bitshift(ops.unsqueeze(packed, [-1]), shifts, direction="RIGHT"), (1 << bits) - 1)
    return ops.reshape(apart, [*outer, length * (8 // bits)])


def high_first(packed: Value) -> Value:
    """Unpack bytes to 4-bit integers along the last axis; the first integer of a byte is in its high bits."""
    shifts = constant(np.array([4, 0]), DType.uint8)
    unpacked = ops.bitwise_and(ops.bitshift(ops.unsqueeze(packed, [-1]), shifts, direction="RIGHT"), 15)
    *outer, length = dims(packed)
    return ops.reshape(unpacked, [*outer, length * 2])


def looked_up(quantized: Value, table: tuple[float, ...], dtype: DType) -> Value:
    """Dequantize by a code book."""
    return ops.gather(constant(np.asarray(table), dtype), ops.cast(quantized, to=DType.int32))


def unpacked_array(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """``unpacked`` for an array."""
    if bits == 8:
        return packed
    if 8 % bits:
        count = packed.shape[-1] * 8 // bits
        single = np.unpackbits(packed, axis=-1, count=count * bits, bitorder="little")
        return np.packbits(single.reshape(*packed.shape[:-1], count, bits), axis=-1, bitorder="little")[..., 0]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed[..., None] >> shifts & np.uint8((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


def packed_array(quantized: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The inverse of ``unpacked_array``; the last byte is padded with zeros."""
    if bits == 8:
        return quantized.astype(np.uint8)
    count = 8 // bits
    missing = -quantized.shape[-1] % count
    whole = np.pad(quantized.astype(np.uint8), [(0, 0)] * (quantized.ndim - 1) + [(0, missing)])
    parts = whole.reshape(*whole.shape[:-1], -1, count) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1).astype(np.uint8)
