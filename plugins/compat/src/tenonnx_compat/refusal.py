"""Errors for unsupported functions and arguments, and the warning that names the call of tenonnx."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tenonnx import InvalidCall


class NotSupported(InvalidCall, NotImplementedError):
    """Unsupported argument or function of another tool."""


class CompatWarning(UserWarning):
    """Warning that a tool's call runs in tenonnx, with tenonnx's own call."""


_announced: set[str] = set()

_OURS = str(Path(__file__).parent)


def announce(call: str, own: str) -> None:
    """Warn once per process, at the user's line, that ``own`` is tenonnx's call for the tool's ``call``."""
    if call in _announced:
        return
    _announced.add(call)
    _warn(f"{call} is carried out by tenonnx; its own call is {own}")


def _warn(message: str) -> None:
    """Issue a ``CompatWarning`` at the line of the user's code."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CompatWarning, stacklevel=level)


def announce_command(call: str, function: str, own: str) -> None:
    """Print to stderr tenonnx's command for a tool's command, and suppress the warning of ``function``."""
    _announced.add(function)
    print(f"{call} is carried out by tenonnx; its own command is {own}", file=sys.stderr)


def ignore_options(call: str, options: Mapping[str, Any], why: str) -> None:
    """Warn once per process for each argument, unless None or False, that it has no effect."""
    for name, value in options.items():
        if value is None or value is False or f"{call} {name}" in _announced:
            continue
        _announced.add(f"{call} {name}")
        _warn(f"{name} of {call} has no effect: {why}")


def refuse_options(call: str, options: Mapping[str, Any], why: str = "tenonnx has no setting for it") -> None:
    """Raise ``NotSupported`` for the first argument that is not None, False or empty."""
    for name, value in options.items():
        if value is not None and value is not False and value != () and value != [] and value != {}:
            raise NotSupported(
                f"{call} of tenonnx-compat does not support {name}",
                given=f"{name}={value!r}"[:100],
                do=f"leave out {name}: {why}",
            )


def refuse(call: str, why: str, do: str = "") -> NoReturn:
    """Raise ``NotSupported`` for an unsupported function of a tool."""
    raise NotSupported(f"tenonnx-compat does not have {call}", given=why, do=do)


def refused(call: str, why: str, do: str = "") -> Callable[..., NoReturn]:
    """A placeholder for a function of a tool that raises ``NotSupported`` when called."""

    def function(*arguments: Any, **options: Any) -> NoReturn:
        refuse(call, why, do)

    function.__name__ = function.__qualname__ = call.rpartition(".")[2]
    function.__doc__ = f"Raise ``NotSupported``: {why}."
    return function
