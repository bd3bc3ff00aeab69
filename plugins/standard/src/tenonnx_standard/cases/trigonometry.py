"""Cases of trigonometric and hyperbolic functions."""

from __future__ import annotations

from tenonnx_standard import trigonometry as ops
from tenonnx_standard.cases.math import unary

unary(ops.sin)
unary(ops.cos)
unary(ops.tan, min_value=-1.2, max_value=1.2)
unary(ops.asin, min_value=-0.9, max_value=0.9)
unary(ops.acos, min_value=-0.9, max_value=0.9)
unary(ops.atan)
unary(ops.sinh)
unary(ops.cosh)
unary(ops.tanh)
unary(ops.asinh)
unary(ops.acosh, min_value=1.2, max_value=8)
unary(ops.atanh, min_value=-0.9, max_value=0.9)
