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

#: Names of the signature's inputs and outputs, in a file with one signature.
KEY = "serving_default"


def interpreter() -> Worker:
    return worker_for(*PROCESS)


def opened(
    path: Path, inputs: Sequence[str], outputs: Sequence[str], *, reference: bool = False
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from inputs to outputs by name. Raises ``UnsupportedOp`` for a file that does not load.

    With ``reference``, the reference kernels compute, without delegates.
    """
    try:
        interpreter().call("load", str(path), reference)
    except (CallFailed, ProcessCrashed) as error:
        raise UnsupportedOp("LiteRT does not load the file", given=error.given or error.what) from error

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        given = [np.asarray(feeds[name]) for name in inputs]
        if any(array.size == 0 for array in given):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        found = interpreter().call("run", str(path), reference, given)
        return dict(zip(outputs, found, strict=True))

    return run
