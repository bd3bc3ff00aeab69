"""Graphs behind models of images: labels of classes, and maps of classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, Value
from tenonnx_extensions.pipelines.files import settings

#: Tasks, with the number of dims of the outputs that are decoded.
TASKS = {"classification": 2, "segmentation": 4}

#: Classes that are listed for each image.
_COUNT = 5


def decoder(task: str, path: str | os.PathLike[str], *, model: Graph) -> Graph:
    """The graph from the output ``logits`` of a model, or its only one of that many dims, to what people read.

    ``task`` "classification" gives the five most probable classes in order, ``scores``, float32[batch, 5], and
    ``labels``, string[batch, 5]; ``path`` is that of a ``config.json`` with ``id2label``, or a folder with one.
    Probabilities are those of softmax, and of a sigmoid where ``problem_type`` is "multi_label_classification" or there
    is one class. "segmentation" gives ``segmentation``, int64[batch, height, width], the most probable class for each
    pixel of the images, whose height and width is the further input ``image_size``, int64[2]: logits are resized
    bilinearly to it. Raises ``InvalidCall`` for other tasks and for a model without such an output, and
    ``InvalidModel`` for a file that cannot be read or that does not fit the model.
    """
    if task not in TASKS:
        raise InvalidCall("unknown task to decode", given=task, available=", ".join(TASKS))
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
            graph.output("segmentation", ops.argmax(resized, axis=1, keepdims=0))
            return graph
        names, is_single = _labels(Path(path), read)
        shares = ops.softmax(logits, axis=-1) if is_single else ops.sigmoid(logits)
        scores, order = ops.top_k(shares, [min(_COUNT, len(names))])
        graph.output("scores", scores)
        graph.output("labels", ops.gather(np.array(names, object), order))
    return graph


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


def _labels(path: Path, logits: Value) -> tuple[list[str], bool]:
    """Names of the classes, and whether an image is of one of them."""
    file = path / "config.json" if path.is_dir() else path
    config = settings(file)
    given = config.get("id2label")
    try:
        names = {int(number): str(name) for number, name in given.items()}  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        names = {}
    if not names or sorted(names) != list(range(len(names))):
        raise InvalidModel(f'"{file}" has no id2label with a name for each class', given=f"{given!r}"[:200])
    count = logits.shape[-1] if logits.shape is not None else None
    if isinstance(count, int) and count != len(names):
        raise InvalidModel(
            f'id2label of "{file}" does not fit the model', given=f"{len(names)} names for {count} classes"
        )
    is_single = config.get("problem_type") != "multi_label_classification" and len(names) > 1
    return [names[k] for k in range(len(names))], is_single
