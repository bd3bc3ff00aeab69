"""Structure: what ``onnx.checker`` objects to in a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from tenonnx.formats.onnx.tensors import TensorContents, packed_bytes, to_proto
from tenonnx.formats.onnx.types import write_type
from tenonnx.formats.onnx.writer import model_and_initializers
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Constant

if TYPE_CHECKING:
    import os

#: Initializers of more bytes are judged by their types alone: shape inference reads only small contents.
_LARGEST = 1 << 20


def structure_problems(source: Graph | str | os.PathLike[str], *, inferred: bool = True) -> list[str]:
    """The objections of ``onnx.checker`` to a graph or an ONNX file; none if it passes.

    It infers all shapes, unless ``inferred`` is False: on models that break the rules of an op it may never end.
    """
    model = _without_weights(source) if isinstance(source, Graph) else str(Path(source))
    try:
        onnx.checker.check_model(model, full_check=inferred)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return [" ".join(str(error).split())]
    return []


def _without_weights(graph: Graph) -> onnx.ModelProto:
    """The model with its large tensors as inputs: the checker neither copies them nor looks for their files."""
    model, initializers = model_and_initializers(graph)
    listed = {info.name for info in model.graph.input}
    for name, contents in initializers:
        if _is_small(contents):
            model.graph.initializer.append(to_proto(contents, name))
        elif name not in listed:
            write_type(contents.type, model.graph.input.add(name=name).type)
    return model


def _is_small(contents: Constant) -> bool:
    external = isinstance(contents, TensorContents) and contents.region is not None
    return not external and packed_bytes(contents.type) <= _LARGEST
