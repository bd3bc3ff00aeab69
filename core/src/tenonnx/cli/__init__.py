"""Floor 7: the command line. Whatever is large is imported by the command that needs it, when it runs."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Exit codes beside 0: a check or verification failed; bad use, bad input or a bug; stopped by the user or the reader.
FAILED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed, never raised."""
    try:
        return _answer(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED


def _answer(arguments: list[str]) -> int:
    import click

    from tenonnx.cli.output import complain
    from tenonnx.errors import TenonnxError, VerificationFailed

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: complain(f"warning: {message}")
        try:
            return _run(arguments)
        except click.exceptions.Exit as end:
            return end.exit_code
        except click.Abort:
            return INTERRUPTED
        except BrokenPipeError:
            _silence_stdout()
            return BROKEN_PIPE
        except click.ClickException as error:
            error.show()
            return REFUSED
        except TenonnxError as error:
            _report(f"{type(error).__name__}: {error}")
            return FAILED if isinstance(error, VerificationFailed) else REFUSED
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            _report(f"{type(error).__name__}: {text} (unexpected; TENONNX_TRACEBACK=1 shows where it comes from)")
            return REFUSED


def _run(arguments: list[str]) -> int:
    """Not by click's own ``main``, which has other exit codes."""
    from tenonnx.cli.program import program

    with program.make_context("tenonnx", arguments) as context:
        code = program.invoke(context)
        sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _report(text: str) -> None:
    """Print the error that is being handled, with its traceback where that is asked for."""
    from tenonnx.cli.output import complain

    if os.environ.get("TENONNX_TRACEBACK"):
        import traceback

        traceback.print_exc()
    else:
        complain(text)


def _silence_stdout() -> None:
    """Let nothing be written to a closed pipe when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
