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

#: Seconds after which progress is shown.
PATIENCE = 1.0


def say(text: str = "", *, style: str = "") -> None:
    """Print a line of the result, with the style on a terminal."""
    _print(printable(text), style)


def say_lines(text: str) -> None:
    """Print lines of the result, with text from files escaped."""
    _print(printable_lines(text))


#: Whether the verdict was printed, after which a quiet command prints nothing; empty for other commands.
_quiet: list[bool] = []


def verdict_alone(ctx: click.Context) -> None:
    """Print only the first line of the result, until the command ends."""
    _quiet.append(False)
    ctx.call_on_close(_quiet.clear)


def is_quiet() -> bool:
    """Whether only the verdict is printed."""
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


#: Maximum length of a note's prefix, up to its colon, that is styled as a label.
_LABEL = 24


def is_drawn(stream: TextIO) -> bool:
    """Whether tables are drawn and fit to the width: on a terminal, or with FORCE_COLOR."""
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def in_color(stream: TextIO) -> bool:
    """Whether text has colors: NO_COLOR disables them, FORCE_COLOR enables them without a terminal."""
    return not os.environ.get("NO_COLOR") and is_drawn(stream)


def _draw(stream: TextIO, text: str, style: str, rest: str = "") -> None:
    """Print with rich, imported lazily; lines are not wrapped."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    console.print(Text(text, style=style) + Text(rest))


def complain_of_unused(path: str, names: Sequence[str]) -> None:
    """Print the names in a file of inputs that are not inputs."""
    if names:
        complain(f"{printable(path)}: {printable(', '.join(names))} left out, as the model has no such input")


def say_json(data: Any) -> None:
    import json

    _print(json.dumps(data, indent=2, allow_nan=False, default=str))


def say_table(rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> None:
    """Print rows in columns: with rich on a terminal, else as lines padded with spaces."""
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


#: the stream for results while a command writes its file to stdout
_results: list[TextIO] = []


def results_aside() -> None:
    """Redirect results to stderr, since the command writes its file to stdout."""
    _results.append(sys.stderr)
    click.get_current_context().call_on_close(_results.clear)


def standard_output() -> BinaryIO:
    """Standard output for a file called -. Raises ``InvalidCall`` if it is a terminal or closed."""
    from tenonnx import InvalidCall

    stdout = next((each for each in _results if each is not sys.stderr), sys.stdout)  # stdout may be redirected
    if sys.__stdout__ is None and stdout.name == os.devnull:
        raise InvalidCall("cannot write to standard output (-): it is closed", do="give -o FILE")
    if stdout.isatty():
        raise InvalidCall(
            "standard output is a terminal, to which no model is written",
            do="redirect standard output, or give -o FILE",
        )
    return stdout.buffer


def standard_input(of: str = "the model") -> bytes:
    """The bytes piped to a command, for a file called -; ``of`` names its content for messages.

    Raises ``InvalidCall`` if there are none, as for a second file called -.
    """
    from tenonnx import InvalidCall

    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    if not data:
        what = f"- reads {of} from standard input, which is empty"
        raise InvalidCall(what, do="pipe a file to the command: cat FILE | tenonnx ... -; only one argument can be -")
    return data


def data_file(path: str) -> BinaryIO:
    """A file of arrays or a table, from its start; - is the piped input, which may be read repeatedly.

    Raises ``InvalidCall`` for a folder, a pipe or a device, which would block.
    """
    import io
    from pathlib import Path

    from tenonnx import InvalidCall

    if path != "-":
        if Path(path).exists() and not Path(path).is_file():
            raise InvalidCall(f'cannot read "{path}": a folder, a pipe or a device')
        return Path(path).open("rb")
    meta = click.get_current_context().meta
    if _PIPED not in meta:
        meta[_PIPED] = standard_input("the data")
    return io.BytesIO(meta[_PIPED])


#: Context key for piped data.
_PIPED = "tenonnx.piped"


@contextmanager
def aside() -> Iterator[None]:
    """Redirect prints of other code, native or Python, to stderr, as stdout is for results."""
    if _results:
        yield
        return
    with ExitStack() as stack:
        stdout = sys.stdout
        _results.append(stdout)
        stack.callback(_results.clear)
        stack.callback(setattr, sys, "stdout", stdout)
        sys.stdout = sys.stderr
        with suppress(OSError, ValueError, AttributeError):  # replaced streams may not be files
            if (stdout.fileno(), sys.stderr.fileno()) == (1, 2):
                stdout.flush()
                _results[-1] = stack.enter_context(os.fdopen(kept := os.dup(1), "w", encoding=stdout.encoding))
                stack.callback(os.dup2, kept, 1)
                os.dup2(2, 1)
        yield


@contextmanager
def one_document(of: str) -> Iterator[None]:
    """Forward the stdout of a package's command if it is a single JSON document, else to stderr.

    Raises ``PluginError`` if it is not JSON; if the command fails, its output goes to stderr.
    """
    import io
    import json

    from tenonnx import PluginError

    printed, end, text = io.BytesIO(), None, ""
    try:
        with aside():  # for native code
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
    """Show on a terminal's stderr what is being done, once it takes long. Prints of other code go to stderr."""
    with aside():  # outermost, since the progress display replaces stdout, too
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
    """Let Ctrl-C kill the process at once, since native code would delay Python's handler.

    Only for work that writes nothing. The shell reports the signal's exit code, which is that of an interruption.
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
    """Sizes in the unit of the largest, which only the last one shows: ``97.6``, ``97.4 MiB``."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    power = min(max(max(sizes, default=0).bit_length() - 1, 0) // 10, len(units) - 1)
    texts = [f"{size / 1024**power:.1f}" if power else f"{size:,}" for size in sizes]
    return [*texts[:-1], f"{texts[-1]} {units[power]}"]


def human_seconds(seconds: float) -> str:
    """A time with a suitable unit: ``65.4 µs``, ``25.5 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} µs"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
