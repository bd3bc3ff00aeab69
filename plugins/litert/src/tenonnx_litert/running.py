"""Runs of files in LiteRT's interpreter, in a child process, since some files crash it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import UnsupportedOp
from tenonnx.extend.checks import CallFailed, ProcessCrashed, Worker, worker_for

#: The functions that the worker process serves, and what it is called.
PROCESS = Path(__file__).with_name("interpreter_process.py"), "the LiteRT interpreter"

#: The signature of a file with one model, and those of files with state, which return and replace what variables hold.
KEY, READ_STATE, WRITE_STATE = "serving_default", "read_state", "write_state"


def interpreter() -> Worker:
    return worker_for(*PROCESS)


def opened(
    path: Path, inputs: Sequence[str], outputs: Sequence[str], *, reference: bool = False
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from inputs to outputs by name. Raises ``UnsupportedOp`` for a file that does not load.

    With ``reference``, the reference kernels compute, without delegates.
    """
    _load(path, reference)

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = [np.asarray(feeds[name]) for name in inputs]
        if any(array.size == 0 for array in given):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        found = interpreter().call("run", str(path), reference, given)
        return dict(zip(outputs, found, strict=True))

    return run


def opened_signature(
    path: Path, key: str, state: Mapping[str, str], first: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from inputs to outputs of a signature by name. Raises ``UnsupportedOp`` for a file that does not load.

    Each call begins from the state in the feeds, else from ``first``. ``state`` maps inputs to the outputs that replace
    them, which are among the results.
    """
    _load(path, False)

    def called(name: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = interpreter().call("run_signature", str(path), name, dict(feeds))
        return found

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        if any(np.size(array) == 0 for array in feeds.values()):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        if state:
            called(WRITE_STATE, {name: feeds.get(name, array) for name, array in first.items()})
        found = called(key, {name: array for name, array in feeds.items() if name not in state})
        held = called(READ_STATE, {}) if state else {}
        return {**found, **{after: held[name] for name, after in state.items()}}

    return run


def _load(path: Path, reference: bool) -> None:
    try:
        interpreter().call("load", str(path), reference)
    except (CallFailed, ProcessCrashed) as error:
        raise UnsupportedOp("LiteRT does not load the file", given=error.given or error.what) from error
