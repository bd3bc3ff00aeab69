"""Reading and writing ``ModelProto`` messages, and iteration over their subgraphs."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError

from tenonnx import InvalidModel, TenonnxError, load
from tenonnx_cli.extend import opened, opened_for_reading


def read_message(path: str) -> onnx.ModelProto:
    """Read a model with all its weights. Raises the errors of ``load`` for a file that is not a model.

    A model that ``load`` rejects as invalid is read with ``onnx.load``.
    """
    try:
        return load(opened_for_reading(path)).to_proto()
    except InvalidModel:
        try:
            return onnx.load(path)
        except (DecodeError, OSError, ValueError, onnx.checker.ValidationError):
            pass
        raise


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs in the attributes of a node."""
    for attribute in node.attribute:
        yield from bodies_of(attribute)


def bodies_of(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The subgraphs in an attribute."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def write_message(message: onnx.ModelProto, path: str) -> None:
    """Write a model by ``export``, or unchanged if it is invalid."""
    try:
        graph = load(message)
    except TenonnxError:
        onnx.save(message, path)
        return
    from tenonnx import export

    export(graph, opened(path))
