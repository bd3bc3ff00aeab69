"""Sliding windows: which positions of the input every output position of a convolution or pooling reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tenonnx.extend import DType, TypeMismatch, Value
from tenonnx.graph import dims as dim
from tenonnx_standard.math import maximum, minimum

Array = np.ndarray[Any, Any]
#: A length: an int, an expression or None in types, an int in numpy rules, an int or an int64 scalar in bodies.
Length = Any

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
#: Columns are unfolded in blocks of about so many elements, few enough to stay in a cache.
BLOCK = 1 << 19


@dataclass(frozen=True)
class Windows:
    """The windows of one call: per spatial axis the kernel's size, the strides and the dilations.

    ``pads`` are those before each axis, then those after it; ``auto_pad`` and ``ceil_mode`` as in the specification.
    """

    title: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...]:
        """How many input positions a window spans on each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The places of a kernel, in row-major order."""
        return iter(np.ndindex(*self.kernel))

    def outputs(self, sizes: Sequence[Length]) -> list[Length]:
        """How many windows fit on each axis of an input of these ``sizes``."""
        found = []
        for axis, size in enumerate(sizes):
            try:
                found.append(self._output(axis, size))
            except OverflowError:  # of a symbolic expression
                found.append(None)
        return found

    def _output(self, axis: int, size: Length) -> Length:
        stride = self.strides[axis]
        if size is None:
            return None
        if self.auto_pad.startswith("SAME"):
            return (size + (stride - 1)) // stride
        begin, end = (0, 0) if self.auto_pad == "VALID" else (self.pads[axis], self.pads[axis + self.rank])
        room = size + (begin + end - self.extents[axis])
        if isinstance(room, int) and room < 0:
            raise TypeMismatch(
                f"{self.title}: the kernel must fit into the padded input",
                given=f"{self.extents[axis]} positions wide on spatial axis {axis}, of {size} + {begin + end} positions",
            )
        if not self.ceil_mode or self.auto_pad == "VALID" or stride == 1:
            return room // stride + 1
        # rounding up, but every window starts in the input or in the padding before it
        return _smaller((room + (stride - 1)) // stride + 1, (size + (begin + stride - 1)) // stride)

    def padding(self, sizes: Sequence[Length]) -> tuple[list[Length], list[Length]]:
        """The padding before and after each axis of an input of these ``sizes``."""
        if not self.auto_pad.startswith("SAME"):
            pads = [0] * (2 * self.rank) if self.auto_pad == "VALID" else list(self.pads)
            return pads[: self.rank], pads[self.rank :]
        begins, ends = [], []
        for axis, size in enumerate(sizes):
            stride, extent = self.strides[axis], self.extents[axis]
            total: Length = max(extent - 1, 0) if stride == 1 else None
            if stride != 1 and size is not None:
                total = not_negative((self._output(axis, size) - 1) * stride + (extent - size))
            less = None if total is None else total // 2
            more = None if total is None else total - less
            begins.append(more if self.auto_pad == "SAME_LOWER" else less)
            ends.append(less if self.auto_pad == "SAME_LOWER" else more)
        return begins, ends

    def explicit(self, sizes: Sequence[Length]) -> Windows | None:
        """The same windows with the padding written out; None where only run time knows it."""
        begins, ends = self.padding([size if isinstance(size, int) else None for size in sizes])
        if any(pad is None for pad in (*begins, *ends)):
            return None
        return Windows(self.title, self.kernel, self.strides, self.dilations, (*begins, *ends), "NOTSET", self.ceil_mode)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that convolutions and poolings share, to be passed on."""
        return {
            "auto_pad": self.auto_pad,
            "dilations": list(self.dilations),
            "kernel_shape": list(self.kernel),
            "pads": list(self.pads) if self.auto_pad == "NOTSET" else None,
            "strides": list(self.strides),
        }


