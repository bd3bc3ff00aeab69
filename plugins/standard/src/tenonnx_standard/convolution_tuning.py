"""The fastest form of each convolution gradient, as measured."""

from __future__ import annotations

import math
from typing import Any

from tenonnx.extend import DType, Value, dims, symbolic
from tenonnx_standard.windows import Windows

#: Up to this many channels per group, multiply all columns of a weight gradient at once, else tap by tap.
FEW_CHANNELS = 8

#: From this many weights per output channel on, compute their gradient as a convolution, which runtimes do faster.
MANY_COLUMNS = 64

#: Up to this many positions per image, the gradient of images is one product over all of them.
FEW_POSITIONS_AT_ONCE = 4

#: Weights needed to make up for the added nodes: with few positions, or for each position otherwise.
MANY_WEIGHTS, MANY_WEIGHTS_FOR_EACH = 1 << 12, 40_000

#: Largest table of zeros and ones, in elements.
LARGEST_TABLE = 1 << 16

#: Kernels with more places compute their weight gradient as a convolution, to bound the number of nodes.
MANY_PLACES = 64

#: Up to this many positions per image, the weight gradient of a pointwise kernel is a convolution.
FEW_POSITIONS_OF_ONE_PLACE = 128


def takes_images_at_once(X: Value, g: Value, W: Value, window: Windows) -> bool:
    """Whether to multiply all images at once: runtimes transpose image by image, rereading large weights each time."""
    sizes, outputs = X.shape[2:], g.shape[2:]
    if not all(isinstance(n, int) and n > 0 for n in (*W.shape, *sizes, *outputs)):
        return False
    positions = math.prod(outputs)
    many = MANY_WEIGHTS if positions <= FEW_POSITIONS_AT_ONCE else MANY_WEIGHTS_FOR_EACH * positions
    return math.prod(W.shape) >= many and math.prod((*sizes, *outputs, *window.kernel)) <= LARGEST_TABLE


def multiplies_columns_at_once(channels: Any, group: int, places: int) -> bool:
    """Whether the columns of all places of a kernel are multiplied in one product."""
    return isinstance(channels, int) and channels // group <= FEW_CHANNELS and places > 1


def convolves_weights(X: Value, dY: Value, window: Windows, group: int) -> bool:
    """Whether to compute a weight gradient as one convolution: faster, or required by a kernel with too many places."""
    places, outputs = math.prod(window.kernel), dims(dY)[2:]
    depth = symbolic.floor_div(X.shape[1], group)
    if not isinstance(depth, int) or not all(isinstance(n, int) and n > 0 for n in outputs):
        return False
    many = places * depth >= MANY_COLUMNS and (places > 1 or math.prod(outputs) <= FEW_POSITIONS_OF_ONE_PLACE)
    in_vain = window.dilations[-1] > 2 or X.dtype is DType.float64  # runtimes have no fast convolution for these
    return places > MANY_PLACES or (many and not in_vain)
