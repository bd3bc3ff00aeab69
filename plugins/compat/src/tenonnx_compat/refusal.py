"""Errors for unsupported functions and arguments, and the warning that names the call of tenonnx."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tenonnx import InvalidCall


class NotSupported(InvalidCall, NotImplementedError):
    """Argument or function of another tool that has no translation."""


class CompatWarning(UserWarning):
    """Warning that names the call of tenonnx behind that of another tool."""


_announced: set[str] = set()

_OURS = str(Path(__file__).parent)


def announce(call: str, own: str) -> None:
    """Warn once in a process that ``own`` is the call of tenonnx for ``call`` of a tool, at the line of the user."""
    if call in _announced:
        return
    _announced.add(call)
    _warn(f"{call} is carried out by tenonnx; its own call is {own}")


def _warn(message: str) -> None:
    """Warn at the line of the user."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CompatWarning, stacklevel=level)


def announce_command(call: str, function: str, own: str) -> None:
    """Print on standard error the command of tenonnx for that of a tool, and suppress the warning of ``function``."""
    _announced.add(function)
    print(f"{call} is carried out by tenonnx; its own command is {own}", file=sys.stderr)


def ignore_options(call: str, options: Mapping[str, Any], why: str) -> None:
    """Warn once in a process for each of these arguments that was given: it has no effect."""
    for name, value in options.items():
        if value is None or value is False or f"{call} {name}" in _announced:
            continue
        _announced.add(f"{call} {name}")
        _warn(f"{name} of {call} has no effect: {why}")


def refuse_options(call: str, options: Mapping[str, Any], why: str = "tenonnx has no setting for it") -> None:
    """Raise ``NotSupported`` for the first of these arguments that was given, that is, not false or empty."""
    for name, value in options.items():
        if value is not None and value is not False and value != () and value != [] and value != {}:
            raise NotSupported(
                f"{call} of tenonnx-compat does not support {name}",
                given=f"{name}={value!r}"[:100],
                do=f"leave out {name}: {why}",
            )


def refuse(call: str, why: str, do: str = "") -> NoReturn:
    """Raise ``NotSupported`` for a function of a tool."""
    raise NotSupported(f"tenonnx-compat does not have {call}", given=why, do=do)


def refused(call: str, why: str, do: str = "") -> Callable[..., NoReturn]:
    """A placeholder for a function of a tool, which raises ``NotSupported`` when it is called."""

    def function(*arguments: Any, **options: Any) -> NoReturn:
        refuse(call, why, do)

    function.__name__ = function.__qualname__ = call.rpartition(".")[2]
    function.__doc__ = f"Raise ``NotSupported``: {why}."
    return function
