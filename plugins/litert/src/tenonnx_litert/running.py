"""Running files in LiteRT's interpreter, in a child process, since some files crash it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import UnsupportedOp
from tenonnx.extend.checks import CallFailed, ProcessCrashed, Worker, worker_for

#: The module whose functions the worker process serves, and the title of the process.
PROCESS = Path(__file__).with_name("interpreter_process.py"), "the LiteRT interpreter"

#: Signature names: that of a file with one model, and those that return and assign the variables of a file with state.
KEY, READ_STATE, WRITE_STATE = "serving_default", "read_state", "write_state"


def interpreter() -> Worker:
    return worker_for(*PROCESS)


def opened(
    path: Path, inputs: Sequence[str], outputs: Sequence[str], *, reference: bool = False
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that maps inputs to outputs by name. Raises ``UnsupportedOp`` if the file does not load.

    ``reference`` selects the reference kernels, without delegates.
    """
    _load(path, reference)

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        arrays = [np.asarray(feeds[name]) for name in inputs]
        if any(array.size == 0 for array in arrays):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        results = interpreter().call("run", str(path), reference, arrays)
        return dict(zip(outputs, results, strict=True))

    return run


def opened_signature(
    path: Path, key: str, state: Mapping[str, str], first: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that runs a signature on inputs by name. Raises ``UnsupportedOp`` if the file does not load.

    Each call starts from the state in the feeds, else from ``first``. ``state`` maps state inputs to the outputs with
    their next values; the results include these outputs.
    """
    _load(path, False)

    def called(name: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
        results: dict[str, Any] = interpreter().call("run_signature", str(path), name, dict(feeds))
        return results

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        if any(np.size(array) == 0 for array in feeds.values()):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        if state:
            called(WRITE_STATE, {name: feeds.get(name, array) for name, array in first.items()})
        results = called(key, {name: array for name, array in feeds.items() if name not in state})
        variables = called(READ_STATE, {}) if state else {}
        return {**results, **{after: variables[name] for name, after in state.items()}}

    return run


def _load(path: Path, reference: bool) -> None:
    try:
        interpreter().call("load", str(path), reference)
    except (CallFailed, ProcessCrashed) as error:
        raise UnsupportedOp("LiteRT does not load the file", given=error.given or error.what) from error
