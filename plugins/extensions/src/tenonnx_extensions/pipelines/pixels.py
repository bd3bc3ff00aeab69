"""Small parts of preprocessing graphs of images."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_extensions.pipelines.resampling import resize


def float32(pixels: Value) -> Value:
    """Numbers as float32."""
    return pixels if pixels.dtype is DType.float32 else ops.cast(pixels, to=DType.float32)


def by_channel(colors: tuple[float, ...]) -> np.ndarray:
    """A number for each channel, float32[3, 1, 1]."""
    return np.array(colors, np.float32).reshape(3, 1, 1)


def size_of(pixels: Value) -> tuple[Value, Value]:
    """Rows and columns."""
    shape = ops.shape(pixels)
    return shape[2], shape[3]


def with_zeros(pixels: Value, top: Value | int, left: Value | int, bottom: Value, right: Value) -> Value:
    """Images, or masks, with zeros around them."""
    return ops.pad(pixels, joined(0, 0, top, left, 0, 0, bottom, right))


def joined(*numbers: Value | int) -> Value:
    """Numbers as a vector."""
    return ops.concat(
        *(ops.unsqueeze(each, [0]) if isinstance(each, Value) else np.array([each]) for each in numbers), axis=0
    )


def at_shortest(pixels: Value, edge: int, resample: int) -> Value:
    """Images resized to that shortest edge, with the same shape as far as whole numbers allow."""
    rows, columns = size_of(pixels)
    longest = ops.maximum(rows, columns) * edge / ops.minimum(rows, columns)
    height, width = ops.where(rows <= columns, edge, longest), ops.where(columns <= rows, edge, longest)
    return resize(pixels, height, width, resample)
