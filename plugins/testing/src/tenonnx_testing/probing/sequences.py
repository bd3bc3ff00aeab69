"""Single-op models with tensors in place of sequences: many consumers have sequences within a model only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tenonnx_testing.models import Trial


def with_tensors(trial: Trial) -> Trial | None:
    """Return the trial with its sequences of tensors constructed and taken apart by nodes of the model.

    None if an input or output is optional, or a sequence of maps.
    """
    values = [*trial.model.graph.input, *trial.model.graph.output]
    if all(value.type.HasField("tensor_type") for value in values):
        return trial
    if not all(_is_tensor_or_sequence(value.type) for value in values):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(trial.model)
    graph, feeds, before = model.graph, dict(trial.feeds), []
    inputs = list(graph.input)
    del graph.input[:]
    for value in inputs:
        if value.type.HasField("tensor_type"):
            graph.input.append(value)
            continue
        dtype, arrays = value.type.sequence_type.elem_type.tensor_type.elem_type, feeds.pop(value.name)
        names = [f"{value.name}_{place}" for place in range(len(arrays))]
        feeds |= dict(zip(names, arrays, strict=True))
        graph.input.extend(
            helper.make_tensor_value_info(name, dtype, array.shape) for name, array in zip(names, arrays, strict=True)
        )
        before.append(
            helper.make_node("SequenceConstruct", names, [value.name])
            if names
            else helper.make_node("SequenceEmpty", [], [value.name], dtype=dtype)
        )
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    expected: list[Any] = []
    outputs = list(graph.output)
    del graph.output[:]
    for value, contents in zip(outputs, trial.expected, strict=True):
        if value.type.HasField("tensor_type"):
            graph.output.append(value)
            expected.append(contents)
        else:
            dtype = value.type.sequence_type.elem_type.tensor_type.elem_type
            expected += _observe(graph, value.name, dtype, contents)
    return Trial(model, feeds, tuple(expected))


def _observe(graph: onnx.GraphProto, name: str, dtype: int, contents: list[Any]) -> list[Any]:
    """Add tensor outputs with the contents of a sequence; returns their expected values.

    An empty sequence gives its length, elements of one shape give one tensor, and others a tensor each.
    """
    if not contents:
        graph.node.append(helper.make_node("SequenceLength", [name], [f"{name}_length"]))
        graph.output.append(helper.make_tensor_value_info(f"{name}_length", onnx.TensorProto.INT64, ()))
        return [np.array(0)]
    if len({array.shape for array in contents}) == 1:
        joined = np.stack(contents)
        graph.node.append(helper.make_node("ConcatFromSequence", [name], [f"{name}_joined"], axis=0, new_axis=1))
        graph.output.append(helper.make_tensor_value_info(f"{name}_joined", dtype, joined.shape))
        return [joined]
    for place, array in enumerate(contents):
        element, index = f"{name}_{place}", f"{name}_index_{place}"
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(place), index))
        graph.node.append(helper.make_node("SequenceAt", [name, index], [element]))
        graph.output.append(helper.make_tensor_value_info(element, dtype, array.shape))
    return list(contents)


def _is_tensor_or_sequence(kind: onnx.TypeProto) -> bool:
    elements = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
    return elements.WhichOneof("value") in ("tensor_type", None)  # None for an empty sequence
