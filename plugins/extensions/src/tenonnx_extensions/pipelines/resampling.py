"""Resizing like Pillow in ``ai.onnx``: the same weights, fixed-point sums and rounding between the two passes.

Source: Pillow, ``src/libImaging/Resample.c``, and ``Geometry.c`` for nearest. ``Resize`` of ONNX with ``antialias`` is
similar, but lacks Lanczos and does not round between the passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, subgraph

#: One in Pillow's fixed-point format with 22 fractional bits.
_ONE = float(1 << 22)


@dataclass(frozen=True)
class Filter:
    """A filter: its weight as a function of distance, float64, and its support."""

    weight: Callable[[Value], Value]
    support: float


def _box(x: Value) -> Value:
    return ops.cast(ops.and_(x > -0.5, x <= 0.5), to="float64")


def _triangle(x: Value) -> Value:
    return ops.maximum(1.0 - ops.absolute(x), 0.0)


def _hamming(x: Value) -> Value:
    # Few runtimes have Cos for float64.
    window = 0.54 + 0.46 * ops.sin(math.pi / 2 - x * math.pi)
    return ops.where(ops.absolute(x) < 1.0, _sinc(x) * window, 0.0)


def _cubic(x: Value) -> Value:
    x = ops.absolute(x)
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return ops.where(x < 1.0, near, ops.where(x < 2.0, far, 0.0))


def _lanczos(x: Value) -> Value:
    return ops.where(ops.absolute(x) < 3.0, _sinc(x) * _sinc(x / 3.0), 0.0)


def _sinc(x: Value) -> Value:
    angle = x * math.pi
    is_zero = ops.equal(angle, 0.0)
    return ops.where(is_zero, 1.0, ops.sin(angle) / ops.where(is_zero, 1.0, angle))


#: Filters by Pillow's number; 0 is nearest.
FILTERS = {
    1: Filter(_lanczos, 3.0),
    2: Filter(_triangle, 1.0),
    3: Filter(_cubic, 2.0),
    4: Filter(_box, 0.5),
    5: Filter(_hamming, 1.0),
}


def resize(pixels: Value, height: Value, width: Value, resample: int) -> Value:
    """Resize images by a filter, given by its number in Pillow.

    ``pixels`` and the result are float64[batch, channels, rows, columns] with integers from 0 to 255.
    ``height`` and ``width`` are int64 scalars.
    """
    rows, columns = ops.shape(pixels)[2], ops.shape(pixels)[3]
    if resample == 0:
        pixels = ops.gather(pixels, _nearest(rows, height), axis=2)
        return ops.gather(pixels, _nearest(columns, width), axis=3)
    chosen = FILTERS[resample]
    down = _weights(rows, height, chosen)
    along = ops.transpose(_weights(columns, width, chosen), perm=[1, 0])
    removed = rows - height
    is_vertical_first = ops.and_(removed > 0, removed > (columns - width) * 2)
    vertical = subgraph(lambda: _rounded(_rounded(down @ pixels) @ along), name="vertical_first")
    horizontal = subgraph(lambda: _rounded(down @ _rounded(pixels @ along)), name="horizontal_first")
    return ops.if_(is_vertical_first, then_branch=vertical, else_branch=horizontal)


def _rounded(sums: Value) -> Value:
    return ops.clip(ops.floor((sums + _ONE / 2) / _ONE), np.float64(0), np.float64(255))


def _weights(source: Value, target: Value, chosen: Filter) -> Value:
    """Fixed-point weights of the ``source`` pixels for each ``target`` pixel, float64[target, source]."""
    size = ops.cast(source, to="float64")
    scale = size / ops.cast(target, to="float64")
    stretch = ops.maximum(scale, 1.0)
    support = chosen.support * stretch
    centers = ops.unsqueeze((_count(target) + 0.5) * scale, [1])
    first = ops.maximum(ops.floor(centers - support + 0.5), 0.0)
    last = ops.minimum(ops.floor(centers + support + 0.5), size)
    position = _count(source)
    inside = ops.and_(position >= first, position < last)
    weights = ops.where(inside, chosen.weight((position - centers + 0.5) * (1.0 / stretch)), 0.0)
    weights = weights / ops.reduce_sum(weights, [1]) * _ONE
    return ops.where(weights < 0.0, ops.ceil(weights - 0.5), ops.floor(weights + 0.5))


def _nearest(source: Value, target: Value) -> Value:
    """Indices of the nearest pixels, int64[target], by cumulative steps like in Pillow."""
    scale = ops.cast(source, to="float64") / ops.cast(target, to="float64")
    steps = ops.where(ops.equal(_count(target), 0.0), scale * 0.5, scale)
    found = ops.cast(ops.floor(ops.cumsum(steps, np.int64(0))), to="int64")
    return ops.minimum(found, source - 1)


def _count(size: Value) -> Value:
    return ops.cast(ops.range_(np.int64(0), size, np.int64(1)), to="float64")
