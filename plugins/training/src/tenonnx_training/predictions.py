"""Finding the prediction that a loss reads."""

from __future__ import annotations

from tenonnx.extend import Graph, InvalidCall, TensorType, Value
from tenonnx_standard.shapes import identity


def prediction_of(graph: Graph, name: str | None) -> Value:
    """The value called ``name``, by default the first float output of the graph."""
    floats = [v for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    if name is None and floats:
        return floats[0]
    result = next((v for v in graph.values() if v.name == name), None)
    if result is None:
        raise InvalidCall(
            "the model has no floating-point output for a loss" if name is None else f'no value "{name}" to train on',
            available=", ".join(f"{v.name}: {v.type}" for v in graph.outputs),
            do="name one: output= (--of)",
        )
    return result


def before(graph: Graph, value: Value, activation: str) -> Value:
    """Input of the ``activation`` that produces ``value``, or ``value`` itself if another op does."""
    node = value.producer
    while node is not None and node.op is identity and node.inputs[0] is not None:
        node = node.inputs[0].producer
    applied = node is not None and bool(activation) and (node.domain, node.op_type) == ("ai.onnx", activation)
    before = node.inputs[0] if applied and node is not None else None
    return value if before is None else before
