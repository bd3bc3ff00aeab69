"""Quantized weights of nodes, by their settings and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Value, static
from tenonnx.extend.transforms import retarget
from tenonnx_quantized.forms.qoperator import LARGEST_BIAS
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.config import QuantizeConfig, WeightSettings, first_version
from tenonnx_quantized.tuning.insert import Insertions, insert
from tenonnx_quantized.tuning.methods.layer import Layer, clipping_moment, grid
from tenonnx_quantized.tuning.methods.registry import ROUNDING
from tenonnx_quantized.tuning.methods.rescale import matrices
from tenonnx_quantized.tuning.quantized_tensor import (
    Array,
    QuantizationParameters,
    QuantizedTensor,
    by_channel,
    in_blocks,
    in_blocks_of_rows,
    parameters,
)
from tenonnx_quantized.tuning.selection import RECURRENT, activations_of, handed_on, weight_places
from tenonnx_quantized.tuning.statistics import LayerInput, Moments

#: Size in bytes from which on a matrix is quantized in chunks.
LARGE = 1 << 24

Ranges = Mapping[str, tuple[float, float]]


@dataclass(slots=True)
class Quantizer:
    """Quantizes nodes of a graph; the weights of a node are rounded once per settings."""

    graph: Graph
    ranges: Ranges
    config: QuantizeConfig
    moments: Moments | None = None
    inputs: Mapping[Node, LayerInput] = field(default_factory=dict)
    caches: Sequence[tuple[Value, Value]] = ()
    rounded: Mapping[str, QuantizedTensor] = field(default_factory=dict)
    _rounded: dict[Any, QuantizedTensor] = field(default_factory=dict)

    def apply(
        self, nodes: Sequence[Node], bits: Mapping[Node, int] | None = None
    ) -> tuple[Graph, dict[str, tuple[Value, QuantizedTensor]]]:
        """The graph with these nodes quantized, and the weights with their quantized values.

        ``bits`` overrides the number of bits of some nodes' weights.
        """
        weights: dict[str, tuple[Value, QuantizedTensor]] = {}
        plan = Insertions(dedicated_pairs=self.config.dedicated_pairs)
        if self.config.mode == "static":
            plan.activations = self.parameters(nodes)
        plan.activations = {**plan.activations, **self.cache_parameters()}
        for node in nodes:
            if is_meaning(node.op, ops.gather) and (table := node.inputs[0]) is not None:
                axis = 1 if self.config.per_channel else None
                reduced = self.config.reduce_range
                quantized = by_channel(static(table), DType.int8, axis, symmetric=True, reduce_range=reduced)
                weights[table.name], plan.tables[node] = (table, quantized), quantized
            for position, axis in weight_places(node):
                value = node.inputs[position]
                assert value is not None
                settings = self.config.of(node)
                if bits is not None and node in bits:
                    settings = settings.with_bits(bits[node])
                least = _least_scale(value, nodes, plan.activations) if settings.dtype.is_integer else 0.0
                quantized = self._weights(node, value, axis, settings, least)
                weights[value.name] = value, quantized
                plan.weights.setdefault(node, []).append((position, quantized))
        if self.config.mode == "dynamic":
            plan.dynamic_inputs = dict.fromkeys(plan.weights, 0)
        return insert(self.graph, plan), weights

    def at_version(self, graph: Graph, weights: Mapping[str, tuple[Value, QuantizedTensor]]) -> Graph:
        """The graph of ``apply`` at the first version of ai.onnx, at least 13, that supports its quantized types."""
        quantized = [each for _, each in weights.values()]
        versions = [13, self.graph.opsets.get("ai.onnx", 13)]
        versions += [first_version(each.parameters.dtype) for each in quantized]
        versions += [first_version(each.parameters.scale_type) for each in quantized]
        versions += [21] if any(each.block_size for each in quantized) else []
        versions += [first_version(self.config.activations)] if self.config.mode == "static" else []
        versions += [first_version(DType.of(self.config.kv_cache))] if self.config.kv_cache is not None else []
        return retarget(graph, max(versions))

    def parameters(self, nodes: Sequence[Node]) -> dict[Value, QuantizationParameters]:
        """The parameters of each activation; ops that only move elements pass them on."""
        values, dtype = activations_of(self.graph, nodes, self.config.float_outputs), self.config.activations
        symmetric = self.config.symmetric
        found = {value: parameters(*self.ranges[value.name], dtype, symmetric=symmetric) for value in values}
        for value, result in handed_on(self.graph, found):
            if result in found:
                found[result] = found[value]
        return found

    def cache_parameters(self) -> dict[Value, QuantizationParameters]:
        """The parameters of past and present keys and values: symmetric, and equal for both."""
        result = {}
        for past, present in self.caches:
            low, high = (pick(self.ranges[v.name][k] for v in (past, present)) for k, pick in enumerate((min, max)))
            result[past] = result[present] = parameters(low, high, DType.of(self.config.kv_cache or ""), symmetric=True)
        return result

    def widths(self, node: Node) -> tuple[int, ...]:
        """The numbers of bits that the weights of a node can have in the chosen form."""
        if not (dtype := self.config.of(node).dtype).is_integer:
            return (dtype.bits,)
        if self.config.form == "qoperator":
            return (4, 8) if self.config.mode == "weights" and is_meaning(node.op, ops.matmul) else (8,)
        return (2, 4, 8)

    def forget(self) -> None:
        """Drop the quantized values computed so far."""
        self._rounded.clear()

    def _weights(
        self, node: Node, value: Value, axis: int, settings: WeightSettings, least: Array | float
    ) -> QuantizedTensor:
        if value.name in self.rounded:
            return self.rounded[value.name]
        key = self.inputs.get(node)
        by_input = key if self.moments is not None and settings.rounding not in ("rtn", "hqq") else None
        memo = (value, settings, by_input, np.asarray(least).tobytes())
        if memo not in self._rounded:
            self._rounded[memo] = self._round(node, value, axis, settings, least, key)
        return self._rounded[memo]

    def _round(
        self,
        node: Node,
        value: Value,
        axis: int,
        settings: WeightSettings,
        least: Array | float,
        key: LayerInput | None,
    ) -> QuantizedTensor:
        blocked = settings.granularity == "block"
        simple = settings.rounding in ("rtn", "hqq") and settings.search in ("rtn", "hqq")
        simple &= not (blocked and (settings.dtype.is_signed or settings.dtype.is_float))
        if not simple and key is not None:
            result = self._by_matrix(node, value, axis, settings, key)
            if not np.any(np.asarray(least) > result.parameters.scale):
                return result
        if blocked:
            assert value.data is not None
            options: dict[str, Any] = {"symmetric": settings.symmetric, "search": settings.search}
            if options["search"] == "mse":
                options["search"] = "rtn"
            bits, size = settings.dtype.bits, settings.block_size
            if axis == 1 and value.data.nbytes >= LARGE:
                return in_blocks_of_rows(value, bits, size, **options)
            return in_blocks(static(value), bits, size, 1 - axis, **options)
        channels = axis if settings.granularity == "channel" else None
        return by_channel(
            static(value),
            settings.dtype,
            channels,
            symmetric=settings.symmetric,
            least_scale=least,
            reduce_range=self.config.reduce_range,
        )

    def _by_matrix(
        self, node: Node, value: Value, axis: int, settings: WeightSettings, key: LayerInput
    ) -> QuantizedTensor:
        """Weights rounded as matrices, one per group of a convolution."""
        contents, dtype = static(value), settings.dtype
        assert contents is not None
        moment = None if self.moments is None else self.moments.of(key).moment
        identity = np.eye(key.rows) if moment is None and settings.dtype.is_integer else None
        size = settings.block_size if settings.granularity == "block" else key.rows
        whole = None
        if settings.granularity == "tensor":
            whole = parameters(contents.min(), contents.max(), dtype, symmetric=settings.symmetric)
        quantized, scales, zeros = [], [], []
        for group, part in enumerate(matrices(node, key, contents)):
            moments = identity if moment is None else moment[group]
            clipped_by = None if moments is None else clipping_moment(moments, settings)
            options: dict[str, Any] = {"symmetric": settings.symmetric, "scale_type": settings.scale_type}
            found = whole or grid(part, dtype, size, moment=clipped_by, **options)
            shape = (-(-key.rows // size), part.shape[1])
            scale = np.broadcast_to(found.scale, shape).astype(np.float32)
            zero = np.broadcast_to(found.zero_point, shape).astype(np.float32)
            layer = Layer(part, scale, zero, dtype, size, moments, one_scale=whole is not None)  # type: ignore[arg-type]
            quantized.append(ROUNDING[settings.rounding](layer))
            scales.append(layer.scale)
            zeros.append(zero)
        numbers = np.stack(quantized).swapaxes(1, 2).reshape(-1, key.rows)  # [columns of all groups, rows]
        columns_first = axis == 0
        numbers = numbers.reshape(contents.shape) if columns_first else numbers.T.reshape(contents.shape)
        rounded = _whole_numbers(numbers, dtype)
        if whole is not None:
            return QuantizedTensor(rounded, whole, None)
        scale, zero = (np.concatenate(each, axis=1) for each in (scales, zeros))
        if settings.granularity == "channel":
            return QuantizedTensor(
                rounded, QuantizationParameters(scale[0], _whole_numbers(zero[0], dtype), dtype), axis
            )
        scale, zero = (scale.T, zero.T) if columns_first else (scale, zero)
        kept = QuantizationParameters(
            np.ascontiguousarray(scale), _whole_numbers(zero, dtype), dtype, found.scale_type, found.unit
        )
        return QuantizedTensor(rounded, kept, 1 - axis, size)


def _whole_numbers(numbers: Array, dtype: DType) -> Array:
    """Integers in a quantized type."""
    return numbers.astype(np.int32 if dtype.is_integer else np.float32).astype(dtype.numpy)


def _least_scale(
    weights: Value, nodes: Sequence[Node], activations: Mapping[Value, QuantizationParameters]
) -> Array | float:
    """Minimum weight scale for which the bias, in units of input scale times weight scale, fits into int32.

    There is one per channel, or a single one. Nodes that share weights share the scale.
    """
    least: Array | float = 0.0
    for node in nodes:
        if is_meaning(node.op, *RECURRENT):  # the third input is no bias
            continue
        given, weight, bias = (*node.inputs, None, None)[:3]
        contents = None if bias is None or weight is not weights else static(bias)
        if contents is not None and given is not None and given in activations:
            steps = np.abs(contents.astype(np.float64)) / activations[given].scale / LARGEST_BIAS
            steps *= abs(node.attributes.get("beta", 1.0) / (node.attributes.get("alpha", 1.0) or 1.0))
            least = np.maximum(least, steps.reshape(-1, steps.shape[-1]).max(0) if steps.ndim else steps)
    return least
