"""Accurate versions of functions for which the exporter loses precision, overflows, or ignores signed zeros and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten, prims = torch.ops.aten, torch.ops.prims


def _real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two tensors with a common dtype; a Python number takes the dtype of the tensor if that is floating-point."""
    dtype = torch.result_type(a, b)
    return tuple(x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype) for x in (a, b))


def _real_pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a, b = _pair(a, b)
    return _real(a), _real(b)


# ----- logarithms and exponentials ------------------------------------------------------------------------------------


def log1p(x: Tensor) -> Tensor:
    """Near 0 by atanh, since ``1 + x`` rounds ``x`` off."""
    x = _real(x)
    small = x.clamp(-0.5, 0.5)
    return torch.where(x.abs() < 0.5, 2 * torch.atanh(small / (small + 2)), torch.log(1 + x))


def expm1(x: Tensor) -> Tensor:
    """Near 0 by tanh, since ``exp(x)`` rounds ``x`` off."""
    x = _real(x)
    half = torch.tanh(x.clamp(-0.5, 0.5) / 2)
    return torch.where(x.abs() < 0.5, 2 * half / (1 - half), torch.exp(x) - 1)


def log_sigmoid(x: Tensor) -> Tensor:
    return x.clamp(max=0) - log1p(torch.exp(-x.abs()))


def log_sigmoid_and_buffer(x: Tensor) -> tuple[Tensor, Tensor]:
    return log_sigmoid(x), torch.exp(-x.abs())


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a == b, a + math.log(2), torch.maximum(a, b) + log1p(torch.exp(-(a - b).abs())))


def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    more = log1p(torch.exp2(-(a - b).abs())) / math.log(2)
    return torch.where(a == b, a + 1, torch.maximum(a, b) + more)


def xlogy(x: Any, y: Any) -> Tensor:
    x, y = _real_pair(x, y)
    return torch.where((x == 0) & ~y.isnan(), 0.0, x * y.log())


def xlog1py(x: Any, y: Any) -> Tensor:
    x, y = _real_pair(x, y)
    return torch.where((x == 0) & ~y.isnan(), 0.0, x * log1p(y))


def cross_entropy_of_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    of_ones = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    loss = (1 - target) * x - of_ones * log_sigmoid(x)
    loss = loss if weight is None else loss * weight
    return (loss, loss.mean(), loss.sum())[reduction]


def in_type(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """A softmax with a ``dtype`` argument computes in that dtype; the exporter casts afterwards."""

    def computed(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        return NotImplemented if dtype is None or dtype == x.dtype else function(x.to(dtype), dim)

    return computed


# ----- signs, NaN and division ----------------------------------------------------------------------------------------


def signbit(x: Tensor) -> Tensor:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def copysign(x: Any, y: Any) -> Tensor:
    x, sign = _real_pair(x, y)
    size = x.abs()
    return torch.where(signbit(sign), -size, size)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    y, x = _real_pair(y, x)
    height, width = y.abs(), x.abs()
    ratio = torch.where((height == width) & ~x.isnan(), torch.where(height == 0, 0.0, 1.0), height / width)
    angle = torch.atan(ratio)
    return copysign(torch.where(signbit(x), math.pi - angle, angle), y)


def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Scale by the larger argument, to avoid overflow of squares."""
    a, b = a.abs(), b.abs()
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    ratio = smaller / torch.where(larger > 0, larger, 1.0)
    return torch.where(a.isinf() | b.isinf(), torch.inf, larger * (1 + ratio * ratio).sqrt())


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, (x > 0).to(values.dtype))


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The next number towards ``y``; computed in float64, and exact for float64 down to 2**-1021."""
    x, y = _pair(x, y)
    limits = torch.finfo(x.dtype)
    size = x.abs().to(torch.float64)
    usual = size.clamp(min=limits.tiny, max=limits.max)
    mantissa, exponent = torch.frexp(usual)
    place = torch.exp2(exponent.to(torch.float64) - 1) * limits.eps
    lower = (y.abs() < x.abs()) | (signbit(x) != signbit(y))
    inner = torch.where((mantissa == 0.5) & (usual > limits.tiny), place / 2, place)
    moved = torch.where(lower, size - inner, size + place)
    moved = torch.where(x.isinf(), limits.max, torch.where((size == limits.max) & ~lower, torch.inf, moved))
    moved = torch.where(signbit(x), -moved, moved)
    smallest = torch.full_like(size, limits.tiny * limits.eps)
    smallest = torch.where(signbit(y), -smallest, smallest)
    found = torch.where(x == 0, smallest, moved).to(x.dtype)
    return torch.where(x == y, y, torch.where(x.isnan() | y.isnan(), torch.nan, found))


_NARROW = (torch.uint8, torch.int8, torch.int16)


def _shift(function: Callable[..., Tensor], known: bool = True) -> Callable[..., Any]:
    """Shift integers of 8 and 16 bits in int32: the exporter writes signed types, which runtimes partly lack."""

    def shifted(a: Any, b: Any) -> Any:
        dtype = torch.result_type(a, b)
        if dtype in _NARROW:
            return function(*(x.to(torch.int32) if isinstance(x, Tensor) else x for x in (a, b))).to(dtype)
        return NotImplemented if known else function(a, b)

    return shifted


def fmax(a: Tensor, b: Tensor) -> Tensor:
    a, b = _pair(a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.maximum(a, b)))


def fmin(a: Tensor, b: Tensor) -> Tensor:
    a, b = _pair(a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.minimum(a, b)))


