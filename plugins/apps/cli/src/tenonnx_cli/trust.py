"""Trust in the file of a command, and its time limit: ``--trust``, ``--load``, ``--timeout``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Context key for options of ``load`` that trust a file.
TRUST = "tenonnx.trust"

#: Context key for the Python files that ran first.
PYTHON_FILES = "tenonnx.python_files"

#: Default time limit for untrusted files, in seconds.
UNTRUSTED_SECONDS = 60.0


def trust_options(command: _Command) -> _Command:
    """Add ``--trust`` and ``--load FILE.py`` to a command that reads one model."""
    options = [
        click.option(
            "--trust",
            is_flag=True,
            expose_value=False,
            callback=_trust,
            help="Run what the file brings: pickles, TorchScript, Lambda layers of Keras, ops with effects.",
        ),
        click.option(
            "--load",
            "loaded",
            multiple=True,
            metavar="FILE.py",
            expose_value=False,
            callback=_load,
            help="Run a Python file first, such as one that registers layers of Keras. Repeatable.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def trust_given() -> dict[str, Any]:
    """The options of ``load`` that trust a file, if ``--trust`` was given."""
    context = click.get_current_context(silent=True)
    return {"trust": True} if context is not None and context.meta.get(TRUST) else {}


def time_option() -> click.Option:
    """``--timeout`` for a command without a default time limit."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.Option(["--timeout"], type=kind, metavar="SECONDS", help="Stop after this many seconds.")


def add_time_option(command: click.Command) -> click.Command:
    """Add ``--timeout`` to a command, or to those of a group, unless it has such an option."""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        add_time_option(inner)
    callback = command.callback
    if callback is None or any("--timeout" in parameter.opts for parameter in command.params):
        return command

    @functools.wraps(callback)
    def timed(*arguments: Any, timeout: float | None, **options: Any) -> Any:
        with in_time(timeout):
            return callback(*arguments, **options)

    command.callback = timed
    command.params.append(time_option())
    return command


def in_time(seconds: float | None) -> AbstractContextManager[Any]:
    """Time limit of a command; None means no limit."""
    from tenonnx_cli.deadline import not_finished, within

    return nullcontext() if seconds is None else within(seconds, not_finished)


def _trust(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        context.meta[TRUST] = True


def _load(context: click.Context, option: click.Parameter, paths: Sequence[str]) -> None:
    for path in paths:
        if not path.endswith(".py"):
            raise click.BadParameter(f"{path!r} is not a Python file", context, option)
        context.meta.setdefault(PYTHON_FILES, []).append(path)


def run_python_files() -> None:
    """Run the files of ``--load``, which the user trusts."""
    from tenonnx_cli.code import loaded

    for path in click.get_current_context().meta.get(PYTHON_FILES, ()):
        loaded(path)
