"""Runs of files in LiteRT's interpreter, in a child process, since some files crash it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tenonnx.extend import UnsupportedOp
from tenonnx.extend.checks import CallFailed, ProcessCrashed, Worker, worker_for

#: Names of the signature's inputs and outputs, in a file with one signature.
KEY = "serving_default"


def interpreter() -> Worker:
    return worker_for(Path(__file__).with_name("interpreter_process.py"), "the LiteRT interpreter")


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
        given = [_sent(feeds[name]) for name in inputs]
        if any(array.size == 0 for array in given):
            raise UnsupportedOp("LiteRT takes no empty tensors")
        found = interpreter().call("run", str(path), reference, given)
        return dict(zip(outputs, (_received(*each) for each in found), strict=True))

    return run


def _sent(array: Any) -> Any:
    held = np.asarray(array)
    return held.astype(np.float32) if held.dtype.kind == "V" else held


def _received(array: Any, name: str) -> Any:
    return array.astype(ml_dtypes.bfloat16) if name == "bfloat16" else array
