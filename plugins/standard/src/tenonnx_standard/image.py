"""Images: sampling at arbitrary positions, affine grids, and decoding of image files."""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Index,
    InvalidCall,
    LimitExceeded,
    TensorType,
    TypeMismatch,
    UnsupportedOp,
    Value,
    constant,
    dims,
    dtypes,
    elements,
    import_optional,
    limits,
    op,
    primitive,
    symbolic,
)
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.checking import check_shape
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import and_, or_, where
from tenonnx_standard.math import absolute, floor, maximum, minimum, round_
from tenonnx_standard.shapes import expand, flatten, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.windows import Array

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
#: From this number of channels on, gathering whole pixels is faster than gathering within each channel.
MANY_CHANNELS = 16


class _Arrays:
    """Operations that sampling needs beyond operators, on numpy arrays."""

    floor, absolute, where, both, either = np.floor, np.abs, np.where, np.logical_and, np.logical_or
    round = np.rint

    @staticmethod
    def between(x: Array, low: Any, high: Any) -> Array:
        return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))

    @staticmethod
    def number(mask: Array, like: Array) -> Array:
        return mask.astype(like.dtype)


class _Values:
    """The operations of ``_Arrays`` on values."""

    floor, absolute, where, both, either, round = floor, absolute, where, and_, or_, round_

    @staticmethod
    def between(x: Value, low: Any, high: Any) -> Value:
        return minimum(maximum(x, low), high)

    @staticmethod
    def number(mask: Value, like: Value) -> Value:
        return cast(mask, to=like.dtype)


def _pixel_positions(xp: Any, n: Any, size: Any, mode: str, padding: str, align: bool) -> Any:
    """Convert normalized positions to pixel coordinates; ``padding`` moves those outside of the image."""
    x = (n + 1.0) * 0.5 * (size - 1.0) if align else ((n + 1.0) * size - 1.0) * 0.5
    if mode == "nearest":
        x = xp.round(x)
    if padding == "zeros" or (padding == "border" and mode == "cubic"):
        return x  # outside pixels are masked later
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    moved = xp.between(x, 0.0, size - 1.0) if padding == "border" else _reflected(xp, x, low, high)
    return xp.where(xp.either(x < low, x > high), moved, x)


def _reflected(xp: Any, x: Any, low: Any, high: Any) -> Any:
    """``x`` reflected at both borders until it is between them."""
    period = (high - low) * 2.0
    period = xp.where(period > 0.0, period, period * 0.0 + 1.0) if isinstance(period, Value) else max(period, 1.0)
    way = xp.absolute(x - low)
    way = way - xp.floor(way / period) * period
    return low + xp.where(way + way > period, period - way, way)


def _axis_taps(xp: Any, x: Any, size: Any, mode: str, padding: str, align: bool) -> list[tuple[Any, Any]]:
    """Taps at ``x`` along one axis: the position and the weight (None for 1) of each contributing pixel."""
    base = xp.floor(x)
    if mode == "nearest":
        weights: list[Any] = [None]
    elif mode == "linear":
        weights = [1.0 - (x - base), x - base]
    else:
        weights = [_cubic(x - base + 1.0, True), _cubic(x - base, False)]
        weights += [_cubic(1.0 - (x - base), False), _cubic(2.0 - (x - base), True)]
    taps = []
    for k, weight in enumerate(weights):
        place = base + float(k - (mode == "cubic"))
        if padding == "zeros":
            inside = xp.both(place >= 0.0, place <= size - 1.0)
            weight = xp.number(inside, x) if weight is None else weight * xp.number(inside, x)
        elif padding == "reflection":
            place = _reflected(xp, place, *((0.0, size - 1.0) if align else (-0.5, size - 0.5)))
        taps.append((xp.between(place, 0.0, size - 1.0), weight))
    return taps


def _cubic(distance: Any, far: bool) -> Any:
    """Keys' cubic convolution with a = -0.75, for distances up to 1, or from 1 to 2 if ``far``."""
    if far:
        return ((distance * -0.75 + 3.75) * distance - 6.0) * distance + 3.0
    return (distance * 1.25 - 2.25) * distance * distance + 1.0


#: Nodes per tap, including the expansion of its Gather.
_FOR_A_TAP = 8


