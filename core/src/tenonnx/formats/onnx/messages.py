"""A graph as a message at the versions that it has, its initializers apart: what files, runtimes and pickles take."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import onnx

from tenonnx.errors import InvalidCall
from tenonnx.formats.native import is_native
from tenonnx.formats.native import write as write_native
from tenonnx.formats.onnx.ir import leave_out_notes
from tenonnx.formats.onnx.reader import parse_model, read_parts
from tenonnx.formats.onnx.tensors import Initializers, TensorContents, to_inline_proto
from tenonnx.formats.onnx.training import add_training_state
from tenonnx.formats.onnx.writer import model_and_initializers
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.registry.packages import KEY as PACKAGES
from tenonnx.registry.packages import packages_in_use
from tenonnx.transforms.retarget import retarget_where_needed
from tenonnx.transforms.target import target_for

_read_from: ContextVar[tuple[Graph, onnx.ModelProto, Initializers] | None] = ContextVar("tenonnx_message", default=None)


@contextmanager
def read_back(model: onnx.ModelProto, initializers: Initializers, registry: Any) -> Iterator[Graph]:
    """The graph of a message. As long as it is looked at here, which nobody edits, its message is not built again."""
    graph = read_parts(model, initializers, registry)
    token = _read_from.set((graph, model, initializers))
    try:
        yield graph
    finally:
        _read_from.reset(token)


def as_message(graph: Graph) -> tuple[onnx.ModelProto, Initializers]:
    """A graph as it stands: the message, which may be changed, without the initializers, and these."""
    known = _read_from.get()
    if known is None or known[0] is not graph:
        return model_and_initializers(graph)
    model = onnx.ModelProto()
    model.CopyFrom(known[1])
    return model, list(known[2])


@in_registry_of_graph
def message_of(graph: Graph, *, training_state: bool = False) -> tuple[onnx.ModelProto, Initializers]:
    """A graph at its own versions: its message without the initializers, and these.

    What was added to it is written for these versions, as by ``export`` without options. Raises ``NotRepresentable``
    for a node that has no form there.
    """
    check_whole(graph)
    written = retarget_where_needed(graph, target_for(graph)).graph
    model, initializers = as_message(written)
    if written is not graph:
        leave_out_notes(model)
    if training_state:
        initializers = add_training_state(written, model, initializers)
    name_packages(packages_in_use(written), model)
    return model, initializers


def name_packages(found: Mapping[str, str], model: onnx.ModelProto) -> None:
    """Say in the metadata which packages of others gave the graph its ops."""
    entry = next((entry for entry in model.metadata_props if entry.key == PACKAGES), None)
    if found:
        (entry or model.metadata_props.add(key=PACKAGES)).value = json.dumps(found)
    elif entry is not None:
        model.metadata_props.remove(entry)


def save(graph: Graph, path: str | os.PathLike[str], *, overwrite: bool = False, training_state: bool = True) -> None:
    """Write ``graph`` as a native file, at the opsets that it has, with its training state unless that is False.

    Raises ``InvalidCall`` for a path that is not called as native files are, ``NotRepresentable`` for a node that has
    no form at these opsets; then nothing is written.
    """
    if not is_native(path):
        raise InvalidCall(
            "a native file is called *.safetensors", given=os.fspath(path), do="tenonnx.export(graph, path) writes ONNX"
        )
    model, initializers = message_of(graph, training_state=training_state)
    write_native(model, initializers, path, overwrite=overwrite)


def pickled(graph: Graph) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
    """What ``pickle`` keeps of a graph: its message, with its training state, and those of its initializers."""
    model, initializers = message_of(graph, training_state=True)
    tensors = [to_inline_proto(contents, name).SerializeToString() for name, contents in initializers]
    return _unpickled, (model.SerializeToString(), tensors)


def _unpickled(message: bytes, tensors: Iterable[bytes]) -> Graph:
    protos = map(onnx.TensorProto.FromString, tensors)
    return read_parts(parse_model(message), [(proto.name, TensorContents(proto)) for proto in protos])
