"""Ops that move elements between axes, or along one."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    Dim,
    Index,
    Value,
    at_least,
    differ,
    dims,
    divides,
    holds,
    one_of,
    op,
    shapes,
)
from tenonnx_standard.checking import Array, numpy_rule
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import where
from tenonnx_standard.shapes import transpose, unsqueeze
from tenonnx_standard.slicing import gather

# ----- depth and space ------------------------------------------------------------------------------------------------

#: Order of the axes of the split depth (N, depth, block rows, block columns, H, W), by mode.
_SPLIT_DEPTH = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}


def _to_space(sizes: Any, block: int, mode: str) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """Parameters of DepthToSpace: the shape to split to, the permutation, the shape to merge to."""
    n, c, h, w = sizes
    depth = c // (block * block)
    split = [n, block, block, depth, h, w] if mode == "DCR" else [n, depth, block, block, h, w]
    return split, _SPLIT_DEPTH[mode], [n, depth, h * block, w * block]


def _to_depth(sizes: Any, block: int, mode: str) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """Parameters of SpaceToDepth, in the same form."""
    n, c, h, w = sizes
    order = _SPLIT_DEPTH[mode]
    back = tuple(order.index(k) for k in range(6))
    return [n, c, h // block, block, w // block, block], back, [n, c * (block * block), h // block, w // block]


def _is_divided(depth: Dim, blocksize: int) -> str | None:
    return (
        "depth is not a multiple of blocksize * blocksize" if isinstance(depth, int) and depth % blocksize**2 else None
    )


def _rearranged(parts: tuple[Any, Any, Any], x: Array) -> Array:
    split, order, joined = parts
    return x.reshape(split).transpose(order).reshape(joined)


@op("DepthToSpace", data_movement=True)
def depth_to_space(input, *, blocksize: int, mode="DCR"):
    """Move blocks of channels into space; ``mode`` is their order within the depth."""
    split, order, joined = _to_space(dims(input), blocksize, mode)
    return ops.as_shape(transpose(ops.as_shape(input, split), perm=order), joined)


@op("SpaceToDepth", data_movement=True)
def space_to_depth(input, *, blocksize: int, mode="DCR"):
    """Move blocks of pixels into channels: the inverse of DepthToSpace."""
    split, order, joined = _to_depth(dims(input), blocksize, mode)
    return ops.as_shape(transpose(ops.as_shape(input, split), perm=order), joined)


depth_to_space.until(11, lacks=["mode"])
space_to_depth.until(28, lacks=["mode"])


_IMAGES = shapes(input="batch depth height width"), at_least(blocksize=1), one_of(mode=_SPLIT_DEPTH)
space_to_depth.requires(*_IMAGES, divides("blocksize", "height"), divides("blocksize", "width"))
depth_to_space.requires(*_IMAGES, holds(_is_divided))


@numpy_rule(depth_to_space)
def depth_to_space_numpy(x, *, blocksize, mode):
    return _rearranged(_to_space(x.shape, blocksize, mode), x)


@numpy_rule(space_to_depth)
def space_to_depth_numpy(x, *, blocksize, mode):
    return _rearranged(_to_depth(x.shape, blocksize, mode), x)


@depth_to_space.vjp
def depth_to_space_vjp(g, y, input, *, blocksize, mode):
    return space_to_depth(g, blocksize=blocksize, mode=mode)


@space_to_depth.vjp
def space_to_depth_vjp(g, y, input, *, blocksize, mode):
    return depth_to_space(g, blocksize=blocksize, mode=mode)


# ----- along an axis --------------------------------------------------------------------------------------------------


@op("ReverseSequence", since=10, data_movement=True)
def reverse_sequence(input, sequence_lens: Index, *, batch_axis=1, time_axis=0):
    """Reverse the first ``sequence_lens[i]`` elements of sample ``i``; the others stay."""
    batch, time, *rest = dims(transpose(input, perm=_batch_first(input.ndim, batch_axis)))
    steps, ends = range_(0, time, 1), unsqueeze(sequence_lens, [1])
    flipped = where(steps < ends, ends - 1 - steps, steps)
    places = flipped + unsqueeze(range_(0, batch, 1), [1]) * time
    rows = ops.as_shape(transpose(input, perm=_batch_first(input.ndim, batch_axis)), [batch * time, *rest])
    return transpose(gather(rows, places), perm=_batch_first(input.ndim, batch_axis))


def _batch_fits(input: Value, batch: Dim, batch_axis: int, time_axis: int) -> str | None:
    if {batch_axis, time_axis} != {0, 1}:
        return "batch_axis and time_axis are not 0 and 1, in either order"
    fits = input.rank is None or not differ(input.shape[batch_axis], batch)
    return None if fits else "sequence_lens does not have one length for each sample"


def _batch_first(rank: int, batch_axis: int) -> list[int]:
    """The permutation that puts the batch axis before the time axis; its own inverse."""
    return [batch_axis, 1 - batch_axis, *range(2, rank)]


@reverse_sequence.type
def reverse_sequence_type(input, sequence_lens, *, batch_axis, time_axis):
    """The batch is as long as ``sequence_lens``, which the body cannot infer if neither is known."""
    (batch,), sizes = sequence_lens.tensor.shape or (None,), input.tensor.shape
    if sizes is None or sizes[batch_axis] is not None:
        return input.tensor
    return input.tensor.with_shape(tuple(batch if k == batch_axis else size for k, size in enumerate(sizes)))


reverse_sequence.requires(shapes(input="_ _ ...", sequence_lens="batch"), holds(_batch_fits))


@numpy_rule(reverse_sequence)
def reverse_sequence_numpy(x, lengths, *, batch_axis, time_axis):
    steps, ends = np.arange(x.shape[time_axis]), lengths.reshape(-1, 1)
    places = np.where(steps < ends, ends - 1 - steps, steps)
    samples = np.arange(x.shape[batch_axis])
    return x[samples[:, None], places] if batch_axis == 0 else x[places.T, samples]


reverse_sequence.vjp(lambda g, y, x, lengths, **axes: (reverse_sequence(g, lengths, **axes), None))
