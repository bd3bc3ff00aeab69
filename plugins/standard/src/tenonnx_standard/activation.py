"""Activation functions, element by element or along an axis."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import DType, Op, Operand, Value, one_of, op
from tenonnx_standard.casting import cast
from tenonnx_standard.error_function import error_function
from tenonnx_standard.logic import greater, where
from tenonnx_standard.math import absolute, clip, erf, exp, log, maximum
from tenonnx_standard.reduction import widened
from tenonnx_standard.scalars import scalar
from tenonnx_standard.shapes import reshape
from tenonnx_standard.trigonometry import tanh

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


def _line(x: Array, factor: float, shift: float, out: Array | None = None) -> Array:
    """``x * factor + shift``."""
    y = np.multiply(x, scalar(factor, x.dtype), out=out)
    y += scalar(shift, x.dtype)
    return y


def _numpy(op: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a numpy rule and kernel for an op with one input; float16 is computed in float32, rank 0 as rank 1."""

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        @np.errstate(all="ignore")
        def rule(x: Array, **attributes: Any) -> Array:
            wide = widened(x)
            y = compute(wide if x.ndim else wide.reshape(1), **attributes)
            return np.asarray(y if x.ndim else y.reshape(())).astype(x.dtype, copy=False)

        op.numpy(rule)

        @op.specialize
        def made_specialize(x: Operand, **attributes: Any) -> Any:
            if x.ndim == 0 or x.dtype.itemsize < 4 or x.dtype.kind != "f":
                return None
            return functools.partial(compute, **attributes) if attributes else compute

        return compute

    return register


#: Up to this many elements ``np.maximum`` is faster than ``np.clip``, whose calls cost more.
_SMALL = 1 << 12


def _where_mask(x: Array, mask: Array) -> Array:
    """``x`` where ``mask`` is true, else 0.

    Masking the bits takes a tenth of the time of ``np.where`` on a random mask.
    """
    integer = np.dtype(f"i{x.dtype.itemsize}")
    bits = mask.astype(integer)
    np.negative(bits, out=bits)
    bits &= x.view(integer)
    return bits.view(x.dtype)


def _chosen(mask: Array, x: Array, y: Array) -> Array:
    """``x`` where ``mask`` is true, else ``y``, by masking bits; both have one shape and dtype."""
    integer = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.bitwise_xor(x.view(integer), y.view(integer))
    bits &= np.negative(mask.astype(integer))
    bits ^= y.view(integer)
    return bits.view(x.dtype)


def _above(x: Array) -> Array:
    """ReLU on an array; ``np.clip`` is faster than ``np.maximum`` on large arrays."""
    return np.maximum(x, scalar(0, x.dtype)) if x.size <= _SMALL else np.clip(x, 0, np.inf)


def _below(x: Array) -> Array:
    """The array with positive elements replaced by 0."""
    return np.minimum(x, scalar(0, x.dtype)) if x.size <= _SMALL else np.clip(x, -np.inf, 0)


# ----- rectifiers -----------------------------------------------------------------------------------------------------


@op("Relu", data_movement=True)
def relu(X):
    """``X`` with its negative elements replaced by 0."""
    return maximum(X, 0)


relu.until(6, ignored=["consumed_inputs"])
relu.numpy(lambda x: _above(x) if x.dtype.kind == "f" else np.asarray(np.maximum(x, x.dtype.type(0))))
relu.specialize(lambda x: _above if x.dtype.kind == "f" else None)
relu.vjp(lambda g, y, X: where(y > 0, g, 0.0))


@op("LeakyRelu")
def leaky_relu(X, *, alpha=0.01):
    """``X`` with its negative elements scaled by ``alpha``."""
    return where(X < 0.0, X * alpha, X)


leaky_relu.until(6, ignored=["consumed_inputs"])
leaky_relu.vjp(lambda g, y, X, *, alpha: where(X < 0.0, g * alpha, g))


@_numpy(leaky_relu)
def leaky_relu_numpy(x, *, alpha):
    if alpha <= 0:  # infinity * 0 must not reach the result, and -0.0 stays -0.0
        return np.where(x < 0, x * alpha, x)
    return np.maximum(x, x * alpha) if alpha <= 1 else np.minimum(x, x * alpha)


@op("ThresholdedRelu", specified=10)  # below opset 10 only onnxruntime has it
def thresholded_relu(X, *, alpha=1.0):
    """``X`` where it is greater than ``alpha``, else 0."""
    return where(greater(X, alpha), X, 0.0)


