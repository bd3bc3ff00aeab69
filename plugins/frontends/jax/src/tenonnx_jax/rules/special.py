"""Special functions."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from tenonnx.extend import Value
from tenonnx_frontends import gamma
from tenonnx_jax.rules import composed, rule


@rule("lgamma")
def lgamma_rule(equation: Any, x: Value, **_: Any) -> Value:
    return gamma.lgamma(x)


@rule("digamma")
def digamma_rule(equation: Any, x: Value, **_: Any) -> Value:
    return gamma.digamma(x)


@rule("bessel_i0e")
def bessel_i0e_rule(equation: Any, x: Value, **_: Any) -> Value:
    return gamma.bessel_i0e(x)


@rule("bessel_i1e")
def bessel_i1e_rule(equation: Any, x: Value, **_: Any) -> Value:
    return gamma.bessel_i1e(x)


@rule("zeta")
def zeta_rule(equation: Any, x: Value, q: Value, **_: Any) -> Value:
    return gamma.zeta(x, q)


@rule("polygamma")
def polygamma_rule(equation: Any, m: Value, x: Value, **_: Any) -> Value:
    return gamma.polygamma(m, x)


def _by_jax(name: str, inner: str) -> None:
    """Register functions that JAX defines in terms of other primitives."""
    function = getattr(jax._src.lax.special, inner, None)
    if function is None:
        return
    typed = "dtype" in inspect.signature(function).parameters

    @composed(name)
    def name_composed(*arrays: Any, **params: Any) -> Any:
        arrays = tuple(jnp.broadcast_arrays(*arrays))
        return function(*arrays, **{**params, "dtype": arrays[0].dtype} if typed else params)


for _name in (
    "igamma",
    "igammac",
    "igamma_grad_a",
    "random_gamma_grad",
    "regularized_incomplete_beta",
):
    _by_jax(_name, f"{_name}_impl")
