"""Image folders as data: one folder for each class, decoded in the layout of the model's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, InvalidFeed, TensorType, Value
from tenonnx_data import ClassNames
from tenonnx_data.loaders import Array, Samples
from tenonnx_standard.image import image_decoder

#: File suffixes of images.
_SUFFIXES = (".bmp", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Pixels:
    """Conversion of an image to a model input.

    The image is resized to cover ``size`` (height, width), averaging pixels, and cropped at its center. Floats are
    scaled to 0 to 1, less ``mean`` and divided by ``std``, which have one number for each channel or for all; integers
    stay unchanged.
    """

    size: tuple[int, int]
    dtype: DType
    channels: int
    last: bool
    mean: Sequence[float] = ()
    std: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            given = getattr(self, name)
            if given and (len(given) not in (1, self.channels) or not self.dtype.is_float):
                raise InvalidCall(
                    f"the {name} of images does not fit {self.channels} channels of floats",
                    given=f"{', '.join(map(str, given))} for {self.dtype}",
                )
        if 0 in self.std:
            raise InvalidCall("the std of images is zero", given=", ".join(map(str, self.std)))

    def read(self, path: Path) -> Array:
        pixels = fitted(decoded(path, self.channels), self.size)
        if self.dtype.is_float:
            pixels = (pixels / 255 - np.asarray(self.mean or (0,))) / np.asarray(self.std or (1,))
        else:
            pixels = np.rint(pixels)
        return (pixels if self.last else np.moveaxis(pixels, 2, 0)).astype(self.dtype.numpy)


class Images(Samples):
    """Images of ``files``, converted by ``pixels``."""

    def __init__(self, files: Sequence[Path], pixels: Pixels) -> None:
        self._files, self._pixels = files, pixels
        sides, channels = pixels.size, pixels.channels
        self.shape = (len(files), *((*sides, channels) if pixels.last else (channels, *sides)))

    def __getitem__(self, chosen: Array) -> Array:
        return np.stack([self._pixels.read(self._files[k]) for k in chosen])


@dataclass(frozen=True)
class ImageFolder:
    """The images below ``path``, each labeled with the number of its class folder."""

    path: Path
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: Array

    @classmethod
    def of(cls, path: str | Path, classes: Sequence[str] | None = None) -> ImageFolder:
        """The images of a folder that has one folder for each class.

        Classes are numbered in the order of folder names, or as in ``classes`` if given; folders may be named by
        numbers themselves. Raises ``InvalidCall`` for a folder without images, and for a class that is not in
        ``classes``.
        """
        path = Path(path)
        found = sorted(each.name for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
        numbered = all(name.isascii() and name.isdigit() for name in found)
        names = tuple(classes or sorted(found, key=int if numbered else str))
        wanted = f"{path} does not hold a folder of images for each class"
        if not found:
            raise InvalidCall(wanted, given="no folder", do="put the images into folders named by their classes")
        if strange := [name for name in found if not numbered and name not in names]:
            raise InvalidCall(wanted, given=", ".join(strange), available=", ".join(names))
        files = {name: [f for f in sorted((path / name).rglob("*")) if f.suffix.lower() in _SUFFIXES] for name in found}
        numbers = {name: int(name) if numbered else names.index(name) for name in found}
        labels = [number for name, number in numbers.items() for _ in files[name]]
        if not labels:
            raise InvalidCall(wanted, given="no image", available=", ".join(_SUFFIXES))
        return cls(path, names, tuple(file for name in found for file in files[name]), np.array(labels, np.int64))

    @property
    def numbered(self) -> bool:
        """Whether folders are named by class numbers."""
        return all(name.isascii() and name.isdigit() for name in self.classes)

    def feeds(
        self,
        graph: Graph,
        *,
        output: str | None = None,
        labels: str = "labels",
        size: tuple[int, int] | None = None,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> dict[str, Any]:
        """The images for the only input of ``graph``, decoded batch by batch, and the labels, by name.

        Images have the size that the model requires; a dynamic size is ``size``, or that of the first image. See
        ``Pixels`` for ``mean`` and ``std``. The metadata of ``graph`` keeps the names of the classes.

        Raises ``InvalidCall`` for a model without an image input, and where the value ``output`` has another number of
        classes.
        """
        value, channels, last = _input(graph)
        count = classes_of(graph, output)
        if count is not None and not (int(self.labels.max()) < count if self.numbered else len(self.classes) == count):
            raise InvalidCall(
                f"{self.path} has no folder for each of the {count} classes of the model",
                given=", ".join(self.classes),
                do="name the folders by the numbers of their classes, from 0",
            )
        if not self.numbered:
            ClassNames(graph).keep(labels, self.classes)
        sides: Sequence[Any] = value.shape[1:3] if last else value.shape[2:4]
        if not all(isinstance(side, int) for side in sides):
            first = size or decoded(self.files[0], channels).shape[:2]
            sides = [side if isinstance(side, int) else other for side, other in zip(sides, first, strict=True)]
        pixels = Pixels((sides[0], sides[1]), value.dtype, channels, last, tuple(mean), tuple(std))
        return {value.name: Images(self.files, pixels), labels: self.labels}


def _input(graph: Graph) -> tuple[Value, int, bool]:
    """The image input, its number of channels, and whether they are the last axis."""
    value = graph.inputs[0] if len(graph.inputs) == 1 else None
    kind = None if value is None else value.type
    shape = kind.shape if isinstance(kind, TensorType) else None
    if value is not None and shape is not None and len(shape) == 4:
        for axis in (1, 3):
            channels = shape[axis]
            if isinstance(channels, int) and channels in (1, 3):
                return value, channels, axis == 3
    raise InvalidCall(
        "cannot feed a folder of images: the model has no single input with 1 or 3 channels along axis 1 or 3",
        given=", ".join(f"{each.name}: {each.type}" for each in graph.inputs) or "no input",
        do="give arrays in a .npz file",
    )


def classes_of(graph: Graph, output: str | None) -> int | None:
    """Number of classes of a model, None where unknown."""
    kinds = {v.name: v.type for v in graph.values() if isinstance(v.type, TensorType)}
    floats = [v.name for v in graph.outputs if v.name in kinds and kinds[v.name].dtype.is_float]
    kind = kinds.get(output or (floats[0] if floats else ""))
    shape = kind.shape if kind is not None else None
    return shape[1] if shape is not None and len(shape) > 1 and isinstance(shape[1], int) else None


def decoded(path: Path, channels: int) -> Array:
    """The pixels (height, width, channels) of a file. Raises ``InvalidFeed`` for a file that is not an image."""
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise InvalidFeed(f'cannot read "{path}"', given=error.strerror or str(error)) from error
    pixels: Array = image_decoder(data, pixel_format="RGB" if channels == 3 else "Grayscale")
    if not pixels.size:
        raise InvalidFeed(f'"{path}" is not an image', given=f"{len(data)} bytes", do="take it out of the folder")
    return pixels


def fitted(pixels: Array, size: tuple[int, int]) -> Array:
    """``pixels`` (height, width, channels) resized to cover ``size`` and cropped at the center."""
    sides = pixels.shape[:2]
    factor = max(wanted / side for wanted, side in zip(size, sides, strict=True))
    for axis, (side, wanted) in enumerate(zip(sides, size, strict=True)):
        scaled = max(round(side * factor), wanted)
        start = (scaled - wanted) // 2
        if scaled != side:
            weights = _weights(side, scaled)[start : start + wanted]
            pixels = np.moveaxis(np.tensordot(weights, pixels, (1, axis)), 0, axis)
        else:
            pixels = np.take(pixels, range(start, start + wanted), axis)
    return pixels


def _weights(side: int, scaled: int) -> Array:
    """Matrix of resampling ``side`` pixels to ``scaled``: linear, and antialiased when downscaling."""
    factor = side / scaled
    centers = (np.arange(scaled) + 0.5) * factor - 0.5
    distances = np.abs(centers[:, None] - np.arange(side)) / max(factor, 1.0)
    weights: Array = np.maximum(1.0 - distances, 0.0).astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
