"""Sorting, selection, extrema and median, where the exporter lacks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten, prims = torch.ops.aten, torch.ops.prims


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not x.ndim:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = x.sort(dim)
    result = values.select(dim, k - 1), places.select(dim, k - 1)
    return (result[0].unsqueeze(dim), result[1].unsqueeze(dim)) if keepdim else result


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    length = x.shape[dim] if x.ndim else 1
    values, places = kthvalue(x, (length + 1) // 2, dim, keepdim)
    if x.is_floating_point() and x.ndim:
        missing = x.isnan()
        first = missing.to(torch.int64).argmax(dim, keepdim)
        any_missing = missing.any(dim, keepdim)
        values, places = torch.where(any_missing, torch.nan, values), torch.where(any_missing, first, places)
    return values, places


def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median without NaN: NaN is sorted to the end."""
    if not x.is_floating_point() or not x.ndim:
        return median(x, dim, keepdim)
    missing = x.isnan()
    count = missing.logical_not().sum(dim, keepdim=True)
    last = torch.where(missing, torch.inf, x)
    _, places = last.sort(dim)
    middle = places.gather(dim, ((count - 1) // 2).clamp(min=0))
    values = x.gather(dim, middle)
    return (values, middle) if keepdim else (values.squeeze(dim), middle.squeeze(dim))


def median_of_all(x: Tensor) -> Tensor:
    return median(x.flatten(), 0)[0]


def nanmedian_of_all(x: Tensor) -> Tensor:
    return nanmedian(x.flatten(), 0)[0]


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent values, with its last index, as PyTorch for up to 16 elements."""
    last = x.movedim(dim, -1)
    same = last.unsqueeze(-1) == last.unsqueeze(-2)
    counts = same.sum(-1)
    often = counts == counts.amax(-1, keepdim=True)
    numbers = last.to(torch.int64) if x.dtype is torch.bool else last
    order = numbers.argsort(-1)
    first = often.gather(-1, order).to(torch.int64).argmax(-1, keepdim=True)
    values = last.gather(-1, order.gather(-1, first))
    places = torch.where(last == values, torch.arange(last.shape[-1]), -1).amax(-1, keepdim=True)
    places = torch.where(places < 0, order.gather(-1, first), places)
    values, places = values.movedim(-1, dim), places.movedim(-1, dim)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = list(range(x.ndim)) if dim is None else [dim]
    return (x.amin(axes, keepdim), x.amax(axes, keepdim)) if x.ndim else (x.clone(), x.clone())


def _over_all(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
        axes = [dim] if isinstance(dim, int) else list(dim)
        if axes:
            return NotImplemented
        return function(x, list(range(x.ndim)), keepdim) if x.ndim else x.clone()

    return reduced


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return x[mask]


def gcd(a: Tensor, b: Tensor) -> Tensor:
    """Euclid's algorithm with a fixed number of steps: the worst case of the dtype."""
    dtype = torch.result_type(a, b)
    a, b = torch.broadcast_tensors(a.to(torch.int64).abs(), b.to(torch.int64).abs())
    for _ in range(_STEPS[dtype]):
        left = torch.where(b > 0, a % b.clamp(min=1), 0)
        a, b = torch.where(b > 0, b, a), left
    return a.to(dtype)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    last = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = torch.arange(last.shape[-2]), torch.arange(last.shape[-1])
    place = (rows + min(offset, 0)).clamp(min=0).clamp(max=source.shape[-1] - 1)
    on_it = columns - rows.unsqueeze(1) == offset
    return torch.where(on_it, source[..., place].unsqueeze(-1), last).movedim((-2, -1), (dim1, dim2))


def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Replace elements of the contiguous tensor ``x`` at strided positions."""
    place: Any = torch.full((), storage_offset or 0, dtype=torch.int64)
    for count, step in zip(size, stride, strict=True):
        place = place.unsqueeze(-1) + torch.arange(count) * step
    return x.flatten().scatter(0, place.flatten(), source.flatten()).reshape(x.shape)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distance of each row from every later row."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


#: Number of Euclid's steps in the worst case, consecutive Fibonacci numbers.
_STEPS = {torch.uint8: 13, torch.int8: 11, torch.int16: 23, torch.int32: 46, torch.int64: 91}


def lcm(a: Tensor, b: Tensor) -> Tensor:
    common = gcd(a, b)
    return (a // common.clamp(min=1) * b).abs()


#: Functions by operator.
ORDER: Mapping[Any, Callable[..., Any]] = {
    aten.median.dim: median,
    aten.median.default: median_of_all,
    aten.nanmedian.dim: nanmedian,
    aten.nanmedian.default: nanmedian_of_all,
    aten.kthvalue.default: kthvalue,
    aten.mode.default: mode,
    aten.aminmax.default: aminmax,
    aten.amin.default: _over_all(torch.amin),
    aten.amax.default: _over_all(torch.amax),
    aten.masked_select.default: masked_select,
    aten.gcd.default: gcd,
    aten.lcm.default: lcm,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: as_strided_scatter,
    prims.as_strided_scatter.default: as_strided_scatter,
    aten._pdist_forward.default: pdist,
    prims.gcd.default: gcd,
}
