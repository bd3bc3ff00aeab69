"""Bessel functions of the first and second kind, by the series of ``special.py``.

For large x, a function is a wave whose amplitude and phase vary slowly with ``(5 / x) ** 2``. Near 0, subtracting the
logarithm and the pole leaves a smooth function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tenonnx_torch.special import Series, i0, i1, real

aten = torch.ops.aten
special = torch.special

#: End of the series near 0; PyTorch's own functions switch there, too.
_NEAR = 5.0


def _phase(x: Tensor, order: int) -> Tensor:
    return x - (2 * order + 1) * math.pi / 4


class _Wave(NamedTuple):
    """Amplitude factors of cosine and sine in J and Y of one order, as functions of ``(5 / x) ** 2``."""

    order: int
    even: Series
    odd: Series

    @classmethod
    def of(cls, order: int, j: Callable[[Tensor], Tensor], y: Callable[[Tensor], Tensor]) -> _Wave:
        def even(s: Tensor) -> Tensor:
            x = _NEAR / s.sqrt()
            angle = _phase(x, order)
            return (x * (math.pi / 2)).sqrt() * (j(x) * angle.cos() + y(x) * angle.sin())

        def odd(s: Tensor) -> Tensor:
            x = _NEAR / s.sqrt()
            angle = _phase(x, order)
            return (x * (math.pi / 2)).sqrt() * (y(x) * angle.cos() - j(x) * angle.sin()) / s.sqrt()

        return cls(order, Series(even, 0, 1, 20), Series(odd, 0, 1, 20))

    def __call__(self, x: Tensor, first: bool) -> Tensor:
        t = _NEAR / x
        even, odd, angle = self.even(t * t), t * self.odd(t * t), _phase(x, self.order)
        wave = even * angle.cos() - odd * angle.sin() if first else even * angle.sin() + odd * angle.cos()
        return wave / (x * (math.pi / 2)).sqrt()


_ZERO = _Wave.of(0, special.bessel_j0, special.bessel_y0)
_ONE = _Wave.of(1, special.bessel_j1, special.bessel_y1)
_J0 = Series(special.bessel_j0, 0, _NEAR, 40)
_J1 = Series(lambda x: special.bessel_j1(x) / x, 0, _NEAR, 40)
_Y0 = Series(lambda x: special.bessel_y0(x) - 2 / math.pi * x.log() * special.bessel_j0(x), 0, _NEAR, 40)
_Y1 = Series(
    lambda x: (special.bessel_y1(x) - 2 / math.pi * (x.log() * special.bessel_j1(x) - 1 / x)) / x, 1e-3, _NEAR, 40
)


def _parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The absolute value, and its clamped values for the ranges near 0 and beyond."""
    size = x.abs()
    return size, size.clamp(max=_NEAR), size.clamp(min=_NEAR)


def j0(x: Tensor) -> Tensor:
    size, near, far = _parts(real(x))
    return torch.where(size <= _NEAR, _J0(near), _ZERO(far, True))


def j1(x: Tensor) -> Tensor:
    x = real(x)
    size, near, far = _parts(x)
    found = torch.where(size <= _NEAR, near * _J1(near), _ONE(far, True))
    return torch.where(x < 0, -found, found)


def _from_zero(x: Tensor, at_zero: float, found: Tensor) -> Tensor:
    return torch.where(x < 0, torch.nan, torch.where(x == 0, at_zero, found))


def y0(x: Tensor) -> Tensor:
    x = real(x)
    size, near, far = _parts(x)
    low = _Y0(near) + 2 / math.pi * near.log() * _J0(near)
    return _from_zero(x, -torch.inf, torch.where(size <= _NEAR, low, _ZERO(far, False)))


def y1(x: Tensor) -> Tensor:
    x = real(x)
    size, near, far = _parts(x)
    low = near * _Y1(near) + 2 / math.pi * (near.log() * near * _J1(near) - 1 / near)
    return _from_zero(x, -torch.inf, torch.where(size <= _NEAR, low, _ONE(far, False)))


# ----- modified -------------------------------------------------------------------------------------------------------

_FEW = 2.0
_K0 = Series(lambda x: special.modified_bessel_k0(x) + (x / 2).log() * special.i0(x), 0, _FEW, 24)
_K1 = Series(lambda x: (special.modified_bessel_k1(x) - 1 / x - (x / 2).log() * special.i1(x)) / x, 1e-3, _FEW, 24)
_K0E = Series(lambda t: special.scaled_modified_bessel_k0(_FEW / t) * (_FEW / t).sqrt(), 0, 1, 30)
_K1E = Series(lambda t: special.scaled_modified_bessel_k1(_FEW / t) * (_FEW / t).sqrt(), 0, 1, 30)


