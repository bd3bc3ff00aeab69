"""Data for training and evaluation from files: numpy archives, tables, and folders of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import columns_option, gathered, in_order

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx.extend.formats import TrainingState


@dataclass(frozen=True)
class DataOptions:
    """Options of the data, and of converting images to model inputs."""

    data: str
    labels: str | None
    columns: Mapping[str, Sequence[str]]
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
        """Read the inputs, labels and weights in ``data`` or ``validation``, by name.

        Class folders of the validation data have the same numbers as those of the training data.
        """
        from tenonnx.extend import InvalidCall
        from tenonnx_cli.extend import data_file
        from tenonnx_data import is_table
        from tenonnx_training.tables import table_arrays

        path = validation or self.data
        if Path(path).is_dir() and not is_table(path):
            if self.labels is not None or weights is not None or self.columns:
                given = f"--labels {self.labels}" if self.labels else "--sample-weights or --columns"
                raise InvalidCall("a folder of images has no arrays to name", given=given)
            return _from_folder(graph, path, self, output)
        if validation is None and (self.image_size or self.image_mean or self.image_std):
            raise InvalidCall(
                "--image-size, --image-mean or --image-std was given without a folder of images", given=path
            )
        return table_arrays(
            graph,
            path,
            loss=loss,
            labels=self.labels,
            weights=weights,
            columns=self.columns,
            output=output,
            opened=data_file,
        )


@dataclass(frozen=True)
class ClassOptions:
    """Options of a classification loss or metric."""

    ignore_index: int | None
    class_axis: int | None

    def loss(self, name: str | None, state: TrainingState | None = None) -> Any:
        """The loss by name, or the loss of a training state, with these options applied."""
        from tenonnx.extend import InvalidCall
        from tenonnx_training.losses import LOSSES, NegativeLogLikelihood, SoftmaxCrossEntropy
        from tenonnx_training.tables import OF_CLASSES, loss_of

        given = {option: value for option, value in asdict(self).items() if value is not None}
        if not given:
            return name
        before = name or loss_of(state)
        if isinstance(before, NegativeLogLikelihood | SoftmaxCrossEntropy):
            return replace(before, **given)
        if before not in OF_CLASSES:
            raise InvalidCall(
                "--ignore-index or --class-axis was given without a classification loss",
                given=f"--loss {name}" if name else "no --loss",
                available=", ".join(OF_CLASSES),
            )
        return LOSSES[before](**given)


def _numbers_of(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...]:
    """Parse ``0.5`` or ``0.485,0.456,0.406``."""
    try:
        return () if text is None else tuple(map(float, text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 0.485,0.456,0.406", ctx, option) from error


data_options = in_order(
    click.option(
        "--data",
        required=True,
        metavar="PATH",
        help="Inputs and labels as columns of a .npz, .csv, .parquet, .arrow or .jsonl file, a folder of these, or a "
        "Hugging Face dataset on disk; or a folder with one subfolder of images for each class.",
    ),
    click.option(
        "--labels",
        "--label",
        metavar="NAME",
        help='The array or column of --data with the labels; by default "labels", or the only one that is not an '
        "input. Text labels are numbered, and the model keeps their names in its metadata.",
    ),
    columns_option,
    click.option(
        "--image-size",
        type=click.IntRange(min=1),
        metavar="PIXELS",
        help="Height and width to resize images to, where the model has dynamic ones; by default the size of the "
        "first image.",
    ),
    click.option(
        "--image-mean",
        metavar="A,B,C",
        callback=_numbers_of,
        help="Mean to subtract from each channel, for pixels from 0 to 1.",
    ),
    click.option(
        "--image-std", metavar="A,B,C", callback=_numbers_of, help="Standard deviation to divide each channel by."
    ),
    gathered("data", DataOptions),
)

class_options = in_order(
    click.option("--ignore-index", type=int, metavar="LABEL", help="Label that loss and metrics ignore, such as -100."),
    click.option(
        "--class-axis",
        type=int,
        metavar="AXIS",
        help="Axis of the classes in the scores: 1 (default), as in PyTorch, or -1 for the last axis.",
    ),
    gathered("classes", ClassOptions),
)


def _from_folder(graph: Graph, path: str, how: DataOptions, output: str | None) -> dict[str, Any]:
    from tenonnx_cli.extend import complain, plural
    from tenonnx_data import ClassNames
    from tenonnx_training.images import ImageFolder

    classes = ClassNames(graph).of("labels")
    folder, side = ImageFolder.of(path, classes), how.image_size
    feeds = folder.feeds(
        graph, output=output, size=(side, side) if side else None, mean=how.image_mean, std=how.image_std
    )
    names = [name if folder.numbered else f"{number} {name}" for number, name in enumerate(folder.classes[:11])]
    shown = ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])
    complain(f"{path}: {plural(len(folder.files), 'image')} of the classes {shown}")
    return feeds
