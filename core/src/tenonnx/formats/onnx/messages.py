"""Serialization of a graph at its own versions, with separate initializers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO

from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.ir import leave_out_notes
from tenonnx.formats.onnx.reader import parse_model, read_parts
from tenonnx.formats.onnx.streaming import write_file, write_stream
from tenonnx.formats.onnx.tensors import Initializers, TensorContents, to_inline_proto
from tenonnx.formats.onnx.training import add_training_state
from tenonnx.formats.onnx.writer import model_and_initializers
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.registry.packages import KEY as PACKAGES
from tenonnx.registry.packages import packages_in_use
from tenonnx.transforms.target import is_as_written, target_for

_read_from: ContextVar[tuple[Graph, onnx.ModelProto, Initializers] | None] = ContextVar("tenonnx_message", default=None)


@contextmanager
def read_back(model: onnx.ModelProto, initializers: Initializers, registry: Any) -> Iterator[Graph]:
    """The graph of a message, for use without edits: serializing it within the block returns that message."""
    graph = read_parts(model, initializers, registry)
    token = _read_from.set((graph, model, initializers))
    try:
        yield graph
    finally:
        _read_from.reset(token)


def as_message(graph: Graph) -> tuple[onnx.ModelProto, Initializers]:
    """Serialize a graph as it is: a modifiable message without initializers, and the initializers."""
    known = _read_from.get()
    if known is None or known[0] is not graph:
        return model_and_initializers(graph)
    model = onnx.ModelProto()
    model.CopyFrom(known[1])
    return model, list(known[2])


@in_registry_of_graph
def message_of(graph: Graph, *, training_state: bool = False) -> tuple[onnx.ModelProto, Initializers]:
    """Serialize a graph at its own versions: a message without initializers, and the initializers.

    Nodes added to the graph are adapted to these versions, as by ``export`` without options. Raises
    ``NotRepresentable`` for a node that cannot be expressed.
    """
    check_whole(graph)
    target, written = target_for(graph), graph
    if not is_as_written(graph, target):
        from tenonnx.transforms.retarget import retarget_to  # imported lazily, as it is slow

        written = retarget_to(graph, target).graph
    model, initializers = as_message(written)
    if written is not graph:
        leave_out_notes(model)
    if training_state:
        initializers = add_training_state(written, model, initializers)
    name_packages(packages_in_use(written), model)
    return model, initializers


def name_packages(found: Mapping[str, str], model: onnx.ModelProto) -> None:
    """Record the third-party packages of the graph's ops in the metadata."""
    entry = next((entry for entry in model.metadata_props if entry.key == PACKAGES), None)
    if found:
        (entry or model.metadata_props.add(key=PACKAGES)).value = json.dumps(found)
    elif entry is not None:
        model.metadata_props.remove(entry)


def write(
    place: str | os.PathLike[str] | BinaryIO,
    model: onnx.ModelProto,
    initializers: Initializers,
    threshold: int | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a message and its initializers to a stream or a file: native for ``*.safetensors``, else ONNX.

    Tensors of at least ``threshold`` bytes go to a data file of an ONNX file; with None, those that were external.
    """
    from tenonnx.formats.native import is_native
    from tenonnx.formats.native import write as write_native

    if not isinstance(place, str | os.PathLike):
        write_stream(place, model, initializers)
    elif is_native(place):
        write_native(model, initializers, place, overwrite=overwrite)
    else:
        write_file(place, model, initializers, threshold, overwrite=overwrite)


def save(
    graph: Graph, path: str | os.PathLike[str], *, overwrite: bool = False, training_state: bool | None = None
) -> None:
    """Write ``graph`` at its own opsets: ``*.safetensors`` as a native file, other paths as ONNX.

    An ONNX file is identical to that of ``tenonnx.export`` without options. ``training_state`` selects whether the
    optimizer state is written; None writes it to native files only. Raises ``NotRepresentable`` for a node that these
    opsets cannot express; then nothing is written.
    """
    from tenonnx.formats.native import is_native

    keeps_state = is_native(path) if training_state is None else training_state
    model, initializers = message_of(graph, training_state=keeps_state)
    write(path, model, initializers, overwrite=overwrite)


def pickled(graph: Graph) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
    """Pickled form of a graph: its message with training state, and the messages of its initializers."""
    model, initializers = message_of(graph, training_state=True)
    tensors = [to_inline_proto(contents, name).SerializeToString() for name, contents in initializers]
    return _unpickled, (model.SerializeToString(), tensors)


def _unpickled(message: bytes, tensors: Iterable[bytes]) -> Graph:
    protos = map(onnx.TensorProto.FromString, tensors)
    return read_parts(parse_model(message), [(proto.name, TensorContents(proto)) for proto in protos])
