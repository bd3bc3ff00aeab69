"""Progress of a training run: a bar on terminals and in notebooks, lines in logs."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Mapping
from datetime import timedelta
from html import escape
from importlib import import_module
from typing import Any, Protocol

#: Seconds between two updates of a bar in a notebook, and between two log lines within an epoch.
REDRAWN, LOGGED = 0.1, 30.0


class Display(Protocol):
    """Progress display: an epoch with a number of batches (None if unknown) begins, advances and ends."""

    def begin(self, title: str, batches: int | None) -> None: ...

    def advance(self, measured: str) -> None: ...

    def end(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Progress:
    """A line for every finished epoch; during an epoch the loss, the throughput and the remaining time.

    ``wanted`` None shows progress on terminals and in notebooks.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._display = _display(wanted)
        self._title = ""
        self._begun = self._started = 0.0
        self._samples = self._batches = 0
        self._left: int | None = None

    def begin(self, epoch: int, batches: int | None, later: int | None) -> None:
        """Begin an epoch of ``batches`` batches, with ``later`` batches in the epochs after it; None if unknown."""
        self._title = f"epoch {epoch}"
        self._started, self._samples = time.perf_counter(), 0
        self._begun = self._begun or self._started
        self._left = None if batches is None or later is None else batches + later
        if self._display is not None:
            self._display.begin(self._title, batches)

    def advance(self, measured: Mapping[str, float], samples: int) -> None:
        if self._display is not None:
            self._samples += samples
            self._batches += 1
            self._left = None if self._left is None else self._left - 1
            self._display.advance(self._measured(measured))

    def end(self, measured: Mapping[str, float]) -> None:
        if self._display is not None:
            self._display.end(f"{self._title}: {self._measured(measured)}")

    def warn(self, text: str) -> None:
        """Show a warning in the progress display; without a display issue a Python warning."""
        if self._display is not None:
            self._display.say(f"warning: {text}")
        else:
            warnings.warn(text, stacklevel=2)

    def close(self) -> None:
        if self._display is not None:
            self._display.close()

    def _measured(self, measured: Mapping[str, float]) -> str:
        """Results, throughput of the epoch, and the remaining time, estimated from the mean time of a batch."""
        now = time.perf_counter()
        parts = [_line(measured), f"{self._samples / max(now - self._started, 1e-9):,.0f} samples/s"]
        if self._left and self._left > 0 and self._batches:
            left = math.ceil((now - self._begun) / self._batches * self._left)
            parts.append(f"{timedelta(seconds=left)} left")
        return "  ".join(parts)


def _display(wanted: bool | None) -> Display | None:
    if wanted is False:
        return None
    if _in_notebook():
        return _Notebook()
    if sys.stderr.isatty():
        return _Terminal()
    return _Log() if wanted else None


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which shows HTML; IPython on a terminal does not."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class _Terminal:
    """A bar on stderr, below the lines of the epochs."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def begin(self, title: str, batches: int | None) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            measured = TextColumn("{task.fields[measured]}")
            console, redirected = Console(stderr=True), sys.stdout.isatty()
            self._bar = Progress(*columns, measured, transient=True, console=console, redirect_stdout=redirected)
            self._bar.start()
        self._task = self._bar.add_task(title, total=batches, measured="")

    def advance(self, measured: str) -> None:
        self._bar.update(self._task, advance=1, measured=measured)

    def end(self, text: str) -> None:
        self.say(text)
        self._bar.remove_task(self._task)

    def say(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class _Notebook:
    """The lines of the epochs and a bar, in one output that is updated."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._lines: list[str] = []
        self._batches: int | None = None
        self._title, self._done, self._drawn = "", 0, 0.0

    def begin(self, title: str, batches: int | None) -> None:
        self._title, self._batches, self._done = title, batches, 0
        self._draw(title)

    def advance(self, measured: str) -> None:
        self._done += 1
        if time.perf_counter() - self._drawn >= REDRAWN:
            count = f"{self._done:,}" + ("" if self._batches is None else f" of {self._batches:,}")
            self._draw(f"{self._title}: {count} batches, {measured}")

    def end(self, text: str) -> None:
        self.say(text)

    def say(self, text: str) -> None:
        self._lines.append(text)
        self._draw(None)

    def close(self) -> None:
        self._draw(None)

    def _draw(self, text: str | None) -> None:
        """Show the lines and, with a text, the bar below them."""
        shell = import_module("IPython.display")  # an optional dependency, present in notebooks
        value = "" if self._batches is None else f' value="{self._done}" max="{max(self._batches, 1)}"'
        bar = "" if text is None else f"<div><progress{value}></progress> {escape(text)}</div>"
        page = shell.HTML(f"<pre>{escape(chr(10).join(self._lines))}</pre>{bar}")
        if self._handle is None:
            self._handle = shell.display(page, display_id=True)
        else:
            self._handle.update(page)
        self._drawn = time.perf_counter()


class _Log:
    """Lines on stderr: one for each epoch, and intermediate ones in long epochs."""

    def __init__(self) -> None:
        self._batches: int | None = None
        self._title, self._done, self._logged_at = "", 0, 0.0

    def begin(self, title: str, batches: int | None) -> None:
        self._title, self._batches, self._done, self._logged_at = title, batches, 0, time.perf_counter()

    def advance(self, measured: str) -> None:
        self._done += 1
        if time.perf_counter() - self._logged_at >= LOGGED:
            count = f"{self._done:,}" + ("" if self._batches is None else f" of {self._batches:,}")
            self.say(f"{self._title}: {count} batches, {measured}")
            self._logged_at = time.perf_counter()

    def end(self, text: str) -> None:
        self.say(text)

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing to close."""


def _line(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items() if name != "epoch")
