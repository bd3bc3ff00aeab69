"""Insertion of QuantizeLinear and DequantizeLinear by a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, DType, Graph, Node, Value
from tenonnx.extend.transforms import Call, Rewriter, interpreting, prune
from tenonnx_quantized.computed import Computed
from tenonnx_quantized.forms.quantized_nodes import QuantizationRewriter
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from tenonnx_quantized.tuning.quantized_tensor import QuantizationParameters, QuantizedTensor

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Insertions:
    """Plan of an insertion.

    Activations with their parameters, nodes with quantized weights by position, Gather nodes with quantized tables,
    and inputs that are quantized dynamically; and whether each consumer of an activation has its own pair of nodes.
    """

    activations: dict[Value, QuantizationParameters] = field(default_factory=dict)
    weights: dict[Node, list[tuple[int, QuantizedTensor]]] = field(default_factory=dict)
    tables: dict[Node, QuantizedTensor] = field(default_factory=dict)
    dynamic_inputs: dict[Node, int] = field(default_factory=dict)
    dedicated_pairs: bool = False


def insert(graph: Graph, plan: Insertions) -> Graph:
    """Copy of ``graph`` with quantized activations and weights."""
    return prune(_Inserter(graph, plan).run())


class _Inserter(QuantizationRewriter):
    def __init__(self, source: Graph, plan: Insertions, **keywords: Any) -> None:
        super().__init__(source, self._rows_of_tables, **keywords)
        self.plan = plan
        self._numbers: dict[Any, Value] = {}
        self._tables: dict[Value, tuple[Value, Value, Value | None]] = {}
        self._pairs: dict[Value, list[Value]] = {}

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        """The rewriter of a subgraph, which only changes its captures."""
        return QuantizationRewriter(subgraph, lambda rewriter, call: None, outer=self)

    def visit(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None and value.producer is None and value in self.plan.activations:
                self._round(value)
        kept = {value: self.copy(value) for value in node.inputs if value is not None and value.graph is not None}
        for value in kept:
            if value in self._pairs and self.plan.dedicated_pairs:
                self._replace_value(value, self._dedicated_pair(value))
        for position, quantized in self.plan.weights.get(node, ()):
            self._replace_value(node.inputs[position], self._weights(node.inputs[position], quantized))
        if node in self.plan.dynamic_inputs:
            value = node.inputs[self.plan.dynamic_inputs[node]]
            self._replace_value(value, self._quantized_at_run_time(value))
        super().visit(node)
        self.mapping.update(kept)
        for value in node.outputs:
            if value is not None and value in self.plan.activations:
                self._round(value)

    def _replace_value(self, value: Value | None, other: Value) -> None:
        assert value is not None
        self.mapping[value] = other

    def _round(self, value: Value) -> None:
        """Replace a value by its dequantized value for all consumers; a graph output keeps its name."""
        parameters, raw = self.plan.activations[value], self.copy(value)
        if raw is not self.mapping[value] or (value, "rounded") in self._numbers:
            return
        self.prefix = value.name
        scale = self._constant(f"{value.name}/scale", parameters.scale, DType.float32)
        zero_point = self._constant(f"{value.name}/zero_point", parameters.zero_point, parameters.dtype)
        with interpreting(self):
            numbers = dequantize_linear(quantize_linear(raw, scale, zero_point), scale, zero_point)
        if value in self.source.outputs and value.producer is not None:
            raw.name, numbers.name = self.name(f"{value.name}/float"), value.name
        self._numbers[value, "rounded"] = numbers
        self._pairs[value] = [raw, scale, zero_point]
        self.mapping[value] = numbers

    def _dedicated_pair(self, value: Value) -> Value:
        """The dequantized value for a further consumer; the first one uses that of ``_round``."""
        if (value, "read") not in self._numbers:
            self._numbers[value, "read"] = self._numbers[value, "rounded"]
            return self._numbers[value, "rounded"]
        raw, scale, zero_point = self._pairs[value]
        self.prefix = value.name
        with interpreting(self):
            return dequantize_linear(quantize_linear(raw, scale, zero_point), scale, zero_point)

    def _quantized_at_run_time(self, value: Value | None) -> Value:
        """Quantize and dequantize a value by its range at run time."""
        assert value is not None
        if (value, "dynamic") not in self._numbers:
            self.prefix = value.name
            with interpreting(self):
                quantized, scale, zero_point = dynamic_quantize_linear(self.copy(value))
                self._numbers[value, "dynamic"] = dequantize_linear(quantized, scale, zero_point)
        return self._numbers[value, "dynamic"]

    def _weights(self, value: Value | None, quantized: QuantizedTensor) -> Value:
        """Dequantized weights; nodes that share weights keep sharing them."""
        assert value is not None
        if (value, "weights") not in self._numbers:
            quantized_weight, scale, zero_point = self._weight_constants(value, quantized)
            where = {} if quantized.axis is None else {"axis": quantized.axis}
            where |= {"block_size": quantized.block_size} if quantized.block_size else {}
            where |= {"output_dtype": int(DType.float32)} if scale.dtype is DType.float8e8m0 else {}
            with interpreting(self):
                self._numbers[value, "weights"] = dequantize_linear(quantized_weight, scale, zero_point, **where)
        return self._numbers[value, "weights"]

    def _rows_of_tables(self, rewriter: Rewriter, call: Call) -> tuple[Value] | None:
        """Gather quantized rows of a table and dequantize them, so that the table stays quantized."""
        quantized = None if call.node is None else self.plan.tables.get(call.node)
        if quantized is None or call.node is None or (table := call.node.inputs[0]) is None:
            return None
        if table not in self._tables:
            self._tables[table] = self._weight_constants(table, quantized)
        quantized_weight, scale, zero_point = self._tables[table]
        with interpreting(self):
            rows = ops.gather(quantized_weight, call.inputs[1])
            return (dequantize_linear(rows, scale, zero_point, **({} if quantized.axis is None else {"axis": -1})),)

    def _weight_constants(self, value: Value, quantized: QuantizedTensor) -> tuple[Value, Value, Value | None]:
        self.prefix, dtype = value.name, quantized.parameters.dtype
        quantized_weight = self._constant(f"{value.name}/quantized", quantized.quantized, dtype)
        if dtype.is_float and quantized.block_size:
            return quantized_weight, self._scale_of_floats(value.name, quantized.parameters), None
        return (
            quantized_weight,
            self._constant(f"{value.name}/scale", quantized.parameters.scale, DType.float32),
            self._constant(f"{value.name}/zero_point", quantized.parameters.zero_point, dtype),
        )

    def _scale_of_floats(self, name: str, found: QuantizationParameters) -> Value:
        """Scales in their type; float8e4m3fn scales are quantized themselves, by one float32."""
        units = found.scale / np.float32(found.unit)
        scale = self._constant(f"{name}/scale", units.astype(found.scale_type.numpy), found.scale_type)
        if found.scale_type is not DType.float8e4m3fn:
            return scale
        unit = self._constant(f"{name}/scale_of_scales", np.asarray(found.unit, np.float32), DType.float32)
        with interpreting(self):
            return dequantize_linear(scale, unit)

    def _constant(self, name: str, contents: Array | Computed, dtype: DType) -> Value:
        data = contents if isinstance(contents, Computed) else ArrayConstant(np.array(contents, order="C"), dtype)
        return Value(self.name(name), data.type, data=data, graph=self.graph)