def _all_taps(xp: Any, positions: Sequence[Any], sizes: Sequence[Any], *how: Any) -> list[tuple[Any, Any]]:
    """The taps of all axes combined: flat positions and weights."""
    taps: list[tuple[Any, Any]] = []
    for x, size in zip(positions, sizes, strict=True):
        along = _axis_taps(xp, x, size, *how)
        if not taps:
            taps = along
            continue
        limits.check(
            "nodes", len(taps) * len(along) * _FOR_A_TAP, "the points that a sample of so many axes is made of"
        )
        taps = [(p * size + q, w if v is None else v if w is None else w * v) for p, w in taps for q, v in along]
    return taps


def sample(x: Value, positions: Sequence[Value], mode: str, padding: str, align: bool) -> Value:
    """``x`` (batch, channels, *sizes) at ``positions`` (one (batch, points) per axis): (batch, channels, points)."""
    batch, _, *sizes = dims(x)
    kind = positions[0]
    lengths = [float(n) if isinstance(n, int) else cast_like(n, kind) for n in sizes]
    order = [0, *range(2, x.ndim), 1]
    rows = flatten(transpose(x, perm=order), axis=x.ndim - 1)
    count = sizes[0]
    for n in sizes[1:]:
        count = count * n
    image = unsqueeze(range_(0, batch, 1) * count, [1])
    wide = rows if x.dtype.is_float else cast(rows, to=kind.dtype)
    total = None
    for place, weight in _all_taps(_Values, positions, lengths, mode, padding, align):
        pixels = gather(wide, cast(place, to=DType.int64) + image, axis=0)
        if weight is not None:
            pixels = pixels * (weight if kind.dtype is wide.dtype else cast(weight, to=wide.dtype))[..., None]
        total = pixels if total is None else total + pixels
    return transpose(total, perm=[0, 2, 1])


def sample_array(x: Array, positions: Sequence[Array], mode: str, padding: str, align: bool) -> Array:
    """``sample`` on arrays; the result keeps the dtype of the computation."""
    batch, channels, *sizes = x.shape
    taps = []
    with np.errstate(invalid="ignore"):
        for place, weight in _all_taps(_Arrays, positions, [float(n) for n in sizes], mode, padding, align):
            where_to = np.clip(place.astype(np.intp), 0, max(0, int(np.prod(sizes)) - 1))
            taps.append((where_to, weight))
    dtype = x.dtype if x.dtype.kind not in "iub" else positions[0].dtype
    flat = x.reshape(batch, channels, math.prod(sizes))
    y = np.empty(
        (batch, channels, positions[0].shape[1]), x.dtype if mode == "nearest" and padding != "zeros" else dtype
    )
    for n in range(batch):
        rows = np.ascontiguousarray(flat[n].T) if channels >= MANY_CHANNELS else None
        total = None
        for place, weight in taps:
            pixels = flat[n].take(place[n], 1) if rows is None else rows.take(place[n], 0)
            if weight is not None:
                scale = weight[n].astype(dtype, copy=False)
                pixels = pixels * (scale if rows is None else scale[:, None])
            if total is None:
                total = pixels
            else:
                total += pixels
        y[n] = total if rows is None else total.T
    return y


# ----- GridSample -----------------------------------------------------------------------------------------------------


def _check(title: str, X: Any, grid: Any, mode: str, modes: Sequence[str], padding_mode: str) -> None:
    if mode not in modes:
        raise TypeMismatch(f"{title}: unknown mode", given=repr(mode), available=", ".join(modes))
    if padding_mode not in PADDINGS:
        raise TypeMismatch(f"{title}: unknown padding_mode", given=repr(padding_mode), available=", ".join(PADDINGS))
    fits = X.ndim >= 3 and grid.ndim == X.ndim
    pairs = ((grid.shape[-1], X.ndim - 2), (grid.shape[0], X.shape[0])) if fits else ()
    if not fits or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        raise TypeMismatch(
            f"{title}: shape of grid is not (batch, spatial axes ..., {max(X.ndim - 2, 1)})",
            given=f"{X.shape}, {grid.shape}",
        )


@op("GridSample", since=16)
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """Sample ``X`` at the positions in ``grid``, which range from -1 to 1, with the last axis first."""
    _check(grid_sample.title, X, grid, mode, MODES, padding_mode)
    align, rank = bool(align_corners), X.ndim - 2
    grid = cast(grid, to=DType.float32) if grid.dtype.bits < 32 else grid
    batch, *outputs, _ = dims(grid)
    points = reshape(grid, [batch, -1, rank])
    positions = []
    for k, size in enumerate(dims(X)[2:]):
        length = float(size) if isinstance(size, int) else cast_like(size, grid)
        positions.append(_pixel_positions(_Values, points[..., rank - 1 - k], length, mode, padding_mode, align))
    sampled = sample(X, positions, mode, padding_mode, align)
    y = reshape(sampled, [batch, dims(X)[1], *outputs])
    return y if y.dtype is X.dtype else cast(y, to=X.dtype)


