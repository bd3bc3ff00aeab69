"""Granularity of scales and zero points: per tensor, per axis, or per block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Op, TypeMismatch, Value, differ, dims, limits, symbolic
from tenonnx_standard.checking import axis_within
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import reshape, shape, tile, unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]


def is_single(parameter: Value) -> bool:
    """Whether a scale or zero point surely has a single element."""
    shape = parameter.tensor.shape
    return shape is not None and all(d == 1 for d in shape)


def scalar(parameter: Value) -> Value:
    """A scale or zero point of one element as a scalar."""
    return parameter if parameter.rank == 0 else reshape(parameter, [])


def spread(op: Op, parameter: Value, x: Value, axis: int, block_size: int) -> Value:
    """``parameter`` reshaped or repeated to broadcast to ``x``."""
    if is_single(parameter) or x.ndim == 0:
        return scalar(parameter)
    if block_size and parameter.ndim > 1:
        return repeated(parameter, x, axis_within(op, axis, x.ndim), block_size)
    if parameter.ndim != 1 or x.ndim < 2:
        return parameter
    after = x.ndim - 1 - axis_within(op, axis, x.ndim)
    return reshape(parameter, [-1] + [1] * after) if after else parameter


def repeated(parameter: Value, x: Value, axis: int, block_size: int) -> Value:
    """Repeat every element ``block_size`` times along ``axis``, cropped to the length of ``x``."""
    if block_size < 1:
        raise TypeMismatch("the block_size of blocked quantization is below 1", given=f"block_size={block_size}")
    length = x.shape[axis]
    if isinstance(length, int):
        limits.check_elements([length], "the axis of a blocked scale")
        return gather(parameter, (np.arange(length) // block_size).astype(np.int64), axis=axis)
    repeats = [1] * (x.ndim + 1)
    repeats[axis + 1] = block_size
    sizes = dims(parameter)
    whole = reshape(tile(unsqueeze(parameter, [axis + 1]), repeats), [*sizes[:axis], -1, *sizes[axis + 1 :]])
    return whole[(slice(None),) * axis + (slice(0, dims(x)[axis]),)]


def whole_blocks(parameter: Value, x: Value, axis: int, block_size: int) -> list[Any] | None:
    """The shape of ``x`` with ``axis`` split into blocks; None unless full blocks surely cover it."""
    if not block_size or parameter.ndim < 2 or parameter.ndim != x.ndim or is_single(parameter):
        return None
    place, sizes = axis % x.ndim, list(dims(x))
    length = x.shape[place]
    if not isinstance(length, int) or length % block_size or 0 in sizes:
        return None
    return [*sizes[:place], length // block_size, block_size, *sizes[place + 1 :]]


def spread_array(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """``spread`` for arrays."""
    if parameter.size == 1:
        return parameter.reshape(())
    if block_size and parameter.ndim > 1:
        return parameter.take(np.arange(x.shape[axis]) // block_size, axis=axis)
    if parameter.ndim != 1 or x.ndim < 2:
        return parameter
    return parameter.reshape(-1, *(1,) * (x.ndim - 1 - axis % x.ndim))


def collected(g: Value, parameter: Value, x: Value, axis: int, block_size: int) -> Value:
    """The transpose of ``spread``: ``g``, in the shape of ``x``, summed over the elements that share a parameter."""
    if is_single(parameter) or x.ndim == 0:
        return reshape(reduce_sum(g, keepdims=0), shape(parameter))
    if parameter.ndim == 1:
        place = axis % x.ndim if x.ndim > 1 else 0
        others = [k for k in range(x.ndim) if k != place]
        return ops.sum_to(reduce_sum(g, others, keepdims=0) if others else g, parameter)
    axis %= x.ndim
    sizes = dims(parameter)
    missing: list[Any] = [0] * (2 * x.ndim)
    missing[x.ndim + axis] = sizes[axis] * block_size - dims(x)[axis]
    blocks = reshape(pad(g, missing), [*sizes[: axis + 1], block_size, *sizes[axis + 1 :]])
    return reduce_sum(blocks, [axis + 1], keepdims=0)


def check_granularity(op: Op, x: Value, scale: Value, zero_point: Value | None, axis: int, block_size: int) -> None:
    """Raise ``TypeMismatch`` unless ``scale`` and ``zero_point`` can be spread over ``x``."""
    shape, sizes = scale.tensor.shape, x.tensor.shape
    if zero_point is not None and zero_point.tensor.shape is not None and shape is not None:
        single = is_single(scale) and is_single(zero_point)
        if not single and (zero_point.ndim != scale.ndim or _differ(zero_point.shape, shape)):
            raise TypeMismatch(f"{op.title}: shapes of scale and zero point differ", given=f"{scale!r}, {zero_point!r}")
    if block_size < 0:
        raise TypeMismatch(f"{op.title}: block_size is negative", given=f"block_size={block_size}")
    if shape is None or sizes is None or is_single(scale):
        return
    given = f"scale {scale!r} for {x!r}, axis={axis}, block_size={block_size}"
    if len(shape) == 1:
        place = axis_within(op, axis, len(sizes)) if len(sizes) > 1 else 0
        if _differ(shape, sizes[place : place + 1] or (1,)):
            raise TypeMismatch(f"{op.title}: length of the scale differs from that of its axis", given=given)
        return
    place = axis_within(op, axis, len(sizes))
    if not block_size:
        raise TypeMismatch(f"{op.title}: scale is neither a number nor a vector, without block_size", given=given)
    blocks = tuple(symbolic.ceil_div(d, block_size) if k == place else d for k, d in enumerate(sizes))
    if len(shape) != len(sizes) or _differ(shape, blocks):
        raise TypeMismatch(f"{op.title}: scale does not have one element for each block", given=given)


def _differ(a: Any, b: Any) -> bool:
    return any(map(differ, a, b))


def wrong_blocks(name: str, parameter: Value | None, sizes: Any, axis: int, block_size: int) -> str | None:
    """Reason why the input ``name``, with one parameter per block along an axis, has the wrong size, or None."""
    found = None if parameter is None else parameter.tensor.shape
    if found is None or sizes is None or block_size < 1:
        return None
    blocks = tuple(symbolic.ceil_div(d, block_size) if k == axis % len(sizes) else d for k, d in enumerate(sizes))
    if len(found) == len(blocks) and not _differ(found, blocks):
        return None
    return f'"{name}" does not have one element for each block of block_size: [{", ".join(map(str, blocks))}]'


def wrong_count(name: str, value: Value | None, count: int) -> str | None:
    """Reason why the input ``name``, packed values or parameters in any shape, has the wrong size, or None."""
    shape = None if value is None else value.tensor.shape
    if shape is None or not all(isinstance(d, int) for d in shape) or math.prod(shape) == count:  # type: ignore[arg-type]
        return None
    return f'"{name}" does not have {count} elements, as sizes and blocks in the attributes require'
