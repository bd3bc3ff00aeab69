"""Key and value caches of decoders as quantized graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, TensorType, Value, static
from tenonnx.extend.transforms import prune
from tenonnx_quantized.forms.quantized_nodes import is_dequantize, is_quantize
from tenonnx_quantized.tuning.quantized_tensor import QuantizationParameters, encode


def caches_of(graph: Graph) -> list[tuple[Value, Value]]:
    """Pairs of a graph input and the output that extends it, such as past and present keys.

    Both belong to one node, a Concat or an attention op, and their shapes differ only in the sequence length. Raises
    ``InvalidCall`` if the graph has none.
    """
    inputs = set(graph.inputs)
    result = []
    for node in dict.fromkeys(value.producer for value in graph.outputs):
        if node is None:
            continue
        past = [value for value in node.inputs if value is not None and value in inputs and _rank(value) > 2]
        present = [value for value in node.outputs if value is not None and value in graph.outputs]
        present = [value for value in present if any(_extends(value, each) for each in past)]
        past = [value for value in past if any(_extends(each, value) for each in present)]
        if len(past) == len(present):
            result += list(zip(past, present, strict=True))
    if not result:
        raise InvalidCall(
            "the model has no key and value caches",
            given=f"inputs {', '.join(value.name for value in graph.inputs)}",
            do="export the decoder with past keys and values as inputs, and present ones as outputs",
        )
    return result


def _rank(value: Value) -> int:
    kind = value.type
    return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None and kind.dtype.is_float else 0


def _extends(present: Value, past: Value) -> bool:
    """Whether two values are of the same type, up to one dim."""
    if not 2 < _rank(past) == _rank(present) or past.dtype is not present.dtype:
        return False
    return sum(a != b for a, b in zip(past.shape, present.shape, strict=True)) <= 1


def with_quantized_caches(graph: Graph, names: Collection[str], *, floats: bool) -> Graph:
    """A copy of a graph in which caches between QuantizeLinear and DequantizeLinear are quantized inputs and outputs.

    ``names`` are those of the past and present values. With ``floats``, nodes that read new cache elements read them
    unrounded. Zero points are 0, so that an empty cache may be filled with zeros. A cache that is fed back is not
    rounded again, since its elements are quantized already.
    """
    graph = graph.copy()
    for value in graph.inputs:
        if value.name in names:
            _quantize_input(graph, value)
    for place, value in enumerate(graph.outputs):
        rounded = None if value.producer is None else value.producer.inputs[0]
        if value.name in names and rounded is not None:
            _take_name(graph, rounded, value)
            graph.outputs[place] = rounded
            if floats and (given := rounded.producer.inputs[0]) is not None:  # type: ignore[union-attr]
                graph.replace(value, given)
    return prune(graph)


def _quantize_input(graph: Graph, value: Value) -> None:
    """Replace a float input and its QuantizeLinear by a quantized input."""
    rounding = next(node for node in graph.uses()[value] if is_quantize(node.op))
    rounded = rounding.outputs[0]
    assert rounded is not None
    new = Value(graph.unique_name(f"{value.name}/quantized"), TensorType(rounded.dtype, value.shape), graph=graph)
    graph.all_inputs.insert(graph.all_inputs.index(value), new)
    graph.replace(rounded, new)
    graph.remove(rounding)
    graph.all_inputs.remove(value)
    _take_name(graph, new, value)


def _take_name(graph: Graph, new: Value, old: Value) -> None:
    name = old.name
    old._replace_fields(name=graph.unique_name(f"{name}/float"))
    new._replace_fields(name=name)


def with_quantized_feeds(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds of the float model for one with quantized caches: float caches become quantized values."""
    uses, result = graph.uses(), dict(feeds)
    for value in graph.inputs:
        readers = [node for node in uses.get(value, ()) if is_dequantize(node.op)]
        given = result.get(value.name)
        if not readers or not isinstance(given, np.ndarray) or given.dtype == value.dtype.numpy:
            continue
        scale, zero = (static(each) for each in readers[0].inputs[1:3])
        if scale is not None and zero is not None:
            result[value.name] = encode(given, QuantizationParameters(scale, zero, value.dtype), None).quantized
    return result