_numpy(thresholded_relu)(lambda x, *, alpha: _where_mask(x, x > alpha))


@op("PRelu", broadcasts=True)
def prelu(X, slope):
    """``X`` with its negative elements scaled by ``slope``, which broadcasts to the shape of ``X``.

    As in onnxruntime, ``X`` may broadcast too.
    """
    return where(X < 0, X * slope, X)


@prelu.numpy
@np.errstate(all="ignore")
def prelu_numpy(x, slope):
    y = np.asarray(x * slope)
    if x.dtype.kind != "f" or x.size <= _SMALL or y.shape != x.shape:
        return np.asarray(np.where(x < 0, y, x))
    return _chosen(x < 0, y, x)


@prelu.vjp
def prelu_vjp(g, y, X, slope):
    negative = X < 0
    return where(negative, g * slope, g), where(negative, g * X, 0.0)


@prelu.until(7)
def prelu_by_channel(X, slope):
    """``X`` with its negative elements scaled by ``slope``: one value, one per channel, or one per element."""
    if slope.ndim == 1 and X.ndim > 2:
        slope = reshape(slope, [-1] + [1] * (X.ndim - 2))
    return prelu(X, slope)


prelu_by_channel.until(6, ignored=["consumed_inputs"])


@prelu.lower(to=prelu_by_channel)
def prelu_to_prelu_by_channel(X, slope):
    sides = slope.tensor.shape
    if sides is None or X.rank is None:
        return None
    if len(sides) == X.ndim - 1 and all(side == 1 for side in sides[1:]):
        return prelu_by_channel(X, reshape(slope, [-1]))
    one = sides in ((), (1,))
    return prelu_by_channel(X, slope) if one or (sides == X.shape and None not in sides) else None


@op("Shrink", since=9)
def shrink(input, *, bias=0.0, lambd=0.5):
    """Elements below ``-lambd`` plus ``bias``, those above ``lambd`` minus ``bias``, and 0 in between."""
    wide = DType.float64 if input.dtype.is_integer else DType.float32 if input.dtype.bits < 32 else input.dtype
    x = cast(input, to=wide) if wide is not input.dtype else input
    y = where(x < -lambd, x + bias, where(x > lambd, x - bias, 0.0))
    return y if wide is input.dtype else cast(y, to=input.dtype)


# ----- exponential units ----------------------------------------------------------------------------------------------


def _below_zero(X: Value) -> Value:
    """``X`` with its positive elements replaced by 0, by Relu: Min takes fewer types at older opsets."""
    return -relu(-X)


@op("Elu")
def elu(X, *, alpha=1.0):
    """The exponential linear unit: ``alpha * (exp(x) - 1)`` below 0 and ``x`` above."""
    return relu(X) + (exp(_below_zero(X)) - 1.0) * alpha


elu.until(6, ignored=["consumed_inputs"])
elu.vjp(lambda g, y, X, *, alpha: where(X < 0.0, g * (y + alpha), g))
_numpy(elu)(lambda x, *, alpha: _exponential_unit(x, 1.0, alpha))


