"""Quantized tensors: one range per tensor, per channel, or per block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType, Value
from tenonnx_quantized.computed import Computed, rows
from tenonnx_quantized.quantize import encode_array

Array = np.ndarray[Any, Any]

#: Number of elements of a large matrix that are quantized at a time.
_AT_ONCE = 1 << 18

#: Types of quantized values in blocks.
_OF_BITS = {2: DType.uint2, 4: DType.uint4, 8: DType.uint8}


@dataclass(frozen=True, slots=True)
class QuantizationParameters:
    """A scale and a zero point for quantized values of a type.

    Scales are float32 numbers representable in ``scale_type``; for float8e4m3fn, times ``unit``.
    """

    scale: Array
    zero_point: Array
    dtype: DType
    scale_type: DType = DType.float32
    unit: float = 1.0

    def with_scale_type(self, scale_type: DType, unit: float = 1.0) -> QuantizationParameters:
        """Round the scales to a type: up to a power of two, or to the nearest float8 times ``unit``."""
        if scale_type is DType.float32:
            return self
        if scale_type is DType.float8e8m0:
            scale = np.exp2(np.clip(np.ceil(np.log2(self.scale)), -126, 127))
        else:
            units = np.clip(self.scale / np.float32(unit), 2.0**-9, 448)
            scale = units.astype(scale_type.numpy).astype(np.float32) * np.float32(unit)
        return QuantizationParameters(scale.astype(np.float32), self.zero_point, self.dtype, scale_type, unit)


def parameters(
    low: Any, high: Any, dtype: DType, *, symmetric: bool, reduce_range: bool = False
) -> QuantizationParameters:
    """Parameters for ranges extended to include 0; floats are always symmetric.

    With ``reduce_range`` integers have one bit less than their type.
    """
    low, high = np.minimum(low, 0).astype(np.float64), np.maximum(high, 0).astype(np.float64)
    reduced = reduce_range and dtype.is_integer
    least, greatest = _reduced_range(dtype) if reduced else _range(dtype)
    if symmetric or dtype.is_float:
        middle = 0 if dtype.is_signed else 1 << dtype.bits - 1 - reduced
        # with 4 or 16 values, the unpaired one matters: clipping half a step at the top makes steps smaller
        steps = (greatest - least) / 2 if dtype.bits <= 4 and dtype.is_integer else greatest - middle
        scale = np.maximum(-low, high) / steps
        zero = np.full(np.shape(scale), middle)
    else:
        scale = (high - low) / (greatest - least)
        with np.errstate(all="ignore"):
            zero = np.clip(np.rint(least - low / scale), least, greatest)
    flat = ~(scale > np.finfo(np.float32).tiny)
    scale, zero = np.where(flat, 1.0, scale), np.where(flat, np.clip(0, least, greatest), zero)
    return QuantizationParameters(np.asarray(scale, np.float32), zero.astype(dtype.numpy), dtype)


def _range(dtype: DType) -> tuple[float, float]:
    if dtype.is_integer:
        return dtype.bounds
    every = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    greatest = float(every[np.isfinite(every)].max())
    return -greatest, greatest


def _reduced_range(dtype: DType) -> tuple[float, float]:
    """The bounds of integers with one bit less; signed ones are symmetric."""
    half = 1 << dtype.bits - 2
    return (-half, half) if dtype.is_signed else (0, 2 * half - 1)


def round_units(units: Array, zero: Array | float, dtype: DType) -> Array:
    """Quantize numbers in units of the scale: round half to even, saturate."""
    if dtype.is_integer:
        return np.clip(np.rint(units) + zero, *dtype.bounds)
    return np.clip(units, *_range(dtype)).astype(dtype.numpy).astype(units.dtype)  # type: ignore[no-any-return]


@dataclass(slots=True)
class QuantizedTensor:
    """Quantized values with parameters along ``axis`` (None: per tensor), or in blocks along it."""

    quantized: Array | Computed
    parameters: QuantizationParameters
    axis: int | None
    block_size: int = 0
    #: Error of the dequantized values, if known.
    error: float | None = None

    def numbers(self) -> Array:
        """The dequantized values."""
        scale, zero = (
            self._spread(np.asarray(v, np.float32)) for v in (self.parameters.scale, self.parameters.zero_point)
        )
        return (np.asarray(self.quantized).astype(np.float32) - zero) * scale  # type: ignore[no-any-return]

    def _spread(self, parameter: Array) -> Array:
        if self.axis is None:
            return parameter
        if self.block_size:
            return parameter.take(np.arange(np.shape(self.quantized)[self.axis]) // self.block_size, self.axis)
        return parameter.reshape([-1 if k == self.axis else 1 for k in range(np.ndim(self.quantized))])


def encode(x: Array, found: QuantizationParameters, axis: int | None) -> QuantizedTensor:
    """Quantize numbers, rounding half to even."""
    quantized = QuantizedTensor(np.empty(x.shape, found.dtype.numpy), found, axis)
    scale, zero = (quantized._spread(np.asarray(v, np.float32)) for v in (found.scale, found.zero_point))
    return QuantizedTensor(encode_array(np.asarray(x / scale), zero, found.dtype), found, axis)


def by_channel(
    x: Array,
    dtype: DType,
    axis: int | None,
    *,
    symmetric: bool = True,
    least_scale: Array | float = 0.0,
    reduce_range: bool = False,
) -> QuantizedTensor:
    """Weights with one range per position of ``axis``, or a single one (None).

    A range whose scale would be below ``least_scale``, which is per position, is widened.
    """
    others = None if axis is None else tuple(k for k in range(x.ndim) if k != axis)
    low, high = x.min(others).astype(np.float64), x.max(others).astype(np.float64)
    found = parameters(low, high, dtype, symmetric=symmetric, reduce_range=reduce_range)
    least = np.max(least_scale) if axis is None else least_scale
    wider = np.maximum(least / found.scale, 1.0)
    if np.any(wider > 1.0):
        found = parameters(low * wider, high * wider, dtype, symmetric=symmetric, reduce_range=reduce_range)
    return encode(x, found, axis)


def in_blocks(x: Array, bits: int, block_size: int, axis: int, *, symmetric: bool, search: str) -> QuantizedTensor:
    """A matrix in blocks along ``axis``, rounded to the nearest or by a search (``hqq``)."""
    turned = x if axis == 0 else x.T
    parts, found = _ranged(turned, bits, block_size, symmetric=symmetric, search=search)
    quantized = _quantized(_whole(parts, found), found.dtype).reshape(-1, turned.shape[1])[: len(turned)]
    if axis == 0:
        return QuantizedTensor(quantized, found, 0, block_size)
    return QuantizedTensor(
        quantized.T, QuantizationParameters(found.scale.T, found.zero_point.T, found.dtype), 1, block_size
    )


def _split_blocks(x: Array, block_size: int) -> Array:
    """Split the rows of a matrix into blocks; the last block is padded by repeating the last row."""
    rows, columns = x.shape
    missing = -rows % block_size
    padded = np.pad(x, [(0, missing), (0, 0)], mode="edge") if missing else x
    return padded.reshape(-1, block_size, columns)


def _ranged(
    x: Array, bits: int, block_size: int, *, symmetric: bool, search: str
) -> tuple[Array, QuantizationParameters]:
    """The blocks of rows of a matrix, and their parameters."""
    dtype, parts = _OF_BITS[bits], _split_blocks(x, block_size)
    result = parameters(parts.min(1), parts.max(1), dtype, symmetric=symmetric)
    if search == "hqq":
        is_data = (np.arange(parts.shape[0] * block_size) < len(x)).reshape(-1, block_size, 1)
        result = _half_quadratic(parts, is_data, result, symmetric=symmetric)
    return parts, result


def _zeros(found: QuantizationParameters) -> Array:
    return found.zero_point.astype(np.float32)[:, None]  # type: ignore[no-any-return]


def _whole(parts: Array, found: QuantizationParameters) -> Array:
    """Quantize blocks to integers, in a new array."""
    numbers = np.divide(parts, found.scale[:, None])
    np.rint(numbers, out=numbers)
    numbers += _zeros(found)
    return np.clip(numbers, *found.dtype.bounds, out=numbers)


def _quantized(numbers: Array, dtype: DType) -> Array:
    """Cast integers to a quantized dtype, with one byte per element."""
    with np.errstate(invalid="ignore"):  # NaN cannot be quantized
        return numbers.astype(np.uint8).view(dtype.numpy)


def in_blocks_of_rows(weights: Value, bits: int, block_size: int, *, symmetric: bool, search: str) -> QuantizedTensor:
    """``in_blocks`` along the rows of a large matrix, read in parts, and again when the model is saved."""
    length, columns = (int(d) for d in weights.tensor.shape or ())  # type: ignore[arg-type]
    count = max(1, _AT_ONCE // max(1, columns * block_size)) * block_size
    dtype, blocks = _OF_BITS[bits], -(-length // block_size)
    scale, zero = np.empty((blocks, columns), np.float32), np.empty((blocks, columns), dtype.numpy)
    lost = size = 0.0
    for start in range(0, length, count):
        part = rows(weights, start, min(start + count, length))
        parts, found = _ranged(part, bits, block_size, symmetric=symmetric, search=search)
        numbers = _whole(parts, found)
        numbers -= _zeros(found)
        numbers *= found.scale[:, None]
        wide = part.astype(np.promote_types(part.dtype, np.float32), copy=False)
        off = numbers.reshape(-1, columns)[: len(part)] - wide
        lost += float(np.vdot(off, off))
        size += float(np.vdot(wide, wide))
        at = slice(start // block_size, start // block_size + len(parts))
        scale[at], zero[at] = found.scale, found.zero_point

    def compute(start: int, stop: int) -> Array:
        made = np.empty((stop - start, columns), dtype.numpy)
        first = start - start % block_size  # read full blocks
        for at in range(first, stop, count):
            end = min(at + count, length)
            block = slice(at // block_size, -(-end // block_size))
            numbers = _whole(
                _split_blocks(rows(weights, at, end), block_size),
                QuantizationParameters(scale[block], zero[block], dtype),
            )
            begin, behind = max(at, start), min(end, stop)
            made[begin - start : behind - start] = _quantized(numbers, dtype).reshape(-1, columns)[
                begin - at : behind - at
            ]
        return made

    error = math.sqrt(lost / size) if size else math.sqrt(lost)
    kept = QuantizationParameters(_as_contents(scale, DType.float32), _as_contents(zero, dtype), dtype)
    return QuantizedTensor(Computed(dtype, (length, columns), compute), kept, 0, block_size, error)


def _as_contents(found: Array, dtype: DType) -> Computed:
    """Wrap an array as lazy contents, without a copy."""
    return Computed(dtype, found.shape, lambda start, stop: found[start:stop])


#: Fractions of a range that the search tries.
_PARTS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)


def _half_quadratic(
    parts: Array, is_data: Array, found: QuantizationParameters, *, symmetric: bool, rounds: int = 8
) -> QuantizationParameters:
    """For each block, the fraction of its range and the zero point with the least square error.

    Zero points are found by half-quadratic steps (Badri and Shaji 2023), in which outliers count less than in a square,
    and rounded.
    """
    low, high = parts.min(1), parts.max(1)
    scale, zero, least = found.scale, found.zero_point, _square_error(parts, is_data, found)
    for part in _PARTS:
        tried = parameters(low * part, high * part, found.dtype, symmetric=symmetric)
        for candidate in (tried,) if symmetric else (tried, _shifted(parts, tried, rounds)):
            error = _square_error(parts, is_data, candidate)
            better = error < least
            scale, zero = np.where(better, candidate.scale, scale), np.where(better, candidate.zero_point, zero)
            least = np.minimum(error, least)
    return QuantizationParameters(scale, zero.astype(found.dtype.numpy), found.dtype)


def _square_error(parts: Array, is_data: Array, found: QuantizationParameters) -> Array:
    scale, zero = found.scale[:, None], found.zero_point.astype(np.float32)[:, None]
    quantized = np.clip(np.rint(parts / scale) + zero, *found.dtype.bounds)
    return np.square(is_data * ((quantized - zero) * scale - parts)).sum(1)  # type: ignore[no-any-return]


def _shifted(parts: Array, found: QuantizationParameters, rounds: int) -> QuantizationParameters:
    """Parameters with zero points from half-quadratic steps."""
    (least, greatest), scale = found.dtype.bounds, found.scale[:, None]
    zero, weight = found.zero_point.astype(np.float32)[:, None], 10.0
    for _ in range(rounds):
        quantized = np.clip(np.rint(parts / scale + zero), least, greatest)
        lost = parts - (quantized - zero) * scale
        shrunk = np.sign(lost) * np.maximum(np.abs(lost) - 0.7 / weight * np.maximum(np.abs(lost), 1e-8) ** -0.3, 0)
        zero = (quantized - (parts - shrunk) / scale).mean(1, keepdims=True)
        weight *= 1.01
    rounded = np.clip(np.rint(zero[:, 0]), least, greatest)
    return QuantizationParameters(found.scale, rounded.astype(found.dtype.numpy), found.dtype)
