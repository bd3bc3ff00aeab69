"""Image processors as graphs, from the files of transformers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Value, constant
from tenonnx_extensions.images import DOMAIN, decode_image
from tenonnx_extensions.pipelines.files import settings as read_settings
from tenonnx_extensions.pipelines.heads import frame_of
from tenonnx_extensions.pipelines.pixels import (
    at_shortest,
    by_channel,
    float32,
    joined,
    letterbox,
    size_of,
    with_zeros,
)
from tenonnx_extensions.pipelines.processors import Processor, Settings, settings_of
from tenonnx_extensions.pipelines.resampling import resize
from tenonnx_extensions.pipelines.transforms import is_of_timm, steps_of, steps_of_timm, transformed

FILE = "preprocessor_config.json"

#: Given instead of a file for YOLO's letterbox, with the size of the model's images.
LETTERBOX = "letterbox"

_IMAGES = ("images", "uint8", ("batch", "height", "width", 3))


def image_processor(
    path: str | os.PathLike[str] | Any, *, model: Graph | None = None, image_size: bool = False, encoded: bool = False
) -> Graph:
    """The graph of an image processor of transformers, or of a transform of timm or torchvision, in ``ai.onnx``.

    ``path`` is a ``preprocessor_config.json``, a ``config.json`` of timm, a folder with one of these, or a ``Compose``
    of torchvision, of which the graph computes what it computes of images of Pillow; or "letterbox", for images in the
    middle of gray frames of the size that ``model`` reads, with numbers from 0 to 1, as YOLO reads them.

    The input ``images`` is uint8[batch, height, width, 3] with RGB pixels, of any size. The output ``pixel_values`` is
    float32[batch, 3, rows, columns], equal to what the processor computes by Pillow 13; it is uint8 where the processor
    neither rescales nor normalizes. A processor that pads gives ``pixel_mask``, int64[batch, rows, columns], too, and
    with ``image_size`` there is ``image_size``, int64[2], the height and the width of the images. With ``encoded``, the
    input is ``image``, uint8[size], the bytes of one JPEG or PNG file, which DecodeImage of onnxruntime-extensions
    decodes. With ``model``, the outputs are those of its inputs that are named so, in their types; pixels also go to
    its only input of four dims, but keep their name where that input is called as one here.

    Raises ``InvalidModel`` for a file that cannot be read, ``NotRepresentable`` for a setting that has no graph, and
    ``InvalidCall`` where ``model`` reads no pixels.
    """
    compute = _letterboxes(model) if path == LETTERBOX else _steps(path)
    graph = Graph("image_processor", opsets={"ai.onnx": 17} | ({DOMAIN: 1} if encoded else {}))
    given = graph.input(*(("image", "uint8", ("size",)) if encoded else _IMAGES))
    with graph.building():
        images = ops.unsqueeze(decode_image(given, color_space="rgb"), [0]) if encoded else given
        pixels, mask = compute(images)
        found = {"pixel_values": pixels}
        if mask is not None:
            found["pixel_mask"] = mask
        if model is not None:
            found = _renamed_for(model, found)
        if image_size:
            found["image_size"] = ops.identity(ops.shape(images)[1:3])
        for name, value in found.items():
            graph.output(name, value)
    return graph


def _letterboxes(model: Graph | None) -> Callable[[Value], tuple[Value, Value | None]]:
    if model is None:
        raise InvalidCall("a letterbox has no size without a model", do='pass the model: model=tx.load("m.onnx")')
    frame = frame_of(model)
    return lambda images: (letterbox(ops.transpose(images, perm=[0, 3, 1, 2]), *frame) / np.float32(255), None)


def _steps(source: Any) -> Callable[[Value], tuple[Value, Value | None]]:
    """The function from images to pixels, and to a mask if they are padded, described by a file or an object."""
    if not isinstance(source, str | os.PathLike):
        given = steps_of(source)
        return lambda images: (transformed(images, given), None)
    file = Path(source)
    if file.is_dir():
        file = next((file / name for name in (FILE, "config.json") if (file / name).is_file()), file / FILE)
    config = read_settings(file)
    if is_of_timm(config):
        of_timm = steps_of_timm(config)
        return lambda images: (transformed(images, of_timm), None)
    kind, settings = settings_of(config)
    return lambda images: _processed(images, kind, settings)


def _renamed_for(model: Graph, found: dict[str, Value]) -> dict[str, Value]:
    """The outputs with the names and types of a model's inputs."""
    inputs = {value.name: value for value in model.inputs}
    names = {name: name for name in found if name in inputs}
    if "pixel_values" not in names:
        images = [name for name, value in inputs.items() if value.rank == 4]
        if len(images) != 1:
            raise InvalidCall(
                "the model reads none of the image processor's outputs",
                given=", ".join(f"{name}: {value.type}" for name, value in inputs.items()),
                available=", ".join(found),
                do="rename its inputs: tenonnx rename",
            )
        names["pixel_values"] = images[0] if images[0] not in ("images", "image") else "pixel_values"
        inputs["pixel_values"] = inputs[images[0]]
    read = {}
    for of, name in names.items():
        value, dtype = found[of], inputs[name].dtype
        read[name] = value if dtype in (None, value.dtype) else ops.cast(value, to=dtype)
    return read


