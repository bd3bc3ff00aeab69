"""Special functions without ONNX ops, in terms of simple ones.

Functions without a short formula are sums of Chebyshev polynomials. These are fitted to PyTorch's float64 kernel, on a
range to which the argument is mapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from onnx.numpy_helper import from_array
from onnxscript import opset18 as onnx
from torch import Tensor

aten = torch.ops.aten

#: Bernoulli numbers over factorials, B(2k) / (2k)!.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


def real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


class Series:
    """A function on an interval as a sum of Chebyshev polynomials."""

    def __init__(self, function: Callable[[Tensor], Tensor], low: float, high: float, terms: int) -> None:
        self.low, self.high = low, high
        nodes = np.cos((np.arange(2 * terms) + 0.5) * np.pi / (2 * terms))
        values = function(torch.from_numpy((nodes + 1) / 2 * (high - low) + low)).numpy()
        self.coefficients: list[float] = chebyshev.chebfit(nodes, values, terms - 1).tolist()

    def __call__(self, x: Tensor) -> Tensor:
        return chebyshev_sum(((x - self.low) * (2 / (self.high - self.low)) - 1).clamp(-1, 1), self.coefficients)


@torch.library.custom_op("tenonnx::chebyshev_sum", mutates_args=())  # type: ignore[untyped-decorator]
def chebyshev_sum(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of cos(k acos(t)) times the coefficients; a custom operation, since programs cannot store lists."""
    orders = torch.arange(len(coefficients), dtype=t.dtype)
    return torch.cos(t.acos().unsqueeze(-1) * orders).mul(torch.tensor(coefficients, dtype=t.dtype)).sum(-1)


@chebyshev_sum.register_fake  # type: ignore[untyped-decorator]
def chebyshev_sum_fake(t: Any, coefficients: Any) -> Any:
    return torch.empty_like(t)


def _written(t: Any, coefficients: Sequence[float]) -> Any:
    numbers = np.array(coefficients)
    orders, factors = (
        onnx.CastLike(onnx.Constant(value=from_array(c)), t) for c in (np.arange(0.0, len(numbers)), numbers)
    )
    terms = onnx.Cos(onnx.Mul(onnx.Unsqueeze(onnx.Acos(t), [-1]), orders))
    return onnx.ReduceSum(onnx.Mul(terms, factors), [-1], keepdims=0)


#: Function that writes the custom operation as ONNX nodes.
TRANSLATIONS = {torch.ops.tenonnx.chebyshev_sum.default: _written}


# ----- the inverse of erf ---------------------------------------------------------------------------------------------


def _over_its_argument(s: Tensor) -> Tensor:
    """``erfinv(x) / x`` as a function of ``s`` with ``s**2 = -log(1 - x**2)``, in which it is smooth."""
    left = torch.exp(-s * s)
    x = torch.sqrt(-torch.expm1(-s * s))
    return torch.special.ndtri(0.5 * left / (1 + x)) / (-math.sqrt(2) * x)


_ERFINV = Series(_over_its_argument, 1e-6, 9.4, 60)


def erfinv(x: Tensor) -> Tensor:
    x = real(x)
    inner = -(torch.log(1 - x) + torch.log(1 + x))
    found = x * _ERFINV(inner.clamp(min=0).sqrt())
    return torch.where(x.abs() == 1, x * torch.inf, torch.where(x.abs() > 1, torch.nan, found))


def ndtri(p: Tensor) -> Tensor:
    p = real(p)
    x = 2 * p - 1
    inner = -(torch.log(4 * p) + torch.log(1 - p))
    found = math.sqrt(2) * x * _ERFINV(inner.clamp(min=0).sqrt())
    edges = torch.where(p == 0, -torch.inf, torch.where(p == 1, torch.inf, torch.nan))
    return torch.where((p > 0) & (p < 1), found, edges)


# ----- gamma ----------------------------------------------------------------------------------------------------------


def digamma(x: Tensor) -> Tensor:
    x = real(x)
    whole = x == x.floor()
    mirrored = torch.where(x < 0, 1 - x, x)
    steps = (mirrored.unsqueeze(-1) + torch.arange(10, dtype=x.dtype)).reciprocal().sum(-1)
    far = mirrored + 10
    found = far.log() - 0.5 / far - steps
    for k, b in enumerate(_BERNOULLI, 1):
        found = found - b * math.factorial(2 * k - 1) * far ** (-2 * k)
    part = math.pi * (x - x.round())
    found = torch.where(x < 0, found - math.pi * part.cos() / part.sin(), found)
    return torch.where(
        x == 0, -torch.inf * torch.where(1 / x < 0, -1.0, 1.0), torch.where(whole & (x < 0), torch.nan, found)
    )


