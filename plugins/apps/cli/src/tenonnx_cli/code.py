"""Execution of Python files given to a command, as code that the user trusts."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from tenonnx import InvalidCall, TenonnxError
from tenonnx.extend import did_you_mean_file
from tenonnx.tools import did_you_mean, listing


def called(path: str, name: str) -> Any:
    """Result of the function ``name`` of a file."""
    with _run(path) as module:
        return _call_user_function(Path(path).absolute(), function_of(module, path, name))


def loaded(path: str) -> ModuleType:
    """A file as a module."""
    with _run(path) as module:
        return module


def function_of(module: ModuleType, path: str, name: str) -> Callable[..., Any]:
    """The function or class of that name in a file. Raises ``InvalidCall`` listing those that exist."""
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    known = [n for n, each in vars(module).items() if callable(each) and not n.startswith("_")]
    what = f'"{path}" has no function "{name}"'
    raise InvalidCall(what, available=listing(known) or "no function", do=did_you_mean(name, known))


def telling(path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` of a file: its exceptions are reported with their line in the file."""
    return wraps(function)(partial(_call_user_function, Path(path).absolute(), function))


@contextmanager
def _run(path: str) -> Iterator[ModuleType]:
    file = Path(path).absolute()
    if not file.is_file():
        raise InvalidCall("no such Python file", given=path, do=did_you_mean_file(path))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidCall("a file of functions does not end in .py", given=path, do="name it *.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # as ``python FILE.py`` does, so that the file can import its neighbors
    try:
        _call_user_function(file, spec.loader.exec_module, module)
        yield module
    finally:
        sys.path.remove(str(file.parent))


def _call_user_function(file: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; exceptions are reported with their line in the file."""
    try:
        return function(*arguments)
    except TenonnxError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f":{own[-1].lineno}" if own else f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InvalidCall(
            f"{file.name} failed", given=f"{type(error).__name__}: {error}", do=f"correct {file}{line}"
        ) from error
