"""Operators that move elements, and operators on shapes."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, constant, dims, static
from tenonnx_litert.builtins.builtin import as_int64, builtin


@builtin("RESHAPE", "ReshapeOptions", data_movement=True)
def reshape(tensor, shape):
    return ops.reshape(tensor, as_int64(shape), allowzero=1)


@builtin("TRANSPOSE", "TransposeOptions", data_movement=True)
def transpose(x, perm):
    order = static(perm)
    return ops.transpose(x, perm=[int(axis) for axis in np.reshape(order, -1)])


@builtin("CONCATENATION", "ConcatenationOptions", data_movement=True)
def concatenation(*values, axis: int, fused_activation_function="NONE"):
    return ops.concat(*values, axis=axis)


@builtin("SPLIT", "SplitOptions", data_movement=True)
def split(axis, value, *, num_splits: int):
    """Split into ``num_splits`` equal pieces."""
    pieces = ops.split(value, axis=int(np.reshape(static(axis), -1)[0]), num_outputs=num_splits)
    return pieces if isinstance(pieces, tuple) else (pieces,)


@builtin("SPLIT_V", "SplitVOptions", data_movement=True)
def split_v(value, size_splits, axis, *, num_splits: int):
    """Split into pieces of the sizes ``size_splits``."""
    pieces = ops.split(value, as_int64(size_splits), axis=int(np.reshape(static(axis), -1)[0]), _outputs=num_splits)
    return pieces if isinstance(pieces, tuple) else (pieces,)


@builtin("PACK", "PackOptions", data_movement=True)
def pack(*values, axis=0, values_count: int):
    """Stack the tensors along a new axis."""
    return ops.concat(*(ops.unsqueeze(v, [axis]) for v in values), axis=axis)


@builtin("UNPACK", "UnpackOptions", data_movement=True)
def unpack(value, *, axis=0, num: int):
    return tuple(ops.gather(value, k, axis=axis) for k in range(num))


@builtin("SLICE", "SliceOptions", data_movement=True)
def slice_(input, begin, size):
    """``size`` elements starting at ``begin``; a size of -1 means all remaining elements."""
    start, count = as_int64(begin), as_int64(size)
    end = ops.where(count < 0, np.iinfo(np.int64).max, start + count)
    return ops.slice_(input, start, end)


@builtin("STRIDED_SLICE", "StridedSliceOptions", data_movement=True)
def strided_slice(
    input,
    begin,
    end,
    strides,
    *,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
    offset=0,
):
    """Elements from ``begin`` to ``end``.

    Bit k of ``begin_mask`` and ``end_mask`` ignores the bound of axis k; bit k of ``shrink_axis_mask`` removes axis k.
    """
    steps = np.reshape(static(strides), -1)
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    start, stop = as_int64(begin), as_int64(end)
    bits = np.arange(len(steps))
    first = constant(np.where(steps > 0, 0, high).astype(np.int64))
    last = constant(np.where(steps > 0, high, low).astype(np.int64))
    shrunk = (shrink_axis_mask >> bits & 1).astype(bool)
    if begin_mask:
        start = ops.where(constant((begin_mask >> bits & 1).astype(bool)), first, start)
    if shrunk.any():
        one_further = ops.where(ops.equal(start, -1), high, start + 1)
        stop = ops.where(constant(shrunk), one_further, stop)
    if end_mask:
        stop = ops.where(constant((end_mask >> bits & 1).astype(bool) & ~shrunk), last, stop)
    y = ops.slice_(input, start, stop, list(range(len(steps))), constant(steps.astype(np.int64)))
    return ops.squeeze(y, [int(k) for k in np.flatnonzero(shrunk)]) if shrunk.any() else y


@builtin("GATHER", "GatherOptions", data_movement=True)
def gather(params, indices, *, axis=0, batch_dims=0):
    if batch_dims:
        return ops.gather_nd(params, ops.unsqueeze(as_int64(indices), [-1]), batch_dims=batch_dims)
    return ops.gather(params, indices, axis=axis)


@builtin("GATHER_ND", "GatherNdOptions", data_movement=True)
def gather_nd(params, indices):
    return ops.gather_nd(params, as_int64(indices))


@builtin("SCATTER_ND", "ScatterNdOptions")
def scatter_nd(indices, updates, shape):
    """Add the updates to a tensor of zeros."""
    zeros = ops.expand(constant(np.zeros((), updates.dtype.numpy), updates.dtype), as_int64(shape))
    return ops.scatter_nd(zeros, as_int64(indices), updates, reduction="add")


@builtin("DYNAMIC_UPDATE_SLICE", "DynamicUpdateSliceOptions", data_movement=True)
def dynamic_update_slice(operand, update, start_indices):
    """``operand`` with a window replaced by ``update``; ``start_indices`` are clamped so that the window fits."""
    start = as_int64(start_indices)
    shape, part = ops.shape(operand), ops.shape(update)
    start = ops.clip(start, 0) if operand.ndim == 0 else ops.maximum(ops.minimum(start, shape - part), 0)
    y = operand
    mask = ops.pad(ops.expand(True, part), ops.concat(start, shape - part - start, axis=0))
    spread = ops.pad(update, ops.concat(start, shape - part - start, axis=0))
    return ops.where(mask, spread, y)


@builtin("TILE", "TileOptions", data_movement=True)
def tile(input, multiples):
    return ops.tile(input, as_int64(multiples))


@builtin("BROADCAST_TO", "BroadcastToOptions", data_movement=True)
def broadcast_to(input, shape):
    return ops.expand(input, as_int64(shape))


@builtin("BROADCAST_ARGS")
def broadcast_args(s0, s1):
    """The shape to which tensors of two shapes broadcast."""
    zero = constant(np.zeros((), np.bool_))
    return ops.cast(ops.shape(ops.expand(ops.expand(zero, as_int64(s0)), as_int64(s1))), to=s0.dtype)


@builtin("EXPAND_DIMS", "ExpandDimsOptions", data_movement=True)
def expand_dims(input, dim):
    return ops.unsqueeze(input, [int(np.reshape(static(dim), -1)[0])])


@builtin("SQUEEZE", "SqueezeOptions", data_movement=True)
def squeeze(input, *, squeeze_dims: list[int] | None = None):
    return ops.squeeze(input, squeeze_dims)


@builtin("PAD", "PadOptions", data_movement=True)
def pad(tensor, paddings):
    """Pad with zeros; ``paddings`` (rank, 2) are the widths before and after each axis."""
    return ops.pad(tensor, ops.reshape(ops.transpose(as_int64(paddings), perm=[1, 0]), [-1]))


@builtin("PADV2", "PadV2Options", data_movement=True)
def padv2(tensor, paddings, constant_values):
    value = ops.reshape(constant_values, [])
    return ops.pad(tensor, ops.reshape(ops.transpose(as_int64(paddings), perm=[1, 0]), [-1]), value)


@builtin("MIRROR_PAD", "MirrorPadOptions", data_movement=True)
def mirror_pad(input, paddings, *, mode="REFLECT"):
    """Pad with elements mirrored at the edge; SYMMETRIC repeats the edge, REFLECT does not."""
    widths = ops.reshape(ops.transpose(as_int64(paddings), perm=[1, 0]), [-1])
    if mode == "REFLECT":
        return ops.pad(input, widths, mode="reflect")
    amounts = np.reshape(static(widths), (2, -1))
    for axis in range(amounts.shape[1]):
        low, high = (int(n) for n in amounts[:, axis])
        flipped = ops.slice_(input, [-1], [np.iinfo(np.int64).min], [axis], [-1])
        size = dims(input)[axis]
        before = ops.slice_(flipped, [size - low], [size], [axis])
        after = ops.slice_(flipped, [0], [high], [axis])
        input = ops.concat(before, input, after, axis=axis)
    return input


@builtin("REVERSE_V2", "ReverseV2Options", data_movement=True)
def reverse_v2(tensor, axis):
    axes = [int(k) for k in np.reshape(static(axis), -1)]
    low = np.iinfo(np.int64).min
    return ops.slice_(tensor, [-1] * len(axes), [low] * len(axes), axes, [-1] * len(axes))


@builtin("SHAPE", "ShapeOptions")
def shape(input, *, out_type="int32"):
    dims = ops.shape(input)
    return dims if out_type == "int64" else ops.cast(dims, to=DType[out_type])


@builtin("FILL", "FillOptions", data_movement=True)
def fill(dims, value):
    return ops.expand(value, as_int64(dims))


@builtin("RANGE", "RangeOptions")
def range_(start, limit, delta):
    return ops.range_(start, limit, delta)


@builtin("WHERE", "WhereOptions")
def where(condition):
    """The indices of the true elements, one per row."""
    return ops.transpose(ops.non_zero(condition), perm=[1, 0])


@builtin("ONE_HOT", "OneHotOptions")
def one_hot(indices, depth, on_value, off_value, *, axis=-1):
    values = ops.concat(ops.reshape(off_value, [1]), ops.reshape(on_value, [1]), axis=0)
    return ops.one_hot(indices, as_int64(depth), values, axis=axis)
