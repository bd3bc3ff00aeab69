"""Ops that move elements between axes, or along one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, dims, op
from tenonnx.graph import dims as dim
from tenonnx_standard.checking import Array, numpy_rule
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import where
from tenonnx_standard.shape import as_shape, reshape_like, transpose
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


def _rearranged(made: Op, parts: Callable[..., Any], shrinks: tuple[int, ...]) -> None:
    """Type and numpy rules of an op that splits, transposes and joins axes; those that shrink must be divisible."""

    @made.type
    def _(input: Value, *, blocksize: int, mode: str) -> TensorType:
        _check_image(made, input, blocksize, mode)
        kind = input.tensor
        if kind.shape is None:
            return kind.with_shape((None,) * 4)
        divisor = blocksize ** (2 // len(shrinks))
        for axis in shrinks:
            rest = dim.modulo(kind.shape[axis], divisor)
            if isinstance(rest, int) and rest:
                raise TypeMismatch(f"{made.title}: axis {axis} must be a multiple of {divisor}", given=repr(input))
        found = [
            dim.floor_div(size, divisor) if axis in shrinks else size and dim.multiply(size, blocksize * blocksize // divisor)
            for axis, size in enumerate(kind.shape)
        ]
        return kind.with_shape((kind.shape[0], *found[1:]))

    @numpy_rule(made)
    def _(x: Array, *, blocksize: int, mode: str) -> Array:
        split, order, joined = parts(x.shape, blocksize, mode)
        return x.reshape(split).transpose(order).reshape(joined)


@op("DepthToSpace", selects=True)
def depth_to_space(input, *, blocksize, mode="DCR"):
    """Blocks taken from the depth of images and laid out in space; ``mode`` tells which axis of the depth is outermost."""
    _check_image(depth_to_space, input, blocksize, mode)
    split, order, joined = _to_space(dims(input), blocksize, mode)
    return as_shape(transpose(as_shape(input, split), perm=order), joined)


@op("SpaceToDepth", selects=True)
def space_to_depth(input, *, blocksize, mode="DCR"):
    """Blocks of images laid out in depth: the inverse of DepthToSpace."""
    _check_image(space_to_depth, input, blocksize, mode)
    split, order, joined = _to_depth(dims(input), blocksize, mode)
    return as_shape(transpose(as_shape(input, split), perm=order), joined)


depth_to_space.until(11, lacks=["mode"])
space_to_depth.until(28, lacks=["mode"])
