"""Quantization scales among the variables, and biases whose scale is a product of other scales."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import ArrayConstant, Graph, Node, Op, TensorType, Value, find_trait, static
from tenonnx.extend.transforms import copy_graph
from tenonnx_standard.casting import cast
from tenonnx_standard.math import mul
from tenonnx_training.weight_readers import source_of

Array = np.ndarray[Any, Any]

#: Minimum bits of quantized biases, which are added to integer accumulators.
_BIAS_BITS = 32

#: Relative tolerance of a scale and the product that it should equal, for float32 rounding.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Bias:
    """A quantized bias in the variables ``quantized`` and ``scale``; its scale is that of the input times the weights'.

    Integer kernels assume so without reading it. ``numbers`` are the dequantized values.
    """

    quantized: str
    scale: str
    factors: tuple[str, str]
    numbers: Array
    outputs: tuple[str, ...]

    def follow(self, factors: Mapping[str, Array], scale: Array) -> dict[str, Array]:
        """Scale and quantized values, by name, for new ``factors``; ``scale`` is the old scale."""
        one, other = (factors[name].astype(np.float64).reshape(-1) for name in self.factors)
        product = np.broadcast_to(one * other, scale.shape or (1,)).reshape(scale.shape)
        bounds = np.iinfo(np.int32)
        quantized = np.clip(np.rint(self.numbers / product.astype(scale.dtype)), bounds.min, bounds.max)
        return {self.scale: product.astype(scale.dtype), self.quantized: quantized.astype(np.int32)}


def scales_of(graph: Graph) -> set[str]:
    """The names of float variables that are scales, or factors of scales."""
    found: set[str] = set()

    def mark(value: Value | None) -> None:
        value = None if value is None else source_of(value)
        if value is None:
            return
        if value.producer is None:
            found.add(value.name)
        elif _is(value.producer, mul):  # scale of the input times scale of the weights
            for factor in value.producer.inputs:
                mark(factor)

    sums: set[Value] = set()
    for node in graph.walk():
        for value in _scales(node):
            mark(value)
        adds = isinstance(node.op, Op) and find_trait(node.op, "integer_sums") is True
        if adds or (_is(node, cast) and node.inputs[0] in sums):
            sums.update(v for v in node.outputs if v is not None)
        elif _is(node, mul) and (plain := [v for v in node.inputs if v not in sums]) and len(plain) == 1:
            mark(plain[0])
    return {v.name for v in graph.variables if v.name in found and v.tensor.dtype.is_float}


def biases_of(graph: Graph) -> list[Bias]:
    """The biases of ``graph`` whose scales have to stay the product of two other variables."""
    graph = copy_graph(graph).infer()
    found: dict[tuple[Value, Value], set[tuple[Value, Value]]] = {}
    outputs: dict[tuple[Value, Value], list[Value]] = {}
    for node in graph.nodes:
        pairs = [pair for value in node.inputs if (pair := _dequantized(value)) is not None]
        factors = [scale for quantized, scale in pairs if quantized.dtype.bits < _BIAS_BITS]
        for value in node.inputs:
            pair = _dequantized(value)
            if pair is None or value is None or pair[0].dtype.bits < _BIAS_BITS:
                continue
            is_product = len(factors) > 1 and _is_product(pair[1], factors[0], factors[1])
            found.setdefault(pair, set()).add((factors[0], factors[1]) if is_product else pair)
            outputs.setdefault(pair, []).append(value)
    uses, biases = graph.uses(), []
    for (quantized, scale), products in found.items():
        readers = {v.producer for v in outputs[quantized, scale]}
        alone = (
            {*uses.get(quantized, ())} == readers and {*uses.get(scale, ())} == readers and scale not in graph.outputs
        )
        numbers = static(outputs[quantized, scale][0])
        if len(products) != 1 or (quantized, scale) in products or not alone or numbers is None or quantized.rank != 1:
            continue
        one, other = products.pop()
        exact = quantized.data.array().astype(np.float64) * np.asarray(scale.data.array(), np.float64)  # type: ignore[union-attr]
        exact = exact if np.allclose(exact, numbers, rtol=1e-5) else numbers.astype(np.float64)  # with a zero point
        names = tuple(dict.fromkeys(v.name for v in outputs[quantized, scale]))
        biases.append(Bias(quantized.name, scale.name, (one.name, other.name), exact, names))
    return biases


def following(graph: Graph, biases: Collection[Bias], contents: Mapping[str, Array]) -> dict[str, Array]:
    """Scales and quantized values of ``biases``, by name, recomputed for new scales in ``contents``."""
    arrays = {v.name: v.data for v in graph.variables if v.data is not None}
    result: dict[str, Array] = {}
    for bias in biases:
        if not contents.keys().isdisjoint(bias.factors):
            factors = {n: np.asarray(contents[n] if n in contents else arrays[n].array()) for n in bias.factors}
            result.update(bias.follow(factors, np.asarray(arrays[bias.scale].array())))
    return result


def as_floats(graph: Graph, biases: Collection[Bias]) -> None:
    """Replace dequantized ``biases`` by float constants, which do not depend on their scales."""
    outputs = {name: bias for bias in biases for name in bias.outputs}
    for node in list(graph.nodes):
        value = node.outputs[0] if node.outputs else None
        if value is None or value.name not in outputs:
            continue
        dtype = value.dtype
        value._replace_fields(data=ArrayConstant(outputs[value.name].numbers.astype(dtype.numpy), dtype))
        value.symbolic_contents = None
        value.producer = None
        graph.nodes.remove(node)
        graph.variables.append(value)


def biases_note(biases: Collection[Bias]) -> list[str]:
    """Note on biases that follow trained scales."""
    names = ", ".join(bias.scale for bias in biases)
    return [f"scales of biases, kept equal to the product of the scales of input and weights: {names}"] * bool(names)


def _is(node: Node, op: Any) -> bool:
    return node.op in op.meanings


def _scales(node: Node) -> Iterator[Value]:
    """The scale inputs of a node."""
    names = find_trait(node.op, "scales") if isinstance(node.op, Op) else None
    if isinstance(names, str) and isinstance(node.op, Op):
        for place, value in enumerate(node.inputs):
            if value is not None and node.op.signature.input_at(place).name in names.split():
                yield value


def _dequantized(value: Value | None) -> tuple[Value, Value] | None:
    """The quantized values and the scale variable from which a node dequantizes a value."""
    if value is None or value.producer is None or not isinstance(value.type, TensorType) or not value.dtype.is_float:
        return None
    node = value.producer
    quantized, scales = node.inputs[0] if node.inputs else None, [source_of(each) for each in _scales(node)]
    if quantized is None or len(scales) != 1 or scales[0].data is None or scales[0].producer is not None:
        return None
    return (quantized, scales[0]) if isinstance(quantized.type, TensorType) and quantized.dtype.is_integer else None


def _is_product(scale: Value, one: Value, other: Value) -> bool:
    contents = [np.asarray(v.data.array(), np.float64).reshape(-1) for v in (scale, one, other)]  # type: ignore[union-attr]
    sizes = {each.size for each in contents} - {1}
    return len(sizes) < 2 and np.allclose(contents[0], contents[1] * contents[2], rtol=_CLOSE, atol=0)
