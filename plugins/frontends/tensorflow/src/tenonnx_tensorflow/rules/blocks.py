"""Moving blocks of images to the batch or to channels, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, static
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.shapes import LAST
from tenonnx_tensorflow.tracked_values import int64, integers


@rule("SpaceToBatchND", interpreter=True)
def space_to_batch(interpreter: Any, node: Any, x: Value, block: Value, ends: Value) -> Value:
    """Move blocks of images to the batch."""
    blocks = integers(block, "the sizes of blocks")
    count, rank = len(blocks), x.ndim
    padded = _padded(x, count, ends)
    sizes, rest = ops.shape(padded), range(1 + count, rank)
    wholes = [ops.div(_part(sizes, k + 1), constant(np.asarray([n]))) for k, n in enumerate(blocks)]
    shape = [_part(sizes, 0)]
    for whole, n in zip(wholes, blocks, strict=True):
        shape += [whole, constant(np.asarray([n]))]
    split_blocks = ops.reshape(padded, ops.concat(*shape, *(_part(sizes, k) for k in rest), axis=0))
    inner = [2 + 2 * k for k in range(count)]
    outer = [1 + 2 * k for k in range(count)]
    turned = ops.transpose(split_blocks, perm=[*inner, 0, *outer, *range(1 + 2 * count, 1 + 2 * count + len(rest))])
    batch = ops.mul(_part(sizes, 0), constant(np.asarray([int(np.prod(blocks))])))
    result = ops.reshape(turned, ops.concat(batch, *wholes, *(_part(sizes, k) for k in rest), axis=0))
    interpreter.state.blocks[result] = (x, blocks, ends)
    return result


@rule("BatchToSpaceND", interpreter=True)
def batch_to_space(interpreter: Any, node: Any, x: Value, block: Value, ends: Value) -> Value:
    """Move the batch back to blocks of images; around a convolution, this becomes a dilated convolution."""
    blocks = integers(block, "the sizes of blocks")
    count, rank = len(blocks), x.ndim
    dilated = _dilated(interpreter.state.blocks, x, blocks)
    if dilated is not None:
        return _cropped(dilated, count, ends)
    sizes, rest = ops.shape(x), range(1 + count, rank)
    batch = ops.div(_part(sizes, 0), constant(np.asarray([int(np.prod(blocks))])))
    heads = [constant(np.asarray([n])) for n in blocks]
    split_blocks = ops.reshape(x, ops.concat(*heads, batch, *(_part(sizes, k) for k in range(1, rank)), axis=0))
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    turned = ops.transpose(split_blocks, perm=[*order, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    grown = [ops.mul(_part(sizes, k + 1), constant(np.asarray([n]))) for k, n in enumerate(blocks)]
    whole = ops.reshape(turned, ops.concat(batch, *grown, *(_part(sizes, k) for k in rest), axis=0))
    return _cropped(whole, count, ends)


def _padded(x: Value, count: int, ends: Value) -> Value:
    """Pad axes 1 to ``count`` by zeros, with amounts that may be dynamic."""
    amounts = static(ends)
    if amounts is not None:
        pads = np.zeros((x.ndim, 2), np.int64)
        pads[1 : 1 + count] = np.asarray(amounts).reshape(count, 2)
        return ops.pad(x, constant(np.concatenate([pads[:, 0], pads[:, 1]]))) if pads.any() else x
    columns = (ops.gather(int64(ends), constant(np.asarray(k)), axis=1) for k in (0, 1))
    before, behind = (constant(np.zeros(n, np.int64)) for n in (1, x.ndim - 1 - count))
    return ops.pad(x, ops.concat(*(part for each in columns for part in (before, each, behind)), axis=0))


def _cropped(x: Value, count: int, ends: Value) -> Value:
    axes, amounts = list(range(1, 1 + count)), static(ends)
    if amounts is None:
        first, last = (ops.gather(int64(ends), constant(np.asarray(k)), axis=1) for k in (0, 1))
        sizes = ops.slice_(ops.shape(x), [1], [1 + count], [0])
        return ops.slice_(x, first, ops.sub(sizes, last), axes)
    pairs = np.asarray(amounts).reshape(count, 2).tolist()
    cut = [(axis, int(a), -int(b) if b else LAST) for axis, (a, b) in zip(axes, pairs, strict=True) if a or b]
    return ops.slice_(x, [a for _, a, _ in cut], [b for _, _, b in cut], [k for k, _, _ in cut]) if cut else x


def _dilated(padded: dict[Value, Any], x: Value, blocks: list[int]) -> Value | None:
    """A dilated convolution that replaces one on blocks; None for other ops, or one with strides."""
    chain: list[Any] = []
    while x not in padded:
        node = x.producer
        first = node.inputs[0] if node is not None and node.inputs else None
        if node is None or first is None or node.op_type not in ("Conv", "Transpose", "Unsqueeze", "Squeeze"):
            return None
        chain.insert(0, node)
        x = first
    image, others, ends = padded[x]
    convolutions = [node.attributes for node in chain if node.op_type == "Conv"]
    plain = len(convolutions) == 1 and all(
        not any(given - least for given in convolutions[0].get(name, []))
        for name, least in (("strides", 1), ("dilations", 1), ("pads", 0))
    )
    if others != blocks or not plain or convolutions[0].get("auto_pad", "NOTSET") != "NOTSET":
        return None
    result = _padded(image, len(blocks), ends)
    for node in chain:
        if node.op_type == "Conv":
            dilations = [1] * (result.ndim - 2 - len(blocks)) + blocks
            result = ops.conv(result, *node.inputs[1:], group=node.attributes.get("group", 1), dilations=dilations)
        elif node.op_type == "Transpose":
            result = ops.transpose(result, perm=node.attributes["perm"])
        else:
            result = (ops.squeeze if node.op_type == "Squeeze" else ops.unsqueeze)(result, node.inputs[1])
    return result


def _part(sizes: Value, axis: int) -> Value:
    return ops.gather(sizes, [axis])


@rule("SpaceToDepth", "DepthToSpace")
def depth(node: Any, x: Value) -> Value:
    block, layout = int(node["block_size"]), node.get("data_format", "NHWC")
    if layout == "NHWC":
        x = ops.transpose(x, perm=[0, 3, 1, 2])
    result = (
        ops.space_to_depth(x, blocksize=block) if node.op == "SpaceToDepth" else ops.depth_to_space(x, blocksize=block)
    )
    return ops.transpose(result, perm=[0, 2, 3, 1]) if layout == "NHWC" else result