@grid_sample.type
def grid_sample_type(X, grid, *, mode, padding_mode, **_):
    if X.tensor.shape is None or grid.tensor.shape is None:
        known = X.rank if X.rank is not None else grid.rank
        return TensorType(X.dtype, None if known is None else (None,) * known)
    _check(grid_sample.title, X, grid, mode, MODES, padding_mode)
    if not grid.dtype.is_float:
        raise TypeMismatch(f"{grid_sample.title}: grid holds no floats", given=repr(grid))
    return TensorType(X.dtype, (*X.shape[:2], *grid.shape[1:-1]))


grid_sample.requires(dtypes(X="bool float integer"))


@grid_sample.numpy
def grid_sample_numpy(X, grid, *, align_corners, mode, padding_mode):
    _check(grid_sample.title, X, grid, mode, MODES, padding_mode)
    rank, align = X.ndim - 2, bool(align_corners)
    points = grid.reshape(grid.shape[0], math.prod(grid.shape[1:-1]), rank)
    points = points.astype(np.float64 if grid.dtype == np.float64 else np.float32)
    positions = [
        _pixel_positions(_Arrays, points[..., rank - 1 - k], float(size), mode, padding_mode, align)
        for k, size in enumerate(X.shape[2:])
    ]
    wide = X.astype(np.float32) if X.dtype.kind not in "iubcO" and X.dtype.itemsize < 4 else X
    y = sample_array(wide, positions, mode, padding_mode, align)
    return y.reshape(*X.shape[:2], *grid.shape[1:-1]).astype(X.dtype, copy=False)


@grid_sample.until(20)
def grid_sample_2d(X, grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    """GridSample of two-dimensional images, with the modes bilinear, nearest and bicubic."""
    _check(grid_sample_2d.title, X, grid, mode, tuple(_NEW_MODES), padding_mode)
    return grid_sample(X, grid, align_corners=align_corners, mode=_NEW_MODES[mode], padding_mode=padding_mode)


_NEW_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_OLD_MODES = {new: old for old, new in _NEW_MODES.items()}


@grid_sample.lower(to=grid_sample_2d)
def grid_sample_to_grid_sample_2d(X, grid, *, mode, **attributes):
    return grid_sample_2d(X, grid, mode=_OLD_MODES[mode], **attributes) if X.rank == 4 else None


# ----- AffineGrid -----------------------------------------------------------------------------------------------------


def _rank_of_images(theta: Value, size: Value) -> int | None:
    """2 for images, 3 for volumes, None if unknown."""
    shape, count = theta.shape, size.shape[0] if size.rank == 1 else None
    facts = [shape[1], symbolic.subtract(shape[2], 1), symbolic.subtract(count, 2)] if len(shape) == 3 else [0]
    known = {n for n in facts if isinstance(n, int)}
    if len(known) > 1 or not known <= {2, 3}:
        raise TypeMismatch(
            f"{affine_grid.title}: theta is neither (batch, 2, 3) with a size of 4 numbers, nor (batch, 3, 4) with 5",
            given=f"{theta!r}, {size!r}",
        )
    return known.pop() if known else None


@op("AffineGrid", since=20)
def affine_grid(theta, size: Index, *, align_corners=0):
    """The sampling grid of a regular grid of ``size`` under the affine maps ``theta``, as input of GridSample."""
    rank = _rank_of_images(theta, size)
    if rank is None:
        raise TypeMismatch(
            f"{affine_grid.title}: cannot infer the rank: shape of theta and length of size are unknown",
            given=f"{theta!r}, {size!r}",
        )
    contents = elements(size)
    lengths = [
        contents[k + 2] if contents is not None and isinstance(contents[k + 2], int) else size[k + 2]
        for k in range(rank)
    ]
    axes = []
    for k, length in enumerate(lengths):
        n = cast_like(length, theta) if isinstance(length, Value) else constant(np.asarray(length), theta.dtype)
        i = cast_like(range_(0, length, 1), theta)
        even = i * (2.0 / maximum(n - 1.0, 1.0)) - 1.0 if align_corners else (i * 2.0 + 1.0) / n - 1.0
        axes.append(expand(reshape(even, [-1, *(1,) * (rank - k)]), [*lengths, 1]))
    ones = expand(constant(np.ones(1), theta.dtype), [*lengths, 1])
    points = reshape(concat(*reversed(axes), ones, axis=-1), [-1, rank + 1])
    mapped = matmul(points, transpose(theta, perm=[0, 2, 1]))
    return reshape(mapped, [dims(theta)[0], *lengths, rank])


@affine_grid.type
def affine_grid_type(theta, size, **_):
    if not theta.dtype.is_float:
        raise TypeMismatch(f"{affine_grid.title}: theta holds no floats", given=repr(theta))
    check_shape(affine_grid, "size", size, [None])
    rank = _rank_of_images(theta, size)
    if rank is None:
        return TensorType(theta.dtype)
    contents = elements(size)
    lengths = (None,) * rank if contents is None else tuple(contents[2:])
    return TensorType(theta.dtype, (theta.shape[0], *lengths, rank))


# ----- ImageDecoder ---------------------------------------------------------------------------------------------------

PIXEL_FORMATS = ("RGB", "BGR", "Grayscale")

#: The formats that ONNX names, by their names in Pillow. Pillow knows more, one of which starts a program.
FILE_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

#: Exceptions that Pillow raises for broken files.
UNDECODABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)


