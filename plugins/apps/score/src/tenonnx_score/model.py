"""The model of a scorer, sent to workers and compiled there."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import DecodeError

import tenonnx as tx
from tenonnx import Graph, InvalidCall, MapType, Program, SequenceType, TensorType, Value, extract, infer, load
from tenonnx.extend.formats import check_readable

#: Larger models are not sent to workers, which read and map the file instead.
LARGEST_SENT = 64 << 20


class Source(NamedTuple):
    """A model for workers: the path or the bytes of a file; ``expected_identity`` is its identity at the start."""

    path: str | None
    data: bytes | None
    expected_identity: dict[str, Any] | None = None

    @classmethod
    def of(cls, model: Any) -> Source:
        """The source for a path, the bytes of a file, or a graph. Raises ``InvalidCall`` for other or large models."""
        if isinstance(model, str | os.PathLike):
            return cls(str(Path(os.fspath(model)).absolute()), None)
        if isinstance(model, Graph):
            stream = io.BytesIO()
            tx.export(model, stream)  # imported lazily, with verification
            model = stream.getvalue()
        if not isinstance(model, bytes):
            raise InvalidCall(
                "Scorer: the model is not a path, the bytes of a file, or a graph", given=type(model).__name__
            )
        if len(model) > LARGEST_SENT:
            raise InvalidCall(
                f"a model above {LARGEST_SENT >> 20} MB is not a file that workers can map",
                given=f"{len(model) >> 20} MB",
                do="write it, tx.export(graph, path), and give the path",
            )
        return cls(None, model)

    def identified(self) -> Source:
        """This model with its identity, for workers to refuse a file that was replaced."""
        return self._replace(expected_identity=self.identity())

    def load(self) -> Graph:
        """Read the model. Raises ``InvalidCall`` if its file was replaced since it was ``identified``."""
        graph = load(self.path if self.data is None else self.data)
        if self.expected_identity is not None and self.identity() != self.expected_identity:
            raise InvalidCall(
                f'"{self.path}" was replaced while it was being used',
                do="score again into another folder, or put the first model back and run the same command again",
            )
        return graph

    def identity(self) -> dict[str, Any]:
        """Identity of this model: the hash of its file, and size and time of its data files."""
        if self.data is not None:
            return {"sha256": hashlib.sha256(self.data).hexdigest()}
        assert self.path is not None
        check_readable(self.path)
        try:
            with Path(self.path).open("rb") as file:
                result: dict[str, Any] = {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        except OSError as error:
            given = error.strerror or str(error)
            raise InvalidCall(f'cannot read "{self.path}"', given=given) from error
        beside = {name: _stamp(Path(self.path).parent / name) for name in _external(self.path)}
        return {**result, "data": beside} if beside else result


def _external(path: str) -> set[str]:
    """The external data files of a model."""
    if not path.lower().endswith(".onnx"):
        return set()
    try:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
    except DecodeError:  # reading the model reports the error
        return set()
    return {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}


def _stamp(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_size, state.st_mtime_ns]


class Asked(NamedTuple):
    """A requested output: its name, the computed value, and the keys for a map."""

    name: str
    computed: str
    keys: tuple[Any, ...] | None


def opened(source: Source, outputs: Collection[str] | None) -> tuple[Graph, list[Asked]]:
    """The graph of the requested outputs. Raises ``InvalidCall`` for unknown names.

    A map from constant keys to a row of numbers is built by Arrow, which takes the row unchanged.
    """
    graph = source.load()
    known = {value.name: value for value in graph.outputs}
    if unknown := [name for name in outputs or () if name not in known]:
        raise InvalidCall("unknown outputs", given=", ".join(unknown), available=", ".join(known))
    infer(graph)
    requested = [_asked(known[name]) for name in (outputs or known)]
    for each in requested:
        kind = known[each.name].type
        is_map = isinstance(kind, SequenceType) and isinstance(kind.element, MapType)
        if each.keys is None and not is_map and kind is not None and not isinstance(kind, TensorType):
            raise InvalidCall(
                f'output "{each.name}" is {kind}, which is not a column of a table',
                available=", ".join(f"{name}: {value.type}" for name, value in known.items()),
                do="name the outputs to write (--output-names A,B)",
            )
    computed = list(dict.fromkeys(each.computed for each in requested))
    if computed != [value.name for value in graph.outputs]:
        graph = extract(graph, None, computed)
    return graph, requested


def check_names(columns: Sequence[str]) -> None:
    """Raise ``InvalidCall`` if two output columns have the same name."""
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise InvalidCall(
            f'several columns of the output are called "{twice[0]}"',
            given=", ".join(columns),
            do="name each column that is kept, and each output, once; rename a column that is called like an output",
        )


def _asked(value: Value) -> Asked:
    node = value.producer
    if node is not None and node.domain == "ai.onnx.ml" and node.op_type == "ZipMap" and node.inputs[0] is not None:
        keys = node.attributes.get("classlabels_int64s") or node.attributes.get("classlabels_strings") or ()
        return Asked(value.name, node.inputs[0].name, tuple(k.decode() if isinstance(k, bytes) else k for k in keys))
    return Asked(value.name, value.name, None)


def program_of(graph: Graph, backend: str, threads: int | None, options: Mapping[str, Any]) -> Program:
    """Compile the graph, with ``threads`` threads if the backend supports it."""
    given = dict(options)
    if backend == "onnxruntime" and threads is not None:
        given["threads"] = threads
    return graph.compile(backend, strict=backend != "auto", **given)
