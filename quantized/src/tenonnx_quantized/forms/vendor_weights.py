"""Float forms of contributed ops with special weight layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value
from tenonnx_quantized.blocks import gather_block_quantized
from tenonnx_quantized.computed import Computed, rows
from tenonnx_quantized.formats import FP4, NF4, unpacked_array
from tenonnx_quantized.forms.quantized_nodes import QuantizationRewriter
from tenonnx_quantized.fourbit import LAYOUTS, matmul_bnb4, matmul_fpq4
from tenonnx_quantized.recurrent import dynamic_quantize_lstm

Array = np.ndarray[Any, Any]

#: For each op, a function of the rewriter and its inputs that calls the float op; None keeps the call.
FLOAT_FORMS: dict[Op, Callable[..., Any]] = {}


def _form(op: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FLOAT_FORMS.update(dict.fromkeys(op.meanings, function))
        return function

    return register


def _are_constant(*values: Value | None) -> bool:
    return all(value is None or value.is_constant for value in values)


def _whole(value: Value) -> Array:
    size = value.shape[0]
    assert isinstance(size, int)
    return rows(value, 0, size)


# ----- four bits ------------------------------------------------------------------------------------------------------


@_form(matmul_bnb4)
def matmul_bnb4_floats(
    rewriter: QuantizationRewriter,
    A: Value,
    B: Value,
    absmax: Value,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    transB: int,
    **_: Any,
) -> Value | None:
    if not _are_constant(B, absmax) or A.dtype is None:
        return None
    dtype, table = A.dtype, np.asarray(NF4 if quant_type else FP4, np.float32)

    def numbers(start: int, stop: int) -> Array:
        packed, largest = B.data.array().reshape(-1), absmax.data.array().reshape(-1)  # type: ignore[union-attr]
        first = np.arange(start, stop)[:, None]
        at = np.arange(N) * K + first if transB else first * K + np.arange(K)
        quantized = packed[at // 2] >> np.where(at % 2, 0, 4).astype(np.uint8) & 15
        return (table[quantized] * largest[at // block_size].astype(np.float32)).astype(dtype.numpy)

    shape = (K, N) if transB else (N, K)
    return ops.matmul(A, rewriter.place(f"{B.name}/floats", Computed(dtype, shape, numbers)))  # type: ignore[no-any-return]


@_form(matmul_fpq4)
def matmul_fpq4_floats(
    rewriter: QuantizationRewriter, A: Value, B: Value, B_shape: Value, *, blk_quant_type: int
) -> Value | None:
    if not _are_constant(B, B_shape) or A.dtype is None or not isinstance(A.shape[-1], int):
        return None
    dtype, (inner, columns) = A.dtype, _whole(B_shape).tolist()
    length, shifted = LAYOUTS[blk_quant_type]
    head = 5 if shifted else 4

    def numbers(start: int, stop: int) -> Array:
        blocks = _whole(B).reshape(columns, -1, head + length // 2)
        scale = np.ascontiguousarray(blocks[:, :, :4]).view(np.float32)
        halves = blocks[:, :, head:].reshape(columns, blocks.shape[1], -1, 16)
        shift = blocks[:, :, 4:5].astype(np.float32) if shifted else np.float32(8)
        quantized = np.concatenate([halves & 15, halves >> 4], -1).reshape(columns, blocks.shape[1], -1)
        floats = (quantized.astype(np.float32) - shift) * scale
        return floats.reshape(columns, -1)[:, start:stop].T.astype(dtype.numpy)

    return ops.matmul(A, rewriter.place(f"{B.name}/floats", Computed(dtype, (inner, columns), numbers)))  # type: ignore[no-any-return]


# ----- GatherBlockQuantized -------------------------------------------------------------------------------------------


@_form(gather_block_quantized)
def gather_block_quantized_floats(
    rewriter: QuantizationRewriter,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    bits: int,
    block_size: int,
    gather_axis: int,
    quantize_axis: int,
) -> Value | None:
    """Gather from floats, for which out-of-range indices are invalid."""
    if not _are_constant(data, scales, zero_points):
        return None
    packed, axis = data.dtype is DType.uint8, quantize_axis % data.ndim
    *outer, last = data.shape
    shape = [*outer, last * (8 // bits) if packed else last]

    def of_blocks(parameter: Value, start: int, stop: int) -> Array:
        """The scale or zero point of each element of these rows."""
        found = _whole(parameter) if axis == 0 else rows(parameter, start, stop)
        if parameter is zero_points and packed:
            found = unpacked_array(found, bits)[..., : scales.shape[-1]]
        where = np.arange(start, stop) if axis == 0 else np.arange(shape[axis])
        return np.take(found, where // block_size if block_size else where * 0, axis).astype(np.float32)

    def numbers(start: int, stop: int) -> Array:
        quantized = rows(data, start, stop)
        floats = (unpacked_array(quantized, bits) if packed else quantized).astype(np.float32)
        if zero_points is not None:
            floats = floats - of_blocks(zero_points, start, stop)
        elif packed:
            floats = floats - float(1 << bits - 1)
        return (floats * of_blocks(scales, start, stop)).astype(scales.dtype.numpy)

    table = rewriter.place(f"{data.name}/floats", Computed(scales.dtype, shape, numbers))
    return ops.gather(table, indices, axis=gather_axis)  # type: ignore[no-any-return]


# ----- DynamicQuantizeLSTM --------------------------------------------------------------------------------------------


@_form(dynamic_quantize_lstm)
def dynamic_quantize_lstm_floats(
    rewriter: QuantizationRewriter,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    P: Value | None,
    W_scale: Value,
    W_zero_point: Value,
    R_scale: Value,
    R_zero_point: Value,
    **attributes: Any,
) -> Sequence[Value] | None:
    if not _are_constant(W, R, W_scale, W_zero_point, R_scale, R_zero_point):
        return None

    def placed(quantized: Value, scale: Value, zero_point: Value) -> Value:
        def numbers(start: int, stop: int) -> Array:
            step, shift = (rows(v, start, stop).astype(np.float32) for v in (scale, zero_point))
            step, shift = (x.reshape(len(x), 1, -1) for x in (step, shift))
            floats = (rows(quantized, start, stop).astype(np.float32) - shift) * step
            return floats.transpose(0, 2, 1).astype(scale.dtype.numpy)

        directions, inner, columns = quantized.shape
        return rewriter.place(f"{quantized.name}/floats", Computed(scale.dtype, (directions, columns, inner), numbers))

    weights = placed(W, W_scale, W_zero_point), placed(R, R_scale, R_zero_point)
    return ops.lstm(X, *weights, B, sequence_lens, initial_h, initial_c, P, **attributes)  # type: ignore[no-any-return]
