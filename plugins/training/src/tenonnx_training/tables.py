"""Training data from tables: inputs, labels and sample weights by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenonnx.extend import DType, Graph, InvalidCall, InvalidFeed, TensorType
from tenonnx.extend.formats import TrainingState
from tenonnx_data import ClassNames, Table, is_table, read_labels, read_table
from tenonnx_data.table import Opener, opened_file
from tenonnx_training.config import TrainingConfig
from tenonnx_training.embedding_losses import InfoNCE, Triplet
from tenonnx_training.images import ImageFolder, classes_of
from tenonnx_training.losses import LOSSES, NegativeLogLikelihood, SoftmaxCrossEntropy
from tenonnx_training.settings import lost, revived

#: Losses whose labels are class numbers.
OF_CLASSES = ("softmax_cross_entropy", "negative_log_likelihood")

#: Losses whose labels are group numbers of samples.
OF_GROUPS = ("triplet", "info_nce")


def read_files(graph: Graph, data: Any, config: TrainingConfig) -> tuple[Any, TrainingConfig]:
    """Replace paths of data and validation data by their contents."""
    given: dict[str, Any] = {"loss": config.loss, "weights": config.sample_weights, "output": config.output}
    result, validation = (
        read_data(graph, each, **given) if isinstance(each, str | os.PathLike) else each
        for each in (data, config.validation)
    )
    return result, replace(config, validation=validation)


def read_data(graph: Graph, path: str | os.PathLike[str], *, output: str | None = None, **how: Any) -> dict[str, Any]:
    """The data of a file or folder, for ``fit`` and ``evaluate``: ``table_arrays``, or images by class."""
    path = os.fspath(path)
    if Path(path).is_dir() and not is_table(path):
        return ImageFolder.of(path, ClassNames(graph).of("labels")).feeds(graph, output=output)
    return table_arrays(graph, path, output=output, **how)


def table_arrays(
    graph: Graph,
    path: str,
    *,
    loss: Any = None,
    labels: str | None = None,
    weights: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    output: str | None = None,
    opened: Opener = opened_file,
) -> dict[str, Any]:
    """The data of a table, for ``fit`` and ``evaluate``.

    ``columns`` names the columns of an input, ``weights`` that of the sample weights, and ``labels`` that of the
    labels: by default "labels", or the only remaining column. Text labels become class numbers; ``graph`` stores the
    class names in its metadata. Raises ``InvalidCall`` for missing or unsuitable data, with the row.
    """
    table, columns = read_table(path, opened), columns or {}
    noun = table.noun
    if weights is not None and weights not in table.names:
        what = f"--sample-weights: no such {noun} in {path}"
        raise InvalidCall(what, given=weights, available=", ".join(table.names))
    chosen = _labels(graph, table, labels, weights, loss, columns)
    feeds = table.feeds(graph, columns, [*chosen, *([weights] if weights else [])])
    if weights is not None:
        feeds[weights] = table.column(weights, DType.float32)
    return feeds | {name: _label_array(graph, table, name, loss, output) for name in chosen}


def _labels(
    graph: Graph,
    table: Table,
    labels: str | None,
    weights: str | None,
    loss: Any,
    columns: Mapping[str, Sequence[str]],
) -> list[str]:
    """The label column, empty where the loss is a value of the model."""
    inputs = [value.name for value in graph.inputs]
    used = {weights, *inputs, *(name for names in columns.values() for name in names)}
    others = [name for name in table.names if name not in used]
    names_text = ", ".join(table.names)
    if len(inputs) == 1 and inputs[0] not in (*table.names, *columns) and labels is None:
        others = [name for name in others if name == "labels"]
    if not others and loss is not None and not (isinstance(loss, str) and loss not in LOSSES):
        raise InvalidCall(f"{table.path} has no labels for the loss", given=names_text, do="--labels NAME")
    if labels is not None and labels not in others:
        raise InvalidCall(
            f"--labels: no such array or column in {table.path}",
            given=labels,
            available=", ".join(others) or names_text,
        )
    if labels is not None or "labels" in others:
        return [labels or "labels"]
    if len(others) > 1:
        raise InvalidCall(
            f"{table.path} has several arrays or columns in addition to the inputs: name the labels",
            given=", ".join(others),
            do=f"--labels {others[0]}",
        )
    return others


def loss_of(state: TrainingState | None) -> Any:
    """The loss of a training state: a name or an object; None for a function, which files cannot store."""
    before = None if state is None else state.settings.get("loss")
    return None if before is None or lost(before) else revived(before, "loss")


def _reads_classes(loss: Any) -> bool:
    """Whether the labels of a loss, a name or an object, are class numbers."""
    return isinstance(loss, SoftmaxCrossEntropy | NegativeLogLikelihood) or loss in OF_CLASSES


def _label_array(graph: Graph, table: Table, name: str, loss: Any, output: str | None) -> Any:
    """A column of labels: class numbers, or numbers like those that the model predicts."""
    loss = loss or loss_of(graph.training_state)
    groups = isinstance(loss, Triplet | InfoNCE) or loss in OF_GROUPS
    if groups or _reads_classes(loss) or (loss is None and table.is_text(name)):
        try:
            return read_labels(table, name, graph, None if groups else classes_of(graph, output))
        except InvalidFeed:
            raise
        except InvalidCall as error:
            error.do = "give the number of each class, from 0 on, as the model counts them"
            raise
    if table.is_text(name):
        raise InvalidCall(
            f'the labels "{name}" are strings, which the loss does not read',
            given=loss if isinstance(loss, str) else type(loss).__name__,
            available=f"losses of classes: {', '.join((*OF_CLASSES, *OF_GROUPS))}",
        )
    (kept,) = (field.type for field in table.fields if field.name == name)
    if table.noun == "array" or (loss is None and kept.startswith(("int", "uint"))):
        return table.column(name, DType.int64)
    floats = [v.tensor for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    kind = floats[0] if floats else TensorType(DType.float32)
    array = table.column(name, kind.dtype)
    return array.reshape(-1, *[1] * (len(kind.shape) - 1)) if kind.shape and array.ndim == 1 else array
