"""Messages for errors of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.extend.backends import RunFailure


def shortened(error: Exception) -> str:
    """The runtime's message without its source paths and line breaks."""
    text = " ".join(str(error).split())
    text = text.removeprefix("[ONNXRuntimeError] : ")
    words = [word for word in text.split(" ") if not word.startswith("/onnxruntime_src/")]
    text = " ".join(words)
    return text if len(text) <= 500 else text[:500] + " ..."


def run_failure(error: Exception, given: Mapping[str, Any]) -> RunFailure:
    """The error for a call that the runtime rejected."""
    return RunFailure(
        f"onnxruntime cannot compute the graph from these inputs: {shortened(error)}",
        given=", ".join(f"{name}: {_described(contents)}" for name, contents in given.items()) or "no feeds",
        do='run it on numpy (backend="numpy", --backend numpy) to see whether the cause is the inputs or onnxruntime',
    )


def _described(contents: Any) -> str:
    return f"{contents.dtype}{list(contents.shape)}" if isinstance(contents, np.ndarray) else type(contents).__name__
