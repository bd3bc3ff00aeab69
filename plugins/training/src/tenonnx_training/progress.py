"""What a terminal shows of a training under way."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any


class Progress:
    """On stderr a line for every epoch as soon as it is over, and on a terminal a bar with loss and throughput.

    ``shown`` is None for: if it is a terminal.
    """

    def __init__(self, shown: bool | None) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal if shown is None else shown
        self._bar: Any = None
        self._task: Any = None
        self._title = ""
        self._started = 0.0
        self._samples = 0

    def begin(self, epoch: int, batches: int | None) -> None:
        self._title = f"epoch {epoch}"
        if not (self._shown and self._terminal):
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            measured = TextColumn("{task.fields[measured]}")
            self._bar = Progress(
                *columns, measured, transient=True, console=_console(), redirect_stdout=sys.stdout.isatty()
            )
            self._bar.start()
        self._task = self._bar.add_task(self._title, total=batches, measured="")
        self._started, self._samples = time.perf_counter(), 0

    def advance(self, measured: Mapping[str, float], samples: int) -> None:
        if self._bar is None:
            return
        self._samples += samples
        rate = self._samples / max(time.perf_counter() - self._started, 1e-9)
        self._bar.update(self._task, advance=1, measured=f"{_line(measured)}  {rate:,.0f} samples/s")

    def end(self, measured: Mapping[str, float]) -> None:
        text = f"{self._title}: {_line(measured)}"
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
            self._bar.remove_task(self._task)
        elif self._shown:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _line(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items() if name != "epoch")
