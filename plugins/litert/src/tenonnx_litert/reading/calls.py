"""Calls of LiteRT operators over ops, on numbers and on quantized values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_frontends import added_rule
from tenonnx_litert.reading.reader import Operator, Quantization, Tensor
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear
from tenonnx_tensorflow.rules import RULES
from tenonnx_tensorflow.rules.complexes import OF_COMPLEX
from tenonnx_tensorflow.tracked_values import Complex, number


@dataclass(frozen=True)
class QuantizedResult:
    """A result that is quantized already, by the scales of its tensor."""

    value: Value


class Like:
    """An operator as rules of TensorFlow see a node."""

    def __init__(self, op: str, name: str, **attributes: Any) -> None:
        self.op, self.name, self._attributes = op, name, attributes

    def __contains__(self, name: str) -> bool:
        return name in self._attributes

    def __getitem__(self, name: str) -> Any:
        return self._attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._attributes.get(name, default)

    @property
    def title(self) -> str:
        return f'{self.op} "{self.name}"'


class Call:
    """An operator, and the values of its inputs."""

    def __init__(self, operator: Operator, tensors: Any, values: list[Any], builder: Any) -> None:
        self.operator, self.values, self.builder = operator, values, builder
        self.name = operator.name
        self.ins: list[Tensor | None] = [tensors[k] if k >= 0 else None for k in operator.inputs]
        self.outs: list[Tensor] = [tensors[k] for k in operator.outputs]
        self.inside: list[Tensor] = [tensors[k] for k in operator.intermediates]

    def option(self, name: str, default: Any = None) -> Any:
        return self.operator.option(name, default)

    def has(self, position: int) -> bool:
        return position < len(self.values) and self.values[position] is not None

    def raw(self, position: int) -> Any:
        """An input as it lies: quantized values where it is quantized."""
        if not self.has(position):
            raise NotRepresentable("an operator lacks an input", given=f"{self.operator.title} without {position}")
        return self.values[position]

    def real(self, position: int) -> Value:
        """An input as the numbers that its quantized values stand for."""
        tensor = self.ins[position]
        return real_of(self.raw(position), tensor.quantization if tensor is not None else None)

    def turned(self, position: int, perm: list[int]) -> Value:
        """An input with its axes in another order, that of its quantized values, which stay quantized values in a file."""
        tensor = self.ins[position]
        held = tensor.quantization if tensor is not None else None
        if held is not None:
            if held.block:
                return ops.transpose(self.real(position), perm=perm)
            held = Quantization(held.scales, held.zero_points, perm.index(held.axis))
        return real_of(ops.transpose(self.raw(position), perm=perm), held)

    def moved(self, position: int, move: Callable[[Value], Value]) -> Value:
        """An input whose quantized values are moved, by one scale for all, before they become numbers."""
        tensor = self.ins[position]
        return real_of(move(self.raw(position)), tensor.quantization if tensor is not None else None)

    @property
    def reals(self) -> list[Value]:
        return [self.real(k) for k in range(len(self.values))]

    def keep(self, position: int, content: Value) -> None:
        """Let an input that is a variable tensor hold these numbers from here on."""
        tensor = self.ins[position] if position < len(self.ins) else None
        if tensor is not None and tensor.is_variable:
            held = content if tensor.quantization is None else quantized(content, tensor)
            self.builder.keep(self.operator.inputs[position], held)

    def keep_raw(self, position: int, content: Value) -> None:
        """Let an input that is a variable tensor hold these quantized values from here on."""
        self.builder.keep(self.operator.inputs[position], content)

    def as_tensor(self, x: Value, position: int) -> Value:
        """Round numbers to the quantized values of an input."""
        tensor = self.ins[position]
        assert tensor is not None
        return real_of(quantized(x, tensor), tensor.quantization)

    def as_intermediate(self, x: Value, position: int) -> Value:
        """Round numbers to the quantized values of an intermediate tensor of a kernel."""
        tensor = self.inside[position]
        return real_of(quantized(x, tensor), tensor.quantization)

    def intermediate(self, position: int) -> Quantization:
        found = self.inside[position].quantization if position < len(self.inside) else None
        if found is None:
            raise NotRepresentable("quantized values inside an operator have no scale", given=self.operator.title)
        return found

    def as_rule(self, op: str, *values: Any, **attributes: Any) -> Any:
        """Result of the rule of TensorFlow for a node with these attributes."""
        like = Like(op, self.operator.title, **attributes)
        if any(isinstance(value, Complex) for value in values):
            return OF_COMPLEX[op](like, *values)
        rule = RULES[op]
        return rule.function(self.builder, like, *values) if rule.takes_interpreter else rule.function(like, *values)


def real_of(value: Value, quantization: Quantization | None) -> Value:
    if quantization is None:
        return value  # of complex numbers the parts
    scales, points, axis = quantization.scales, quantization.zero_points, quantization.axis
    if quantization.block:
        zero = constant(points.astype(value.dtype.numpy)) if points.any() else None
        return dequantized(value, constant(scales), zero, axis=axis, block_size=quantization.block)
    if len(scales) == 1:
        scales, points = scales.reshape(()), points.reshape(())
        axis = 0
    if value.dtype is DType.int64:  # the bias of activations of 16 bits, which ONNX cannot quantize
        wide = scales.reshape(-1, *(1,) * (value.ndim - 1 - axis)) if scales.ndim else scales
        return ops.cast(ops.mul(ops.cast(value, to=DType.float64), constant(wide.astype(np.float64))), to=DType.float32)
    given: dict[str, Any] = {} if scales.ndim == 0 else {"axis": axis}
    zero = None if not points.any() and value.dtype is DType.int32 else constant(points.astype(value.dtype.numpy))
    return dequantized(value, constant(scales), zero, **given)


def dequantized(value: Value, scale: Value, zero: Value | None, **attributes: Any) -> Value:
    found: Value = dequantize_linear(value, scale, zero, **attributes)
    return found


def quantized(value: Value, tensor: Tensor) -> Value:
    """Quantize real numbers with the scale and zero point of ``tensor``."""
    quantization = tensor.quantization
    assert quantization is not None
    dtype = DType.of(np.dtype(tensor.dtype))
    scale = quantization.scales.reshape(()) if len(quantization.scales) == 1 else quantization.scales
    points = quantization.zero_points.reshape(()) if scale.ndim == 0 else quantization.zero_points
    if dtype is DType.int32 or dtype is DType.int64:
        return ops.cast(ops.round_(ops.div(value, constant(scale))), to=dtype)
    found: Value = quantize_linear(
        value,
        constant(scale),
        constant(points.astype(dtype.numpy)),
        **({} if scale.ndim == 0 else {"axis": quantization.axis}),
    )
    return found


#: Rules by the name of the operator: a function of a ``Call`` that gives a value, or a list of them.
LITE_RULES: dict[str, Callable[[Call], Any]] = {}


def lite_rule(*names: str) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Let a function say what calls of these operators are: numbers, which become quantized values where a tensor has these."""

    def registered(function: Callable[[Call], Any]) -> Callable[[Call], Any]:
        LITE_RULES.update(dict.fromkeys(names, added_rule(function, names, LITE_RULES)))
        return function

    return registered


def activated(call: Call, x: Value, name: str = "FusedActivationFunction") -> Value:
    """Apply the activation that is fused into an operator."""
    kind = call.option(name, 0)
    if kind == 0:
        return x
    if kind == 1:
        return ops.relu(x)
    if kind in (2, 3):
        return ops.clip(x, number(-1 if kind == 2 else 0, x), number(1 if kind == 2 else 6, x))
    if kind == 4:
        return ops.tanh(x)
    raise NotRepresentable(
        "unsupported fused activation", given=f"number {kind}", available="RELU, RELU_N1_TO_1, RELU6, TANH"
    )


def moves(call: Call) -> bool:
    """Whether an operator may move the quantized values themselves, as those of the result mean the same."""
    source = call.ins[0].quantization if call.ins[0] is not None else None
    return source is not None and all(source.is_as(out.quantization) for out in call.outs)
