"""Data for training and evaluation from files: archives of numpy, tables, and folders of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import gathered, in_order

if TYPE_CHECKING:
    from tenonnx.extend import Graph

#: Losses whose labels are the numbers of classes.
_OF_CLASSES = ("softmax_cross_entropy", "negative_log_likelihood")


@dataclass(frozen=True)
class DataOptions:
    """Which data there is, and how images become what the model takes."""

    data: str
    labels: str | None
    image_size: int | None
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]

    def read(
        self,
        graph: Graph,
        loss: str | None,
        *,
        weights: str | None,
        output: str | None,
        validation: str | None = None,
    ) -> dict[str, Any]:
        """The inputs, labels and weights that a model is trained or measured with, of ``data`` or ``validation``.

        Classes of a folder for validation are numbered as in that of the data.
        """
        from tenonnx.extend import InvalidCall
        from tenonnx_cli.extend import is_table

        path = validation or self.data
        if Path(path).is_dir():
            if self.labels is not None or weights is not None:
                given = f"--labels {self.labels}" if self.labels else "--sample-weights"
                raise InvalidCall("a folder of images has no arrays to name", given=given)
            return _from_folder(graph, path, self, output)
        if validation is None and (self.image_size or self.image_mean or self.image_std):
            raise InvalidCall("--image-size, --image-mean and --image-std need a folder of images", given=path)
        read = _from_table if is_table(path) else _from_archive
        return read(graph, path, self.labels, loss, weights)


@dataclass(frozen=True)
class ClassOptions:
    """What a loss or metric of classes is told beside its name."""

    ignore_index: int | None
    class_axis: int | None

    def loss(self, name: str | None) -> Any:
        """A loss by name, as it is, or with what these options say."""
        from tenonnx.extend import InvalidCall
        from tenonnx_training.losses import LOSSES

        given = {option: value for option, value in asdict(self).items() if value is not None}
        if not given:
            return name
        if name not in _OF_CLASSES:
            raise InvalidCall(
                "--ignore-index and --class-axis need a classification loss", given=f"--loss {name}",
                available=", ".join(_OF_CLASSES),
            )  # fmt: skip
        return LOSSES[name](**given)


def _numbers_of(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...]:
    """``0.5`` or ``0.485,0.456,0.406``."""
    try:
        return () if text is None else tuple(map(float, text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no list of numbers such as 0.485,0.456,0.406", ctx, option) from error


data_options = in_order(
    click.option(
        "--data", required=True, metavar="PATH",
        help="A .npz or .csv file with the inputs by name and the labels; or a folder with one subfolder of images "
        "for each class.",
    ),
    click.option(
        "--labels", metavar="NAME",
        help='The array or column of --data with the labels; by default "labels", or the only one that is not an '
        "input.",
    ),
    click.option(
        "--image-size", type=click.IntRange(min=1), metavar="PIXELS",
        help="Height and width to resize images to, where the model has dynamic ones; by default the size of the "
        "first image.",
    ),
    click.option(
        "--image-mean", metavar="A,B,C", callback=_numbers_of,
        help="Mean to subtract from each channel, for pixels from 0 to 1.",
    ),
    click.option(
        "--image-std", metavar="A,B,C", callback=_numbers_of, help="Standard deviation to divide each channel by."
    ),
    gathered("data", DataOptions),
)  # fmt: skip

class_options = in_order(
    click.option("--ignore-index", type=int, metavar="LABEL", help="Label that loss and metrics ignore, such as -100."),
    click.option(
        "--class-axis", type=int, metavar="AXIS",
        help="Axis of the classes in the scores: 1 (default), as in PyTorch, or -1 for the last axis.",
    ),
    gathered("classes", ClassOptions),
)  # fmt: skip


def _from_folder(graph: Graph, path: str, how: DataOptions, output: str | None) -> dict[str, Any]:
    from tenonnx_cli.extend import complain, plural
    from tenonnx_training.images import ImageFolder

    classes = ImageFolder.of(how.data).classes if path != how.data and Path(how.data).is_dir() else None
    folder, side = ImageFolder.of(path, classes), how.image_size
    feeds = folder.feeds(
        graph, output=output, size=(side, side) if side else None, mean=how.image_mean, std=how.image_std
    )
    names = [name if folder.numbered else f"{number} {name}" for number, name in enumerate(folder.classes[:11])]
    shown = ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])
    complain(f"{path}: {plural(len(folder.files), 'image')} of the classes {shown}")
    return feeds


def _from_archive(graph: Graph, path: str, labels: str | None, loss: str | None, weights: str | None) -> dict[str, Any]:
    from tenonnx.extend import InvalidCall
    from tenonnx_cli.extend import read_archive

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
    from tenonnx_cli.extend import parse_column, read_columns, table_feeds

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
        raise InvalidCall(f"{path} has no labels, which the loss needs", given=held, do="--labels NAME")
    if labels is not None and labels not in others:
        raise InvalidCall(
            f"--labels must name an array or column of {path}", given=labels, available=", ".join(others) or held
        )
    if labels is not None or "labels" in others:
        return [labels or "labels"]
    if len(others) > 1:
        raise InvalidCall(
            f"{path} has several arrays or columns beside the inputs: name the labels",
            given=", ".join(others),
            do=f"--labels {others[0]}",
        )
    return others


def _numbers(graph: Graph, name: str, fields: Mapping[int, str], path: str, loss: str | None) -> Any:
    """A column of labels: numbers of classes, or numbers as the model predicts them."""
    from tenonnx.extend import DType, InvalidCall, TensorType, Value
    from tenonnx_cli.extend import parse_column

    settings = {} if graph.training_state is None else graph.training_state.settings
    loss = loss or settings.get("loss")
    if loss in _OF_CLASSES:
        try:
            return parse_column(Value(name, TensorType(DType.int64)), name, fields, path)
        except InvalidCall as error:
            error.do = "give the number of each class, from 0 on, as the model counts them"
            raise
    floats = [v.tensor for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    kind = floats[0] if floats else TensorType(DType.float32)
    array = parse_column(Value(name, TensorType(kind.dtype)), name, fields, path)
    return array.reshape(-1, *[1] * (len(kind.shape) - 1)) if kind.shape else array
