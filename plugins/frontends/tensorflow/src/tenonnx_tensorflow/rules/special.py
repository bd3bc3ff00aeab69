"""Gamma and related functions, and Bessel functions."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_frontends import gamma
from tenonnx_tensorflow.rules import rule


@rule("Lgamma")
def lgamma(node: Any, x: Value) -> Value:
    return gamma.lgamma(x)


@rule("Digamma")
def digamma(node: Any, x: Value) -> Value:
    return gamma.digamma(x)


@rule("BesselI0e", "BesselI0", "BesselI1e", "BesselI1")
def bessel(node: Any, x: Value) -> Value:
    scaled = gamma.bessel_i1e(x) if "I1" in node.op else gamma.bessel_i0e(x)
    return scaled if node.op.endswith("e") else ops.mul(scaled, ops.exp(ops.absolute(x)))
