"""Options of a run, each defined once with its help text and flag."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx import InvalidCall
from tenonnx.extend.options import option

#: Formats of the output.
FORMATS = ("parquet", "arrow")

#: Ways to resize an image to the model's size.
RESIZES = ("stretch", "crop")

#: Default number of rows in a part, and the most of a row group that is not split if the model is cheap.
PART_ROWS, GROUP_ROWS = 250_000, 1 << 20


@dataclass(frozen=True, slots=True)
class ScoreConfig:
    """Settings of scoring; the fields are the options of ``tenonnx score``.

    ``columns`` maps inputs to their columns, ``keep`` names columns to copy to the output, ``outputs`` the outputs to
    compute. ``on`` selects the engine: ``local:N`` for N processes, ``ray:ADDRESS``, ``spark:MASTER``. Each worker has
    ``threads`` threads of ``backend``, and scores ``batch`` rows at a time; by default the cores are divided among
    workers, and the batch size grows until that no longer pays off. ``pixels`` is the range of pixel values that the
    model expects, before ``mean`` and ``std`` of channels.
    """

    columns: Mapping[str, Sequence[str]] = option(
        {},
        "The columns that make an input, such as x=age,income. By default the column of the input's name, or for "
        "the only input of a model all columns that are not kept. Repeatable.",
        "--columns",
        kind="columns",
        metavar="INPUT=A,B",
    )
    keep: Collection[str] | None = option(
        None, "Columns of the input to write beside the outputs.", "--keep", kind="names", metavar="A,B"
    )
    outputs: Collection[str] | None = option(
        None, "The outputs of the model to compute. By default all.", "--output-names", kind="names", metavar="A,B"
    )
    on: str = option(
        "local",
        "Where to score: local[:PROCESSES], ray[:ADDRESS] or spark[:MASTER]. Ray and Spark need the extras "
        "[ray] and [spark] of tenonnx-score.",
        "--on",
        kind="shown",
        metavar="ENGINE",
    )
    format: str = option("parquet", "The format of the output.", "--format", kind="choice", choices=FORMATS)
    max_errors: float = option(
        0.01,
        "The share of bad rows above which the run fails. Bad rows are written to errors/ with the reason.",
        "--max-errors",
        kind="share",
        metavar="SHARE",
    )
    check: bool = option(
        False,
        "Score 100 rows first, from the beginnings of up to ten files, and show what they give; nothing is "
        "written if more than --max-errors of them are bad.",
        "--check",
    )
    overwrite: bool = option(
        False, "Remove what an earlier run wrote to the output folder, and start again.", "--overwrite"
    )
    backend: str = option(
        "auto",
        "The backend. By default the installed one of the highest rank that accepts the model.",
        "--backend",
        kind="shown",
        metavar="NAME",
    )
    threads: int | None = option(
        None,
        "Threads of the backend in each worker. By default the workers share the cores of the machine, and a cheap "
        "model has one thread; on Ray and Spark a worker has one.",
        "--threads",
        kind="rows",
        metavar="N",
    )
    batch: int | None = option(
        None,
        "Batch size. By default it grows as long as throughput does.",
        "--batch-size",
        kind="rows",
    )
    part_rows: int | None = option(
        None,
        "Rows of one file of the output. A resumed run repeats only the files that were not finished. By default "
        "250,000; a cheap model gets whole row groups of Parquet of up to 1,048,576 rows.",
        "--part-rows",
        kind="rows",
        metavar="ROWS",
    )
    pixels: str | None = option(
        None,
        "For images: the range of pixel values that the model takes, such as 0:1, -1:1 or 0:255. Required where "
        "the input is floating-point.",
        "--pixels",
        kind="text",
        metavar="LOW:HIGH",
    )
    mean: Sequence[float] | None = option(
        None, "For images: subtracted from each channel after --pixels.", "--mean", kind="numbers", metavar="R,G,B"
    )
    std: Sequence[float] | None = option(
        None, "For images: each channel is divided by it after --mean.", "--std", kind="numbers", metavar="R,G,B"
    )
    resize: str | None = option(
        None,
        "For images of another size than the model's: stretch, or scale the shorter side and crop the center. By "
        "default they are bad rows.",
        "--resize",
        kind="choice",
        choices=RESIZES,
    )

    def __post_init__(self) -> None:
        for name in ("batch", "threads", "part_rows"):
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise InvalidCall(f"{name} is not a positive integer", given=repr(number)[:80])
        if not isinstance(self.max_errors, int | float) or not 0 <= self.max_errors <= 1:
            raise InvalidCall("max_errors is not between 0 and 1", given=repr(self.max_errors)[:80])
        for name, known in (("format", FORMATS), ("resize", RESIZES)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InvalidCall(f"unknown {name}", given=repr(value)[:80], available=", ".join(known))
        for name in ("keep", "outputs"):
            if isinstance(getattr(self, name), str):
                raise InvalidCall(f"{name} is not a list of names", given=repr(getattr(self, name))[:80])

    def of_scorer(self) -> dict[str, Any]:
        """The options shared with ``Scorer``; the batch size is chosen by trial."""
        names = ("columns", "keep", "outputs", "backend", "threads", "pixels", "mean", "std", "resize")
        return {name: getattr(self, name) for name in names}
