"""Transforms of torchvision, from objects, and of timm, from a configuration.

Sources: torchvision 0.28, ``transforms/functional.py`` for images of Pillow; timm 1.0,
``data/transforms_factory.py``, ``transforms_imagenet_eval``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, InvalidModel, NotRepresentable, Value, constant
from tenonnx_extensions.pipelines.pixels import at_shortest, by_channel, float32, joined, size_of, with_zeros
from tenonnx_extensions.pipelines.resampling import resize

#: A function from pixels, [batch, 3, rows, columns], to pixels.
Step = Callable[[Value], Value]

_FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}

#: Classes without effect on the pixels of RGB images.
_WITHOUT_EFFECT = {"PILToTensor", "MaybePILToTensor", "ToImage", "ToPureTensor", "Identity", "RGB"}

_AVAILABLE = "CenterCrop, Compose, ConvertImageDtype, Normalize, PILToTensor, Resize, ToDtype, ToImage, ToTensor"


def transformed(images: Value, steps: Sequence[Step]) -> Value:
    """The pixels of images, uint8[batch, height, width, 3], after all steps; uint8 if no step scales them."""
    pixels: Value = ops.cast(ops.transpose(images, perm=[0, 3, 1, 2]), to=DType.float64)
    for step in steps:
        pixels = step(pixels)
    return pixels if pixels.dtype is DType.float32 else ops.cast(pixels, to=DType.uint8)


def steps_of(transform: Any) -> list[Step]:
    """The steps of a torchvision transform. Raises ``NotRepresentable`` for a class or setting without a graph."""
    steps: list[Step] = []
    is_tensor = False
    for each in _flat(transform):
        name = type(each).__name__
        if name == "Resize" and is_tensor:
            raise NotRepresentable(
                "cannot convert the transform Resize of a tensor",
                given=f"{each}"[:200],
                do="resize the image before it becomes a tensor, as Pillow resizes otherwise than PyTorch",
            )
        is_tensor = is_tensor or "Tensor" in name or name == "ToImage"
        steps += _step_of(name, each)
    return steps


def _flat(transform: Any) -> list[Any]:
    """The elementary transforms of a transform, in order."""
    if type(transform).__name__ not in ("Compose", "Sequential"):
        return [transform]
    parts = getattr(transform, "transforms", None)
    return [each for part in (transform if parts is None else parts) for each in _flat(part)]


def _step_of(name: str, transform: Any) -> list[Step]:
    """The step of a transform, or none if it has no effect."""
    if name in _WITHOUT_EFFECT:
        return []
    if name == "Resize":
        _refuse_setting(name, "max_size", getattr(transform, "max_size", None), None)
        return [_resize(transform.size, _filter(transform.interpolation))]
    if name == "CenterCrop":
        return [_center_crop(*_pair(transform.size))]
    if name in ("ConvertImageDtype", "ToDtype"):
        _refuse_setting(name, "dtype", str(transform.dtype), "torch.float32")
        _refuse_setting(name, "scale", getattr(transform, "scale", True), True)
    if name in ("ToTensor", "MaybeToTensor", "ConvertImageDtype", "ToDtype"):
        return [_scaled_by_reciprocal if name == "ToDtype" else _scaled]
    if name == "Normalize":
        return [_normalize([float(x) for x in transform.mean], [float(x) for x in transform.std])]
    raise NotRepresentable(f"cannot convert the transform {name}", given=f"{transform}"[:200], available=_AVAILABLE)


def _refuse_setting(name: str, key: str, given: Any, wanted: Any) -> None:
    if given != wanted:
        raise NotRepresentable(
            f"unsupported setting of the transform {name}: {key}", given=str(given), available=str(wanted)
        )


def is_of_timm(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is from timm."""
    return "pretrained_cfg" in config or {"input_size", "crop_pct"} <= config.keys()


def steps_of_timm(config: Mapping[str, Any]) -> list[Step]:
    """The steps of timm's evaluation transform.

    Raises ``InvalidModel`` for an invalid value, and ``NotRepresentable`` for a setting without a graph.
    """
    given = config.get("pretrained_cfg", config)
    try:
        _, height, width = (int(n) for n in given["input_size"])
        part = float(given.get("crop_pct") or 0.875)
        colors = [[float(number) for number in given[key]] for key in ("mean", "std")]
        if min(height, width) < 1 or part <= 0 or any(len(each) != 3 for each in colors):
            raise ValueError(f"input_size {given['input_size']}, crop_pct {part}, mean and std {colors}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidModel(
            "the configuration of timm does not describe RGB images", given=f"{type(error).__name__}: {error}"
        ) from error
    mode = given.get("crop_mode") or "center"
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        raise NotRepresentable(
            "unsupported crop_mode in the configuration",
            given=f"{mode}, {height} by {width}",
            available="center for squares, squash",
        )
    size: Any = [math.floor(n / part) for n in (height, width)]
    resized = _resize(size[0] if mode == "center" else size, _filter(given.get("interpolation") or "bilinear"))
    return [resized, _center_crop(height, width), _scaled, _normalize(*colors)]


# ----- steps ----------------------------------------------------------------------------------------------------------


def _filter(interpolation: Any) -> int:
    name = str(getattr(interpolation, "value", interpolation))
    if name not in _FILTERS:
        raise NotRepresentable("unsupported interpolation", given=name, available=", ".join(_FILTERS))
    return _FILTERS[name]


def _pair(size: Any) -> tuple[int, int]:
    both = [int(n) for n in size] if isinstance(size, list | tuple) else [int(size)]
    return both[0], both[-1]


def _resize(size: Any, resample: int) -> Step:
    if isinstance(size, list | tuple) and len(size) == 2:
        sizes = [np.int64(n) for n in _pair(size)]
        return lambda pixels: resize(pixels, constant(sizes[0]), constant(sizes[1]), resample)
    return lambda pixels: at_shortest(pixels, _pair(size)[0], resample)


def _center_crop(height: int, width: int) -> Step:
    """Center crop; smaller images are padded with zeros. Offsets of half a pixel round to even."""

    def step(pixels: Value) -> Value:
        rows, columns = size_of(pixels)
        missing = [ops.maximum(n - size, 0) for n, size in ((height, rows), (width, columns))]
        (top, bottom), (left, right) = ((each / 2, (each + 1) / 2) for each in missing)
        pixels = with_zeros(pixels, top, left, bottom, right)
        rows, columns = size_of(pixels)
        starts = joined(*(_half(size - n) for size, n in ((rows, height), (columns, width))))
        found = ops.slice_(pixels, starts, starts + np.array([height, width]), [2, 3])
        return ops.reshape(found, [0, 3, height, width])

    return step


def _half(number: Value) -> Value:
    return ops.cast(ops.round_(ops.cast(number, to=DType.float64) / 2.0), to=DType.int64)


def _scaled(pixels: Value) -> Value:
    return float32(pixels) / np.float32(255)


def _scaled_by_reciprocal(pixels: Value) -> Value:
    return float32(pixels) * np.float32(1 / 255)


def _normalize(mean: Sequence[float], std: Sequence[float]) -> Step:
    if len(mean) not in (1, 3) or len(std) not in (1, 3) or 0 in std:
        raise NotRepresentable(
            "Normalize does not have a mean and a std other than 0 for each of three channels",
            given=f"mean {list(mean)}, std {list(std)}",
        )
    colors = [by_channel(tuple(each) * (3 // len(each))) for each in (mean, std)]
    return lambda pixels: (float32(pixels) - colors[0]) / colors[1]