def _modified(x: Tensor, scaled: bool, low: Callable[[Tensor], Tensor], high: Series) -> Tensor:
    x = real(x)
    near, far = x.clamp(max=_FEW), x.clamp(min=_FEW)
    below, above = low(near), high(_FEW / far) / far.sqrt()
    found = torch.where(x <= _FEW, below * near.exp() if scaled else below, above if scaled else above * (-far).exp())
    return _from_zero(x, torch.inf, found)


def _k0(x: Tensor) -> Tensor:
    return _K0(x) - (x / 2).log() * i0(x)


def _k1(x: Tensor) -> Tensor:
    return x * _K1(x) + 1 / x + (x / 2).log() * i1(x)


def k0(x: Tensor) -> Tensor:
    return _modified(x, False, _k0, _K0E)


def k1(x: Tensor) -> Tensor:
    return _modified(x, False, _k1, _K1E)


def scaled_k0(x: Tensor) -> Tensor:
    return _modified(x, True, _k0, _K0E)


def scaled_k1(x: Tensor) -> Tensor:
    return _modified(x, True, _k1, _K1E)


# ----- others ---------------------------------------------------------------------------------------------------------


def spherical_j0(x: Tensor) -> Tensor:
    x = real(x)
    return torch.where(x.isinf(), 0.0, torch.where(x == 0, 1.0, x.sin() / x))


#: Range of the series of Airy's function, its period, and where it underflows; beyond it, asymptotic expansions hold.
_FAR, _STEP, _FURTHEST = 8.0, 2.09, 533.0


def _action(size: Tensor) -> Tensor:
    return size.pow(1.5) * (2 / 3)


_FIRST = _STEP**1.5 * (2 / 3)


def _decay(t: Tensor) -> Tensor:
    action = _FIRST / t
    x = (action * 1.5).pow(2 / 3)
    return special.airy_ai(x) * action.exp() * x.pow(0.25)


_AIRY = Series(special.airy_ai, -_FAR, -_STEP - 1e-9, 50), Series(special.airy_ai, -_STEP + 1e-9, _STEP - 1e-9, 40)
_DECAY = Series(_decay, _FIRST / _FURTHEST, 1, 30)

#: Coefficients of the asymptotic expansion of Airy's function.
_TERMS = [math.gamma(3 * k + 0.5) / (54.0**k * math.factorial(k) * math.gamma(k + 0.5)) for k in range(16)]


def _airy_wave(size: Tensor) -> Tensor:
    action = _action(size)
    even, odd = torch.zeros_like(size), torch.zeros_like(size)
    square = action * action
    for k in reversed(range(8)):
        even = _TERMS[2 * k] - even / square
        odd = _TERMS[2 * k + 1] - odd / square
    angle = action + math.pi / 4
    return (even * angle.sin() - odd / action * angle.cos()) / (math.sqrt(math.pi) * size.pow(0.25))


def airy(x: Tensor) -> Tensor:
    x = real(x)
    right = x.clamp(min=_STEP)
    action = _action(right)
    decay = _DECAY(_FIRST / action) * (-action).exp() / right.pow(0.25)
    left = torch.where(x < -_FAR, _airy_wave((-x).clamp(min=_FAR)), _AIRY[0](x.clamp(-_FAR, -_STEP)))
    found = torch.where(x > _STEP, decay, torch.where(x < -_STEP, left, _AIRY[1](x.clamp(-_STEP, _STEP))))
    return torch.where(x.isinf(), torch.nan, found)


#: Functions by operator.
BESSEL: Mapping[Any, Callable[..., Tensor]] = {
    aten.special_bessel_j0.default: j0,
    torch.ops.prims.bessel_j0.default: j0,
    aten.special_bessel_j1.default: j1,
    torch.ops.prims.bessel_j1.default: j1,
    aten.special_bessel_y0.default: y0,
    aten.special_bessel_y1.default: y1,
    aten.special_modified_bessel_k0.default: k0,
    aten.special_modified_bessel_k1.default: k1,
    aten.special_scaled_modified_bessel_k0.default: scaled_k0,
    aten.special_scaled_modified_bessel_k1.default: scaled_k1,
    aten.special_spherical_bessel_j0.default: spherical_j0,
    torch.ops.prims.spherical_bessel_j0.default: spherical_j0,
    aten.special_airy_ai.default: airy,
}
