"""Trigonometric and hyperbolic functions and their inverses, element by element."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import elementwise
from tenonnx_standard.math import neg, sqrt


@elementwise("Sin", since=7)
def sin(input):
    """The sine of an angle in radians."""


@elementwise("Cos", since=7)
def cos(input):
    """The cosine of an angle in radians."""


@elementwise("Tan", since=7)
def tan(input):
    """The tangent of an angle in radians."""


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

sin.vjp(lambda g, y, input: g * cos(input))
cos.vjp(lambda g, y, input: neg(g * sin(input)))
tan.vjp(lambda g, y, input: g * (y * y + 1))
asin.vjp(lambda g, y, input: g / sqrt((1 - input) * (1 + input)))
acos.vjp(lambda g, y, input: neg(g / sqrt((1 - input) * (1 + input))))
atan.vjp(lambda g, y, input: g / (input * input + 1))
sinh.vjp(lambda g, y, input: g * cosh(input))
cosh.vjp(lambda g, y, input: g * sinh(input))
tanh.vjp(lambda g, y, input: g * (1 - y * y))
asinh.vjp(lambda g, y, input: g / sqrt(input * input + 1))
acosh.vjp(lambda g, y, input: g / (sqrt(input - 1) * sqrt(input + 1)))
atanh.vjp(lambda g, y, input: g / ((1 - input) * (1 + input)))
