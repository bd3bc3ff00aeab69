"""Special functions."""

from __future__ import annotations

import inspect
import math
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tenonnx_jax.rules import composed

_LANCZOS = [
    0.99999999999980993227684700473478,
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
]


@composed("lgamma")
def lgamma(x: Any, **_: Any) -> Any:
    """Lanczos' approximation with g = 7, and the reflection formula below one half."""
    below = x < 0.5
    z = jnp.where(below, -x, x - 1)
    total = sum((c / (z + k) for k, c in enumerate(_LANCZOS[1:], 1)), start=jnp.full_like(z, _LANCZOS[0]))
    log_t = math.log(7.5) + jnp.log1p(z / 7.5)
    found = (z + 0.5 - (z + 7.5) / log_t) * log_t + math.log(math.sqrt(2 * math.pi)) + jnp.log(total)
    part = jnp.abs(x) - jnp.floor(jnp.abs(x))
    sine = jnp.log(jnp.sin(math.pi * jnp.where(part > 0.5, 1 - part, part)))
    reflected = jnp.where(jnp.isfinite(sine), math.log(math.pi) - sine - found, -sine)
    result = jnp.where(below, reflected, found)
    return jnp.where(jnp.isinf(x), jnp.inf, result).astype(x.dtype)


@composed("digamma")
def digamma(x: Any, **_: Any) -> Any:
    """The logarithmic derivative of Lanczos' approximation, and the reflection formula below one half."""
    below = x < 0.5
    z = jnp.where(below, -x, x - 1)
    above, under = jnp.zeros_like(z), jnp.full_like(z, _LANCZOS[0])
    for k, c in enumerate(_LANCZOS[1:], 1):
        above, under = above - c / ((z + k) * (z + k)), under + c / (z + k)
    found = math.log(7.5) + jnp.log1p(z / 7.5) + above / under - 7 / (z + 7.5)
    turned = x + jnp.abs(jnp.floor(x + 0.5))
    reflected = found - math.pi * jnp.cos(math.pi * turned) / jnp.sin(math.pi * turned)
    result = jnp.where(below, reflected, found)
    return jnp.where((x <= 0) & (x == jnp.floor(x)), jnp.nan, result).astype(x.dtype)


@composed("bessel_i1e")
def bessel_i1e(x: Any, **_: Any) -> Any:
    """The power series of I1 near zero, and its asymptotic one far from it."""
    border, terms, beyond = (30.0, 80, 25) if x.dtype == jnp.float64 else (12.0, 40, 12)
    size = jnp.abs(x)
    near, far = jnp.minimum(size, border), jnp.maximum(size, border)
    square = near * near / 4
    series = reduce(lambda rest, k: 1 + square / (k * (k + 1)) * rest, range(terms, 0, -1), jnp.ones_like(x))
    tail = reduce(
        lambda rest, k: 1 - (4 - (2 * k - 1) ** 2) / (8 * k * far) * rest, range(beyond, 0, -1), jnp.ones_like(x)
    )
    found = jnp.where(size < border, near / 2 * series * jnp.exp(-near), tail / jnp.sqrt(2 * math.pi * far))
    return (jnp.sign(x) * found).astype(x.dtype)


#: Numbers of Bernoulli over factorials, B2/2!, B4/4! and so on.
_BERNOULLI = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600]


@composed("zeta")
def zeta(x: Any, q: Any) -> Any:
    """Hurwitz' function: some terms one by one, and what Euler and Maclaurin have for the rest of the sum."""
    x, q = jnp.broadcast_arrays(x, q)
    s, start = jnp.maximum(x, 1 + jnp.finfo(x.dtype).eps), jnp.where(q > 0, q, 1)
    total = sum(((start + k) ** -s for k in range(10)), start=jnp.zeros_like(x))
    w = start + 10
    total = total + w ** (1 - s) / (s - 1) + w**-s / 2
    factor = s * w ** (-s - 1)
    for k, number in enumerate(_BERNOULLI):
        total = total + number * factor
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (w * w)
    poles = jnp.where(q == jnp.floor(q), jnp.inf, jnp.nan)
    return jnp.where(x < 1, jnp.nan, jnp.where(x == 1, jnp.inf, jnp.where(q > 0, total, poles))).astype(x.dtype)


@composed("polygamma")
def polygamma(m: Any, x: Any) -> Any:
    """The derivatives of digamma, by Hurwitz' function."""
    m, x = jnp.broadcast_arrays(m, x)
    sign = jnp.where(m % 2 == 0, -1.0, 1.0).astype(x.dtype)
    found = sign * jnp.exp(lax.lgamma(m + 1)) * lax.zeta(m + 1, x)
    return jnp.where(m == 0, lax.digamma(x), found)


def _by_jax(name: str, inner: str) -> None:
    """Functions that JAX itself computes by other primitives."""
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
    "bessel_i0e",
    "regularized_incomplete_beta",
):
    _by_jax(_name, f"{_name}_impl")
