"""Assignment of quantization parameters to tensors, and of integer kernels to operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Graph, Node, NotRepresentable, Value, static
from tenonnx_litert.builtins import elementwise, movement, neural, reductions
from tenonnx_litert.builtins.quantization import dequantize, quantize, rounded_as_it_runs
from tenonnx_litert.integers import MOVING, Parameters, dequantized


class Quantization(NamedTuple):
    """The quantization parameters of a tensor, as the file stores them."""

    scales: list[float]
    zero_points: list[int]
    axis: int = 0

    @classmethod
    def of(cls, parameters: Parameters) -> Quantization:
        scale, zero_point = parameters.arrays
        long = _axes_of(parameters)
        zeros = np.broadcast_to(zero_point, scale.shape).reshape(-1)
        return cls.small(scale.reshape(-1).tolist(), zeros.tolist(), long[0] if long else 0)

    @classmethod
    def small(cls, scales: list[float], zero_points: list[int], axis: int = 0) -> Quantization:
        """Per-tensor parameters if all channels are equal, else per-channel ones."""
        if len(set(scales)) == len(set(zero_points)) == 1:
            return cls(scales[:1], zero_points[:1])
        return cls(scales, zero_points, axis)


@dataclass
class QuantizedTensors:
    """The plan of integer kernels: which quantized tensors operators read and write, and which nodes are dropped."""

    parameters: dict[Value, Quantization] = field(default_factory=dict)
    sources: dict[Value, Value] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)
    inputs: dict[Node, list[Value | None]] = field(default_factory=dict)
    outputs: dict[Node, Value] = field(default_factory=dict)
    instead: dict[Value, Value] = field(default_factory=dict)
    dropped: set[Node] = field(default_factory=set)
    hybrid: set[Node] = field(default_factory=set)
    constants: Graph = field(default_factory=lambda: Graph(opsets={"ai.onnx": 21}))

    def constant(self, array: np.ndarray[Any, Any], parameters: Quantization | None = None) -> Value:
        """A new constant for the file."""
        value = self.constants.variable(f"constant_{len(self.constants.variables)}", array)
        if parameters is not None:
            self.parameters[value] = parameters
        return value

    def described(self, value: Value, node: Node) -> Value:
        """Assign the parameters of a node to ``value``, or to a copy if it is a constant with other parameters.

        Raises ``NotRepresentable`` for a computed value with other parameters.
        """
        parameters = Quantization.of(Parameters(*node.inputs[1:]))  # type: ignore[arg-type]
        if self.parameters.setdefault(value, parameters) == parameters:
            return value
        if not value.is_constant:
            raise NotRepresentable("a tensor has several scales", given=value.name)
        return self.constant(static(value), parameters)  # type: ignore[arg-type]

    def operands(self, node: Node) -> tuple[list[Value | None], list[Value | None]]:
        results: list[Value | None] = [self.outputs[node]] if node in self.outputs else list(node.outputs)
        return self.inputs.get(node, list(node.inputs)), results


#: Operators with weights, and the channel axis of the weights.
_WEIGHTED = {
    neural.conv_2d: 0,
    neural.depthwise_conv_2d: 3,
    neural.fully_connected: 0,
    neural.transpose_conv: 0,
}

#: Operators with kernels for floats and quantized weights.
_HYBRID = frozenset({neural.conv_2d, neural.depthwise_conv_2d, neural.fully_connected})

#: Input indices of image, weights and bias, if not 0, 1 and 2.
_PLACES = {neural.transpose_conv: (2, 1, 3)}

#: Further operators with int8 kernels that take any scale of the result.
_KERNELS = frozenset(
    {
        *(elementwise.add, elementwise.sub, elementwise.mul, elementwise.prelu, elementwise.leaky_relu),
        *(elementwise.relu, elementwise.relu6, elementwise.relu_n1_to_1, elementwise.elu, elementwise.gelu),
        *(elementwise.hard_swish, elementwise.exp, elementwise.softmax, elementwise.logistic, elementwise.tanh),
        *(neural.average_pool_2d, neural.resize_bilinear, neural.batch_matmul),
        *(reductions.mean, elementwise.absolute),
    }
)


#: Those of them that also have int16 kernels.
_KERNELS_16 = frozenset(
    {
        *(
            elementwise.add,
            elementwise.sub,
            elementwise.mul,
            elementwise.leaky_relu,
            elementwise.relu,
            elementwise.relu6,
        ),
        *(elementwise.exp, elementwise.softmax, elementwise.logistic, elementwise.tanh),
        *(neural.average_pool_2d, neural.resize_bilinear, neural.batch_matmul),
        *(reductions.mean, elementwise.absolute),
    }
)

#: Operators without weights that have integer kernels, by the type of the activations.
_ACTIVATIONS = {np.dtype(np.int8): _KERNELS, np.dtype(np.int16): _KERNELS_16}


def quantized_tensors(graph: Graph) -> QuantizedTensors:
    """Choose the operators of ``graph`` that run as integer kernels. Raises as ``described`` does."""
    plan = QuantizedTensors()
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    for node in graph.nodes:
        _describe(plan, node)
    for node in (*graph.nodes, *reversed(graph.nodes)):
        _pass_on(plan, node)
    for node in graph.nodes:
        _choose_kernel(plan, node, graph, readers)
    _choose_hybrid_kernels(plan, graph)
    used = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op is dequantize and node.outputs[0] not in used:
            plan.dropped.add(node)
        elif node not in plan.dropped:
            used.update(v for v in plan.operands(node)[0] if v is not None)
    for node in graph.nodes:
        if node.op is dequantize and node not in plan.dropped:
            _as_floats(plan, node)
    return plan


def _describe(plan: QuantizedTensors, node: Node) -> None:
    if node.op is dequantize:
        plan.sources[node.outputs[0]] = plan.described(node.inputs[0], node)  # type: ignore[index, arg-type]
        plan.inputs[node] = [plan.sources[node.outputs[0]]]  # type: ignore[index]
    elif node.op is quantize:
        plan.described(node.outputs[0], node)  # type: ignore[arg-type]
        source = node.inputs[0]
        plan.inputs[node] = [plan.sources.get(source, source)]  # type: ignore[arg-type]


def _pass_on(plan: QuantizedTensors, node: Node) -> None:
    """Assign the same parameters to all inputs and results of an operator that moves elements."""
    if node.op not in MOVING:
        return
    places = MOVING[node.op]
    moved = [node.inputs[k] for k in (range(len(node.inputs)) if places is None else places)]
    values = [v for v in (*moved, *node.outputs) if v is not None and v.dtype in (DType.int8, DType.uint8, DType.int16)]
    tensors = [v for v in values if not v.is_constant]
    known = [plan.parameters[v] for v in tensors if v in plan.parameters]
    for value in tensors if known else ():
        if plan.parameters.setdefault(value, known[0]) != known[0]:
            raise NotRepresentable("a tensor has several scales", given=value.name)
    if known and node.op is movement.padv2:
        fill = np.reshape(static(node.inputs[2]), -1)  # type: ignore[arg-type]
        if fill.tolist() == known[0].zero_points:
            plan.names[node], plan.inputs[node] = "PAD", list(node.inputs[:2])
        else:
            plan.inputs[node] = [*node.inputs[:2], plan.constant(fill, known[0])]


def _as_floats(plan: QuantizedTensors, node: Node) -> None:
    """Dequantize int32 constants, which the DEQUANTIZE kernel does not take."""
    x = node.inputs[0]
    assert x is not None
    if x.dtype is DType.int32 and x.is_constant:
        scale, zero_point = Parameters(*node.inputs[1:]).arrays  # type: ignore[arg-type]
        known = (static(x).astype(np.int64) - zero_point) * scale.astype(np.float64)  # type: ignore[union-attr]
        plan.instead[node.outputs[0]] = plan.constant(known.astype(np.float32))  # type: ignore[index]
        plan.dropped.add(node)


def _choose_kernel(plan: QuantizedTensors, node: Node, graph: Graph, readers: dict[Value, list[Node]]) -> None:
    """Run an operator as an integer kernel if there is one and all its readers quantize alike."""
    if node.op not in _KERNELS and node.op not in _WEIGHTED:
        return
    output = node.outputs[0]
    assert output is not None
    after = readers.get(output, [])
    if output in graph.outputs or not after or any(each.op is not quantize for each in after):
        return
    targets = [Parameters(*each.inputs[1:]) for each in after]  # type: ignore[arg-type]
    dtype = targets[0].arrays[1].dtype
    if any(not targets[0].equals(each) for each in targets[1:]):
        return
    if node.op in _WEIGHTED:
        inputs = _weighted_operands(plan, node, dtype)
    else:
        inputs = _operands(plan, node, dtype) if node.op in _ACTIVATIONS.get(dtype, ()) else None
    if inputs is None:
        return
    result = after[0].outputs[0]
    assert result is not None
    plan.inputs[node], plan.outputs[node] = inputs, result
    plan.dropped.update(after)
    for other in after[1:]:
        plan.instead[other.outputs[0]] = result  # type: ignore[index]


def _choose_hybrid_kernels(plan: QuantizedTensors, graph: Graph) -> None:
    """Choose hybrid kernels for products of int8 weights with dynamically quantized floats."""
    rounded: set[Value | None] = set()
    for node in graph.nodes:
        if node.op is rounded_as_it_runs:
            source = node.inputs[0]
            plan.instead[node.outputs[0]] = plan.instead.get(source, source)  # type: ignore[index, arg-type, assignment]
            plan.dropped.add(node)
            rounded.add(node.outputs[0])
        elif node.op in MOVING and node.inputs[0] in rounded:
            rounded.update(node.outputs)
        weights = dequantized(node.inputs[1]) if node.op in _HYBRID and node.inputs[0] in rounded else None
        if weights is None or not weights[0].is_constant or weights[0].dtype is not DType.int8:
            continue
        if _axes_of(weights[1]) in ([], [_WEIGHTED[node.op]]):
            plan.inputs[node] = [node.inputs[0], plan.sources[node.inputs[1]], *node.inputs[2:]]  # type: ignore[index]
            plan.hybrid.add(node)


def _operands(plan: QuantizedTensors, node: Node, dtype: np.dtype[Any]) -> list[Value | None] | None:
    operands: list[Value | None] = []
    for value in node.inputs:
        inner = dequantized(value)
        if value is not None and value.dtype is DType.float32:
            if inner is None or not inner[1].is_single:
                return None
            if inner[0].is_constant and inner[0].dtype is DType.int8 and dtype == np.int16:
                value = _widened(plan, *inner)
            elif inner[0].dtype.numpy != dtype:
                return None
            else:
                value = plan.sources[value]
        operands.append(value)
    return operands


def _axes_of(parameters: Parameters) -> list[int]:
    """The axes along which the scales have more than one element."""
    return [axis for axis, size in enumerate(parameters.arrays[0].shape) if size != 1]


def _widened(plan: QuantizedTensors, x: Value, own: Parameters) -> Value:
    """An int8 constant in int16 without a zero point."""
    steps = static(x).astype(np.int16) - own.arrays[1].astype(np.int16)  # type: ignore[union-attr]
    return plan.constant(steps, Quantization([float(own.arrays[0])], [0]))


def _weighted_operands(plan: QuantizedTensors, node: Node, dtype: np.dtype[Any]) -> list[Value | None] | None:
    first, second, third = _PLACES.get(node.op, (0, 1, 2))
    x, weights = dequantized(node.inputs[first]), dequantized(node.inputs[second])
    if x is None or weights is None or not x[1].is_single:
        return None
    zero_point = weights[1].arrays[1]
    if dtype not in _ACTIVATIONS or x[0].dtype.numpy != dtype or not weights[0].is_constant:
        return None
    if weights[0].dtype not in (DType.int8, DType.int4):
        return None
    if np.any(zero_point) or _axes_of(weights[1]) not in ([], [_WEIGHTED[node.op]]):
        return None
    operands = list(node.inputs)
    operands[first], operands[second] = plan.sources[operands[first]], plan.sources[operands[second]]  # type: ignore[index]
    if weights[0].dtype is DType.int4 and node.op is neural.transpose_conv:
        operands[second] = plan.constant(static(weights[0]).astype(np.int8), Quantization.of(weights[1]))  # type: ignore[union-attr]
    if len(operands) > third and operands[third] is not None:
        bias = _bias(plan, operands[third], x[1], weights[1])  # type: ignore[arg-type]
        if bias is None:
            return None
        operands[third] = bias
    return operands


def _bias(plan: QuantizedTensors, value: Value, x: Parameters, weights: Parameters) -> Value | None:
    """The bias, quantized with the product of input and weight scales: int32, or int64 if the input is int16."""
    inner = dequantized(value)
    if inner is not None and inner[0].is_constant:
        scale, zero_point = (each.reshape(-1) for each in inner[1].arrays)
        numbers = (static(inner[0]).reshape(-1).astype(np.float64) - zero_point) * scale.astype(np.float64)  # type: ignore[union-attr]
    elif value.is_constant:
        numbers = np.asarray(static(value), np.float64).reshape(-1)
    else:
        return None
    step = (x.arrays[0].astype(np.float64) * weights.arrays[0]).reshape(-1)
    steps = np.rint(numbers / step)
    wide = np.int64 if x.arrays[1].dtype == np.int16 else np.int32
    if np.any(np.abs(steps) >= np.iinfo(wide).max):
        return None
    return plan.constant(steps.astype(wide), Quantization.small(step.tolist(), [0] * step.size))
