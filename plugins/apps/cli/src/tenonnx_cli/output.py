"""Output of commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from tenonnx_cli.printable import printable, printable_lines
from tenonnx_cli.wording import for_command_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Seconds after which work is long.
PATIENCE = 1.0


def say(text: str = "", *, style: str = "") -> None:
    """Print a line of the result, on a terminal in the style given."""
    _print(printable(text), style)


def say_lines(text: str) -> None:
    """Print lines of the result, in which no text of a file may be but such as is printable."""
    _print(printable_lines(text))


#: Whether the verdict was printed, behind which a quiet command prints nothing; empty for other commands.
_quiet: list[bool] = []


def verdict_alone(ctx: click.Context) -> None:
    """Print the first line of the result and no more, until the command ends."""
    _quiet.append(False)
    ctx.call_on_close(_quiet.clear)


def is_quiet() -> bool:
    """Whether the verdict alone is printed."""
    return bool(_quiet)


def _print(text: str, style: str = "") -> None:
    if _quiet and _quiet[0]:
        return
    if _quiet:
        _quiet[0] = True
    text = for_command_line(text)
    stream = _results[-1] if _results else sys.stdout
    if style and in_color(stream):
        _draw(stream, text, style)
    else:
        click.echo(text, stream)


def complain(text: str, *, style: str = "yellow") -> None:
    """Print a note or an error."""
    text = for_command_line(printable_lines(text))
    if in_color(sys.stderr):
        head, separator, rest = text.partition(":")
        known = separator and len(head) < _LABEL and "\n" not in head
        _draw(sys.stderr, *((head, style, f":{rest}") if known else (text, "")))
    else:
        click.echo(text, err=True)


#: Longest beginning of a note, up to its colon, that is drawn as a label.
_LABEL = 24


def is_drawn(stream: TextIO) -> bool:
    """Whether tables have lines and fit the width: on a terminal, and where FORCE_COLOR is set."""
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def in_color(stream: TextIO) -> bool:
    """Whether text has colors: NO_COLOR turns them off, FORCE_COLOR on where the stream is no terminal."""
    return not os.environ.get("NO_COLOR") and is_drawn(stream)


def _draw(stream: TextIO, text: str, style: str, rest: str = "") -> None:
    """Print through rich, which is imported only here and for tables; it wraps no line."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    console.print(Text(text, style=style) + Text(rest))


def complain_of_unused(path: str, names: Sequence[str]) -> None:
    """Say what in a file of inputs is none."""
    if names:
        complain(f"{printable(path)}: {printable(', '.join(names))} left out, as the model has no such input")


def say_json(data: Any) -> None:
    import json

    _print(json.dumps(data, indent=2, allow_nan=False, default=str))


def say_table(rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> None:
    """Print rows in columns: by rich on a terminal, else one line each, padded with spaces."""
    stream = _results[-1] if _results else sys.stdout
    if _quiet:
        return
    if is_drawn(stream):
        _say_rich(rows, headers, stream)
        return
    lines = [headers, *rows] if headers else list(rows)
    widths = [max(len(printable(cell)) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  " + "  ".join(printable(cell).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _say_rich(rows: Sequence[Sequence[str]], headers: Sequence[str], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, show_header=bool(headers), box=box.SIMPLE_HEAD if headers else None, pad_edge=not headers)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(file=stream, highlight=False).print(table)


#: Where results are printed while stdout is stderr.
_results: list[TextIO] = []


def results_aside() -> None:
    """Let results go to stderr, where the file that the command writes goes to stdout."""
    _results.append(sys.stderr)
    click.get_current_context().call_on_close(_results.clear)


def standard_output() -> BinaryIO:
    """Standard output for a file called -. Raises ``InvalidCall`` for a terminal, and where it is closed."""
    from tenonnx import InvalidCall

    stdout = next((each for each in _results if each is not sys.stderr), sys.stdout)  # stdout may be aside
    if sys.__stdout__ is None and stdout.name == os.devnull:
        raise InvalidCall("cannot write to standard output (-): it is closed", do="give -o FILE")
    if stdout.isatty():
        raise InvalidCall(
            "standard output is a terminal, to which no model is written",
            do="redirect standard output, or give -o FILE",
        )
    return stdout.buffer


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
            raise InvalidCall(f'cannot read "{path}": a folder, a pipe or a device')
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
            f'the command "{of}" printed something other than JSON with --json',
            given="what is on stderr" if text.strip() else "nothing",
            do="print notes to stderr: click.echo(text, err=True)",
        ) from error
    click.echo(text, nl=False)
    if end is not None:
        raise end


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


def human_bytes(*sizes: int) -> list[str]:
    """Sizes in the unit of the largest, which the last one names: ``97.6``, ``97.4 MiB``."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    power = min(max(max(sizes, default=0).bit_length() - 1, 0) // 10, len(units) - 1)
    texts = [f"{size / 1024**power:.1f}" if power else f"{size:,}" for size in sizes]
    return [*texts[:-1], f"{texts[-1]} {units[power]}"]


def human_seconds(seconds: float) -> str:
    """A time in its unit: ``65.4 µs``, ``25.5 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} µs"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