def windows(
    title: str,
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """The windows that the attributes of ``title`` describe. Raises ``TypeMismatch`` where they make no sense."""
    rank = len(kernel)

    def per_axis(name: str, values: Sequence[int] | None, default: int, least: int, count: int) -> tuple[int, ...]:
        if values is None or not len(values):
            return (default,) * count
        if len(values) != count or any(v < least for v in values):
            raise TypeMismatch(
                f"{title}: {name} must be {count} numbers of at least {least} for {rank} spatial axes",
                given=f"{name}={list(values)}",
            )
        return tuple(int(v) for v in values)

    if auto_pad not in AUTO_PADS:
        raise TypeMismatch(f"{title}: unknown auto_pad", given=repr(auto_pad), available=", ".join(AUTO_PADS))
    return Windows(
        title,
        per_axis("kernel_shape", kernel, 1, 1, rank),
        per_axis("strides", strides, 1, 1, rank),
        per_axis("dilations", dilations, 1, 1, rank),
        per_axis("pads", pads, 0, 0, 2 * rank),
        auto_pad,
        bool(ceil_mode),
    )


def not_negative(length: Length) -> Length:
    """``length``, or 0 where it is below."""
    if isinstance(length, Value):
        return maximum(length, 0)
    return dim.maximum(length, 0)


def _smaller(a: Length, b: Length) -> Length:
    if isinstance(a, Value) or isinstance(b, Value):
        return minimum(a, b)
    return dim.minimum(a, b)


def spatial(title: str, x: Value, at_least: int = 1) -> Sequence[Any] | None:
    """The spatial dims of a batch of images (batch, channels, spatial axes ...); None when its rank is unknown."""
    shape = x.tensor.shape
    if shape is not None and len(shape) < 2 + at_least:
        raise TypeMismatch(f"{title}: the input must be (batch, channels, {at_least} or more spatial axes)", given=repr(x))
    return None if shape is None else shape[2:]


def one_float_dtype(title: str, *values: Value | None) -> DType:
    """The dtype of all ``values``. Raises ``TypeMismatch`` when they differ or are no floats."""
    present = [v for v in values if v is not None]
    dtype = present[0].dtype
    if not dtype.is_float or any(v.dtype is not dtype for v in present):
        raise TypeMismatch(f"{title}: the inputs must have one float dtype", given=", ".join(map(repr, present)))
    return dtype


# ----- on arrays ------------------------------------------------------------------------------------------------------


def widened(*arrays: Array | None) -> list[Array | None]:
    """Arrays in a dtype that BLAS works in: floats narrower than float32 as float32."""
    return [a.astype(np.float32) if a is not None and a.dtype.itemsize < 4 else a for a in arrays]


def tap(x: Array, window: Windows, offset: Sequence[int], outputs: Sequence[int]) -> Array:
    """What every window of the padded ``x`` reads at one place of the kernel, as a view."""
    return x[(..., *tap_slices(window, offset, outputs))]


def tap_slices(window: Windows, offset: Sequence[int], outputs: Sequence[int]) -> list[slice]:
    """The positions that ``outputs`` windows read at one place of the kernel, along each axis of the padded input."""
    starts = [o * d for o, d in zip(offset, window.dilations, strict=True)]
    return [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, outputs, window.strides, strict=True)]


def columns(x: Array, window: Windows, *, joined: bool = False) -> Iterator[tuple[slice, slice, Array]]:
    """Unfold ``x`` block by block: for some images and some rows of windows, what these windows read.

    A block has the axes (image, channel, *kernel, *windows), or if ``joined`` (channel, *kernel, image, *windows); the
    next one reuses its memory. Rows count along the first spatial axis, and fewer than all come from one image alone.
    """
    batch, channels, *sizes = x.shape
    outputs = window.outputs(sizes)
    if not batch or not all(outputs):
        return
    begins, ends = window.padding(sizes)
    width = channels * int(np.prod(window.kernel))
    per_row = max(1, width * int(np.prod(outputs[1:])))
    images = min(batch, max(1, BLOCK // (per_row * outputs[0])))
    blocks = -(-outputs[0] // min(outputs[0], max(1, BLOCK // per_row)))
    rows = -(-outputs[0] // blocks)
    inside = tuple(slice(b, b + n) for b, n in zip(begins, sizes, strict=True))
    reach = [(n - 1) * s + e for n, s, e in zip(outputs, window.strides, window.extents, strict=True)]
    lengths = [max(b + n + e, r) for b, n, e, r in zip(begins, sizes, ends, reach, strict=True)]
    padded = lengths != list(sizes)
    if padded:
        store = np.zeros((channels, images, *lengths) if joined else (images, channels, *lengths), x.dtype)
        source = store.swapaxes(0, 1) if joined else store
    buffer = np.empty(images * width * rows * int(np.prod(outputs[1:])), x.dtype)
    for first in range(0, batch, images):
        count = min(images, batch - first)
        if padded:
            source[(slice(0, count), slice(None), *inside)] = x[first : first + count]
            image = source[:count]
        else:
            image = x[first : first + count]
        view = unfolded(image, window, outputs)
        if joined:
            view = np.moveaxis(view, 0, 1 + window.rank)
        for low in range(0, outputs[0], rows):
            high = min(outputs[0], low + rows)
            part = view[(..., slice(low, high), *(slice(None),) * (window.rank - 1))]
            block = buffer[: part.size].reshape(part.shape)
            np.copyto(block, part)
            yield slice(first, first + count), slice(low, high), block


def unfolded(x: Array, window: Windows, outputs: Sequence[int]) -> Array:
    """A view of the padded ``x`` with axes (batch, channel, *kernel, *outputs)."""
    steps = x.strides[2:]
    inner = [d * step for d, step in zip(window.dilations, steps, strict=True)]
    outer = [s * step for s, step in zip(window.strides, steps, strict=True)]
    return as_strided(x, (*x.shape[:2], *window.kernel, *outputs), (*x.strides[:2], *inner, *outer), writeable=False)

