"""Model files as users run them: in a default session, in a process that the runtime may crash."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tenonnx.extend import DType, Graph, TensorType, Type, UnsupportedOp
from tenonnx.extend.backends import Bindable, FeedCheck, Program, RunFailure, file_of
from tenonnx.extend.checks import CallFailed, SourceProcess, WorkerEnded
from tenonnx.extend.formats import array_to_proto, message_of, write_file
from tenonnx.extend.transforms import weight_bytes
from tenonnx_onnxruntime.element_types import FLOAT8, OPTIONED, dtype_of, is_extended
from tenonnx_onnxruntime.extensions import library_for
from tenonnx_onnxruntime.failures import run_failure, shortened

#: Session options that help if the default ones break a model, the cheapest first.
_ENTRIES = (
    "session.x64quantprecision=1",
    "session.qdq_matmulnbits_accuracy_level=1",
    "session.disable_quant_qdq=1",
)

#: Larger graphs are never assumed to behave equally in our sessions and in default ones.
_MOST_NODES = 10_000

_LEVELS = ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC", "ORT_DISABLE_ALL")


def process(size: int = 0) -> SourceProcess:
    """The worker process for a model file of ``size`` bytes."""
    return SourceProcess(Path(__file__).with_name("worker_functions.py"), "onnxruntime", size)


def differs_by_default(graph: Graph) -> bool:
    """Whether the options of our sessions may change results compared with a default session."""
    nodes = list(graph.walk())
    kinds = [value.type for node in nodes for value in node.uses]
    return (
        len(nodes) > _MOST_NODES
        or any(node.op_type in OPTIONED for node in nodes)
        or any(isinstance(kind, TensorType) and kind.dtype in FLOAT8 for kind in kinds)
    )


def remedies(graph: Graph) -> Iterator[tuple[str, Program]]:
    """The model file in sessions with one changed option each, with the option as a user would set it."""
    for entry in _ENTRIES:
        name, _, text = entry.partition("=")
        yield from _loaded(f"the config entry {entry}", graph, {name: text}, "")
    for level in _LEVELS:
        yield from _loaded(f"graph_optimization_level = {level}", graph, {}, level)


def _loaded(option: str, graph: Graph, entries: Mapping[str, str], level: str) -> Iterator[tuple[str, Program]]:
    try:
        yield option, FileProgram(graph, entries, level)
    except (UnsupportedOp, WorkerEnded):
        return


class FileProgram(Bindable):
    """The model file of a graph, or a temporary one, in a session of the worker process."""

    backend = "onnxruntime"
    #: Whether the session has default options.
    is_plain = True

    def __init__(self, graph: Graph, entries: Mapping[str, str] | None = None, level: str = "") -> None:
        self.state: dict[str, Any] = {}
        self._check = FeedCheck(graph.all_inputs)
        self._types = {value.name: value.type for value in graph.all_inputs}
        self._settings = dict(entries or {}), level, library_for(graph)
        path = file_of(graph)
        if path is None:
            path = self._written(graph)
        self._path = path
        self._process = process(weight_bytes(graph))
        try:
            self._process("load", path, *self._settings)
        except CallFailed as error:
            broken = error.kind in ("ImportError", "ModuleNotFoundError")
            what = (
                "onnxruntime cannot be imported"
                if broken
                else f"onnxruntime {self._process('version')} does not load the model"
            )
            raise UnsupportedOp(what, given=shortened(RuntimeError(error.given))) from error

    def _written(self, graph: Graph) -> str:
        """A temporary model file, deleted together with this program."""
        folder = tempfile.TemporaryDirectory(prefix="tenonnx-", ignore_cleanup_errors=True)
        weakref.finalize(self, folder.cleanup)
        path = str(Path(folder.name) / "model.onnx")
        write_file(path, *message_of(graph), None)
        return path

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        arrays = zip(self._types, self._check(feeds), strict=True)
        given = {name: array for name, array in arrays if array is not None}
        try:
            sent = {name: _sent(array, self._types[name]) for name, array in given.items()}
            found = self._process("run", self._path, *self._settings, sent)
        except TypeError as error:
            raise UnsupportedOp("a worker process cannot be fed with these inputs", given=str(error)) from error
        except CallFailed as error:
            raise _failure(error, given) from error
        return {name: _received(contents) for name, contents in found.items()}


def _failure(error: CallFailed, given: Mapping[str, Any]) -> RunFailure:
    return run_failure(RuntimeError(error.given), given)


def _sent(array: Any, kind: Type | None) -> Any:
    """Contents in the format of the worker."""
    if not isinstance(array, np.ndarray) or not isinstance(kind, TensorType) or not is_extended(kind.dtype):
        return array
    raw = array_to_proto(array, kind.dtype, "").raw_data
    return {"type": int(kind.dtype), "shape": list(array.shape), "raw": raw}


def _received(contents: Any) -> Any:
    """Contents of an output from the format of the worker."""
    if not isinstance(contents, dict) or "raw" not in contents:
        return contents
    dtype = dtype_of(f"tensor({contents['type']})")
    if dtype.bits >= 8:
        return np.frombuffer(bytearray(contents["raw"]), dtype.numpy).reshape(contents["shape"])
    proto = onnx.TensorProto(dims=contents["shape"], data_type=int(DType(dtype)), raw_data=contents["raw"])
    return onnx.numpy_helper.to_array(proto)
