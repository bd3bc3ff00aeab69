"""Python files that a command is given: they are run, as code that the user trusts."""

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


def called(path: str, name: str) -> Any:
    """What the function ``name`` of a file returns."""
    with _run(path) as module:
        return _told(Path(path).absolute(), function_of(module, path, name))


def loaded(path: str) -> ModuleType:
    """The module that a file is."""
    with _run(path) as module:
        return module


def function_of(module: ModuleType, path: str, name: str) -> Callable[..., Any]:
    """The function, or class, of that name in a file. Raises ``InvalidCall`` naming those that it has."""
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    known = [n for n, each in vars(module).items() if callable(each) and not n.startswith("_")]
    raise InvalidCall(f'"{path}" must have a function "{name}"', available=", ".join(known) or "no function")


def telling(path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of a file, which does not end the program; what it raises is told with its line."""
    from tenonnx.tools import guarded

    def call(*arguments: Any, **keywords: Any) -> Any:
        with guarded(f"running {path}"):
            return function(*arguments, **keywords)

    return wraps(function)(partial(_told, Path(path).absolute(), call))


@contextmanager
def _run(path: str) -> Iterator[ModuleType]:
    file = Path(path).absolute()
    if not file.is_file():
        raise InvalidCall("no such Python file", given=path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidCall("functions are read from a Python file", given=path, do="name it *.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # as for python FILE.py: it may import what lies beside it
    try:
        _told(file, spec.loader.exec_module, module)
        yield module
    finally:
        sys.path.remove(str(file.parent))


def _told(file: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what the user wrote; what it raises is told with the line of the file."""
    try:
        return function(*arguments)
    except TenonnxError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f":{own[-1].lineno}" if own else f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InvalidCall(
            f"{file.name} must run", given=f"{type(error).__name__}: {error}", do=f"correct {file}{line}"
        ) from error
