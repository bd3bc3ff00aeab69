"""Postprocessing graphs of image models: labels, segmentation maps, and boxes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, NotRepresentable, Value
from tenonnx_extensions.pipelines.detection import OF_SIGMOID, OF_SOFTMAX, detected
from tenonnx_extensions.pipelines.files import settings
from tenonnx_extensions.pipelines.heads import frame_of, names_in, of_ssd, of_yolo, priors_of, yolo_output

#: Tasks, and the rank of the output that each decodes.
TASKS = {"classification": 2, "detection": 3, "segmentation": 4}

#: Number of classes listed for each image.
_COUNT = 5


def decoder(
    task: str,
    path: str | os.PathLike[str],
    *,
    model: Graph,
    threshold: float = 0.5,
    letterbox: bool = False,
    colors: bool = False,
) -> Graph:
    """The graph from the output ``logits`` of a model, or its only one of that many dims, to what people read.

    ``task`` "classification" gives the five most probable classes in order, ``scores``, float32[batch, 5], and
    ``labels``, string[batch, 5]; ``path`` is that of a ``config.json`` with ``id2label``, or a folder with one.
    Probabilities are those of softmax, and of a sigmoid where ``problem_type`` is "multi_label_classification" or there
    is one class.

    "segmentation" gives ``segmentation``, int64[batch, height, width], the most probable class for each pixel of the
    images, whose height and width is the further input ``image_size``, int64[2]: logits are resized bilinearly to it.
    With ``colors`` there is ``colors``, uint8[batch, height, width, 3], each class in its color of the palette of
    Pascal VOC.

    "detection" gives the boxes of all images with scores above ``threshold``, from the outputs ``logits`` and
    ``pred_boxes`` and from ``image_size``: ``scores``, float32[found], ``labels``, string[found], ``boxes``,
    float32[found, 4], with left, top, right and bottom in pixels, and ``images``, int64[found], the position of the
    image of each in the batch. A model without ``pred_boxes`` is of YOLO, with one output of three dims, whose names of
    classes may be in the metadata of the model, and which reads images in a ``letterbox`` or resized ones. For
    ``model_type`` "ssd" the ``config.json`` may name a ``.npy`` file of ``priors``.

    Raises ``InvalidCall`` for other tasks and for a model without such outputs, ``InvalidModel`` for a file that cannot
    be read or that does not fit the model, and ``NotRepresentable`` for a detector of an unknown ``model_type``.
    """
    if task not in TASKS:
        raise InvalidCall("unknown task to decode", given=task, available=", ".join(TASKS))
    if task == "detection":
        _check_threshold(threshold)
        if all(value.name != "pred_boxes" for value in model.outputs):
            return _of_yolo(Path(path), model, threshold, letterbox)
    read = _logits(task, model)
    graph = Graph("decoder", opsets={"ai.onnx": 17})
    logits: Any = graph.input(read.name, read.dtype, read.shape)
    with graph.building():
        if read.dtype is not DType.float32:
            logits = ops.cast(logits, to=DType.float32)
        if task == "segmentation":
            size = graph.input("image_size", "int64", (2,))
            sizes = ops.concat(ops.shape(logits)[0:2], size, axis=0)
            resized = ops.resize(logits, sizes=sizes, mode="linear")
            classes = ops.argmax(resized, axis=1, keepdims=0)
            graph.output("segmentation", classes)
            if colors:
                graph.output("colors", ops.gather(_palette(), ops.mod(classes, np.int64(256))))
            return graph
        if task == "detection":
            for name, value in _detected(graph, Path(path), logits, read, model, threshold).items():
                graph.output(name, value)
            return graph
        names, config = _labels(Path(path), read)
        is_single = config.get("problem_type") != "multi_label_classification" and len(names) > 1
        shares = ops.softmax(logits, axis=-1) if is_single else ops.sigmoid(logits)
        scores, order = ops.top_k(shares, [min(_COUNT, len(names))])
        graph.output("scores", scores)
        graph.output("labels", ops.gather(np.array(names, object), order))
    return graph


def _detected(graph: Graph, path: Path, logits: Value, read: Value, model: Graph, threshold: float) -> dict[str, Value]:
    given = next(value for value in model.outputs if value.name == "pred_boxes")
    config = settings(_config(path))
    kind = str(config.get("model_type"))
    if kind not in (*OF_SOFTMAX, *OF_SIGMOID, "ssd"):
        raise NotRepresentable(
            "a detector of this model_type has no decoder",
            given=kind,
            available=", ".join(sorted((*OF_SOFTMAX, *OF_SIGMOID, "ssd"))),
        )
    names, _ = _labels(path, read, more=int(kind == "ssd" or kind in OF_SOFTMAX))
    boxes: Any = graph.input(given.name, given.dtype, given.shape)
    boxes = boxes if given.dtype is DType.float32 else ops.cast(boxes, to=DType.float32)
    size = graph.input("image_size", "int64", (2,))
    if kind == "ssd":
        return of_ssd(logits, boxes, size, names, threshold, priors_of(config, _config(path).parent, given))
    return detected(kind, logits, boxes, size, names, threshold)


def _check_threshold(threshold: float) -> None:
    if not 0 <= threshold < 1:
        raise InvalidCall("threshold lies outside [0, 1)", given=str(threshold))


def _of_yolo(path: Path, model: Graph, threshold: float, letterbox: bool) -> Graph:
    read = yolo_output(model)
    if read is None:
        raise InvalidCall(
            "the model has no outputs that are decoded for detection",
            given=", ".join(f"{value.name}: {value.type}" for value in model.outputs),
            available="logits and pred_boxes of DETR and SSD, the only output of three known dims of YOLO",
            do="rename the outputs: tenonnx rename",
        )
    names = names_in(model) or _labels(path, None)[0]
    graph = Graph("decoder", opsets={"ai.onnx": 17})
    head: Any = graph.input(read.name, read.dtype, read.shape)
    size = graph.input("image_size", "int64", (2,))
    with graph.building():
        head = head if read.dtype is DType.float32 else ops.cast(head, to=DType.float32)
        for name, value in of_yolo(head, read, size, names, threshold, frame_of(model), letterbox).items():
            graph.output(name, value)
    return graph


def _palette() -> np.ndarray:
    """The 256 colors of Pascal VOC, uint8[256, 3]: bits of the class index alternate between red, green and blue."""
    classes = np.arange(256)
    colors = np.zeros((256, 3), np.int64)
    for place in range(8):
        for channel in range(3):
            colors[:, channel] |= (classes >> channel & 1) << (7 - place)
        classes >>= 3
    return colors.astype(np.uint8)


def _logits(task: str, model: Graph) -> Value:
    of_rank = [value for value in model.outputs if value.rank == TASKS[task]]
    found = [value for value in of_rank if value.name == "logits"] or of_rank
    if len(found) != 1:
        raise InvalidCall(
            f"the model has no output logits of {TASKS[task]} dims to decode for {task}",
            given=", ".join(f"{value.name}: {value.type}" for value in model.outputs),
            do="rename the output: tenonnx rename",
        )
    return found[0]


def _config(path: Path) -> Path:
    return path / "config.json" if path.is_dir() else path


def _labels(path: Path, logits: Value | None, more: int = 0) -> tuple[list[str], dict[str, Any]]:
    """Names of the classes, and the file; ``more`` are further classes of the model without a name."""
    file = _config(path)
    config = settings(file)
    given = config.get("id2label")
    try:
        names = {int(number): str(name) for number, name in given.items()}  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        names = {}
    if not names or sorted(names) != list(range(len(names))):
        raise InvalidModel(f'"{file}" has no id2label with a name for each class', given=f"{given!r}"[:200])
    count = logits.shape[-1] if logits is not None and logits.shape is not None else None
    if isinstance(count, int) and count != len(names) + more:
        raise InvalidModel(
            f'id2label of "{file}" does not match the model', given=f"{len(names)} names for {count - more} classes"
        )
    return [names[k] for k in range(len(names))], config
