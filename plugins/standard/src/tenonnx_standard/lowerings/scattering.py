"""Lowerings of scattering, SpaceToDepth and DepthToSpace to other ops."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant
from tenonnx_standard.lowerings.movement import runs
from tenonnx_standard.lowerings.registry import (
    count,
    cut,
    joined,
    like,
    lowering,
    numbers,
    of_floats,
    sizes,
    unless,
    within,
)


def _written(op: Any, data: Value, indices: Value, updates: Any, **attributes: Any) -> Any:
    """Zeros with the shape of ``data`` and the updates scattered into them at constant indices."""
    shape = sizes(data)
    unless(not 0 < np.prod(shape) <= 1 << 20)
    zeros = constant(np.zeros(shape, updates.dtype))
    return numbers(op(zeros, constant(numbers(indices)), constant(updates), **attributes))


def _by_where(op: Any, data: Value, indices: Value, updates: Value, *, reduction: str, **attributes: Any) -> Any:
    """For constant updates at constant indices."""
    unless(reduction != "none")
    given = numbers(updates)
    marks = _written(op, data, indices, np.ones(given.shape, np.float32), **attributes) != 0
    return ops.where(constant(marks), like(data, _written(op, data, indices, given, **attributes)), data)


def _by_add(op: Any, data: Value, indices: Value, updates: Value, *, reduction: str, **attributes: Any) -> Any:
    """For constant updates at constant indices."""
    unless(reduction != "add")
    return ops.add(data, like(data, _written(op, data, indices, numbers(updates), reduction=reduction, **attributes)))


lowering(ops.scatter_elements)(partial(_by_where, ops.scatter_elements))
lowering(ops.scatter_nd)(partial(_by_where, ops.scatter_nd))
lowering(ops.scatter_elements, "rounding")(partial(_by_add, ops.scatter_elements))
lowering(ops.scatter_nd, "rounding")(partial(_by_add, ops.scatter_nd))


@lowering(ops.scatter_nd)
def scatter_nd_by_concat(data, indices, updates, *, reduction):
    """For rows at constant indices: concatenated runs of rows of the data and of the updates."""
    at, size = numbers(indices), sizes(data)[0]
    unless(reduction != "none" or at.ndim != 2 or at.shape[1] != 1)
    sources = np.arange(size)
    for place, row in enumerate(at[:, 0]):
        sources[within(int(row), size)] = size + place
    ranges = [part for each in runs(sources) for part in _parted(each, size)]
    count([len(ranges)])
    return joined([_rows(data, updates, each, size) for each in ranges], 0)


def _parted(each: range, size: int) -> list[range]:
    """A run of rows, split where it passes from the data to the updates."""
    if each.start < size < each.stop:
        return [range(each.start, size), range(size, each.stop)]
    return [each]


def _rows(data: Value, updates: Value, each: range, size: int) -> Value:
    if each.start < size:
        return cut(data, 0, each.start, each.stop)
    return cut(updates, 0, each.start - size, each.stop - size)


# ----- SpaceToDepth and DepthToSpace ----------------------------------------------------------------------------------


@lowering(ops.space_to_depth)
def space_to_depth_by_slices(input, *, blocksize, mode):
    """One slice for each position in a block."""
    unless(mode != "DCR" or input.rank != 4)
    count([blocksize, blocksize])
    height, width = sizes(input)[2:]
    parts = [
        cut(cut(input, 2, row, height, blocksize), 3, column, width, blocksize)
        for row, column in product(range(blocksize), repeat=2)
    ]
    return joined(parts, 1)


@lowering(ops.space_to_depth, "finite")
def space_to_depth_by_conv(input, *, blocksize, mode):
    """One filter for each position in a block and channel."""
    of_floats(input)
    unless(mode != "DCR")
    channels = sizes(input)[1]
    weights = np.eye(blocksize**2 * channels).reshape(-1, blocksize, blocksize, channels).transpose(0, 3, 1, 2)
    return ops.conv(input, like(input, weights), strides=[blocksize, blocksize])


@lowering(ops.depth_to_space, "finite")
def depth_to_space_by_conv_transpose(input, *, blocksize, mode):
    """One filter for each channel, with a 1 at its position in the block."""
    of_floats(input)
    given = sizes(input)[1]
    channels, eye = given // blocksize**2, np.eye(given)
    if mode == "DCR":
        weights = eye.reshape(given, blocksize, blocksize, channels).transpose(0, 3, 1, 2)
    else:
        weights = eye.reshape(given, channels, blocksize, blocksize)
    return ops.conv_transpose(input, like(input, weights), strides=[blocksize, blocksize])
