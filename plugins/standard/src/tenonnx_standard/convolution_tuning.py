"""The fastest form of each convolution gradient, as measured."""

from __future__ import annotations

import math
from typing import Any

from tenonnx.extend import DType, Value, dims, symbolic
from tenonnx_standard.windows import Windows

#: Up to so many channels in a group, all columns of a weight gradient are multiplied at once, else tap by tap.
FEW_CHANNELS = 8

#: From so many weights for a result on, their gradient is a convolution, with which runtimes are faster.
MANY_COLUMNS = 64

#: Up to so many positions of an image, the gradient of images is one product over all of them.
FEW_POSITIONS_AT_ONCE = 4

#: With fewer weights it is not worth its nodes; with so many for each position it is, whatever their number.
MANY_WEIGHTS, MANY_WEIGHTS_FOR_EACH = 1 << 12, 40_000

#: The table of what reads what may have so many elements there.
LARGEST_TABLE = 1 << 16

#: Beyond so many places of the kernel a weight gradient is a convolution in any case, and not written place by place.
MANY_PLACES = 64

#: Up to so many positions of an image, the weight gradient of a kernel of a single place is a convolution, too.
FEW_POSITIONS_OF_ONE_PLACE = 128


def takes_images_at_once(X: Value, g: Value, W: Value, window: Windows) -> bool:
    """Whether runtimes, which transpose a convolution image by image, would mostly read its weights again and again."""
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
    """Whether a weight gradient is one convolution: faster than products, or of more places than are written out."""
    places, outputs = math.prod(window.kernel), dims(dY)[2:]
    depth = symbolic.floor_div(X.shape[1], group)
    if not isinstance(depth, int) or not all(isinstance(n, int) and n > 0 for n in outputs):
        return False
    many = places * depth >= MANY_COLUMNS and (places > 1 or math.prod(outputs) <= FEW_POSITIONS_OF_ONE_PLACE)
    in_vain = window.dilations[-1] > 2 or X.dtype is DType.float64  # for which runtimes have no convolutions
    return places > MANY_PLACES or (many and not in_vain)
