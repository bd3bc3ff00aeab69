"""Elementwise ops."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch.nn import functional

import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_torch.rules import rule
from tenonnx_torch.values import NATIVE, is_traced

#: PyTorch functions with the op's signature.
_SAME: dict[Any, Any] = {
    ops.absolute: torch.abs,
    ops.neg: torch.neg,
    ops.sign: torch.sign,
    ops.exp: torch.exp,
    ops.log: torch.log,
    ops.sqrt: torch.sqrt,
    ops.reciprocal: torch.reciprocal,
    ops.erf: torch.erf,
    ops.round_: torch.round,
    ops.sin: torch.sin,
    ops.cos: torch.cos,
    ops.tan: torch.tan,
    ops.asin: torch.asin,
    ops.acos: torch.acos,
    ops.atan: torch.atan,
    ops.sinh: torch.sinh,
    ops.cosh: torch.cosh,
    ops.tanh: torch.tanh,
    ops.asinh: torch.asinh,
    ops.acosh: torch.acosh,
    ops.atanh: torch.atanh,
    ops.ceil: torch.ceil,
    ops.floor: torch.floor,
    ops.add: torch.add,
    ops.sub: torch.sub,
    ops.mul: torch.mul,
    ops.isnan: torch.isnan,
    ops.equal: torch.eq,
    ops.less: torch.lt,
    ops.greater: torch.gt,
    ops.less_or_equal: torch.le,
    ops.greater_or_equal: torch.ge,
    ops.where: torch.where,
    ops.and_: torch.logical_and,
    ops.or_: torch.logical_or,
    ops.xor: torch.logical_xor,
    ops.not_: torch.logical_not,
    ops.bitwise_and: torch.bitwise_and,
    ops.bitwise_or: torch.bitwise_or,
    ops.bitwise_xor: torch.bitwise_xor,
    ops.bitwise_not: torch.bitwise_not,
    ops.relu: torch.relu,
    ops.sigmoid: torch.sigmoid,
    ops.softsign: functional.softsign,
    ops.hard_swish: functional.hardswish,
    ops.identity: lambda x: x,
}

for _op, _function in _SAME.items():
    rule(_op)(_function)


@rule(ops.softplus)
def softplus_rule(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, x.new_zeros(()))


@rule(ops.maximum, moves=True)
def maximum_rule(*data_0: torch.Tensor) -> torch.Tensor:
    return reduce(torch.maximum, data_0)


@rule(ops.minimum, moves=True)
def minimum_rule(*data_0: torch.Tensor) -> torch.Tensor:
    return reduce(torch.minimum, data_0)


@rule(ops.sum_)
def sum_rule(*data_0: torch.Tensor) -> torch.Tensor:
    return reduce(torch.add, data_0)


@rule(ops.mean)
def mean_rule(*data_0: torch.Tensor) -> torch.Tensor:
    return reduce(torch.add, data_0) / len(data_0)


@rule(ops.div)
def div_rule(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.is_floating_point() or a.is_complex():
        return torch.div(a, b)
    return NotImplemented if _has_zero(b) else torch.div(a, b, rounding_mode="trunc")


def _has_zero(divisor: torch.Tensor) -> bool:
    """Whether numpy has to divide because of a zero; a trace assumes nonzero divisors."""
    return not is_traced(divisor) and bool((divisor == 0).any())


@rule(ops.mod)
def mod_rule(a: torch.Tensor, b: torch.Tensor, *, fmod: int) -> Any:
    if not a.is_floating_point() and _has_zero(b):
        return NotImplemented
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@rule(ops.pow_)
def pow_rule(x: torch.Tensor, y: torch.Tensor) -> Any:
    if not x.is_floating_point():
        return torch.pow(x, y).to(x.dtype) if is_traced(x) else NotImplemented
    return (
        torch.pow(x, y.to(x.dtype)) if y.dtype != x.dtype and not y.is_floating_point() else torch.pow(x, y).to(x.dtype)
    )


@rule(ops.isinf)
def isinf_rule(x: torch.Tensor, *, detect_negative: int, detect_positive: int) -> torch.Tensor:
    result = torch.zeros_like(x, dtype=torch.bool)
    result = result | torch.isneginf(x) if detect_negative else result
    return result | torch.isposinf(x) if detect_positive else result


@rule(ops.clip)
def clip_rule(x: torch.Tensor, low: torch.Tensor | None, high: torch.Tensor | None) -> torch.Tensor:
    x = x if low is None else torch.maximum(x, low.reshape(()))
    return x if high is None else torch.minimum(x, high.reshape(()))


@rule(ops.cast)
def cast_rule(x: torch.Tensor, *, to: int, saturate: int, round_mode: str) -> Any:
    return NotImplemented if x.is_complex() else x.to(NATIVE[DType(to)])


@rule(ops.bitcast)
def bitcast_rule(x: torch.Tensor, *, to: int) -> torch.Tensor:
    dtype = NATIVE[DType(to)]
    return x.view(torch.uint8) != 0 if dtype is torch.bool else x.view(dtype)


@rule(ops.leaky_relu)
def leaky_relu_rule(x: torch.Tensor, *, alpha: float) -> torch.Tensor:
    return functional.leaky_relu(x, alpha)


@rule(ops.elu)
def elu_rule(x: torch.Tensor, *, alpha: float) -> torch.Tensor:
    return functional.elu(x, alpha)


@rule(ops.prelu)
def prelu_rule(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, x * slope, x)


@rule(ops.gelu)
def gelu_rule(x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    return functional.gelu(x, approximate=approximate)
