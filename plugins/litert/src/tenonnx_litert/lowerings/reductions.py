"""Reductions, cumulative sums, ArgMax, ArgMin and TopK."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value, static
from tenonnx_litert.builtins import reductions as tfl
from tenonnx_litert.lowerings.registry import axes_of, int32, lowers, unless


def _reduction(op: Op[Any], builtin: Any, *kinds: DType, of_bool: Any = None) -> None:
    def lowered(x: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        chosen = builtin if of_bool is None or x.dtype is not DType.bool else of_bool
        unless(chosen is builtin and x.dtype not in kinds, f"{builtin.name} does not take {x.dtype}")
        empty = axes is None or axes.shape == (0,)
        if empty and noop_with_empty_axes:
            return x
        listed = list(range(x.ndim)) if empty else axes_of(axes, x.ndim)
        return chosen(x, int32(sorted(listed)), keep_dims=keepdims) if listed else x

    lowers(op)(lowered)


_NUMBERS = (DType.float32, DType.int32, DType.int64)
_reduction(ops.reduce_mean, tfl.mean, DType.float32)
_reduction(ops.reduce_sum, tfl.sum_, *_NUMBERS)
_reduction(ops.reduce_prod, tfl.reduce_prod, *_NUMBERS)
_reduction(ops.reduce_max, tfl.reduce_max, *_NUMBERS, DType.uint8, DType.int8, of_bool=tfl.reduce_any)
_reduction(ops.reduce_min, tfl.reduce_min, *_NUMBERS, DType.uint8, DType.int8, of_bool=tfl.reduce_all)


def _position(op: Op[Any], builtin: Any) -> None:
    def lowered(x: Value, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        unless(bool(select_last_index), f"{builtin.name} returns the first of equal elements")
        unless(
            x.dtype not in (DType.float32, DType.int32, DType.uint8, DType.int8), f"{builtin.name} takes no {x.dtype}"
        )
        y = builtin(x, int32([axis % x.ndim]), output_type="int64")
        return ops.unsqueeze(y, [axis % x.ndim]) if keepdims else y

    lowers(op)(lowered)


_position(ops.argmax, tfl.arg_max)
_position(ops.argmin, tfl.arg_min)


@lowers(ops.cumsum)
def cumsum(x: Value, axis: Value, *, exclusive: int, reverse: int) -> Any:
    contents = static(axis)
    unless(contents is None, "the axis is computed")
    unless(x.dtype not in _NUMBERS, f"CUMSUM does not take {x.dtype}")
    at = int(np.reshape(contents, -1)[0]) % x.ndim
    return tfl.cumsum(x, int32(at), exclusive=exclusive, reverse=reverse)


@lowers(ops.top_k)
def top_k(x: Value, k: Value, *, axis: int, largest: int, sorted: int) -> Any:
    unless(x.dtype not in _NUMBERS, f"TOPK_V2 does not take {x.dtype}")
    count = static(k)
    last = axis in (-1, x.ndim - 1)
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    rows = x if last else ops.transpose(x, perm=order)
    number = int32(int(np.reshape(count, -1)[0])) if count is not None else ops.cast(ops.reshape(k, []), to=DType.int32)
    values, indices = tfl.topk_v2(rows if largest else -rows, number)
    values = values if largest else -values
    indices = ops.cast(indices, to=DType.int64)
    if last:
        return values, indices
    return ops.transpose(values, perm=order), ops.transpose(indices, perm=order)
