"""Blocks of images as images of the batch, or as channels."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant
from tenonnx_tensorflow.held import integers, known
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.shapes import LAST


@rule("SpaceToBatchND", "BatchToSpaceND")
def space_to_batch(node: Any, x: Value, block: Value, ends: Value) -> Value:
    """Blocks of the image become images of the batch, and back."""
    blocks = integers(block, "the sizes of blocks")
    amounts = known(ends, "paddings and crops").reshape(len(blocks), 2).astype(np.int64)
    count, rank = len(blocks), x.ndim
    rest = list(range(1 + count, rank))
    if node.op == "SpaceToBatchND":
        pads = np.zeros((rank, 2), np.int64)
        pads[1 : 1 + count] = amounts
        x = ops.pad(x, constant(np.concatenate([pads[:, 0], pads[:, 1]]))) if pads.any() else x
        sizes = ops.shape(x)
        shape = [_part(sizes, 0)]
        for k, n in enumerate(blocks):
            whole = ops.div(_part(sizes, k + 1), constant(np.asarray([n])))
            shape += [whole, constant(np.asarray([n]))]
        shape += [_part(sizes, k) for k in rest]
        apart = ops.reshape(x, ops.concat(*shape, axis=0))
        inner = [2 + 2 * k for k in range(count)]
        outer = [1 + 2 * k for k in range(count)]
        turned = ops.transpose(apart, perm=[*inner, 0, *outer, *range(1 + 2 * count, 1 + 2 * count + len(rest))])
        batch = ops.mul(_part(sizes, 0), constant(np.asarray([int(np.prod(blocks))])))
        wholes = [ops.div(_part(sizes, k + 1), constant(np.asarray([n]))) for k, n in enumerate(blocks)]
        return ops.reshape(turned, ops.concat(batch, *wholes, *(_part(sizes, k) for k in rest), axis=0))
    sizes = ops.shape(x)
    batch = ops.div(_part(sizes, 0), constant(np.asarray([int(np.prod(blocks))])))
    heads = [constant(np.asarray([n])) for n in blocks]
    apart = ops.reshape(x, ops.concat(*heads, batch, *(_part(sizes, k) for k in range(1, rank)), axis=0))
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    turned = ops.transpose(apart, perm=[*order, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    grown = [ops.mul(_part(sizes, k + 1), constant(np.asarray([n]))) for k, n in enumerate(blocks)]
    whole = ops.reshape(turned, ops.concat(batch, *grown, *(_part(sizes, k) for k in rest), axis=0))
    cut = [(k + 1, int(a), -int(b) if b else LAST) for k, (a, b) in enumerate(amounts) if a or b]
    return ops.slice_(whole, [a for _, a, _ in cut], [b for _, _, b in cut], [k for k, _, _ in cut]) if cut else whole


def _part(sizes: Value, axis: int) -> Value:
    return ops.gather(sizes, [axis])


@rule("SpaceToDepth", "DepthToSpace")
def depth(node: Any, x: Value) -> Value:
    block, layout = int(node["block_size"]), node.get("data_format", "NHWC")
    if layout == "NHWC":
        x = ops.transpose(x, perm=[0, 3, 1, 2])
    found = (
        ops.space_to_depth(x, blocksize=block) if node.op == "SpaceToDepth" else ops.depth_to_space(x, blocksize=block)
    )
    return ops.transpose(found, perm=[0, 2, 3, 1]) if layout == "NHWC" else found
