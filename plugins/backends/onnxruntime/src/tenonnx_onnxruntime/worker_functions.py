"""Functions of the worker process that runs models in default sessions. Imports only numpy and onnxruntime.

Tensors are sent as arrays if numpy has their element type, else as ``{"type": number, "raw": bytes, "shape": dims}``,
where the number is that of TensorProto.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

#: Bits of the element types that numpy lacks, by their names in the runtime.
_BITS = {
    "bfloat16": 16,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "int4": 4,
    "uint4": 4,
    "float4e2m1": 4,
    "int2": 2,
    "uint2": 2,
}

#: The most recent sessions, by file and options: for the two models that a verification compares.
_open: dict[tuple[Any, ...], onnxruntime.InferenceSession] = {}
_MOST_OPEN = 2

#: From this size in bytes on, only one file is open, since its session takes as much memory again.
_LARGE = 1 << 28


def version() -> str:
    """The version of the runtime."""
    return str(onnxruntime.__version__)


def load(path: str, entries: Mapping[str, str], level: str, library: str | None) -> None:
    """Open a file in a session with default options except for these. Raises the runtime's exceptions."""
    _session(path, entries, level, library)


def run(
    path: str, entries: Mapping[str, str], level: str, library: str | None, feeds: Mapping[str, Any]
) -> dict[str, Any]:
    """The outputs of a file by name."""
    session = _session(path, entries, level, library)
    names = [each.name for each in session.get_outputs()]
    extended = any(isinstance(each, dict) and "raw" in each for each in feeds.values())
    if not extended and not any(_element(each.type) in _BITS for each in session.get_outputs()):
        return dict(zip(names, session.run(None, feeds), strict=True))
    values = {name: _value(contents) for name, contents in feeds.items()}
    return dict(zip(names, map(_contents, session.run_with_ort_values(None, values)), strict=True))


def forget() -> None:
    """Close the sessions, so that their files can be removed."""
    _open.clear()


def _session(path: str, entries: Mapping[str, str], level: str, library: str | None) -> onnxruntime.InferenceSession:
    status = Path(path).stat()
    key = (path, status.st_ino, status.st_mtime_ns, status.st_size, level, *entries.items())
    session = _open.pop(key, None)
    if session is None:
        while len(_open) >= (1 if status.st_size >= _LARGE else _MOST_OPEN):
            del _open[next(iter(_open))]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised, not logged
        for name, text in entries.items():
            options.add_session_config_entry(name, text)
        if library:
            options.register_custom_ops_library(library)
        if level:
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.disable_fallback()
    _open[key] = session
    return session


def _element(kind: str) -> str:
    """The element type of a type as the runtime prints it, such as ``tensor(bfloat16)``."""
    return kind.rstrip(")").rpartition("(")[2]


def _value(contents: Any) -> Any:
    """Convert contents to an OrtValue."""
    value = onnxruntime.OrtValue
    if not isinstance(contents, dict):
        return value.ortvalue_from_numpy(contents)
    buffer = value.ortvalue_from_shape_and_type(contents["shape"], contents["type"])
    ctypes.memmove(buffer.data_ptr(), contents["raw"], len(contents["raw"]))
    return buffer


def _contents(value: Any) -> Any:
    element = _element(value.data_type())
    if element not in _BITS:
        return value.numpy()
    shape = list(value.shape())
    size = math.ceil(math.prod(shape) * _BITS[element] / 8)
    return {"type": element, "shape": shape, "raw": ctypes.string_at(value.data_ptr(), size) if size else b""}