def sign(x: Tensor) -> Any:
    """Return zero for NaN, where Sign of ONNX returns NaN; integers are not handled here."""
    if not x.is_floating_point():
        return NotImplemented
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


def remainder(a: Any, b: Any) -> Any:
    """Compute by fmod, which is exact; integers are not handled here."""
    a, b = _pair(a, b)
    if not a.is_floating_point():
        return NotImplemented
    left = torch.fmod(a, b)
    return torch.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


def floor_division(a: Any, b: Any) -> Any:
    """Divide like Python: a quotient that rounds up to an integer is not counted as that integer."""
    a, b = _pair(a, b)
    if not a.is_floating_point():
        return NotImplemented
    left = torch.fmod(a, b)
    exact = (a - left) / b
    exact = torch.where((left != 0) & ((left < 0) != (b < 0)), exact - 1, exact)
    return torch.where(b == 0, a / b, torch.round(exact))


def division(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    return floor_division(a, b) if rounding_mode == "floor" else NotImplemented


#: Functions by operator.
NUMERICS: Mapping[Any, Callable[..., Any]] = {
    aten.log1p.default: log1p,
    aten.special_log1p.default: log1p,
    aten.expm1.default: expm1,
    aten.special_expm1.default: expm1,
    aten.log_sigmoid.default: log_sigmoid,
    aten.log_sigmoid_forward.default: log_sigmoid_and_buffer,
    aten.logaddexp.default: logaddexp,
    aten.logaddexp2.default: logaddexp2,
    aten.xlogy.Tensor: xlogy,
    aten.xlogy.Scalar_Self: xlogy,
    aten.xlogy.Scalar_Other: xlogy,
    aten.special_xlogy.default: xlogy,
    aten.special_xlogy.self_scalar: xlogy,
    aten.special_xlogy.other_scalar: xlogy,
    aten.special_xlog1py.default: xlog1py,
    aten.special_xlog1py.self_scalar: xlog1py,
    aten.special_xlog1py.other_scalar: xlog1py,
    aten.binary_cross_entropy_with_logits.default: cross_entropy_of_logits,
    aten.softmax.int: in_type(torch.softmax),
    aten.log_softmax.int: in_type(torch.log_softmax),
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign,
    aten.atan2.default: atan2,
    aten.arctan2.default: atan2,
    aten.nextafter.default: nextafter,
    prims.nextafter.default: nextafter,
    aten.hypot.default: hypot,
    aten.heaviside.default: heaviside,
    aten.fmax.default: fmax,
    aten.fmin.default: fmin,
    prims.fmax.default: fmax,
    prims.fmin.default: fmin,
    aten.sign.default: sign,
    aten.sgn.default: sign,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.floor_divide.default: floor_division,
    aten.floor_divide.Scalar: floor_division,
    aten.__lshift__.Scalar: _shift(torch.bitwise_left_shift),
    aten.__lshift__.Tensor: _shift(torch.bitwise_left_shift, known=False),
    aten.__rshift__.Scalar: _shift(torch.bitwise_right_shift),
    aten.__rshift__.Tensor: _shift(torch.bitwise_right_shift, known=False),
    **{
        getattr(getattr(aten, f"bitwise_{side}_shift"), overload): _shift(getattr(torch, f"bitwise_{side}_shift"))
        for side in ("left", "right")
        for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    aten.div.Tensor_mode: division,
    aten.div.Scalar_mode: division,
}
