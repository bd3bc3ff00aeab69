"""Ops that newer versions of ai.onnx have, too, some under another name."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import DType, Index, at_least, axis, dims, dtypes, op


@op("ExpandDims", domain="com.microsoft", data_movement=True)
def expand_dims(X, axis):
    """Insert an axis of length one before ``axis``."""
    return ops.unsqueeze(X, ops.cast(ops.reshape(axis, [1]), to=DType.int64))


expand_dims.requires(dtypes(axis="int32"))


@op("GatherND", domain="com.microsoft", data_movement=True)
def gather_nd(data, indices):
    """GatherND without batch dims."""
    return ops.gather_nd(data, ops.cast(indices, to=DType.int64))


@op("Pad", domain="com.microsoft")
def pad(data, pads: Index, value=None, *, mode="constant"):
    """Pad with ``pads`` that may be one row of a matrix, and ``value`` that may be a vector of one element."""
    return ops.pad(data, ops.reshape(pads, [-1]), None if value is None else ops.reshape(value, []), mode=mode)


@op("Range", domain="com.microsoft")
def range_(start, limit, delta=None):
    """Range of scalars or vectors of one element; ``delta`` defaults to 1."""
    first, last = ops.reshape(start, []), ops.reshape(limit, [])
    step = ops.cast_like(1, first) if delta is None else ops.reshape(delta, [])
    return ops.range_(first, last, step)


@op("Trilu", domain="com.microsoft")
def trilu(X, k: Index = None, *, upper=1):
    """Trilu."""
    return ops.trilu(X, k, upper=upper)


@op("Unique", domain="com.microsoft")
def unique(x):
    """The unique elements of a vector in order of first occurrence, the inverse indices, and the counts."""
    y, _, places, counts = ops.unique(x, sorted=0)
    return y, places, counts


@op("SampleOp", domain="com.microsoft", data_movement=True)
def sample_op(X):
    """The identity; a sample op of onnxruntime."""
    return ops.identity(X)


@op("TorchEmbedding", domain="com.microsoft")
def torch_embedding(weight, indices, padding_idx=None, scale_grad_by_freq=None):
    """Rows of ``weight``; the other inputs only affect the gradient and are ignored."""
    return ops.gather(weight, indices)


torch_embedding.traits(on_request=True)


@op("UnfoldTensor", domain="com.microsoft", data_movement=True)
def unfold_tensor(input, *, dim=-1, size: int, step=1):
    """All slices of ``size`` elements along ``dim`` that start at multiples of ``step``, along a new last axis."""
    place = dim % input.ndim
    starts = ops.range_(0, dims(input)[place] - (size - 1), step)
    slices = ops.gather(input, ops.reshape(starts, [-1, 1]) + ops.range_(0, size, 1), axis=place)
    return ops.transpose(slices, perm=[*range(place + 1), *range(place + 2, input.ndim + 1), place + 1])


unfold_tensor.requires(axis("dim", of="input"), at_least(size=1, step=1))
