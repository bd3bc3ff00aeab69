"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from tenonnx_cli.printable import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Seconds after which work is long.
PATIENCE = 1.0

#: Seconds after which it is said what code of a package is taking them.
PATIENCE_WITH_PACKAGES = 2.0


def say(text: str = "") -> None:
    """Print a line of the result."""
    _print(printable(text))


def say_lines(text: str) -> None:
    """Print lines of the result, in which no text of a file may be but such as is printable."""
    _print(printable_lines(text))


def _print(text: str) -> None:
    click.echo(text, _results[-1] if _results else None)


def complain(text: str) -> None:
    """Print a note or an error."""
    click.echo(printable_lines(text), err=True)


def complain_of_unused(path: str, names: Sequence[str]) -> None:
    """Say what in a file of inputs is none."""
    if names:
        complain(f"{printable(path)}: {printable(', '.join(names))} left out, as the model has no such input")


def say_json(data: Any) -> None:
    import json

    _print(json.dumps(data, indent=2, allow_nan=False, default=str))


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


#: Where results are printed while stdout is stderr.
_results: list[TextIO] = []


def results_aside() -> None:
    """Let results go to stderr, where the file that the command writes goes to stdout."""
    _results.append(sys.stderr)
    click.get_current_context().call_on_close(_results.clear)


def standard_output() -> BinaryIO:
    """Where a file called - is written to. Raises ``InvalidCall`` for a terminal, and where it is closed."""
    from tenonnx import InvalidCall

    if sys.__stdout__ is None and sys.stdout.name == os.devnull:
        raise InvalidCall("- is standard output, which is closed", do="give -o FILE")
    if sys.stdout.isatty():
        raise InvalidCall("a model is not written to a terminal", do="redirect standard output, or give -o FILE")
    return sys.stdout.buffer


def standard_input(of: str = "the model") -> bytes:
    """The bytes that are piped to a command, where a file called - is read, for what it is.

    Raises ``InvalidCall`` where there are none, as for the second of two such files.
    """
    from tenonnx import InvalidCall

    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    if not data:
        what = f"- reads {of} from standard input, which is empty"
        raise InvalidCall(what, do="pipe a file to the command: cat FILE | tenonnx ... -; only one argument can be -")
    return data


def data_file(path: str) -> BinaryIO:
    """A file of arrays or a table, from its beginning; - is what is piped to the command, as often as it is read.

    Raises ``InvalidCall`` for a folder, a pipe or a device, which would be waited for.
    """
    import io
    from pathlib import Path

    from tenonnx import InvalidCall

    if path != "-":
        if Path(path).exists() and not Path(path).is_file():
            raise InvalidCall(f'"{path}" must be a file that can be read', given="a folder, a pipe or a device")
        return Path(path).open("rb")
    held = click.get_current_context().meta
    if _PIPED not in held:
        held[_PIPED] = standard_input("the data")
    return io.BytesIO(held[_PIPED])


#: Where a command keeps what was piped to it as data.
_PIPED = "tenonnx.piped"


@contextmanager
def aside() -> Iterator[None]:
    """Let what others print, in Python or not, go to stderr: stdout is for results."""
    if _results:
        yield
        return
    with ExitStack() as stack:
        stdout = sys.stdout
        _results.append(stdout)
        stack.callback(_results.clear)
        stack.callback(setattr, sys, "stdout", stdout)
        sys.stdout = sys.stderr
        with suppress(OSError, ValueError, AttributeError):  # what takes their place may be no file
            if (stdout.fileno(), sys.stderr.fileno()) == (1, 2):
                stdout.flush()
                _results[-1] = stack.enter_context(os.fdopen(kept := os.dup(1), "w", encoding=stdout.encoding))
                stack.callback(os.dup2, kept, 1)
                os.dup2(2, 1)
        yield


@contextmanager
def one_document(of: str) -> Iterator[None]:
    """Let what a command of a package prints reach stdout if it is JSON as a whole, else stderr.

    Raises ``PluginError`` where it is not; where the command fails, what it printed goes to stderr.
    """
    import io
    import json

    from tenonnx import PluginError

    printed, end, text = io.BytesIO(), None, ""
    try:
        with aside():  # what Python does not print
            outside = sys.stdout, _results[-1]
            sys.stdout = _results[-1] = io.TextIOWrapper(printed, "utf-8", newline="", write_through=True)
            try:
                yield
            except (SystemExit, click.exceptions.Exit) as error:
                end = error
            finally:
                text = printed.getvalue().decode("utf-8", "replace")
                sys.stdout, _results[-1] = outside
    except BaseException:
        click.echo(text, err=True, nl=False)
        raise
    try:
        json.loads(text)
    except ValueError as error:
        click.echo(text, err=True, nl=False)
        raise PluginError(
            f'the command "{of}" must print JSON alone with --json',
            given="what is on stderr" if text.strip() else "nothing",
            do="print notes to stderr: click.echo(text, err=True)",
        ) from error
    click.echo(text, nl=False)
    if end is not None:
        raise end


@contextmanager
def attending(doing: str) -> Iterator[None]:
    """Run code of a package, with its output aside; say what that is once it takes long."""
    from threading import Timer

    timer = Timer(PATIENCE_WITH_PACKAGES, lambda: complain(f"{doing} ..."))
    timer.daemon = True
    timer.start()
    try:
        with aside():
            yield
    finally:
        timer.cancel()


@contextmanager
def working(on: str) -> Iterator[None]:
    """Show on a terminal's stderr what is being worked on, once it takes long. What others print goes to stderr."""
    with aside():  # around what is shown, which also stands in the place of stdout
        if sys.stderr.isatty():
            with _shown_late(on):
                yield
        else:
            yield


@contextmanager
def _shown_late(on: str) -> Iterator[None]:
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
