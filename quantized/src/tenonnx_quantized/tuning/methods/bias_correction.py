"""Bias correction: the mean error of a layer's output is subtracted from its bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, Node, Value, static
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.methods.rescale import matrices
from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor
from tenonnx_quantized.tuning.statistics import LayerInput, Moments

Array = np.ndarray[Any, Any]


def correct_biases(
    graph: Graph,
    inputs: Mapping[Node, LayerInput],
    moments: Moments,
    quantized: Mapping[str, tuple[Value, QuantizedTensor]],
) -> None:
    """Take the expected change of each output channel, (Wq - W) E[x], off the bias (Nagel et al. 2019,
    arXiv:1906.04721, section 4.2), of layers that have a bias of their own."""
    uses, corrected = graph.uses(), {}
    for node, key in inputs.items():
        weights = node.inputs[1]
        bias = _bias(node, uses)
        if weights is None or weights.name not in quantized or bias is None:
            continue
        contents = static(bias)
        assert contents is not None
        change = quantized[weights.name][1].numbers() - static(weights)
        shift = np.einsum("grc,gr->gc", matrices(node, key, change), moments.of(key).mean).reshape(-1)
        shift *= node.attributes.get("alpha", 1.0) / (node.attributes.get("beta", 1.0) or 1.0)
        if contents.size == shift.size:
            corrected[bias.name] = (contents - shift.reshape(contents.shape)).astype(contents.dtype)
    graph.assign(corrected)


def _bias(node: Node, uses: Mapping[Value, list[Node]]) -> Value | None:
    """The constant added only to a layer's output."""
    if is_meaning(node.op, ops.conv, ops.gemm):
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        owners = [node]
    else:
        result = node.outputs[0]
        owners = uses.get(result, []) if result is not None else []
        if len(owners) != 1 or not is_meaning(owners[0].op, ops.add):
            return None
        bias = next((value for value in owners[0].inputs if value is not result), None)
    if bias is None or not bias.is_constant or bias.producer is not None or uses[bias] != owners:
        return None
    return bias
