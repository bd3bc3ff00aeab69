"""Building blocks of image preprocessing graphs."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_extensions.pipelines.resampling import resize


def float32(pixels: Value) -> Value:
    """Cast to float32."""
    return pixels if pixels.dtype is DType.float32 else ops.cast(pixels, to=DType.float32)


def by_channel(colors: tuple[float, ...]) -> np.ndarray:
    """One number per channel, float32[3, 1, 1]."""
    return np.array(colors, np.float32).reshape(3, 1, 1)


def size_of(pixels: Value) -> tuple[Value, Value]:
    """Rows and columns."""
    shape = ops.shape(pixels)
    return shape[2], shape[3]


def with_zeros(pixels: Value, top: Value | int, left: Value | int, bottom: Value, right: Value) -> Value:
    """Images, or masks, padded with zeros."""
    return ops.pad(pixels, joined(0, 0, top, left, 0, 0, bottom, right))


def joined(*numbers: Value | int) -> Value:
    """Concatenate numbers to a vector."""
    return ops.concat(
        *(ops.unsqueeze(each, [0]) if isinstance(each, Value) else np.array([each]) for each in numbers), axis=0
    )


def at_shortest(pixels: Value, edge: int, resample: int) -> Value:
    """Images resized to that shortest edge, keeping the aspect ratio up to rounding."""
    rows, columns = size_of(pixels)
    longest = ops.maximum(rows, columns) * edge / ops.minimum(rows, columns)
    height, width = ops.where(rows <= columns, edge, longest), ops.where(columns <= rows, edge, longest)
    return resize(pixels, height, width, resample)


#: Gray value around images in letterboxes.
_GRAY = 114.0


def letterbox(pixels: Value, height: int, width: int) -> Value:
    """Images resized bilinearly and centered in a gray frame, like in ultralytics."""
    _, rows, columns, top, left = letterbox_size(*size_of(pixels), height, width)
    sizes = ops.concat(ops.shape(pixels)[0:2], joined(rows, columns), axis=0)
    resized = ops.resize(ops.cast(pixels, to=DType.float32), sizes=sizes, mode="linear")
    around = joined(0, 0, top, left, 0, 0, height - rows - top, width - columns - left)
    padded = ops.pad(ops.round_(resized), around, np.float32(_GRAY))
    return ops.reshape(padded, [0, 3, height, width])


def letterbox_size(rows: Value, columns: Value, height: int, width: int) -> tuple[Value, Value, Value, Value, Value]:
    """The scale of images in a letterbox, float64, their rows and columns there, and their offsets."""
    high, wide = (ops.cast(each, to=DType.float64) for each in (rows, columns))
    scale = ops.minimum(float(height) / high, float(width) / wide)
    inner = [ops.round_(each * scale) for each in (high, wide)]
    starts = [ops.round_((whole - each) / 2.0 - 0.1) for whole, each in zip((height, width), inner, strict=True)]
    numbers = [ops.cast(each, to=DType.int64) for each in (*inner, *starts)]
    return scale, numbers[0], numbers[1], numbers[2], numbers[3]
