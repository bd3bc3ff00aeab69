"""Reading, writing and extracting parts of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import onnx

from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import announce, refuse_options


def load_onnx_model(onnx_file_or_bytes: str | bytes | IO[bytes]) -> onnx.ModelProto:
    """Read a model from a path, a file or bytes."""
    if isinstance(onnx_file_or_bytes, bytes):
        return onnx.load(BytesIO(onnx_file_or_bytes))
    return onnx.load(onnx_file_or_bytes)


def save_onnx_model(model: onnx.ModelProto, filename: str | IO[bytes] | None = None) -> bytes:
    """Serialize a model, and write it to a path or a file if one is given; returns the bytes."""
    content: bytes = model.SerializeToString()
    if isinstance(filename, str):
        Path(filename).write_bytes(content)
    elif filename is not None:
        filename.write(content)
    return content


def enumerate_model_node_outputs(model: onnx.ModelProto, add_node: bool = False) -> Iterator[Any]:
    """Names of the outputs of all nodes; with ``add_node``, pairs of name and node.

    Raises ``TypeError`` for anything but a model.
    """
    if not hasattr(model, "graph"):
        raise TypeError(f"Parameter model is not an ONNX model but {type(model)}")
    for node in model.graph.node:
        for name in node.output:
            yield (name, node) if add_node else name


def enumerate_model_initializers(model: onnx.ModelProto, add_node: bool = False) -> Iterator[Any]:
    """Names of the initializers; with ``add_node``, pairs of name and initializer."""
    for tensor in model.graph.initializer:
        yield (tensor.name, tensor) if add_node else tensor.name


def select_model_inputs_outputs(
    model: onnx.ModelProto, outputs: str | Sequence[str] | None = None, inputs: Sequence[str] | None = None
) -> onnx.ModelProto:
    """Extract the part of a model between the named values. Raises ``ValueError`` for an unknown name."""
    announce("skl2onnx.helpers.onnx_helper.select_model_inputs_outputs", "graph.extract(inputs, outputs)")
    refuse_options("select_model_inputs_outputs", {"inputs": inputs}, "graph.extract takes inputs")
    if outputs is None:
        raise RuntimeError("Parameter outputs cannot be None.")
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    graph = graph_of(model)
    known = {value.name for value in graph.values()}
    for name in names:
        if name not in known:
            raise ValueError(f"Output '{name}' not found in model.")
    return message_of(graph.extract([value.name for value in graph.inputs], names))
