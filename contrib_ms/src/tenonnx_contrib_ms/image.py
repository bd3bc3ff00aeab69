"""Variants of image sampling, cropping, pooling and convolution that ai.onnx lacks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    TypeMismatch,
    Value,
    differ,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    static,
)
from tenonnx_standard.windows import padded_with, windows


@op("GridSample", domain="com.microsoft")
def grid_sample(X, Grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    """GridSample of ai.onnx with other names of modes."""
    return ops.grid_sample(
        X,
        Grid,
        align_corners=align_corners,
        mode=_MODES[mode],
        padding_mode=padding_mode,
    )


_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}

grid_sample.requires(
    shapes(X="n c h w", Grid="n y x 2"), floats("X"), same_dtype("X", "Grid"), one_of(mode=tuple(_MODES))
)


@op("CropAndResize", domain="com.microsoft")
def crop_and_resize(X, rois, batch_indices, crop_size, *, extrapolation_value=0.0, mode="bilinear"):
    """Crop a box of an image for each of ``batch_indices``, resampled to ``crop_size`` with aligned corners.

    Boxes are (top, left, bottom, right), relative to the image size; outside of it is ``extrapolation_value``.
    """
    height, width = dims(X)[2:]
    sizes = [ops.cast(crop_size[axis], to=DType.int64) for axis in (0, 1)]
    rows, columns = (
        _positions(rois[:, axis], rois[:, axis + 2], count, size)
        for axis, count, size in ((0, sizes[0], height), (1, sizes[1], width))
    )
    images = ops.gather(X, batch_indices)
    inside = ops.unsqueeze(ops.and_(_within(rows, height)[:, :, None], _within(columns, width)[:, None]), [1])
    if mode == "nearest":
        y = _read(images, _rounded(rows), _rounded(columns))
    else:
        top, left = ops.floor(rows), ops.floor(columns)
        right_share, bottom_share = (columns - left)[:, None, None], ops.unsqueeze(rows - top, [1, 3])
        upper, lower = (
            _mixed(_read(images, row, left), _read(images, row, ops.ceil(columns)), right_share)
            for row in (top, ops.ceil(rows))
        )
        y = _mixed(upper, lower, bottom_share)
    return ops.where(inside, y, extrapolation_value)


def _positions(first: Value, last: Value, count: Value, size: Any) -> Value:
    """Sampling positions of each box along one axis: evenly spaced from end to end, or the center if there is one."""
    reach = ops.cast(size - 1, to=first.dtype) if isinstance(size, Value) else float(size - 1)
    steps = ops.cast(ops.range_(0, count, 1), to=first.dtype)
    gaps = ops.cast(ops.maximum(count - 1, 1), to=first.dtype)
    first, last = (ops.unsqueeze(side, [1]) for side in (first, last))
    along = first * reach + steps * ((last - first) * reach / gaps)
    along = ops.where(ops.equal(ops.range_(0, count, 1), count - 1), last * reach, along)
    return ops.where(ops.equal(count, 1), (first + last) * (0.5 * reach), along)


def _within(places: Value, size: Any) -> Value:
    top = ops.cast(size - 1, to=places.dtype) if isinstance(size, Value) else float(size - 1)
    return ops.and_(places >= 0.0, places <= top)


def _rounded(places: Value) -> Value:
    """The nearest integers, halves away from zero."""
    return ops.floor(places + 0.5)


def _mixed(first: Value, second: Value, share: Value) -> Value:
    return first + (second - first) * share


def _read(images: Value, rows: Value, columns: Value) -> Value:
    """Read the pixels of each image at all rows and columns; positions outside are clipped to the edge."""
    height, width = dims(images)[2:]
    across = ops.cast(ops.clip(ops.cast(rows, to=DType.int64), 0, height - 1), to=DType.int64)
    down = ops.cast(ops.clip(ops.cast(columns, to=DType.int64), 0, width - 1), to=DType.int64)
    flat = ops.reshape(images, [0, 0, -1])
    places = across[:, :, None] * width + down[:, None]
    count, channels = dims(images)[:2]
    indices = ops.expand(ops.reshape(places, [count, 1, -1]), [count, channels, dims(rows)[1] * dims(columns)[1]])
    return ops.reshape(ops.gather_elements(flat, indices, axis=2), [count, channels, dims(rows)[1], dims(columns)[1]])


crop_and_resize.requires(
    shapes(X="n c h w", rois="r 4", batch_indices="r", crop_size="2"),
    floats("X"),
    same_dtype("X", "rois"),
    dtypes(batch_indices="int32", crop_size="int32"),
    one_of(mode=("bilinear", "nearest")),
)


@op("ConvTransposeWithDynamicPads", domain="com.microsoft")
def conv_transpose_with_dynamic_pads(
    X,
    W,
    Pads=None,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    strides: list[int] | None = None,
):
    """ConvTranspose with padding as an input."""
    known = {"dilations": dilations, "group": group, "kernel_shape": kernel_shape, "strides": strides}
    if Pads is None:
        return ops.conv_transpose(X, W, B, auto_pad=auto_pad, output_padding=output_padding, **known)
    if static(Pads) is not None:
        pads = [int(number) for number in static(Pads)]
        return ops.conv_transpose(X, W, B, output_padding=output_padding, pads=pads, **known)
    y = ops.conv_transpose(X, W, B, output_padding=output_padding, **known)
    spatial = X.ndim - 2
    ends = ops.shape(y, start=2) - Pads[spatial:]
    return ops.slice_(y, Pads[:spatial], ends, list(range(2, X.ndim)))


def _hold_pads(pads: Any, X: Any) -> str | None:
    wrong = X.rank is not None and differ(pads, 2 * (X.rank - 2))
    return "Pads does not hold two numbers for each spatial axis" if wrong else None


conv_transpose_with_dynamic_pads.requires(shapes(Pads="pads"), dtypes(Pads="int64"), holds(_hold_pads))


@op("MaxpoolWithMask", domain="com.microsoft")
def max_pool_with_mask(
    X,
    M,
    *,
    auto_pad="NOTSET",
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order=0,
    strides: list[int] | None = None,
):
    """MaxPool that reads each row of a window up to the first position where the mask is zero.

    Masks apply to channels in turn, repeatedly. The first position of an image with several axes is never masked. A
    window without any elements results in the lowest float.
    """
    if not kernel_shape:
        raise TypeMismatch(f"{max_pool_with_mask.title}: kernel_shape is missing")
    window = windows(max_pool_with_mask.title, kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad)
    if X.ndim != window.rank + 2 or M.ndim != X.ndim:
        given = f"X {X!r}, M {M!r}, kernel_shape={list(kernel_shape)}"
        raise TypeMismatch(
            f"{max_pool_with_mask.title}: X or M does not have two axes more than the kernel", given=given
        )
    batch, channels, *sizes = dims(X)
    of_channel = ops.mod(ops.range_(0, batch * channels, 1), ops.shape(M)[0] * ops.shape(M)[1])
    mask = ops.gather(ops.reshape(ops.not_(ops.equal(M, 0)), [-1, *sizes]), of_channel)
    if window.rank > 1:
        first = ops.equal(ops.reshape(ops.range_(0, _product(sizes), 1), sizes), 0)
        mask = ops.or_(mask, first)
    low = float(np.nextafter(X.dtype.numpy.type(-np.inf), X.dtype.numpy.type(0)))
    begins, ends = window.padding(sizes)
    x = padded_with(X, begins, ends, low)
    read = ops.reshape(ops.cast(mask, to=DType.int32), [batch, channels, *sizes])
    read = padded_with(read, begins, ends, 1)
    outputs = window.outputs(sizes)

    def tap(value: Value, offsets: Sequence[int]) -> Value:
        starts = zip(offsets, window.strides, outputs, strict=True)
        return value[(..., *(slice(o, o + (n - 1) * s + 1, s) for o, s, n in starts))]

    found = []
    for *outer, _ in itertools.product(*map(range, [*window.kernel[:-1], 1])):
        goes_on: Value | None = None
        for inner in range(window.kernel[-1]):
            is_masked = ops.equal(tap(read, [*outer, inner]), 1)
            goes_on = is_masked if goes_on is None else ops.and_(goes_on, is_masked)
            found.append(ops.where(goes_on, tap(x, [*outer, inner]), low))
    return ops.maximum(*found)


def _product(sizes: Sequence[Any]) -> Any:
    total = sizes[0]
    for size in sizes[1:]:
        total = total * size
    return total


max_pool_with_mask.requires(floats("X"), dtypes(M="int32"))
