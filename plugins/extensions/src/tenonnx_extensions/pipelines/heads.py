"""Boxes, scores and labels from YOLO and SSD heads: decoding, and non-maximum suppression.

Sources: ultralytics 8.3, ``utils/ops.py``, for YOLO; torchvision 0.28, ``models/detection/ssd.py``, for SSD.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, Value, constant
from tenonnx.extend.formats import open_inside, split_location
from tenonnx_extensions.pipelines.pixels import letterbox_size

#: Intersection over union above which boxes of one class are merged, and the maximum number kept per class.
_OVERLAP, _MOST = 0.45, 300

#: Default scale factors of the centers and sizes of SSD.
_VARIANCES = (0.1, 0.2)

Found = dict[str, Value]


def names_in(model: Graph) -> list[str]:
    """The class names in the metadata of an ultralytics model, or none."""
    try:
        found = ast.literal_eval(model.metadata.get("names", "{}"))
        return [str(found[k]) for k in range(len(found))]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        return []


# ----- YOLO -----------------------------------------------------------------------------------------------------------


def yolo_output(model: Graph) -> Value | None:
    """The only output of rank three whose last two dims are known, or None."""
    found = [value for value in model.outputs if value.rank == 3]
    if len(found) != 1 or not all(isinstance(size, int) for size in found[0].shape[1:]):
        return None
    return found[0]


def of_yolo(
    head: Value, given: Value, size: Value, names: Sequence[str], threshold: float, frame: tuple[int, int], boxed: bool
) -> Found:
    """The boxes of a YOLO head; each has its most probable class.

    ``head`` is float32[batch, 4 + classes, boxes] as in version 8, or float32[batch, boxes, 5 + classes] as in version
    5, where the fifth number is the objectness. ``frame`` is the height and width of the model's images; ``boxed``
    states whether these are letterboxes.
    """
    rows, columns = given.shape[1:]
    numbers = min(rows, columns)
    if numbers not in (4 + len(names), 5 + len(names)):
        raise InvalidModel(
            "the names of the classes do not fit the model's output",
            given=f"{len(names)} names for {given.name}: {given.type}",
            available=f"{numbers - 4} names, or {numbers - 5} where boxes have the number of an object",
        )
    by_box = head if columns == numbers else ops.transpose(head, perm=[0, 2, 1])
    boxes, scores = ops.slice_(by_box, [0], [4], [2]), ops.slice_(by_box, [numbers - len(names)], [numbers], [2])
    if numbers == 5 + len(names):
        scores = scores * ops.slice_(by_box, [4], [5], [2])
    best = ops.reduce_max(scores, [2], keepdims=1)
    scores = ops.where(ops.equal(scores, best), scores, np.float32(0))
    centers, sizes = ops.split(boxes, [2, 2], axis=-1)
    half = sizes * np.float32(0.5)
    corners = ops.concat(centers - half, centers + half, axis=-1)
    return _suppressed(_in_pixels(corners, size, frame, boxed), corners, scores, names, threshold)


def _in_pixels(corners: Value, size: Value, frame: tuple[int, int], boxed: bool) -> Value:
    """Convert corners from pixels of the model's input to pixels of the images."""
    rows, columns = ops.gather(size, np.int64(0)), ops.gather(size, np.int64(1))
    twice = np.array([0, 1, 0, 1])
    whole = ops.cast(ops.gather(size, np.array([1, 0, 1, 0])), to=DType.float32)
    if boxed:
        scale, *_, top, left = letterbox_size(rows, columns, *frame)
        start = ops.concat(ops.unsqueeze(left, [0]), ops.unsqueeze(top, [0]), axis=0)
        moved = corners - ops.cast(ops.gather(start, twice), to=DType.float32)
        found = moved / ops.cast(scale, to=DType.float32)
    else:
        found = corners * (whole / np.array([frame[1], frame[0]] * 2, np.float32))
    return ops.minimum(ops.maximum(found, np.float32(0)), whole)


# ----- SSD ------------------------------------------------------------------------------------------------------------


