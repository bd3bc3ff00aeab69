"""Files as tensors: images as pixels, and ``.npy`` files."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx import InvalidCall
from tenonnx.extend import DType, import_optional
from tenonnx_data.binding import Bound
from tenonnx_data.columns import Array, Reasons, fitting

_NPY = b"\x93NUMPY"

#: Modes of pillow by the number of channels, and those with 8 bits per channel.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_OF_8_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "La", "RGBa"})


class Unreadable(ValueError):
    """A file that cannot be converted to a tensor of the input, with the reason."""


@dataclass(frozen=True)
class Pixels:
    """Conversion of pixels to numbers: range of values, and mean and divisor of each channel."""

    range: tuple[float, float] | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    resize: str | None

    @classmethod
    def of(
        cls, text: str | None, mean: Sequence[float] | None, std: Sequence[float] | None, resize: str | None
    ) -> Pixels:
        """Parse a range such as ``0:1``. Raises ``InvalidCall``."""
        numbers = np.asarray([*(mean or ()), *(std or ())], np.float64)
        if not np.isfinite(numbers).all() or not all(std or ()):
            raise InvalidCall("mean or std is not finite, or std is 0", given=f"mean {mean}, std {std}")
        if text is None:
            return cls(None, mean, std, resize)
        low, _, high = text.partition(":")
        try:
            found = float(low), float(high)
        except ValueError:
            found = (0.0, 0.0)
        if not found[0] < found[1]:
            raise InvalidCall("pixels is not a range LOW:HIGH", given=text, available="0:1, -1:1, 0:255")
        return cls(found, mean, std, resize)


@dataclass(frozen=True)
class Layout:
    """Position of the channels of an image in an input, and its size; None if dynamic."""

    channels: int
    first: bool
    flat: bool
    height: int | None
    width: int | None

    @classmethod
    def of(cls, bound: Bound) -> Layout:
        """The layout implied by an input's dims. Raises ``InvalidCall`` if they imply none."""
        dims = bound.dims
        if len(dims) == 2:
            return cls(1, True, True, *dims)
        if len(dims) == 3 and dims[0] in _MODES and dims[2] not in (3, 4):
            assert dims[0] is not None
            return cls(dims[0], True, False, dims[1], dims[2])
        if len(dims) == 3 and dims[2] in _MODES:
            assert dims[2] is not None
            return cls(dims[2], False, False, dims[0], dims[1])
        raise InvalidCall(
            f'input "{bound.name}" takes no images: [rows, channels, height, width], [rows, height, width, channels] '
            "or [rows, height, width], with 1, 3 or 4 channels",
            given=f"[rows, {', '.join('?' if dim is None else str(dim) for dim in dims)}]",
            do="make the number of channels static (tenonnx convert --fix-shapes)",
        )


def decoded(contents: Sequence[bytes | None], bound: Bound, pixels: Pixels, reasons: Reasons) -> list[Array | None]:
    """A tensor for each file; invalid ones are recorded in ``reasons``."""
    result: list[Array | None] = []
    for row, data in enumerate(contents):
        try:
            if data is None:
                raise Unreadable("the file is missing")
            array = _array(data, bound) if data.startswith(_NPY) else _image(data, bound, pixels)
            result.append(_checked(array, bound))
        except Unreadable as error:
            reasons[row] = str(error)
            result.append(None)
    return result


def _checked(array: Array, bound: Bound) -> Array:
    wrong = len(array.shape) != len(bound.dims)
    if wrong or any(dim not in (None, size) for dim, size in zip(bound.dims, array.shape, strict=True)):
        wanted = ", ".join("?" if dim is None else str(dim) for dim in bound.dims)
        raise Unreadable(f"it has the shape {list(array.shape)}, and the input takes [{wanted}]")
    return array


#: Exceptions of numpy for an array header that is not Python or requests too much memory.
ODD_HEADERS = (TypeError, SyntaxError, tokenize.TokenError, MemoryError, OverflowError, RecursionError)


def _array(data: bytes, bound: Bound) -> Array:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, *ODD_HEADERS) as error:
        raise Unreadable(f"it is not a .npy file: {error}") from error
    if array.dtype.kind not in "biuf":
        raise Unreadable(f"it holds {array.dtype}, and the input takes {bound.dtype}")
    inner: Reasons = {}
    cast = fitting(array.reshape(-1), bound.dtype, inner).reshape(array.shape)
    for place, reason in inner.items():
        raise Unreadable(f"element {place}: {reason}")
    return cast


def _image(data: bytes, bound: Bound, pixels: Pixels) -> Array:
    layout = Layout.of(bound)
    image = _opened(data, layout, pixels.resize)
    array = np.asarray(image)
    if array.ndim == 2 and not layout.flat:
        array = array[:, :, None]
    if bound.dtype is DType.uint8 and pixels.range is None:
        return np.ascontiguousarray(array.transpose(2, 0, 1)) if layout.first and not layout.flat else array
    numbers = _scaled(array, bound, layout, pixels)
    return np.ascontiguousarray(numbers.transpose(2, 0, 1)) if layout.first and not layout.flat else numbers


def _scaled(array: Array, bound: Bound, layout: Layout, pixels: Pixels) -> Array:
    """Pixels scaled for the model, computed in float32 as frameworks do."""
    if pixels.range is None:
        raise InvalidCall(
            f'cannot convert pixels to the {bound.dtype} of input "{bound.name}": their range is unknown',
            given="no --pixels",
            available="0:1 (as ToTensor), -1:1, 0:255 (as they are); --mean and --std after that",
            do="give --pixels as the model was trained",
        )
    low, high = pixels.range
    numbers = array.astype(np.float32)
    if (low, high) != (0.0, 255.0):
        numbers = numbers / np.float32(255.0)
        if (low, high) != (0.0, 1.0):
            numbers = numbers * np.float32(high - low) + np.float32(low)
    for name, values in (("mean", pixels.mean), ("std", pixels.std)):
        if values is not None:
            if len(values) not in (1, layout.channels):
                raise InvalidCall(
                    f"{name} has neither one number nor one for each channel",
                    given=f"{len(values)}",
                    available=f"{layout.channels} channels",
                )
            each = np.asarray(values, np.float32)
            numbers = numbers - each if name == "mean" else numbers / each
    return numbers.astype(bound.dtype.numpy, copy=False)


def _opened(data: bytes, layout: Layout, resize: str | None) -> Any:
    """Decode an image with the channels and size of the input."""
    Image = import_optional("PIL.Image", "read images", install="tenonnx-data[images]")  # noqa: N806
    from PIL import ImageOps, UnidentifiedImageError

    try:
        image: Any = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        mode = image.mode
        image = image.convert(_MODES[layout.channels])
    except UnidentifiedImageError as error:
        raise Unreadable("it is not an image that Pillow knows") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Unreadable(f"it cannot be read as an image: {error}") from error
    if mode not in _OF_8_BITS:
        raise Unreadable(f"its pixels have more than 8 bits (mode {mode})")
    width, height = layout.width or image.width, layout.height or image.height
    if image.size == (width, height):
        return image
    if resize is None:
        raise Unreadable(
            f"it is {image.width} wide and {image.height} high, and the input takes {width} and {height} (--resize)"
        )
    how = Image.Resampling.BILINEAR
    return ImageOps.fit(image, (width, height), how) if resize == "crop" else image.resize((width, height), how)
