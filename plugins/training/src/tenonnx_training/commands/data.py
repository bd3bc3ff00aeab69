"""Data for training and evaluation from files: archives of numpy, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.extend import Graph

#: Losses whose labels are the numbers of classes.
_OF_CLASSES = ("softmax_cross_entropy", "negative_log_likelihood")


def read_data(
    graph: Graph, path: str, labels: str | None, loss: str | None, weights: str | None = None
) -> dict[str, Any]:
    """The arrays of a .npz or .csv file that a model is trained or measured with: its inputs, labels and weights."""
    from tenonnx.extend.commands import is_table

    read = _from_table if is_table(path) else _from_archive
    return read(graph, path, labels, loss, weights)


def _from_archive(graph: Graph, path: str, labels: str | None, loss: str | None, weights: str | None) -> dict[str, Any]:
    from tenonnx.extend import InvalidCall
    from tenonnx.extend.commands import read_archive

    arrays = read_archive(path)
    inputs = [*(value.name for value in graph.inputs), *([weights] if weights else [])]
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise InvalidCall(
            f'{path} must hold every input of the model and the weights, and "{missing[0]}" is not there',
            available=", ".join(arrays),
        )
    chosen = _labels([name for name in arrays if name not in inputs], path, labels, loss, ", ".join(arrays))
    return {name: arrays[name] for name in (*inputs, *chosen)}


def _from_table(graph: Graph, path: str, labels: str | None, loss: str | None, weights: str | None) -> dict[str, Any]:
    from tenonnx.extend import DType, InvalidCall, TensorType, Value
    from tenonnx.extend.commands import parse_column, read_columns, table_feeds

    columns, inputs = read_columns(path), [value.name for value in graph.inputs]
    if weights is not None and weights not in columns:
        raise InvalidCall(f"--sample-weights must name a column of {path}", given=weights, available=", ".join(columns))
    others = [name for name in columns if name not in inputs and name != weights]
    together = len(inputs) == 1 and inputs[0] not in columns  # one input of several features takes what is left
    among = [name for name in others if name == "labels"] if together and labels is None else others
    chosen = _labels(among, path, labels, loss, ", ".join(columns))
    features = {name: fields for name, fields in columns.items() if name not in (*chosen, weights)}
    feeds = table_feeds(graph, features, path)
    if weights is not None:
        feeds[weights] = parse_column(Value(weights, TensorType(DType.float32)), weights, columns[weights], path)
    return feeds | {name: _numbers(graph, name, columns[name], path, loss) for name in chosen}


def _labels(others: list[str], path: str, labels: str | None, loss: str | None, held: str) -> list[str]:
    """The one of ``others`` that is the labels, or none where the loss is a value of the model."""
    from tenonnx.extend import InvalidCall
    from tenonnx_training.losses import LOSSES

    if not others and loss in LOSSES:
        raise InvalidCall(
            f"{path} holds nothing beside the inputs, and the loss needs labels", given=held, do="--labels NAME"
        )
    if labels is not None and labels not in others:
        raise InvalidCall(f"--labels must name a part of {path}", given=labels, available=", ".join(others) or held)
    if labels is not None or "labels" in others:
        return [labels or "labels"]
    if len(others) > 1:
        raise InvalidCall(
            f"{path} must have one part beside the inputs, or say which one is the labels",
            given=", ".join(others),
            do=f"--labels {others[0]}",
        )
    return others


def _numbers(graph: Graph, name: str, fields: Mapping[int, str], path: str, loss: str | None) -> Any:
    """A column of labels: numbers of classes, or numbers as the model predicts them."""
    from tenonnx.extend import DType, TensorType, Value
    from tenonnx.extend.commands import parse_column

    settings = {} if graph.training_state is None else graph.training_state.settings
    loss = loss or settings.get("loss")
    if loss in _OF_CLASSES:
        return parse_column(Value(name, TensorType(DType.int64)), name, fields, path)
    floats = [v.tensor for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    kind = floats[0] if floats else TensorType(DType.float32)
    array = parse_column(Value(name, TensorType(kind.dtype)), name, fields, path)
    return array.reshape(-1, *[1] * (len(kind.shape) - 1)) if kind.shape else array
