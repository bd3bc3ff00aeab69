"""Primitives that move elements: shapes, slices, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, static
from tenonnx_jax.dims import Size, is_static, largest, same, smallest
from tenonnx_jax.promotion import SIXTEEN_BITS, scalar, widened
from tenonnx_jax.rules import of_parts, rule


def reshaped(equation: Any, x: Value, shape: Any) -> Value:
    """Reshape ``x``; the dims of ``shape`` are those of JAX, ints or symbolic."""
    unknown = [axis for axis, dim in enumerate(shape) if not is_static((dim,))]
    if len(unknown) == 1 and all(dim for axis, dim in enumerate(shape) if axis not in unknown):
        return ops.reshape(x, [-1 if axis in unknown else int(dim) for axis, dim in enumerate(shape)])
    return ops.reshape(x, equation.sizes.vector(shape), allowzero=int(0 in [d for d in shape if is_static((d,))]))


@rule("reshape", moves=True)
def reshape_rule(equation: Any, x: Value, *, dimensions: Any = None, **_: Any) -> Value:
    before, after = equation.ins[0].shape, equation.shape
    if dimensions is not None:  # lax.reshape reads the axes in this order
        x, before = transposed(x, dimensions), [before[axis] for axis in dimensions]
    if len(before) == len(after) and all(map(same, before, after)):
        return x
    kept = [axis for axis, dim in enumerate(after) if not _is_one(dim)]
    dims = [dim for dim in before if not _is_one(dim)]
    unchanged = len(dims) == len(before) == len(kept) and all(
        same(d, after[k]) for d, k in zip(before, kept, strict=True)
    )
    if unchanged and len(before) < len(after):
        return unsqueezed(x, [axis for axis in range(len(after)) if axis not in kept])
    return reshaped(equation, x, after)


def unsqueezed(x: Value, axes: list[int]) -> Value:
    """Insert axes of size 1; if a reduction just removed them, set its ``keepdims`` instead."""
    node = x.producer
    op = _REDUCTIONS.get(node.op_type) if node is not None else None
    if op is None or node is None or node.attributes.get("keepdims", 1) or static(node.inputs[1]) is None:
        return ops.unsqueeze(x, axes)
    rank = x.ndim + len(axes)
    reduced = sorted(int(axis) % rank for axis in static(node.inputs[1]))  # type: ignore[union-attr]
    return op(node.inputs[0], axes, keepdims=1) if reduced == sorted(axes) else ops.unsqueeze(x, axes)


_REDUCTIONS = {"ReduceMax": ops.reduce_max, "ReduceSum": ops.reduce_sum, "ReduceMin": ops.reduce_min}


def _is_one(dim: Any) -> bool:
    return is_static((dim,)) and int(dim) == 1


@rule("squeeze", moves=True)
def squeeze_rule(equation: Any, x: Value, *, dimensions: Any, **_: Any) -> Value:
    return ops.squeeze(x, [int(d) for d in dimensions]) if len(dimensions) else x


@rule("expand_dims", moves=True)
def expand_dims_rule(equation: Any, x: Value, *, dimensions: Any, **_: Any) -> Value:
    return ops.unsqueeze(x, [int(d) for d in dimensions]) if len(dimensions) else x


@rule("transpose", moves=True)
def transpose_rule(equation: Any, x: Value, *, permutation: Any, **_: Any) -> Value:
    return transposed(x, permutation)


def transposed(x: Value, permutation: Any) -> Value:
    perm = [int(axis) for axis in permutation]
    return x if perm == sorted(perm) else ops.transpose(x, perm=perm)


@rule("broadcast_in_dim", moves=True)
def broadcast_in_dim_rule(equation: Any, x: Value, *_: Any, broadcast_dimensions: Any, **__: Any) -> Value:
    shape = equation.shape
    where = [int(axis) for axis in broadcast_dimensions]
    added = [axis for axis in range(len(shape)) if axis not in where]
    x = transposed(x, np.argsort(where))
    x = unsqueezed(x, added) if added and where else x
    dims = dict(zip(where, equation.ins[0].shape, strict=True))
    if where and all(same(dim, dims.get(axis, 1)) for axis, dim in enumerate(shape)):
        return x
    if not where and all(_is_one(dim) for dim in shape):
        return ops.reshape(x, [1] * len(shape)) if shape else x
    return ops.expand(x, equation.sizes.vector(shape))


@rule("tile", moves=True)
def tile_rule(equation: Any, x: Value, *, reps: Any, **_: Any) -> Value:
    return ops.tile(x, equation.sizes.vector(reps))


@rule("concatenate", moves=True)
def concatenate_rule(equation: Any, *values: Value, dimension: int, **_: Any) -> Value:
    return values[0] if len(values) == 1 else ops.concat(*values, axis=int(dimension))


@rule("stack", moves=True)
def stack_rule(equation: Any, *values: Value, axis: int = 0, **_: Any) -> Value:
    return ops.concat(*(ops.unsqueeze(value, [int(axis)]) for value in values), axis=int(axis))


@rule("unstack", moves=True)
def unstack_rule(equation: Any, x: Value, *, axis: int = 0, **_: Any) -> Any:
    return [ops.gather(x, constant(np.asarray(k, np.int64)), axis=int(axis)) for k in range(len(equation.outs))]


@rule("split", moves=True)
def split_rule(equation: Any, x: Value, *, sizes: Any, axis: int, **_: Any) -> Any:
    result, start = [], 0
    for size in sizes:
        result.append(piece(x, axis, equation.sizes.size(start), equation.sizes.size(start + size)))
        start = start + size
    return result


@rule("rev", moves=True)
def rev_rule(equation: Any, x: Value, *, dimensions: Any, **_: Any) -> Value:
    axes = [int(d) for d in dimensions]
    if not axes:
        return x
    last = np.iinfo(np.int64)
    return ops.slice_(x, [-1] * len(axes), [last.min] * len(axes), axes, [-1] * len(axes))


def vector_of(size: Size) -> Any:
    return [size] if isinstance(size, int) else ops.unsqueeze(size, [0])


def piece(x: Value, axis: int, start: Size, end: Size) -> Value:
    """The elements from ``start`` to ``end`` along an axis."""
    return ops.slice_(x, vector_of(start), vector_of(end), [axis])


@rule("slice", moves=True)
def slice_rule(equation: Any, x: Value, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Value:
    shape = equation.ins[0].shape
    steps = strides or [1] * len(shape)
    axes = [
        axis
        for axis, (start, end, step) in enumerate(zip(start_indices, limit_indices, steps, strict=True))
        if not (step == 1 and same(start, 0) and same(end, shape[axis]))
    ]
    if not axes:
        return x
    found = [equation.sizes.vector([each[axis] for axis in axes]) for each in (start_indices, limit_indices, steps)]
    return ops.slice_(x, found[0], found[1], axes, found[2]) if strides else ops.slice_(x, found[0], found[1], axes)


@rule("pad", moves=True)
def pad_rule(equation: Any, x: Value, filling: Value, *, padding_config: Any, **_: Any) -> Value:
    return padded(equation, x, filling, padding_config)


def padded(equation: Any, x: Value, filling: Value, config: Any) -> Value:
    """Pad each axis by (low, high, interior), as ``lax.pad`` does; negative ``low`` and ``high`` cut elements off."""
    for axis, (_, _, inner) in enumerate(config):
        if not same(inner, 0):
            x = _dilated(equation, x, filling, axis, inner)
    grown = [[0 if is_static((n,)) and n < 0 else n for n in each[:2]] for each in config]
    if any(not same(n, 0) for each in grown for n in each):
        pads = equation.sizes.vector([each[0] for each in grown] + [each[1] for each in grown])
        x = _padded(x, pads, filling)
    for axis, (low, high, _) in enumerate(config):
        start = -int(low) if is_static((low,)) and low < 0 else 0
        end = int(high) if is_static((high,)) and high < 0 else np.iinfo(np.int64).max
        if start or end < 0:
            x = ops.slice_(x, [start], [end], [axis])
    return x


def _padded(x: Value, pads: Any, filling: Value) -> Value:
    if x.dtype is DType.bool:
        return ops.cast(ops.pad(ops.cast(x, to=DType.int32), pads, ops.cast(filling, to=DType.int32)), to=DType.bool)
    return widened(lambda x, filling: ops.pad(x, pads, filling), SIXTEEN_BITS, x, filling)


def _dilated(equation: Any, x: Value, filling: Value, axis: int, inner: Any) -> Value:
    """Insert ``inner`` fill values between adjacent elements along an axis."""
    rank = len(equation.ins[0].shape) if x.rank is None else x.ndim
    apart = ops.unsqueeze(x, [axis + 1])
    pads = [0] * (2 * rank + 2)
    pads[rank + 1 + axis + 1] = int(inner)
    wide = _padded(apart, pads, filling)
    sizes = ops.shape(x)
    parts = [ops.slice_(sizes, [k], [k + 1], [0]) for k in range(rank)]
    parts[axis] = ops.mul(parts[axis], constant(np.asarray([int(inner) + 1], np.int64)))
    joined = ops.reshape(wide, ops.concat(*parts, axis=0) if rank > 1 else parts[0])
    end = ops.maximum(
        ops.sub(parts[axis], constant(np.asarray([int(inner)], np.int64))), constant(np.zeros(1, np.int64))
    )
    return ops.slice_(joined, [0], end, [axis])


@rule("iota")
def iota_rule(equation: Any, *_: Any, dtype: Any, shape: Any, dimension: int, **__: Any) -> Value:
    return counted(equation, equation.shape, int(dimension), equation.dtype)


def counted(equation: Any, shape: Any, axis: int, dtype: DType = DType.int64) -> Value:
    """Positions along an axis, broadcast to ``shape``, whose dims are those of JAX."""
    length = equation.sizes.size(shape[axis])
    row = constant(np.arange(length)) if isinstance(length, int) else ops.range_(0, length, 1)
    row = ops.cast(row, to=dtype) if row.dtype is not dtype else row
    others = [k for k in range(len(shape)) if k != axis]
    row = ops.unsqueeze(row, others) if others else row
    return row if all(_is_one(shape[k]) for k in others) else ops.expand(row, equation.sizes.vector(shape))


@rule("dim_as_value")
def dim_as_value_rule(equation: Any, *_: Any, dim: Any, **__: Any) -> Value:
    return ops.cast(equation.sizes.value(dim), to=equation.dtype)


@rule("empty", "empty2", "create_token")
def empty_rule(equation: Any, *_: Any, **__: Any) -> Value:
    zero = constant(np.zeros((), equation.dtype.numpy))
    return ops.expand(zero, equation.sizes.vector(equation.shape)) if equation.shape else zero


# ----- slices at dynamic positions ------------------------------------------------------------------------------------


def clamped_start(equation: Any, start: Value, length: Any, size: Any) -> Size:
    """Start of a slice of ``size`` along an axis of ``length``, clamped so that the slice fits, as XLA does."""
    if same(length, size):
        return 0
    contents = static(start)
    last = equation.sizes.size(length - size)
    if contents is not None and isinstance(last, int):
        return min(max(int(contents), 0), last)
    return smallest(largest(ops.cast(start, to=DType.int64), 0), last)


@rule("dynamic_slice", moves=True)
def dynamic_slice_rule(equation: Any, x: Value, *given: Value, slice_sizes: Any, **_: Any) -> Value:
    shape, rank = equation.ins[0].shape, len(equation.ins[0].shape)
    axes = [axis for axis in range(rank) if not same(shape[axis], slice_sizes[axis])]
    starts = [clamped_start(equation, given[axis], shape[axis], slice_sizes[axis]) for axis in axes]
    if not axes:
        return x
    ends = [start + equation.sizes.size(slice_sizes[axis]) for start, axis in zip(starts, axes, strict=True)]
    return ops.slice_(x, equation.sizes.sizes(starts), equation.sizes.sizes(ends), axes)


@rule("dynamic_update_slice", moves=True)
def dynamic_update_slice_rule(equation: Any, x: Value, update: Value, *given: Value, **_: Any) -> Value:
    shape, sizes = equation.ins[0].shape, equation.ins[1].shape
    starts = [clamped_start(equation, s, n, size) for s, n, size in zip(given, shape, sizes, strict=True)]
    axes = [axis for axis in range(len(shape)) if not same(shape[axis], sizes[axis])]

    def updated(x: Value, axes: list[int]) -> Value:
        if not axes:
            return update
        axis, start = axes[0], starts[axes[0]]
        end = start + equation.sizes.size(sizes[axis])
        inner = updated(piece(x, axis, start, end) if axes[1:] else x, axes[1:])
        last = np.iinfo(np.int64).max
        return ops.concat(piece(x, axis, 0, start), inner, piece(x, axis, end, last), axis=axis)

    return updated(x, axes)


@of_parts("select_n")
def select_n_of_parts(equation: Any, which: Value, *cases: Any, **_: Any) -> Any:
    from tenonnx_jax.rules import RULES
    from tenonnx_jax.types import Parts

    return Parts(RULES["select_n"](equation, which, *columns) for columns in zip(*cases, strict=True))


__all__ = ["clamped_start", "counted", "padded", "piece", "reshaped", "scalar", "transposed"]
