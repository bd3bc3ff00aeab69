"""Indexed reads and writes, and counting, by Gather and Scatter."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tenonnx_torch.empty_tensors import count

aten = torch.ops.aten


def scatter_mean(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Scatter with a mean, which ScatterElements and the exporter lack; other reductions are not handled here."""
    if reduce != "mean":
        return NotImplemented
    if not x.ndim:
        found = scatter_mean(x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce, include_self=include_self)
        return found.reshape(())
    source = source[tuple(slice(size) for size in index.shape)]
    counts = torch.full_like(x, include_self).scatter_add(dim, index, torch.ones_like(source))
    total = (x if include_self else torch.where(counts > 0, 0, x)).scatter_add(dim, index, source)
    counts = counts.clamp(min=1)
    return total / counts if x.is_floating_point() else torch.div(total, counts, rounding_mode="floor")


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not x.ndim:
        return index_reduce(x.reshape(1), 0, index, source.reshape(1), reduce, include_self=include_self).reshape(())
    dim %= x.ndim
    places = index.reshape([-1 if axis == dim else 1 for axis in range(x.ndim)]).expand(source.shape)
    result = scatter_mean(x, dim, places, source, reduce, include_self=include_self)
    return (
        x.scatter_reduce(dim, places, source, reduce, include_self=include_self) if result is NotImplemented else result
    )


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write to flat positions in row-major order."""
    places, values = index.reshape(-1), source.reshape(-1)
    places = torch.where(places < 0, places + x.numel(), places)
    flat = x.reshape(-1)
    written = flat.scatter_add(0, places, values) if accumulate else flat.scatter(0, places, values)
    return written.reshape(x.shape)


def take(x: Tensor, index: Tensor) -> Tensor:
    places = index.reshape(-1)
    places = torch.where(places < 0, places + x.numel(), places)
    return x.reshape(-1).index_select(0, places).reshape(index.shape)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.ndim > 0 and index.dtype in (torch.bool, torch.uint8)


def _with_positions(indices: Sequence[Any]) -> Any:
    """Indices with the positions of masks in place of masks that broadcast with further indices."""
    arrays = sum(isinstance(index, Tensor | list) or hasattr(index, "__array__") for index in indices)
    if arrays < 2 or not any(map(_is_mask, indices)):
        return NotImplemented
    result: list[Any] = []
    for index in indices:
        result.extend(index.nonzero().unbind(1) if _is_mask(index) else [index])
    return result


def get_item(x: Tensor, index: Any) -> Tensor:
    """Read by masks together with further indices, of which PyTorch loses the number of elements in a trace."""
    positions = _with_positions(index) if isinstance(index, tuple) else NotImplemented
    return x[index] if positions is NotImplemented else x[tuple(positions)]


def get_by_masks(x: Tensor, indices: Sequence[Any]) -> Any:
    positions = _with_positions(indices)
    return NotImplemented if positions is NotImplemented else aten.index.Tensor(x, positions)


def put_by_mask(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Any:
    """Masked assignment with a mask that does not cover the first axes: each masked position takes the next value.

    Masks with further indices become positions.
    """
    given = [index for index in indices if index is not None]
    if (positions := _with_positions(indices)) is not NotImplemented:
        return aten.index_put.default(x, positions, values, accumulate)
    if len(given) != 1 or not _is_mask(given[0]) or indices[0] is not None:
        return NotImplemented
    mask, first = given[0].to(torch.bool), len(indices) - 1
    behind = x.ndim - first - mask.ndim
    one_for_all = values.ndim <= behind or (isinstance(size := values.shape[-1 - behind], int) and size == 1)
    if one_for_all and values.ndim > behind:
        values = values.reshape([*values.shape[: -1 - behind], *[1] * mask.ndim, *values.shape[values.ndim - behind :]])
    elif not one_for_all:
        values = values.expand([*x.shape[:first], values.shape[-1 - behind], *x.shape[x.ndim - behind :]])
        place = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0)
        ended = torch.cat(
            [values, values.new_zeros([1 if k == first else n for k, n in enumerate(values.shape)])], first
        )
        values = ended.index_select(first, place).reshape(x.shape)
    values = values.to(x.dtype)
    return torch.where(mask.reshape([*mask.shape, *[1] * behind]), x + values if accumulate else values, x)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def scatter_with_reduction(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    source = source if isinstance(source, Tensor) else torch.full_like(index, source, dtype=x.dtype)
    if not x.ndim:
        return scatter_with_reduction(x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce=reduce).reshape(())
    return x.scatter_reduce(dim, index, source, _REDUCTIONS[reduce])


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Scatter into a scalar, by way of a vector of one element."""
    if x.ndim:
        return NotImplemented
    return x.reshape(1).scatter_add(0, index.reshape(-1), source.reshape(-1)).reshape(())