@op("Selu")
def selu(X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    """``gamma`` times the exponential linear unit of ``alpha``."""
    return elu(X, alpha=alpha) * gamma


selu.until(6, ignored=["consumed_inputs"], defaults={"alpha": 1.6732, "gamma": 1.0507})
_numpy(selu)(lambda x, *, alpha, gamma: _exponential_unit(x, 1.0, alpha) * gamma)


@op("Celu", since=12)
def celu(X, *, alpha=1.0):
    """The continuously differentiable exponential unit: ``alpha * (exp(x / alpha) - 1)`` below 0 and ``x`` above."""
    return relu(X) + (exp(_below_zero(X) / alpha) - 1.0) * alpha


celu.vjp(lambda g, y, X, *, alpha: where(X < 0.0, g * (y / alpha + 1.0), g))
_numpy(celu)(lambda x, *, alpha: _exponential_unit(x, alpha, alpha))


def _exponential_unit(x: Array, divisor: float, factor: float) -> Array:
    y = _below(x)
    if divisor != 1:
        y /= divisor
    np.expm1(y, out=y)
    if factor != 1:
        y *= factor
    y += _above(x)
    return y


# ----- sigmoids -------------------------------------------------------------------------------------------------------


@op("Sigmoid")
def sigmoid(X):
    """The logistic function."""
    return 1.0 / (exp(-X) + 1.0)


sigmoid.until(6, ignored=["consumed_inputs"])
sigmoid.vjp(lambda g, y, X: g * (y * (1.0 - y)))


@_numpy(sigmoid)
def _sigmoid(x, *, alpha=-1.0):
    y = np.negative(x) if alpha == -1 else x * alpha
    np.exp(y, out=y)
    y += scalar(1, x.dtype)
    return np.reciprocal(y, out=y)


@op("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.2, beta=0.5):
    """``alpha * x + beta``, clipped to 0 and 1."""
    return clip(X * alpha + beta, 0.0, 1.0)


hard_sigmoid.until(6, ignored=["consumed_inputs"])


@_numpy(hard_sigmoid)
def _hard_sigmoid(x, *, alpha, beta):
    y = _line(x, alpha, beta)
    return np.clip(y, 0, 1, out=y)


#: The slope of HardSwish as the float32 attribute of HardSigmoid.
_SIXTH = float(np.float32(1 / 6))


@op("HardSwish", since=14)
def hard_swish(X):
    """``X`` times its hard sigmoid of slope 1/6."""
    return X * hard_sigmoid(X, alpha=_SIXTH, beta=0.5)


_numpy(hard_swish)(lambda x: x * _hard_sigmoid(x, alpha=_SIXTH, beta=0.5))


@op("Swish", since=24)
def swish(X, *, alpha=1.0):
    """``X`` times the sigmoid of ``alpha * X``."""
    return X * sigmoid(X * alpha)


_numpy(swish)(lambda x, *, alpha: x * _sigmoid(x, alpha=-alpha))


# ----- smooth rectifiers ----------------------------------------------------------------------------------------------


@op("Softplus")
def softplus(X):
    """``log(1 + exp(x))``, in a form that does not overflow."""
    return relu(X) + log(exp(-absolute(X)) + 1.0)


softplus.vjp(lambda g, y, X: g * sigmoid(X))


@_numpy(softplus)
def _softplus(x):
    y = np.abs(x)
    np.negative(y, out=y)
    np.exp(y, out=y)
    np.log1p(y, out=y)
    y += _above(x)
    return y


@op("Softsign")
def softsign(input):
    """``x / (1 + |x|)``."""
    return input / (absolute(input) + 1.0)


_numpy(softsign)(lambda x: x / (np.abs(x) + 1))


@op("Mish", since=18)
def mish(X):
    """``X`` times the hyperbolic tangent of its softplus."""
    return X * tanh(softplus(X))


_numpy(mish)(lambda x: x * np.tanh(_softplus(x)))


#: Coefficients of Gelu's ``tanh`` approximation.
_CUBIC, _STEEP = 0.044715, math.sqrt(2 / math.pi)


@op("Gelu", since=20)
def gelu(X, *, approximate="none"):
    """``X`` times the cumulative normal distribution of ``X``, or times its ``tanh`` approximation."""
    if approximate == "tanh":
        return X * 0.5 * (tanh((X + X * X * X * _CUBIC) * _STEEP) + 1.0)
    return X * 0.5 * (erf(X / math.sqrt(2)) + 1.0)


gelu.requires(one_of(approximate=("none", "tanh")))


@gelu.residuals
def gelu_residuals(demand, X, *, approximate):
    """Compute the derivative in the forward pass, where it shares the gate with the output."""
    squared = X * X
    inner = tanh((squared * (_CUBIC * _STEEP) + _STEEP) * X) if approximate == "tanh" else erf(X * math.sqrt(0.5))
    share = hard_sigmoid(inner, alpha=0.5, beta=0.5)
    y = X * share
    if approximate == "tanh":
        return (y,), share + y * (1.0 - share) * (squared * (6 * _CUBIC * _STEEP) + 2 * _STEEP)
    return (y,), share + X * (exp(squared * -0.5) * (1 / math.sqrt(2 * math.pi)))


gelu.vjp(lambda g, slope, X, *, approximate: g * slope)


@_numpy(gelu)
def gelu_numpy(x, *, approximate):
    inner = x * scalar(math.sqrt(0.5), x.dtype) if approximate == "none" else _line(x * x, _CUBIC * _STEEP, _STEEP) * x
    y = np.tanh(inner, out=inner) if approximate == "tanh" else error_function(inner)
    return np.multiply(_line(y, 0.5, 0.5, out=y), x, out=y)
