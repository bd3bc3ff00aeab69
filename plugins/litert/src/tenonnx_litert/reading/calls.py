"""Calls of LiteRT operators, as rules see them: inputs as real numbers or as quantized values."""

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
    """A result that already has the scale and zero point of its tensor."""

    value: Value


class Like:
    """An operator in the form of a TensorFlow node, for TensorFlow's rules."""

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
        """An input as stored: quantized values if its tensor is quantized."""
        if not self.has(position):
            raise NotRepresentable("an operator lacks an input", given=f"{self.operator.title} without {position}")
        return self.values[position]

    def real(self, position: int) -> Value:
        """An input as real numbers: dequantized if its tensor is quantized."""
        tensor = self.ins[position]
        return real_of(self.raw(position), tensor.quantization if tensor is not None else None)

    def turned(self, position: int, perm: list[int]) -> Value:
        """An input as real numbers, with permuted axes. The transpose comes first, so that weights stay quantized."""
        tensor = self.ins[position]
        quantization = tensor.quantization if tensor is not None else None
        if quantization is not None:
            if quantization.block:
                return ops.transpose(self.real(position), perm=perm)
            axis = perm.index(quantization.axis)
            quantization = Quantization(quantization.scales, quantization.zero_points, axis)
        return real_of(ops.transpose(self.raw(position), perm=perm), quantization)

    def moved(self, position: int, move: Callable[[Value], Value]) -> Value:
        """An input as real numbers after ``move``, which is applied before the dequantization; one scale for all."""
        tensor = self.ins[position]
        return real_of(move(self.raw(position)), tensor.quantization if tensor is not None else None)

    @property
    def reals(self) -> list[Value]:
        return [self.real(k) for k in range(len(self.values))]

    def keep(self, position: int, content: Value) -> None:
        """Assign real numbers to an input that is a variable tensor."""
        tensor = self.ins[position] if position < len(self.ins) else None
        if tensor is not None and tensor.is_variable:
            stored = content if tensor.quantization is None else quantized(content, tensor)
            self.builder.keep(self.operator.inputs[position], stored)

    def keep_raw(self, position: int, content: Value) -> None:
        """Assign quantized values to an input that is a variable tensor."""
        self.builder.keep(self.operator.inputs[position], content)

    def as_tensor(self, x: Value, position: int) -> Value:
        """Quantize and dequantize ``x`` with the scale of an input."""
        tensor = self.ins[position]
        assert tensor is not None
        return real_of(quantized(x, tensor), tensor.quantization)

    def as_intermediate(self, x: Value, position: int) -> Value:
        """Quantize and dequantize ``x`` with the scale of an intermediate tensor of the kernel."""
        tensor = self.inside[position]
        return real_of(quantized(x, tensor), tensor.quantization)

    def intermediate(self, position: int) -> Quantization:
        quantization = self.inside[position].quantization if position < len(self.inside) else None
        if quantization is None:
            raise NotRepresentable("quantized values inside an operator have no scale", given=self.operator.title)
        return quantization

    def as_rule(self, op: str, *values: Any, **attributes: Any) -> Any:
        """Apply TensorFlow's rule of op ``op`` to values and attributes."""
        like = Like(op, self.operator.title, **attributes)
        if any(isinstance(value, Complex) for value in values):
            return OF_COMPLEX[op](like, *values)
        rule = RULES[op]
        return rule.function(self.builder, like, *values) if rule.takes_interpreter else rule.function(like, *values)


def real_of(value: Value, quantization: Quantization | None) -> Value:
    if quantization is None:
        return value  # also complex numbers, which are pairs of values
    scales, points, axis = quantization.scales, quantization.zero_points, quantization.axis
    if quantization.block:
        zero = constant(points.astype(value.dtype.numpy)) if points.any() else None
        return dequantized(value, constant(scales), zero, axis=axis, block_size=quantization.block)
    if len(scales) == 1:
        scales, points = scales.reshape(()), points.reshape(())
        axis = 0
    if value.dtype is DType.int64:  # the bias of int16 activations; DequantizeLinear does not take int64
        wide = scales.reshape(-1, *(1,) * (value.ndim - 1 - axis)) if scales.ndim else scales
        return ops.cast(ops.mul(ops.cast(value, to=DType.float64), constant(wide.astype(np.float64))), to=DType.float32)
    parameters: dict[str, Any] = {} if scales.ndim == 0 else {"axis": axis}
    zero = None if not points.any() and value.dtype is DType.int32 else constant(points.astype(value.dtype.numpy))
    return dequantized(value, constant(scales), zero, **parameters)


def dequantized(value: Value, scale: Value, zero: Value | None, **attributes: Any) -> Value:
    result: Value = dequantize_linear(value, scale, zero, **attributes)
    return result


def quantized(value: Value, tensor: Tensor) -> Value:
    """Quantize real numbers with the scale and zero point of ``tensor``."""
    quantization = tensor.quantization
    assert quantization is not None
    dtype = DType.of(np.dtype(tensor.dtype))
    scale = quantization.scales.reshape(()) if len(quantization.scales) == 1 else quantization.scales
    points = quantization.zero_points.reshape(()) if scale.ndim == 0 else quantization.zero_points
    if dtype is DType.int32 or dtype is DType.int64:
        return ops.cast(ops.round_(ops.div(value, constant(scale))), to=dtype)
    result: Value = quantize_linear(
        value,
        constant(scale),
        constant(points.astype(dtype.numpy)),
        **({} if scale.ndim == 0 else {"axis": quantization.axis}),
    )
    return result


#: Rules by operator name: functions of a ``Call`` that return a value or a list of values.
LITE_RULES: dict[str, Callable[[Call], Any]] = {}


def lite_rule(*names: str) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Register a rule for these operators: a function of a ``Call`` that returns its results.

    A result of real numbers is quantized if its tensor is quantized. The same name replaces the rule registered before.
    """

    def registered(function: Callable[[Call], Any]) -> Callable[[Call], Any]:
        LITE_RULES.update(dict.fromkeys(names, added_rule(function, names, LITE_RULES)))
        return function

    return registered


def activated(call: Call, x: Value, name: str = "FusedActivationFunction") -> Value:
    """Apply the fused activation of an operator, from its option ``name``."""
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
    """Whether an operator may move the quantized values unchanged: input and results have the same scale and zero point."""
    source = call.ins[0].quantization if call.ins[0] is not None else None
    return source is not None and all(source.is_as(out.quantization) for out in call.outs)