def lgamma(x: Tensor) -> Tensor:
    x = real(x)
    mirrored = torch.where(x < 0.5, 1 - x, x)
    small = torch.where(mirrored < 8, mirrored, 1.0)
    product = (small.unsqueeze(-1) + torch.arange(8, dtype=x.dtype)).prod(-1)
    far = torch.where(mirrored < 8, mirrored + 8, mirrored)
    found = (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi)
    for k, b in enumerate(_BERNOULLI, 1):
        found = found + b * math.factorial(2 * k - 2) * far ** (1 - 2 * k)
    found = torch.where(mirrored < 8, found - product.log(), found)
    part = (math.pi * (x - x.round())).sin().abs()
    return torch.where(x.isinf(), torch.inf, torch.where(x < 0.5, math.log(math.pi) - part.log() - found, found))


def _incomplete_gamma(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Regularized lower and upper incomplete gamma functions.

    The smaller one is an integral over a half-line, by the double-exponential rule of Takahasi and Mori (1974).
    """
    dtype = torch.result_type(a, x)
    a, x = torch.broadcast_tensors(a.to(torch.float64), x.to(torch.float64))
    usual = (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
    shape, end = torch.where(usual, a, 1.0), torch.where(usual, x, 1.0)
    below = end <= shape + 1
    places = torch.arange(-32, 49, dtype=torch.float64) / 10
    spread = torch.exp(places - torch.exp(-places))
    width = (1 / (1 + (end - shape).abs() + end.sqrt())).unsqueeze(-1)
    part, x_part, a_part = spread * width, end.unsqueeze(-1), shape.unsqueeze(-1)
    heights = torch.where(
        below.unsqueeze(-1),
        -x_part * torch.expm1(-part) - (a_part + 1) * part,
        a_part * part - x_part * torch.expm1(part),
    )
    area = (heights.exp() * spread * (1 + torch.exp(-places)) * width).sum(-1) / 10
    density = torch.exp(shape * end.log() - end - lgamma(shape))
    smaller = density * torch.where(below, (1 + end * area) / shape, area)
    lower = torch.where(below, smaller, 1 - smaller)
    upper = torch.where(below, 1 - smaller, smaller)
    edge = torch.where(
        (a < 0) | (x < 0) | a.isnan() | x.isnan() | ((a == 0) & (x == 0)) | (a.isinf() & x.isinf()),
        torch.nan,
        ((a == 0) | x.isinf()).to(torch.float64),
    )
    return torch.where(usual, lower, edge).to(dtype), torch.where(usual, upper, 1 - edge).to(dtype)


def igamma(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete_gamma(a, x)[0]


def igammac(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete_gamma(a, x)[1]


def zeta(s: Any, q: Any) -> Tensor:
    """Hurwitz zeta function: twelve terms of ``(q + k) ** -s``, then the Euler-Maclaurin formula."""
    s, q = (real(each) if isinstance(each, Tensor) else torch.full((), float(each)) for each in (s, q))
    first, far = q.unsqueeze(-1) + torch.arange(12, dtype=q.dtype), q + 12
    found = (first ** -s.unsqueeze(-1)).sum(-1) + far ** (1 - s) / (s - 1) + 0.5 * far**-s
    factor = s * far ** (-s - 1)
    for k, b in enumerate(_BERNOULLI, 1):
        found = found + b * factor
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / (far * far)
    edge = (q <= 0) & (q == q.floor())
    found = torch.where(edge, torch.inf, torch.where((q < 0) & (s != s.floor()), torch.nan, found))
    return torch.where(s == 1, torch.inf, torch.where(s < 1, torch.nan, found))


def polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return digamma(x)
    x = real(x)
    if n == 1:
        part = (math.pi * (x - x.round())).sin()
        mirrored = zeta(torch.full_like(x, 2.0), torch.where(x < 0.5, 1 - x, x))
        return torch.where(x < 0.5, (math.pi / part) ** 2 - mirrored, mirrored)
    return (-1.0) ** (n + 1) * math.gamma(n + 1) * zeta(torch.full_like(x, n + 1.0), x)


# ----- Bessel and the complement of erf -------------------------------------------------------------------------------


def _rooted(function: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    return function(8 / t) * torch.sqrt(8 / t)


#: Scaled functions by two series: below 8 in x; above, times the root of x, in 16 / x - 1.
_I0 = Series(torch.special.i0e, 0, 8, 40), Series(lambda t: _rooted(torch.special.i0e, t), 1e-9, 1, 30)
_I1 = (
    Series(lambda x: torch.special.i1e(x) / x, 1e-9, 8, 40),
    Series(lambda t: _rooted(torch.special.i1e, t), 1e-9, 1, 30),
)

#: ``erfcx`` for x >= 0, as a function of ``4 / (x + 4)``.
_ERFCX = Series(lambda t: torch.special.erfcx(4 / t - 4) / t, 1e-9, 1, 40)


def i0e(x: Tensor) -> Tensor:
    size = real(x).abs()
    large = size.clamp(min=8)
    return torch.where(size <= 8, _I0[0](size), _I0[1](8 / large) / large.sqrt())


def i1e(x: Tensor) -> Tensor:
    x = real(x)
    size = x.abs()
    large = size.clamp(min=8)
    return torch.where(size <= 8, x * _I1[0](size), x.sign() * _I1[1](8 / large) / large.sqrt())


def i0(x: Tensor) -> Tensor:
    return i0e(x) * real(x).abs().exp()


def i1(x: Tensor) -> Tensor:
    return i1e(x) * real(x).abs().exp()


def erfcx(x: Tensor) -> Tensor:
    x = real(x)
    t = 4 / (x.abs() + 4)
    found = t * _ERFCX(t)
    return torch.where(x < 0, 2 * (x * x).exp() - found, found)


def erfc(x: Tensor) -> Tensor:
    """Accurate in the tail, where 1 - erf(x) is not."""
    x = real(x)
    size = x.abs()
    found = erfcx(size) * torch.exp(-size * size)
    return torch.where(x < 0.5, 1 - x.erf(), found)


def log_ndtr(x: Tensor) -> Tensor:
    x = real(x)
    low = x.clamp(max=0)
    tail = torch.log(0.5 * erfcx(low * -math.sqrt(0.5))) - 0.5 * low * low
    return torch.where(x < 0, tail, torch.log1p(-0.5 * erfc(x * math.sqrt(0.5))))


#: Functions by operator, including equivalent operators of ``prims`` and ``special``.
SPECIAL: Mapping[Any, Callable[..., Tensor]] = {
    aten.erfinv.default: erfinv,
    torch.ops.prims.erf_inv.default: erfinv,
    aten.special_ndtri.default: ndtri,
    torch.ops.prims.ndtri.default: ndtri,
    aten.digamma.default: digamma,
    torch.ops.prims.digamma.default: digamma,
    aten.lgamma.default: lgamma,
    torch.ops.prims.lgamma.default: lgamma,
    aten.igamma.default: igamma,
    torch.ops.prims.igamma.default: igamma,
    aten.special_gammainc.default: igamma,
    aten.igammac.default: igammac,
    torch.ops.prims.igammac.default: igammac,
    aten.special_gammaincc.default: igammac,
    aten.polygamma.default: polygamma,
    aten.special_zeta.default: zeta,
    aten.special_zeta.self_scalar: zeta,
    aten.special_zeta.other_scalar: zeta,
    torch.ops.prims.zeta.default: zeta,
    aten.i0.default: i0,
    aten.special_modified_bessel_i0.default: i0,
    torch.ops.prims.bessel_i0.default: i0,
    aten.special_i0e.default: i0e,
    torch.ops.prims.bessel_i0e.default: i0e,
    aten.special_i1.default: i1,
    aten.special_modified_bessel_i1.default: i1,
    torch.ops.prims.bessel_i1.default: i1,
    aten.special_i1e.default: i1e,
    torch.ops.prims.bessel_i1e.default: i1e,
    aten.special_erfcx.default: erfcx,
    torch.ops.prims.erfcx.default: erfcx,
    aten.erfc.default: erfc,
    torch.ops.prims.erfc.default: erfc,
    aten.special_log_ndtr.default: log_ndtr,
}