def _processed(images: Value, kind: Processor, settings: Settings) -> tuple[Value, Value | None]:
    """The processed pixels, and their mask if the processor pads."""
    pixels = ops.cast(ops.transpose(images, perm=[0, 3, 1, 2]), to=DType.float64)
    known: Settings | None = None
    mask = None
    is_whole = True  # integers from 0 to 255, which may still be resized
    for step in kind.steps:
        if not settings.get(f"do_{step}", settings.get(step, False)):
            continue
        if step == "resize":
            pixels, known = _resized(pixels, settings)
        elif step == "center_crop":
            known = settings["crop_size"]
            pixels = _center_crop(pixels, known["height"], known["width"])
        elif step == "rescale":
            is_whole = False
            pixels = ops.cast(pixels * np.float64(settings["rescale_factor"]), to=DType.float32)
            if settings.get("rescale_offset"):
                pixels = pixels - np.float32(1)
        elif step == "normalize":
            is_whole = False
            pixels = (float32(pixels) - by_channel(settings["image_mean"])) / by_channel(settings["image_std"])
        elif step == "include_top":
            is_whole = False
            pixels = float32(pixels) / by_channel(settings["image_std"])
        elif step == "flip_channel_order":
            pixels = ops.gather(pixels, np.array([2, 1, 0]), axis=1)
        else:
            known = settings["pad_size"] or known
            pixels, mask = _padded(pixels, settings["pad_size"])
    if is_whole:
        pixels = ops.cast(pixels, to=DType.uint8)
    if known is not None:
        pixels = ops.reshape(pixels, [0, 3, known["height"], known["width"]])
        mask = None if mask is None else ops.reshape(mask, [0, known["height"], known["width"]])
    return pixels, mask if kind.has_mask else None


# ----- steps ----------------------------------------------------------------------------------------------------------


def _resized(pixels: Value, settings: Settings) -> tuple[Value, Settings | None]:
    """Resized pixels, and their size if the settings fix it."""
    size = settings["size"]
    if "height" in size:
        height, width = (constant(np.int64(size[name])) for name in ("height", "width"))
        return resize(pixels, height, width, settings["resample"]), size
    rows, columns = size_of(pixels)
    if "max_height" in size:
        height, width = _within(rows, columns, size["max_height"], size["max_width"])
    elif "longest_edge" in size:
        is_yolos = "size_multiple" in settings
        height, width = _between(rows, columns, size["shortest_edge"], size["longest_edge"], is_yolos)
        if is_yolos:
            multiple = settings["size_multiple"]
            height, width = height / multiple * multiple, width / multiple * multiple
    else:
        return at_shortest(pixels, size["shortest_edge"], settings["resample"]), None
    return resize(pixels, height, width, settings["resample"]), None


def _within(rows: Value, columns: Value, max_height: int, max_width: int) -> tuple[Value, Value]:
    """The largest size with the same aspect ratio within both limits."""
    high, wide = (ops.cast(each, to=DType.float64) for each in (rows, columns))
    scale = ops.minimum(float(max_height) / high, float(max_width) / wide)
    return _whole(high * scale), _whole(wide * scale)


def _between(rows: Value, columns: Value, shortest: int, longest: int, is_yolos: bool) -> tuple[Value, Value]:
    """The size with the same aspect ratio and that shortest edge, or a smaller one with that longest edge."""
    high, wide = (ops.cast(each, to=DType.float64) for each in (rows, columns))
    least, most = ops.minimum(high, wide), ops.maximum(high, wide)
    is_cut = most / least * float(shortest) > float(longest)
    exact = ops.where(is_cut, float(longest) * least / most, float(shortest))
    edge = ops.round_(exact)
    other = ops.floor(exact * most / least)
    height, width = ops.where(columns < rows, other, edge), ops.where(columns < rows, edge, other)
    is_kept = ops.equal(least, edge)
    if is_yolos:
        is_kept = ops.and_(is_kept, rows <= columns)
    return ops.where(is_kept, rows, _whole(height)), ops.where(is_kept, columns, _whole(width))


def _whole(number: Value) -> Value:
    return ops.cast(ops.floor(number), to=DType.int64)


def _center_crop(pixels: Value, height: int, width: int) -> Value:
    """Center crop; smaller images are padded with zeros."""
    rows, columns = size_of(pixels)
    missing_rows, missing_columns = ops.maximum(height - rows, 0), ops.maximum(width - columns, 0)
    top, left = (missing_rows + 1) / 2, (missing_columns + 1) / 2
    pixels = with_zeros(pixels, top, left, missing_rows - top, missing_columns - left)
    top, left = ops.maximum(rows - height, 0) / 2, ops.maximum(columns - width, 0) / 2
    starts = joined(top, left)
    return ops.slice_(pixels, starts, starts + np.array([height, width]), [2, 3])


def _padded(pixels: Value, size: Settings | None) -> tuple[Value, Value]:
    """Images padded with zeros at the bottom and right, and a mask that is 1 inside the images."""
    shape = ops.shape(pixels)
    mask = ops.expand(np.int64(1), joined(shape[0], shape[2], shape[3]))
    if size is None:
        return pixels, mask
    bottom, right = size["height"] - shape[2], size["width"] - shape[3]
    mask = ops.unsqueeze(mask, [1])
    return with_zeros(pixels, 0, 0, bottom, right), ops.squeeze(with_zeros(mask, 0, 0, bottom, right), [1])
