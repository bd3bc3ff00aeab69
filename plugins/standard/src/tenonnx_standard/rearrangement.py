"""Ops that move elements between axes, or along one."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Index, Op, TensorType, TypeMismatch, Value, dims, op, symbolic
from tenonnx_standard.checking import Array, check_shape, numpy_rule
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import where
from tenonnx_standard.shapes import transpose, unsqueeze
from tenonnx_standard.slicing import gather

# ----- depth and space ------------------------------------------------------------------------------------------------

#: The axes of N, depth, block rows, block columns, H and W among those of the split depth, by mode.
_SPLIT_DEPTH = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}


def _check_image(made: Op, x: Value, blocksize: int, mode: str) -> None:
    if x.rank not in (None, 4) or blocksize < 1:
        raise TypeMismatch(f"{made.title}: input must be images [N, C, H, W]", given=f"{x!r}, blocksize {blocksize}")
    if mode not in _SPLIT_DEPTH:
        raise TypeMismatch(f"{made.title}: unknown mode", given=repr(mode), available=", ".join(_SPLIT_DEPTH))


def _to_space(sizes: Any, block: int, mode: str) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """How depth goes to space: the shape to split to, the order of its axes, the shape to join to."""
    n, c, h, w = sizes
    depth = c // (block * block)
    split = [n, block, block, depth, h, w] if mode == "DCR" else [n, depth, block, block, h, w]
    return split, _SPLIT_DEPTH[mode], [n, depth, h * block, w * block]


def _to_depth(sizes: Any, block: int, mode: str) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """How space goes to depth, in the same parts."""
    n, c, h, w = sizes
    order = _SPLIT_DEPTH[mode]
    back = tuple(order.index(k) for k in range(6))
    return [n, c, h // block, block, w // block, block], back, [n, c * (block * block), h // block, w // block]


def _image_type(
    made: Op, x: Value, blocksize: int, mode: str, *, divided: dict[int, int], multiplied: dict[int, int]
) -> TensorType:
    """The type of the output, some of whose axes are those of the input divided or multiplied by numbers."""
    _check_image(made, x, blocksize, mode)
    kind = x.tensor
    if kind.shape is None:
        return kind.with_shape((None,) * 4)
    found = list(kind.shape)
    for axis, divisor in divided.items():
        rest = symbolic.modulo(found[axis], divisor)
        if isinstance(rest, int) and rest:
            raise TypeMismatch(f"{made.title}: axis {axis} must be a multiple of {divisor}", given=repr(x))
        found[axis] = symbolic.floor_div(found[axis], divisor)
    for axis, factor in multiplied.items():
        found[axis] = symbolic.multiply(found[axis], factor)
    return kind.with_shape(tuple(found))


def _rearranged(parts: tuple[Any, Any, Any], x: Array) -> Array:
    split, order, joined = parts
    return x.reshape(split).transpose(order).reshape(joined)


@op("DepthToSpace", selects=True)
def depth_to_space(input, *, blocksize: int, mode="DCR"):
    """Blocks taken from the depth of images and laid out in space; ``mode`` gives the order within the depth."""
    _check_image(depth_to_space, input, blocksize, mode)
    split, order, joined = _to_space(dims(input), blocksize, mode)
    return ops.as_shape(transpose(ops.as_shape(input, split), perm=order), joined)


@op("SpaceToDepth", selects=True)
def space_to_depth(input, *, blocksize: int, mode="DCR"):
    """Blocks of images laid out in depth: the inverse of DepthToSpace."""
    _check_image(space_to_depth, input, blocksize, mode)
    split, order, joined = _to_depth(dims(input), blocksize, mode)
    return ops.as_shape(transpose(ops.as_shape(input, split), perm=order), joined)


depth_to_space.until(11, lacks=["mode"])
space_to_depth.until(28, lacks=["mode"])


@depth_to_space.type
def _(input, *, blocksize, mode):
    divided, multiplied = {1: blocksize**2}, {2: blocksize, 3: blocksize}
    return _image_type(depth_to_space, input, blocksize, mode, divided=divided, multiplied=multiplied)


@space_to_depth.type
def _(input, *, blocksize, mode):
    divided, multiplied = {2: blocksize, 3: blocksize}, {1: blocksize**2}
    return _image_type(space_to_depth, input, blocksize, mode, divided=divided, multiplied=multiplied)


@numpy_rule(depth_to_space)
def _(x, *, blocksize, mode):
    return _rearranged(_to_space(x.shape, blocksize, mode), x)


@numpy_rule(space_to_depth)
def _(x, *, blocksize, mode):
    return _rearranged(_to_depth(x.shape, blocksize, mode), x)


@depth_to_space.vjp
def _(g, y, input, *, blocksize, mode):
    return space_to_depth(g, blocksize=blocksize, mode=mode)


@space_to_depth.vjp
def _(g, y, input, *, blocksize, mode):
    return depth_to_space(g, blocksize=blocksize, mode=mode)


# ----- along an axis --------------------------------------------------------------------------------------------------


@op("ReverseSequence", since=10, selects=True)
def reverse_sequence(input, sequence_lens: Index, *, batch_axis=1, time_axis=0):
    """The first ``sequence_lens[i]`` elements of sample ``i`` in reverse order, the others where they were."""
    _check_axes(batch_axis, time_axis)
    batch, time, *rest = dims(transpose(input, perm=_batch_first(input.ndim, batch_axis)))
    steps, ends = range_(0, time, 1), unsqueeze(sequence_lens, [1])
    flipped = where(steps < ends, ends - 1 - steps, steps)
    places = flipped + unsqueeze(range_(0, batch, 1), [1]) * time
    rows = ops.as_shape(transpose(input, perm=_batch_first(input.ndim, batch_axis)), [batch * time, *rest])
    return transpose(gather(rows, places), perm=_batch_first(input.ndim, batch_axis))


def _check_axes(batch_axis: int, time_axis: int) -> None:
    if {batch_axis, time_axis} != {0, 1}:
        given = f"batch_axis {batch_axis}, time_axis {time_axis}"
        raise TypeMismatch(f"{reverse_sequence.title}: one of the two axes must be 0 and the other 1", given=given)


def _batch_first(rank: int, batch_axis: int) -> list[int]:
    """The order of axes that puts the batch before the time, which is its own inverse."""
    return [batch_axis, 1 - batch_axis, *range(2, rank)]


@reverse_sequence.type
def _(input, sequence_lens, *, batch_axis, time_axis):
    _check_axes(batch_axis, time_axis)
    if (2 if input.rank is None else input.rank) < 2:
        raise TypeMismatch(f"{reverse_sequence.title}: input must have a batch and a time axis", given=repr(input))
    batch = None if input.rank is None else input.shape[batch_axis]
    check_shape(reverse_sequence, "sequence_lens", sequence_lens, [batch])
    return input.tensor


@numpy_rule(reverse_sequence)
def _(x, lengths, *, batch_axis, time_axis):
    _check_axes(batch_axis, time_axis)
    steps, ends = np.arange(x.shape[time_axis]), lengths.reshape(-1, 1)
    places = np.where(steps < ends, ends - 1 - steps, steps)
    samples = np.arange(x.shape[batch_axis])
    return x[samples[:, None], places] if batch_axis == 0 else x[places.T, samples]


reverse_sequence.vjp(lambda g, y, x, lengths, **axes: (reverse_sequence(g, lengths, **axes), None))