def concat_empty(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Concatenate empty tensors, among which PyTorch accepts 1-D tensors of size 0."""
    if any(count(part.shape) != 0 for part in tensors):
        return NotImplemented
    parts = [part for part in tensors if part.ndim > 1] or list(tensors)
    sizes = list(parts[0].shape)
    sizes[dim] = sum(part.shape[dim] for part in parts)
    return parts[0].new_zeros(sizes)


def nonzero_of_scalar(x: Tensor) -> Any:
    return NotImplemented if x.ndim else x.reshape(1).nonzero()[:, :0]


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Positions of the first ``size`` nonzero elements, padded by ``fill_value``."""
    whole = x.numel()
    flat = x.reshape(-1)
    places = torch.cat([torch.where(flat != 0, torch.arange(whole), whole), torch.full((size,), whole)])
    first = places.sort().values[:size]
    parts, rest = [], first
    for length in reversed(x.shape):
        parts.append(rest % length if whole else rest)
        rest = rest // length if whole else rest
    found = torch.stack(parts[::-1], 1) if parts else first.unsqueeze(1)[:, :0]
    return torch.where((first < whole).unsqueeze(1), found, fill_value)


def weighted_bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """Bin counts with weights: one sum for each bin."""
    if weights is None:
        return NotImplemented
    dtype = weights.dtype if weights.is_floating_point() else torch.float64
    return torch.zeros_like(torch.bincount(x, minlength=minlength), dtype=dtype).scatter_add(0, x, weights.to(dtype))


def histogram_by_edges(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Counts between successive edges; the last edge belongs to the last bin."""
    values = x.reshape(-1, 1)
    inside = (values >= bins[:-1]) & ((values < bins[1:]) | ((values == bins[-1]) & (bins[1:] == bins[-1])))
    counts = inside.to(x.dtype)
    found = (counts if weight is None else counts * weight.reshape(-1, 1)).sum(0)
    return (found / (found.sum() * (bins[1:] - bins[:-1])) if density else found), bins.clone()


def histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    if range is None and count(x.shape) == 0:
        range = (0.0, 1.0)
    first, last = (
        (x.amin(), x.amax()) if range is None else (torch.full((), float(end), dtype=x.dtype) for end in range)
    )
    same = first == last
    first, last = torch.where(same, first - 0.5, first), torch.where(same, last + 0.5, last)
    places = torch.arange(bins + 1, dtype=x.dtype)
    step = (last - first) / bins
    edges = torch.where(places < (bins + 1) // 2, first + places * step, last - (bins - places) * step)
    return histogram_by_edges(x, edges, weight=weight, density=density)


def exactly_filled(shape: Sequence[Any], value: Any, dtype: torch.dtype | None) -> Any:
    """Fill with a float64 constant, which the exporter rounds to float32, by a sum of exact float32 parts."""
    if dtype is not torch.float64 or not isinstance(value, float):
        return NotImplemented
    parts: list[float] = []
    rest = value
    while len(parts) < 3 and abs(rest) < 3e38:
        parts.append(struct.unpack("f", struct.pack("f", rest))[0])
        rest -= parts[-1]
        if not rest:
            break
    if len(parts) < 2:
        return NotImplemented
    result: Any = torch.full(list(shape), parts[0], dtype=dtype)
    for part in parts[1:]:
        result = result + torch.full((), part, dtype=dtype)
    return result


def full(shape: Sequence[Any], value: Any, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return exactly_filled(shape, value, dtype)


def full_like(x: Tensor, value: Any, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return exactly_filled(x.shape, value, dtype or x.dtype)


def new_full(x: Tensor, shape: Sequence[Any], value: Any, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    return exactly_filled(shape, value, dtype or x.dtype)


#: Functions by operator.
INDEXING: Mapping[Any, Callable[..., Any]] = {
    aten.index_reduce.default: index_reduce,
    aten.index.Tensor: get_by_masks,
    aten.index_put.default: put_by_mask,
    aten.put.default: put,
    aten.take.default: take,
    aten.scatter_reduce.two: scatter_mean,
    aten.scatter.reduce: scatter_with_reduction,
    aten.scatter.value_reduce: scatter_with_reduction,
    aten.scatter_add.default: scatter_add,
    aten.cat.default: concat_empty,
    aten.nonzero.default: nonzero_of_scalar,
    aten.argwhere.default: nonzero_of_scalar,
    aten.nonzero_static.default: nonzero_static,
    aten.bincount.default: weighted_bincount,
    aten.histogram.bins_tensor: histogram_by_edges,
    aten.histogram.bin_ct: histogram,
    aten.full.default: full,
    aten.full_like.default: full_like,
    aten.new_full.default: new_full,
}