def of_ssd(
    logits: Value, boxes: Value, size: Value, names: Sequence[str], threshold: float, config: Mapping[str, Any]
) -> Found:
    """The boxes of an SSD head; each may have several classes.

    ``logits`` is float32[batch, boxes, 1 + classes], with "no object" as first class. ``boxes`` is float32[batch,
    boxes, 4]: corners relative to the image or, with ``priors``, offsets from these.
    """
    priors = config.get("priors")
    corners = boxes if priors is None else _from_priors(boxes, priors, config.get("variances", _VARIANCES))
    shares = ops.slice_(ops.softmax(logits, axis=-1), [1], [2**62], [2])
    whole = ops.cast(ops.gather(size, np.array([1, 0, 1, 0])), to=DType.float32)
    pixels = ops.minimum(ops.maximum(corners * whole, np.float32(0)), whole)
    return _suppressed(pixels, pixels, shares, names, threshold)


def priors_of(config: Mapping[str, Any], folder: Path, boxes: Value) -> Mapping[str, Any]:
    """The configuration with its priors as an array, float32[boxes, 4], from the ``.npy`` file that it names.

    Raises ``InvalidModel`` for a file that cannot be read or is outside ``folder``, and for a wrong shape.
    """
    if "priors" not in config:
        return config
    location = str(config["priors"])
    file = folder / location
    with os.fdopen(open_inside(folder, split_location(location, location), f'"{file}"'), "rb") as stream:
        try:
            priors = np.lib.format.read_array(stream, allow_pickle=False)
        except (OSError, ValueError, MemoryError) as error:
            raise InvalidModel(f'cannot read "{file}"', given=str(error)) from error
    given = config.get("variances", _VARIANCES)
    try:
        variances = [float(each) for each in given]
    except (ValueError, TypeError) as error:
        raise InvalidModel("variances of SSD are not numbers", given=f"{given!r}"[:200]) from error
    count = boxes.shape[1] if boxes.shape is not None else None
    if priors.ndim != 2 or priors.shape[1] != 4 or priors.dtype.kind != "f" or len(variances) != 2:
        raise InvalidModel("priors or variances of SSD have a wrong shape", given=f"{priors.shape}, {variances}")
    if isinstance(count, int) and count != len(priors):
        raise InvalidModel("the number of priors is not that of the boxes", given=f"{len(priors)} for {count} boxes")
    return {**config, "priors": priors.astype(np.float32), "variances": variances}


def _from_priors(boxes: Value, priors: np.ndarray, variances: Sequence[float]) -> Value:
    """Corners from offsets; priors are centers and sizes relative to the image."""
    centers, sizes = ops.split(boxes, [2, 2], axis=-1)
    centers = centers * (priors[:, 2:] * np.float32(variances[0])) + priors[:, :2]
    half = ops.exp(sizes * np.float32(variances[1])) * (priors[:, 2:] * np.float32(0.5))
    return ops.concat(centers - half, centers + half, axis=-1)


# ----- suppression ----------------------------------------------------------------------------------------------------


def _suppressed(pixels: Value, corners: Value, scores: Value, names: Sequence[str], threshold: float) -> Found:
    """Non-maximum suppression per class; boxes are sorted by image and score. ``scores`` is [batch, boxes, classes]."""
    by_class = ops.transpose(scores, perm=[0, 2, 1])
    limits = np.int64([_MOST]), np.float32([_OVERLAP]), np.float32([threshold])
    chosen = ops.non_max_suppression(corners, by_class, *(constant(each) for each in limits))
    best = ops.gather_nd(by_class, chosen)
    images, classes, places = (ops.squeeze(each, [1]) for each in ops.split(chosen, [1, 1, 1], axis=1))
    order = ops.cast(best, to=DType.float64) - ops.cast(images, to=DType.float64) * 2.0
    _, order = ops.top_k(order, ops.shape(order))
    pairs = ops.concat(ops.unsqueeze(images, [1]), ops.unsqueeze(places, [1]), axis=1)
    return {
        "scores": ops.gather(best, order),
        "labels": ops.gather(ops.gather(constant(np.array(names, object)), classes), order),
        "boxes": ops.gather(ops.gather_nd(pixels, pairs), order),
        "images": ops.gather(images, order),
    }


def frame_of(model: Graph) -> tuple[int, int]:
    """Rows and columns of a model's images. Raises ``InvalidCall`` if unknown."""
    found = [value for value in model.inputs if value.rank == 4]
    sizes = [size for size in found[0].shape[2:] if isinstance(size, int)] if len(found) == 1 else []
    if len(sizes) != 2:
        raise InvalidCall(
            "the model has no single input of images of a known size",
            given=", ".join(f"{value.name}: {value.type}" for value in model.inputs),
            do="export the model for images of one size",
        )
    return sizes[0], sizes[1]
