"""``tenonnx score``: run a model over tables, images and arrays."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import (
    FILE,
    INTERRUPTED,
    Command,
    complain,
    config_options,
    input_columns,
    json_option,
    names_like,
    opened_for_reading,
    plural,
    quiet_option,
    say,
    say_json,
    say_table,
)
from tenonnx_score.options import ScoreConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from tenonnx_data.readers import Bad
    from tenonnx_score.run import Progress, Scores, Started

#: Seconds between two progress lines: on a terminal, where the line is overwritten, and elsewhere.
_EVERY = {True: 0.5, False: 10.0}

#: Rows that ``--check`` prints.
_SHOWN = 5


def _numbers(ctx: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list such as 0.485,0.456,0.406", ctx, option) from None


_KINDS: dict[str, dict[str, Any]] = {
    "flag": {"is_flag": True},
    "text": {},
    "shown": {"show_default": True},
    "names": {"callback": names_like("id,date")},
    "columns": {"multiple": True, "callback": input_columns},
    "numbers": {"callback": _numbers},
    "rows": {"type": click.IntRange(min=1), "show_default": True},
    "share": {"type": click.FloatRange(0, 1), "show_default": True},
}


@click.command(
    "score",
    cls=Command,
    examples=[
        "tenonnx score model.onnx --input 'data/*.parquet' -o scores",
        "tenonnx score model.onnx --input images -o scores --pixels 0:1",
    ],
)
@click.argument("model", type=FILE, metavar="MODEL")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="FILES",
    help="A file, a folder, or a pattern in quotes, such as 'data/*.parquet': Parquet, CSV, JSON lines, Arrow, images, "
    ".npy or .npz, or a Hugging Face dataset on disk. Repeatable.",
)
@click.option("-o", "--output", type=FILE, required=True, metavar="FOLDER", help="The folder to write to.")
@config_options(of=ScoreConfig, kinds=_KINDS)
@quiet_option
@json_option
def command(model: str, inputs: Sequence[str], output: str, as_json: bool, **options: Any) -> None:
    """Score files of tables, images or arrays with a model.

    Columns are fed to the inputs of their names; the outputs become columns of the files in FOLDER, whose rows are in
    the order of the input. A run that was stopped goes on when it is called again. Bad rows are written to
    FOLDER/errors with their reasons, and left out.
    """
    shown = _Shown(quiet=as_json)
    try:
        from tenonnx_score.run import Watch, score

        watch = Watch(shown.started, shown.checked, shown.progress)
        scores = score(opened_for_reading(model), list(inputs), output, ScoreConfig(**options), watch=watch)
    except KeyboardInterrupt:
        shown.end()
        complain("interrupted: repeat the command to go on")
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        shown.end()
    if as_json:
        say_json(scores.to_dict())
    else:
        _say(scores)


class _Shown:
    """Progress of a run on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._over = sys.stderr.isatty() and not quiet
        self._last = time.monotonic()
        self._written = False

    def started(self, started: Started) -> None:
        complain(
            f"scoring {plural(started.files, 'file')} on {started.engine}: {started.backend}, "
            f"{plural(started.threads, 'thread')} a worker, batches of {plural(started.batch, 'row')}"
        )
        if not started.exact:
            complain("note: the last bits of the outputs depend on the size of a batch, which is therefore fixed")
        if started.rows_before:
            complain(f"{plural(started.rows_before, 'row')} were done by an earlier run")

    def checked(self, table: pa.Table, bad: Sequence[Bad]) -> None:
        complain(f"check: {plural(table.num_rows, 'row')} scored, {len(bad)} bad")
        for field in table.schema:
            values = ", ".join(str(value) for value in table.column(field.name)[:_SHOWN].to_pylist())
            complain(f"  {field.name}: {field.type}: {values[:200]}")
        for each in bad[:_SHOWN]:
            complain(f"  {each.file}, row {each.row}: {each.reason}")

    def progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < _EVERY[self._over]:
            return
        self._last = now
        left = "" if progress.seconds_left == float("inf") else f", {_duration(progress.seconds_left)} left"
        text = f"{progress.rows:,} rows, {progress.share:.0%}, {progress.rate:,.0f} rows/s{left}"
        if self._over:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
            self._written = True
        else:
            complain(text)

    def end(self) -> None:
        if self._written:
            click.echo("\r\x1b[K", err=True, nl=False)
        self._written = False


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _say(scores: Scores) -> None:
    files = plural(len(scores.files), "file")
    say(f"{scores.folder}: {plural(scores.rows, 'row')} in {files}, {plural(scores.bad, 'bad row')}")
    rows = []
    for name, found in scores.summary.columns.items():
        count = max(found["count"], 1)
        missing = f"{found['nulls'] / count:.2%}"
        nans = f"{found['nans'] / count:.2%}" if "nans" in found else ""
        rows.append((name, missing, nans, _range(found)))
    say_table(rows, ("column", "nulls", "NaN", "range"))
    if scores.bad:
        say(f"errors are in {scores.folder / 'errors'}; the first: {scores.reason}")


def _range(found: dict[str, Any]) -> str:
    if found.get("min") is not None:
        return f"{found['min']:g} to {found['max']:g}"
    if found.get("values"):
        return ", ".join(f"{value}: {count:,}" for value, count in found["values"].items())
    return ""