@primitive("ImageDecoder", since=20)
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    """Decode an image file to pixels (height, width, channels); an empty tensor if it cannot be decoded."""


@image_decoder.type
def image_decoder_type(encoded_stream, *, pixel_format):
    if encoded_stream.dtype is not DType.uint8 or encoded_stream.rank not in (1, None):
        raise TypeMismatch(f"{image_decoder.title}: encoded_stream is not a list of uint8", given=repr(encoded_stream))
    if pixel_format not in PIXEL_FORMATS:
        given, known = repr(pixel_format), ", ".join(PIXEL_FORMATS)
        raise TypeMismatch(f"{image_decoder.title}: unknown pixel_format", given=given, available=known)
    return TensorType(DType.uint8, (None, None, 1 if pixel_format == "Grayscale" else 3))


@image_decoder.numpy
def image_decoder_numpy(encoded_stream, *, pixel_format):
    data = encoded_stream.tobytes()
    pixels = _portable(data)
    if pixels is None:
        pixels = _by_pillow(data)
    if pixel_format == "Grayscale":  # the luma of ITU-R 601
        luma = (pixels.astype(np.uint32) @ np.asarray([19595, 38470, 7471], np.uint32) + 0x8000) >> 16
        return luma.astype(np.uint8)[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


def _portable(data: bytes) -> Array | None:
    """The pixels of a binary portable anymap, a header followed by pixels; None for another format."""
    header = re.match(rb"P([56])(?:\s+(?:#[^\n]*\n\s*)*)(\d+)\s+(\d+)\s+(\d+)\s", data)
    if header is None or int(header[4]) > 255:
        return None
    width, height, channels = int(header[2]), int(header[3]), 3 if header[1] == b"6" else 1
    pixels = np.frombuffer(data[header.end() :], np.uint8)[: width * height * channels]
    if pixels.size < width * height * channels:
        return np.zeros((0, 0, 3), np.uint8)
    if int(header[4]) not in (0, 255):
        pixels = (pixels.astype(np.uint32) * 255 // int(header[4])).astype(np.uint8)
    return np.broadcast_to(pixels.reshape(height, width, channels), (height, width, 3))


def _by_pillow(data: bytes) -> Array:
    task = f"decode files of this kind by {image_decoder.title}"
    try:
        Image = import_optional("PIL.Image", task, install="tenonnx-standard[image]")  # noqa: N806
    except InvalidCall as error:
        raise error.as_a(UnsupportedOp) from error
    try:
        with Image.open(io.BytesIO(data), formats=FILE_FORMATS) as image:
            limits.check_elements((image.height, image.width, 3), image_decoder.title)
            return np.asarray(image.convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        what = f"{image_decoder.title}: Pillow refused an image of so many pixels"
        raise LimitExceeded(what, given=str(error), do="PIL.Image.MAX_IMAGE_PIXELS is its limit") from error
    except UNDECODABLE:
        return np.zeros((0, 0, 3), np.uint8)
