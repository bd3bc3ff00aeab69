"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Seconds after which work is long.
PATIENCE = 1.0

#: Names in a file may hold anything: what would steer a terminal is printed as an escape.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    return text.translate(_CONTROL)


def say(text: str = "") -> None:
    """Print a part of the result."""
    click.echo(printable(text))


def complain(text: str) -> None:
    """Print a note or an error."""
    click.echo(printable(text), err=True)


def complain_of_unused(path: str, names: Sequence[str]) -> None:
    """Say what in a file of inputs is none."""
    if names:
        complain(f"{path}: {', '.join(names)} left out, as the model has no such input")


def say_json(data: Any) -> None:
    import json

    click.echo(json.dumps(data, indent=2, allow_nan=False, default=str))


def say_table(rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> None:
    """Print rows in columns: by rich on a terminal, else one line each, padded with spaces."""
    if sys.stdout.isatty():
        _say_rich(rows, headers)
        return
    lines = [headers, *rows] if headers else list(rows)
    widths = [max(len(printable(cell)) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  " + "  ".join(printable(cell).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _say_rich(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, show_header=bool(headers), box=box.SIMPLE_HEAD if headers else None, pad_edge=not headers)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(highlight=False).print(table)


@contextmanager
def working(on: str) -> Iterator[None]:
    """Show on a terminal's stderr what is being worked on, once it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    shown: list[Any] = []
    timer = Timer(PATIENCE, lambda: shown.append(_show_status(on)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for status in shown:
            status.stop()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as long work in another language would keep Python from hearing of it.

    For work that writes nothing. A shell tells the exit code of the signal, which is that of an interruption here.
    """
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _show_status(text: str) -> Any:
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(printable(text)))
    status.start()
    return status


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
