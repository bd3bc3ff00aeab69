"""The graph with QuantizeLinear and DequantizeLinear where a plan wants them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, DType, Graph, Node, Value
from tenonnx.extend.transforms import Call, Rewriter, interpreting, prune
from tenonnx_quantized.computed import Computed
from tenonnx_quantized.forms.codes import CodesRewriter
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from tenonnx_quantized.tuning.codes import Codes, QuantizationParameters

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Insertions:
    """Activations to round by their parameters, weights of nodes with their codes, tables that nodes take rows of with
    their codes, and inputs to round as it runs."""

    activations: dict[Value, QuantizationParameters] = field(default_factory=dict)
    weights: dict[Node, tuple[int, Codes]] = field(default_factory=dict)
    tables: dict[Node, Codes] = field(default_factory=dict)
    dynamic_inputs: dict[Node, int] = field(default_factory=dict)


def insert(graph: Graph, plan: Insertions) -> Graph:
    """A copy of ``graph`` that rounds activations to codes and holds weights as codes, each before its readers."""
    return prune(_Inserter(graph, plan).run())


class _Inserter(CodesRewriter):
    def __init__(self, source: Graph, plan: Insertions, **keywords: Any) -> None:
        super().__init__(source, self._rows_of_tables, **keywords)
        self.plan = plan
        self._numbers: dict[Any, Value] = {}
        self._tables: dict[Value, tuple[Value, Value, Value]] = {}

    def visit(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None and value.producer is None and value in self.plan.activations:
                self._round(value)
        kept = {value: self.copy(value) for value in node.inputs if value is not None and value.graph is not None}
        if node in self.plan.weights:
            position, codes = self.plan.weights[node]
            self._stand_in(node.inputs[position], self._weights(node.inputs[position], codes))
        if node in self.plan.dynamic_inputs:
            value = node.inputs[self.plan.dynamic_inputs[node]]
            self._stand_in(value, self._as_it_runs(value))
        super().visit(node)
        self.mapping.update(kept)
        for value in node.outputs:
            if value is not None and value in self.plan.activations:
                self._round(value)

    def _stand_in(self, value: Value | None, other: Value) -> None:
        assert value is not None
        self.mapping[value] = other

    def _round(self, value: Value) -> None:
        """Let all that reads a value read what its codes stand for; an output of the graph keeps its name."""
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
        self.mapping[value] = numbers

    def _as_it_runs(self, value: Value | None) -> Value:
        """What codes stand for whose range is found while the model runs."""
        assert value is not None
        if (value, "dynamic") not in self._numbers:
            self.prefix = value.name
            with interpreting(self):
                codes, scale, zero_point = dynamic_quantize_linear(self.copy(value))
                self._numbers[value, "dynamic"] = dequantize_linear(codes, scale, zero_point)
        return self._numbers[value, "dynamic"]

    def _weights(self, value: Value | None, codes: Codes) -> Value:
        """What the codes of weights stand for; nodes that share weights share them still."""
        assert value is not None
        if (value, "weights") not in self._numbers:
            held, scale, zero_point = self._held(value, codes)
            where = {} if codes.axis is None else {"axis": codes.axis}
            where |= {"block_size": codes.block_size} if codes.block_size else {}
            with interpreting(self):
                self._numbers[value, "weights"] = dequantize_linear(held, scale, zero_point, **where)
        return self._numbers[value, "weights"]

    def _rows_of_tables(self, rewriter: Rewriter, call: Call) -> tuple[Value] | None:
        """Rows of a table as what the codes of these rows stand for: the table is never unpacked as a whole."""
        codes = None if call.node is None else self.plan.tables.get(call.node)
        if codes is None or call.node is None or (table := call.node.inputs[0]) is None:
            return None
        if table not in self._tables:
            self._tables[table] = self._held(table, codes)
        held, scale, zero_point = self._tables[table]
        with interpreting(self):
            rows = ops.gather(held, call.inputs[1])
            return (dequantize_linear(rows, scale, zero_point, **({} if codes.axis is None else {"axis": -1})),)

    def _held(self, value: Value, codes: Codes) -> tuple[Value, Value, Value]:
        self.prefix, dtype = value.name, codes.parameters.dtype
        return (
            self._constant(f"{value.name}/codes", codes.codes, dtype),
            self._constant(f"{value.name}/scale", codes.parameters.scale, DType.float32),
            self._constant(f"{value.name}/zero_point", codes.parameters.zero_point, dtype),
        )

    def _constant(self, name: str, contents: Array | Computed, dtype: DType) -> Value:
        data = contents if isinstance(contents, Computed) else ArrayConstant(np.array(contents, order="C"), dtype)
        return Value(self.name(name), data.type, data=data, graph=self.graph)
