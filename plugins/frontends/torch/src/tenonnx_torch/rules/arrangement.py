"""Ops that move, choose and count elements, and that reduce axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

import tenonnx_standard as ops
from tenonnx_torch.rules import axes_of, ints, rule, wrapped


@rule(ops.shape)
def shape_rule(x: torch.Tensor, *, start: int, end: int | None) -> torch.Tensor:
    return torch.tensor(tuple(x.shape)[start:end], dtype=torch.int64)


@rule(ops.size)
def size_rule(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@rule(ops.reshape, moves=True)
def reshape_rule(x: torch.Tensor, shape: torch.Tensor, *, allowzero: int) -> torch.Tensor:
    sizes = [x.shape[k] if n == 0 and not allowzero else n for k, n in enumerate(ints(shape))]
    if -1 in sizes and not x.numel():  # what is left of nothing
        rest = torch.Size(n for n in sizes if n != -1).numel()
        sizes = [(0 if not rest else x.numel() // rest) if n == -1 else n for n in sizes]
    return x.reshape(sizes)


@rule(ops.flatten, moves=True)
def flatten_rule(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(x.shape[:axis].numel(), x.shape[axis:].numel())


@rule(ops.transpose, moves=True)
def transpose_rule(x: torch.Tensor, *, perm: list[int] | None) -> torch.Tensor:
    return x.permute(list(range(x.ndim))[::-1] if perm is None else perm)


@rule(ops.squeeze, moves=True)
def squeeze_rule(x: torch.Tensor, axes: torch.Tensor | None) -> torch.Tensor:
    listed = axes is not None and axes.numel()
    gone = axes_of(axes, x.ndim) if listed else [k for k, n in enumerate(x.shape) if n == 1]
    return x.reshape([n for k, n in enumerate(x.shape) if k not in gone])


@rule(ops.unsqueeze, moves=True)
def unsqueeze_rule(x: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    for axis in sorted(axes_of(axes, x.ndim + axes.numel())):
        x = x.unsqueeze(axis)
    return x


@rule(ops.expand, moves=True)
def expand_rule(x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(ints(shape))))


@rule(ops.tile, moves=True)
def tile_rule(x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
    return x.repeat(ints(repeats)) if x.ndim else x


@rule(ops.concat, moves=True)
def concat_rule(*inputs: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.cat(inputs, dim=axis)


@rule(ops.split, moves=True)
def split_rule(
    x: torch.Tensor, split: torch.Tensor | None, *, axis: int, num_outputs: int | None, _outputs: int
) -> Any:
    if split is not None:
        return tuple(torch.split(x, ints(split), dim=axis))
    count = num_outputs or _outputs
    size, length = -(-x.shape[axis] // count), x.shape[axis]
    return tuple(torch.split(x, [max(0, min(size, length - k * size)) for k in range(count)], dim=axis))


@rule(ops.slice_, moves=True)
def slice_rule(x: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, axes: Any, steps: Any) -> torch.Tensor:
    where = axes_of(axes, x.ndim) if axes is not None else range(starts.numel())
    for axis, start, end, step in zip(
        where, ints(starts), ints(ends), ints(steps) if steps is not None else [1] * starts.numel(), strict=True
    ):
        first, last, by = slice(start, end, step).indices(x.shape[axis])
        if end < -x.shape[axis] and step < 0:
            last = -1
        if by > 0:
            x = x[(*[slice(None)] * axis, slice(first, max(first, last), by))]
        else:
            x = x.index_select(
                axis,
                torch.arange(first, last, by, device=x.device)
                if first > last
                else torch.zeros(0, dtype=torch.int64, device=x.device),
            )
    return x


@rule(ops.pad, takes=lambda data, pads, value=None, axes=None, *, mode: mode == "constant" and data.dtype.is_float)
def pad_rule(x: torch.Tensor, pads: torch.Tensor, value: torch.Tensor | None, axes: Any, *, mode: str) -> Any:
    where, numbers = axes_of(axes, x.ndim), ints(pads)
    both = {axis: (numbers[k], numbers[k + len(where)]) for k, axis in enumerate(where)}
    if any(x.shape[axis] + min(before, 0) + min(behind, 0) < 0 for axis, (before, behind) in both.items()):
        return NotImplemented  # more is taken away than there is, before something is added
    flat = [n for axis in reversed(range(x.ndim)) for n in both.get(axis, (0, 0))]
    return functional.pad(x, flat, value=0.0 if value is None else float(value.reshape(-1)[0]))


# ----- positions ------------------------------------------------------------------------------------------------------


@rule(ops.gather, moves=True)
def gather_rule(x: torch.Tensor, indices: torch.Tensor, *, axis: int) -> torch.Tensor:
    axis = axis % x.ndim
    chosen = x.index_select(axis, wrapped(indices, x.shape[axis]).reshape(-1))
    return chosen.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@rule(ops.gather_elements, moves=True)
def gather_elements_rule(x: torch.Tensor, indices: torch.Tensor, *, axis: int) -> torch.Tensor:
    return torch.gather(x, axis, wrapped(indices, x.shape[axis]))


@rule(ops.gather_nd, moves=True)
def gather_nd_rule(x: torch.Tensor, indices: torch.Tensor, *, batch_dims: int) -> Any:
    if batch_dims:
        return NotImplemented if not x.is_floating_point() else _gather_in_batches(x, indices, batch_dims)
    return x[_tuples(x, indices)]


def _gather_in_batches(x: torch.Tensor, indices: torch.Tensor, batch_dims: int) -> torch.Tensor:
    shape = x.shape[:batch_dims]
    rows = x.reshape(-1, *x.shape[batch_dims:])
    places = indices.reshape(-1, *indices.shape[batch_dims:])
    found = [row[_tuples(row, place)] for row, place in zip(rows, places, strict=True)]
    return torch.stack(found).reshape(*shape, *found[0].shape)


def _tuples(x: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))


#: What ONNX calls ways to combine, and PyTorch.
_WAYS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@rule(ops.scatter_elements)
def scatter_elements_rule(
    x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, *, axis: int, reduction: str
) -> Any:
    places = wrapped(indices, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return NotImplemented if x.dtype is torch.bool else x.scatter_reduce(axis, places, updates, _WAYS[reduction])


@rule(ops.scatter_nd, takes=lambda data, indices, updates, *, reduction: reduction in ("none", "add"))
def scatter_nd_rule(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, *, reduction: str) -> Any:
    if not indices.shape[-1] or (reduction == "add" and x.dtype is torch.bool):
        return NotImplemented
    return x.index_put(_tuples(x, indices), updates, accumulate=reduction == "add")


@rule(ops.non_zero)
def non_zero_rule(x: torch.Tensor) -> Any:
    return torch.nonzero(x).T if x.ndim else NotImplemented


def _extremum(largest: bool) -> Callable[..., Any]:
    def position(x: torch.Tensor, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        if not x.ndim or not x.numel() or x.dtype is torch.bool:
            return NotImplemented
        best = x.amax(axis, keepdim=True) if largest else x.amin(axis, keepdim=True)
        length = x.shape[axis]
        order = (
            torch.arange(1, length + 1, device=x.device)
            if select_last_index
            else torch.arange(length, 0, -1, device=x.device)
        )
        shape = [1] * x.ndim
        shape[axis] = length
        same = (x == best) | (torch.isnan(x) if x.is_floating_point() else False)
        return torch.where(same, order.reshape(shape), 0).argmax(axis, keepdim=bool(keepdims))

    return position


rule(ops.argmax)(_extremum(True))
rule(ops.argmin)(_extremum(False))


@rule(ops.top_k)
def top_k_rule(
    x: torch.Tensor, k: torch.Tensor, *, axis: int, largest: int, sorted: int
) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, ints(k)[0]), places.narrow(axis, 0, ints(k)[0])


@rule(ops.trilu)
def trilu_rule(x: torch.Tensor, k: torch.Tensor | None, *, upper: int) -> torch.Tensor:
    diagonal = 0 if k is None else ints(k)[0]
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


@rule(ops.cumsum)
def cumsum_rule(x: torch.Tensor, axis: torch.Tensor, *, exclusive: int, reverse: int) -> torch.Tensor:
    where = ints(axis)[0]
    y = x.flip(where) if reverse else x
    total = torch.cumsum(y, where, dtype=x.dtype)
    total = total - y if exclusive else total
    return total.flip(where) if reverse else total


# ----- reductions -----------------------------------------------------------------------------------------------------


def _reducing(function: Callable[[torch.Tensor, Sequence[int], bool], Any]) -> Callable[..., Any]:
    def reduced(data: torch.Tensor, axes: Any, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        given = None if axes is None or not axes.numel() else axes
        if given is None and noop_with_empty_axes:
            return NotImplemented  # numpy's rule knows which ops still do what they do to each element
        where = axes_of(given, data.ndim)
        return function(data, where, bool(keepdims)) if data.ndim else NotImplemented

    return reduced


def _product(x: torch.Tensor, axes: Sequence[int], keepdims: bool) -> torch.Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims, dtype=x.dtype)
    return x


def _bound(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def found(x: torch.Tensor, axes: Sequence[int], keepdims: bool) -> Any:
        return function(x, tuple(axes), keepdim=keepdims) if x.numel() and x.dtype is not torch.bool else NotImplemented

    return found


rule(ops.reduce_sum)(_reducing(lambda x, axes, keepdims: torch.sum(x, axes, keepdim=keepdims, dtype=x.dtype)))
rule(ops.reduce_mean)(
    _reducing(
        lambda x, axes, keepdims: torch.mean(x, axes, keepdim=keepdims) if x.is_floating_point() else NotImplemented
    )
)
rule(ops.reduce_prod)(_reducing(_product))
rule(ops.reduce_max)(_reducing(_bound(torch.amax)))
rule(ops.reduce_min)(_reducing(_bound(torch.amin)))
