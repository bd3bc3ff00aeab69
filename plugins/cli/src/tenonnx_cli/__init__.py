"""Floor 7: the command line. Whatever is large is imported by the command that needs it, when it runs."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenonnx import TenonnxError

#: The variable by which a shell asks what completes a line, with what it says.
COMPLETION = "_TENONNX_COMPLETE"

#: Exit codes beside 0: a check or verification failed; bad use, bad input or a bug; stopped by the user or the reader.
FAILED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed, never raised."""
    from tenonnx.tools import Attendants
    from tenonnx_cli.output import attending

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # whoever started us has closed it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    before, Attendants.attend = Attendants.attend, attending
    try:
        return _answer(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        Attendants.attend = before


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
            return INTERRUPTED
        except KeyboardInterrupt as error:
            for note in getattr(error, "__notes__", ()):
                complain(note)
            return INTERRUPTED
        except BrokenPipeError:
            _silence_stdout()
            return BROKEN_PIPE
        except click.ClickException as error:
            if isinstance(error, click.NoSuchOption) and (needed := _package_of(error.option_name)):
                _report(f"PluginError: {needed}")
            else:
                error.show()
            return REFUSED
        except TenonnxError as error:
            _report(f"{type(error).__name__}: {error}")
            return code_of(error)
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            _report(f"{type(error).__name__}: {text} (unexpected; TENONNX_TRACEBACK=1 shows where it comes from)")
            return REFUSED


def _package_of(option: str) -> TenonnxError | None:
    """What to say of an option of ``convert`` that a package adds which is not there."""
    from tenonnx import PluginError
    from tenonnx.tools import cure, plugins, provider

    group = "tenonnx.transforms"
    package = provider(group, option.lstrip("-"))
    if package is None or any(plugin.distribution == package for plugin in plugins(group)):
        return None
    return PluginError(f"the option {option} needs {package}", do=cure([package]))


def code_of(error: TenonnxError) -> int:
    """The exit code of a command that ends with this error."""
    from tenonnx import VerificationFailed

    return FAILED if isinstance(error, VerificationFailed) else REFUSED


def _run(arguments: list[str]) -> int:
    """Not by click's own ``main``, which has other exit codes."""
    from tenonnx_cli.memory import watched
    from tenonnx_cli.output import one_document
    from tenonnx_cli.program import COMMANDS, program

    if instruction := os.environ.get(COMPLETION):
        from tenonnx_cli.completion import answer

        return answer(program, COMPLETION, instruction)
    asked = set(arguments)
    of_a_package = "--json" in asked and arguments[0] not in COMMANDS and not asked & {"-h", "--help"}
    with watched(), program.make_context("tenonnx", arguments) as context:
        with one_document(arguments[0]) if of_a_package else contextlib.nullcontext():
            code = program.invoke(context)
        sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _report(text: str) -> None:
    """Print the error that is being handled, with its traceback where that is asked for."""
    from tenonnx_cli.output import complain

    if os.environ.get("TENONNX_TRACEBACK"):
        import traceback

        traceback.print_exc()
    else:
        complain(text)


def _silence_stdout() -> None:
    """Let nothing be written to a closed pipe when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
