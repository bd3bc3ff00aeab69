"""The command line. Heavy modules are imported by the commands that need them, when they run."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
from typing import TYPE_CHECKING

from tenonnx_cli.exit_codes import BROKEN_PIPE, FAILED, INTERRUPTED, REFUSED, code_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenonnx import TenonnxError

#: Environment variable with which a shell requests completions.
COMPLETION = "_TENONNX_COMPLETE"

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "REFUSED", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed, never raised."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    try:
        return _answer(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return _interrupted()


def _interrupted() -> int:
    """Print "interrupted", ignoring a second Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt, OSError, ValueError):
        sys.stderr.write("interrupted\n")
    return INTERRUPTED


def _answer(arguments: list[str]) -> int:
    import click

    from tenonnx import TenonnxError
    from tenonnx_cli.output import complain

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: complain(f"warning: {message}")
        try:
            return _run(arguments)
        except click.exceptions.Exit as end:
            return end.exit_code
        except click.Abort:
            return _interrupted()
        except BrokenPipeError:
            _silence_stdout()
            return BROKEN_PIPE
        except click.ClickException as error:
            if isinstance(error, click.NoSuchOption) and (needed := _package_of(error.option_name)):
                _report(f"PluginError: {needed}")
                _say_error(arguments, needed)
            else:
                error.show()
                _say_error(arguments, error, error.format_message())
            return REFUSED
        except TenonnxError as error:
            _report(f"{type(error).__name__}: {error}")
            _say_error(arguments, error)
            return code_of(error)
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            _report(f"{type(error).__name__}: {text} (unexpected; TENONNX_TRACEBACK=1 shows where it comes from)")
            _say_error(arguments, error, text)
            return REFUSED


def _say_error(arguments: list[str], error: Exception, text: str = "") -> None:
    """With --json, print the error on stdout, too, unless stdout is for a model."""
    pairs = set(itertools.pairwise(arguments))
    if "--json" in arguments and not {("-o", "-"), ("--output", "-")} & pairs:
        from tenonnx_cli.output import say_json

        parts = {name: getattr(error, name, None) or None for name in ("given", "available", "do", "also")}
        what = text or str(getattr(error, "what", error))
        say_json({"error": {"type": type(error).__name__, "message": what, **parts}})


def _package_of(option: str) -> TenonnxError | None:
    """Advice for an option of ``convert`` whose package is not installed."""
    from tenonnx import PluginError
    from tenonnx.tools import cure, plugins, provider

    group = "tenonnx.transforms"
    package = provider(group, option.lstrip("-"))
    if package is None or any(plugin.distribution == package for plugin in plugins(group)):
        return None
    return PluginError(f"cannot use {option}: {package} is not installed", do=cure([package]))


def _run(arguments: list[str]) -> int:
    """Run the command without click's own ``main``, whose exit codes differ."""
    from tenonnx_cli.memory import watched
    from tenonnx_cli.output import aside, in_color, one_document
    from tenonnx_cli.program import COMMANDS, program

    if instruction := os.environ.get(COMPLETION):
        from tenonnx_cli.completion import answer

        return answer(program, COMPLETION, instruction)
    given_arguments = set(arguments)
    printing: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if "--json" in given_arguments and not given_arguments & {
        "-h",
        "--help",
    }:  # packages may print while they are loaded or run
        printing = aside() if arguments[0] in COMMANDS else one_document(arguments[0])
    with watched(), program.make_context("tenonnx", arguments, color=in_color(sys.stdout)) as context:
        with printing:
            code = program.invoke(context)
        sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _report(text: str) -> None:
    """Print the error that is being handled, with its traceback on request."""
    from tenonnx_cli.output import complain

    if os.environ.get("TENONNX_TRACEBACK"):
        import traceback

        traceback.print_exc()
    else:
        complain(text, style="bold red")


def _silence_stdout() -> None:
    """Redirect stdout, so that nothing is written to a closed pipe at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
