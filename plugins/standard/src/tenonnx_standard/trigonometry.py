"""Trigonometric and hyperbolic functions and their inverses, element by element."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import DType, Value, elementwise
from tenonnx_standard.math import div, neg, sqrt


@elementwise("Sin", since=7)
def sin(input):
    """The sine of an angle in radians."""


@elementwise("Cos", since=7)
def cos(input):
    """The cosine of an angle in radians."""


@elementwise("Tan", since=7)
def tan(input):
    """The tangent of an angle in radians."""


@tan.lower()
def tan_lowering(input: Value) -> Value | None:
    """Tan in float64 as sine over cosine, for runtimes that have it only in float32."""
    return div(sin(input), cos(input)) if input.dtype is DType.float64 else None


@elementwise("Asin", since=7)
def asin(input):
    """The angle in radians whose sine is ``input``; NaN outside [-1, 1]."""


@elementwise("Acos", since=7)
def acos(input):
    """The angle in radians whose cosine is ``input``; NaN outside [-1, 1]."""


@elementwise("Atan", since=7)
def atan(input):
    """The angle in radians whose tangent is ``input``."""


@elementwise("Sinh", since=9)
def sinh(input):
    """The hyperbolic sine."""


@elementwise("Cosh", since=9)
def cosh(input):
    """The hyperbolic cosine."""


@elementwise("Tanh")
def tanh(input):
    """The hyperbolic tangent."""


tanh.until(6, ignored=["consumed_inputs"])


@elementwise("Asinh", since=9)
def asinh(input):
    """The inverse of the hyperbolic sine."""


@elementwise("Acosh", since=9)
def acosh(input):
    """The inverse of the hyperbolic cosine; NaN below 1."""


@elementwise("Atanh", since=9)
def atanh(input):
    """The inverse of the hyperbolic tangent; NaN outside [-1, 1]."""


sin.numpy(np.sin)
cos.numpy(np.cos)
tan.numpy(np.tan)
asin.numpy(np.arcsin)
acos.numpy(np.arccos)
atan.numpy(np.arctan)
sinh.numpy(np.sinh)
cosh.numpy(np.cosh)
tanh.numpy(np.tanh)
asinh.numpy(np.arcsinh)
acosh.numpy(np.arccosh)
atanh.numpy(np.arctanh)

sin.vjp(lambda g, y, x: g * cos(x))
cos.vjp(lambda g, y, x: neg(g * sin(x)))
tan.vjp(lambda g, y, x: g * (y * y + 1))
asin.vjp(lambda g, y, x: g / sqrt((1 - x) * (1 + x)))
acos.vjp(lambda g, y, x: neg(g / sqrt((1 - x) * (1 + x))))
atan.vjp(lambda g, y, x: g / (x * x + 1))
sinh.vjp(lambda g, y, x: g * cosh(x))
cosh.vjp(lambda g, y, x: g * sinh(x))
tanh.vjp(lambda g, y, x: g * (1 - y * y))
asinh.vjp(lambda g, y, x: g / sqrt(x * x + 1))
acosh.vjp(lambda g, y, x: g / (sqrt(x - 1) * sqrt(x + 1)))
atanh.vjp(lambda g, y, x: g / ((1 - x) * (1 + x)))
