"""Lowerings of ``torch.ops.prims`` to ``torch.ops.aten``, for PyTorch's reference implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten, prims = torch.ops.aten, torch.ops.prims

#: Primitives with the signature of the aten operation of the same name, by its overload; a second name is that of aten.
_ALIKE = {
    "default": """
        abs acos acosh asin asinh atan atan2 atanh bitwise_not cat ceil clone conj_physical cos cosh erf exp exp2 expm1
        floor hypot isfinite log log10 log1p log2 maximum minimum neg reciprocal reshape rev:flip round
        rsqrt sign signbit sin sinh sqrt tan tanh transpose:permute trunc view_of:alias
    """,
    "Tensor": """
        add bitwise_and bitwise_or bitwise_xor div eq fmod ge gt le lt mul ne remainder shift_left:bitwise_left_shift
        shift_right_arithmetic:bitwise_right_shift sub
    """,
    "Tensor_Tensor": "pow",
    "Scalar": "fill",
    "self": "where",
    "dims": "squeeze",
}


def _alike(overload: str, name: str) -> tuple[Any, Callable[..., Any]]:
    primitive, _, other = name.partition(":")
    return getattr(prims, primitive).default, getattr(getattr(aten, other or primitive), overload)


def _reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
        found = function(x, list(range(x.ndim)) if dims is None else list(dims))
        return found.to(output_dtype or x.dtype)

    return reduced


def _product(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in sorted((dim % x.ndim for dim in dims), reverse=True):
        x = x.prod(dim)
    return x


def _variance(
    x: Tensor, dims: Sequence[int] | None, correction: float | None = 1, *, output_dtype: torch.dtype | None = None
) -> Tensor:
    return torch.var(x, dims, correction=correction).to(output_dtype or x.dtype)


def _broadcast(x: Tensor, shape: Sequence[Any], dims: Sequence[int]) -> Tensor:
    for axis in range(len(shape)):
        x = x if axis in dims else x.unsqueeze(axis)
    return x.expand(list(shape))


def _collapse(x: Tensor, start: int, end: int) -> Tensor:
    return x.flatten(start, end) if x.ndim else x.reshape(1)


def _split_dim(x: Tensor, dim: int, outer: Any) -> Tensor:
    return x.reshape([*x.shape[:dim], outer, x.shape[dim] // outer, *x.shape[dim + 1 :]])


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def _iota(length: Any, *, start: Any, step: Any, dtype: torch.dtype, **placed: Any) -> Tensor:
    return (torch.arange(length) * step + start).to(dtype)


def _filled(shape: Sequence[Any], value: Any, *, dtype: torch.dtype, **placed: Any) -> Tensor:
    return torch.full(list(shape), value, dtype=dtype)


def _filled_like(x: Tensor, value: Any, *, dtype: torch.dtype, **placed: Any) -> Tensor:
    return torch.full_like(x, value, dtype=dtype)


def _empty(shape: Sequence[Any], *layout: Any, dtype: torch.dtype, **placed: Any) -> Tensor:
    return torch.zeros(list(shape), dtype=dtype)


def _uniform(shape: Sequence[Any], *, low: Any, high: Any, dtype: torch.dtype, **placed: Any) -> Tensor:
    return torch.rand(list(shape), dtype=dtype) * (high - low) + low


def _normal(shape: Sequence[Any], *, mean: Any, std: Any, dtype: torch.dtype, **placed: Any) -> Tensor:
    return torch.randn(list(shape), dtype=dtype) * std + mean


def _number(s: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    return torch.full((), s, dtype=dtype)


def _cube_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs() ** (1 / 3)


def _itself(x: Tensor, *placed: Any, **options: Any) -> Tensor:
    return x.clone()


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas from 1/2 to 1 and exponents; log2 may be off by one, which the mantissa corrects."""
    usual = torch.isfinite(x) & (x != 0)
    size = torch.where(usual, x.abs(), 1.0)
    exponent = size.log2().floor() + 1
    mantissa = size / torch.exp2(exponent / 2).pow(2) if x.dtype is torch.float16 else size * torch.exp2(-exponent)
    off = (mantissa >= 1).to(x.dtype) - (mantissa < 0.5).to(x.dtype)
    mantissa, exponent = mantissa * torch.exp2(-off), exponent + off
    return torch.where(usual, x.sign() * mantissa, x), torch.where(usual, exponent, 0.0).to(torch.int32)


#: Functions by operation.
PRIMITIVES: Mapping[Any, Callable[..., Any]] = {
    **dict(_alike(overload, name) for overload, names in _ALIKE.items() for name in names.split()),
    prims.sum.default: _reduced(lambda x, dims: x.sum(dims) if dims else x),
    prims.prod.default: _reduced(_product),
    prims.amax.default: _reduced(lambda x, dims: x.amax(dims)),
    prims.amin.default: _reduced(lambda x, dims: x.amin(dims)),
    prims.var.default: _variance,
    prims.broadcast_in_dim.default: _broadcast,
    prims.collapse.default: _collapse,
    prims.collapse_view.default: _collapse,
    prims.split_dim.default: _split_dim,
    prims.convert_element_type.default: _converted,
    prims.iota.default: _iota,
    prims.full.default: _filled,
    prims.full_like.default: _filled_like,
    prims.empty.default: _empty,
    prims.empty_permuted.default: _empty,
    prims.empty_strided.default: _empty,
    prims.uniform.default: _uniform,
    prims.normal.default: _normal,
    prims.scalar_tensor.default: _number,
    prims.cbrt.default: _cube_root,
    prims.conj.default: _itself,
    prims.real.default: _itself,
    prims.device_put.default: _itself,
    prims.copy_strided.default: _itself,
    prims.frexp.default: frexp,
    aten.frexp.Tensor: frexp,
}
