"""Ops that move, select and count elements, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.nn import functional

import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_torch.rules import axes_of, ints, is_empty, rule, wrapped
from tenonnx_torch.shape_numbers import Numbers, as_tensor, larger, number_of, numbers_of, smaller
from tenonnx_torch.values import NATIVE, is_traced


@rule(ops.shape)
def shape_rule(x: torch.Tensor, *, start: int, end: int | None) -> Numbers:
    return numbers_of(tuple(x.shape)[start:end])


@rule(ops.size)
def size_rule(x: torch.Tensor) -> Numbers:
    return number_of(prod(x.shape))


@rule(ops.reshape, moves=True, numbers=[1])
def reshape_rule(x: torch.Tensor, shape: torch.Tensor | Numbers, *, allowzero: int) -> torch.Tensor:
    sizes = [x.shape[k] if _is(n, 0) and not allowzero else n for k, n in enumerate(ints(shape))]
    if is_empty(x) and any(_is(n, -1) for n in sizes):  # -1 is ambiguous for empty tensors
        rest = torch.Size(n for n in sizes if n != -1).numel()
        sizes = [(0 if not rest else x.numel() // rest) if n == -1 else n for n in sizes]
    return x.reshape(sizes)


@rule(ops.flatten, moves=True)
def flatten_rule(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


@rule(ops.transpose, moves=True)
def transpose_rule(x: torch.Tensor, *, perm: list[int] | None) -> torch.Tensor:
    return x.permute(list(range(x.ndim))[::-1] if perm is None else perm)


@rule(ops.squeeze, moves=True, numbers=[1])
def squeeze_rule(x: torch.Tensor, axes: torch.Tensor | Numbers | None) -> torch.Tensor:
    listed = axes is not None and ints(axes)
    removed_axes = axes_of(axes, x.ndim) if listed else [k for k, n in enumerate(x.shape) if _is(n, 1)]
    return x.reshape([n for k, n in enumerate(x.shape) if k not in removed_axes])


@rule(ops.unsqueeze, moves=True, numbers=[1])
def unsqueeze_rule(x: torch.Tensor, axes: torch.Tensor | Numbers) -> torch.Tensor:
    for axis in sorted(axes_of(axes, x.ndim + len(ints(axes)))):
        x = x.unsqueeze(axis)
    return x


@rule(ops.expand, moves=True, numbers=[0, 1])
def expand_rule(x: torch.Tensor | Numbers, shape: torch.Tensor | Numbers) -> torch.Tensor:
    sizes = ints(shape)
    is_filled = isinstance(x, Numbers) and not x.is_symbolic and bool(x.array.all())
    x = as_tensor(x)
    sizes = [*x.shape[: max(0, x.ndim - len(sizes))], *sizes]
    own = [*[1] * (len(sizes) - x.ndim), *x.shape]
    result = x.expand([_broadcast(a, b) for a, b in zip(own, sizes, strict=True)])
    if is_filled and result.ndim == 1:
        setattr(result, _FILLED, True)
    return result


#: Attribute of a 1-D tensor without zeros, possibly of symbolic length, for NonZero.
_FILLED = "_tenonnx_filled"


def _broadcast(own: Any, requested: Any) -> Any:
    """The broadcast size of an axis. A symbolic requested size is assumed to be 1 or the other static size."""
    if _is(requested, 1) or (isinstance(own, int) and own != 1 and not isinstance(requested, int)):
        return own
    if isinstance(own, int) or isinstance(requested, int):
        return requested
    return own if requested == 1 else requested


def _is(size: Any, number: int) -> bool:
    """Whether a size is known to be a number, without a guard on symbolic sizes."""
    return isinstance(size, int) and size == number


@rule(ops.range_, takes=lambda start, *_, **__: start.dtype in (DType.int32, DType.int64), numbers=[0, 1, 2])
def range_rule(start: Any, limit: Any, delta: Any, *, stash_type: int) -> Any:
    if any(isinstance(each, torch.Tensor) and is_traced(each) for each in (start, limit, delta)):
        return NotImplemented
    (first,), (last,), (step,) = map(ints, (start, limit, delta))
    if not isinstance(step, int):
        return NotImplemented
    count = larger(0, -((first - last) // step))
    return (torch.arange(count) * step + first).to(NATIVE[start.dtype] if isinstance(start, Numbers) else start.dtype)


@rule(ops.tile, moves=True, numbers=[1])
def tile_rule(x: torch.Tensor, repeats: torch.Tensor | Numbers) -> torch.Tensor:
    return x.repeat(ints(repeats)) if x.ndim else x


@rule(ops.concat, moves=True)
def concat_rule(*inputs: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.cat(inputs, dim=axis)


@rule(ops.split, moves=True, numbers=[1])
def split_rule(
    x: torch.Tensor, split: torch.Tensor | Numbers | None, *, axis: int, num_outputs: int | None, _outputs: int
) -> Any:
    if split is not None:
        return tuple(torch.split(x, ints(split), dim=axis))
    count = num_outputs or _outputs
    size, length = -(-x.shape[axis] // count), x.shape[axis]
    return tuple(torch.split(x, [larger(0, smaller(size, length - k * size)) for k in range(count)], dim=axis))


@rule(ops.slice_, moves=True, numbers=[1, 2, 3, 4])
def slice_rule(x: torch.Tensor, starts: Any, ends: Any, axes: Any, steps: Any) -> torch.Tensor:
    begins = ints(starts)
    where = axes_of(axes, x.ndim) if axes is not None else range(len(begins))
    for axis, start, end, step in zip(
        where, begins, ints(ends), ints(steps) if steps is not None else [1] * len(begins), strict=True
    ):
        if step < 0:  # a negative step is a positive one on the flipped axis
            x, start, end, step = x.flip(axis), -1 - start, -1 - end, -step
        x = x[(*[slice(None)] * axis, slice(_near(start), _near(end), step))]
    return x


def _near(position: Any) -> Any:
    """Clamp a position to the range of integers in PyTorch's slices."""
    return max(-_FAR, min(position, _FAR)) if isinstance(position, int) else position


#: A position beyond the end of any axis.
_FAR = 2**62


@rule(
    ops.pad,
    takes=lambda data, pads, value=None, axes=None, *, mode: mode == "constant" and data.dtype.is_float,
    numbers=[1, 2, 3],
)
def pad_rule(x: torch.Tensor, pads: Any, value: torch.Tensor | Numbers | None, axes: Any, *, mode: str) -> Any:
    where, numbers = axes_of(axes, x.ndim), ints(pads)
    both = {axis: (numbers[k], numbers[k + len(where)]) for k, axis in enumerate(where)}
    for axis, pair in both.items():
        cut = sum(n for n in pair if isinstance(n, int) and n < 0)
        if cut and x.shape[axis] + cut < 0:
            return NotImplemented  # it crops more than the axis has before it pads
    flat = [n for axis in reversed(range(x.ndim)) for n in both.get(axis, (0, 0))]
    if isinstance(value, torch.Tensor) and is_traced(value):
        return NotImplemented
    fill = 0.0 if value is None else value.array.item() if isinstance(value, Numbers) else float(value.reshape(-1)[0])
    return functional.pad(x, flat, value=fill)


# ----- gather and scatter ---------------------------------------------------------------------------------------------


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
    return x[(*_batches(x, indices.ndim - 1, batch_dims), *_tuples(x, indices, batch_dims))]


def _batches(x: torch.Tensor, rank: int, batch_dims: int) -> list[torch.Tensor]:
    """Indices of each batch axis, broadcast along that axis of ``indices``."""
    return [
        torch.arange(x.shape[axis], device=x.device).reshape([-1 if k == axis else 1 for k in range(rank)])
        for axis in range(batch_dims)
    ]


def _tuples(x: torch.Tensor, indices: torch.Tensor, batch_dims: int = 0) -> tuple[torch.Tensor, ...]:
    return tuple(wrapped(indices[..., k], x.shape[batch_dims + k]) for k in range(indices.shape[-1]))


#: PyTorch's names of the scatter reductions of ONNX.
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
    if getattr(x, _FILLED, False):
        return torch.arange(x.shape[0], device=x.device).unsqueeze(0)
    return torch.nonzero(x).T if x.ndim else NotImplemented


def _extremum(largest: bool) -> Callable[..., Any]:
    def position(x: torch.Tensor, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        if not x.ndim or is_empty(x) or x.dtype is torch.bool:
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


@rule(ops.top_k, numbers=[1])
def top_k_rule(
    x: torch.Tensor, k: torch.Tensor | Numbers, *, axis: int, largest: int, sorted: int
) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, ints(k)[0]), places.narrow(axis, 0, ints(k)[0])


@rule(ops.trilu, numbers=[1])
def trilu_rule(x: torch.Tensor, k: torch.Tensor | Numbers | None, *, upper: int) -> torch.Tensor:
    diagonal = 0 if k is None else ints(k)[0]
    if not isinstance(diagonal, int):
        rows, columns = (torch.arange(n, device=x.device) for n in x.shape[-2:])
        ahead = columns - rows.unsqueeze(1)
        return torch.where(ahead >= diagonal if upper else ahead <= diagonal, x, torch.zeros_like(x))
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


@rule(ops.cumsum, numbers=[1])
def cumsum_rule(x: torch.Tensor, axis: torch.Tensor | Numbers, *, exclusive: int, reverse: int) -> torch.Tensor:
    where = ints(axis)[0]
    y = x.flip(where) if reverse else x
    total = torch.cumsum(y, where, dtype=x.dtype)
    total = total - y if exclusive else total
    return total.flip(where) if reverse else total


# ----- reductions -----------------------------------------------------------------------------------------------------


def _reducing(function: Callable[[torch.Tensor, Sequence[int], bool], Any]) -> Callable[..., Any]:
    def reduced(data: torch.Tensor, axes: Any, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        given = None if axes is None or not ints(axes) else axes
        if given is None and noop_with_empty_axes:
            return NotImplemented  # numpy's rule knows which of these ops still apply their elementwise part
        where = axes_of(given, data.ndim)
        return function(data, where, bool(keepdims)) if data.ndim else NotImplemented

    return reduced


def _product(x: torch.Tensor, axes: Sequence[int], keepdims: bool) -> torch.Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims, dtype=x.dtype)
    return x


def _bound(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def found(x: torch.Tensor, axes: Sequence[int], keepdims: bool) -> Any:
        return (
            function(x, tuple(axes), keepdim=keepdims)
            if not is_empty(x) and x.dtype is not torch.bool
            else NotImplemented
        )

    return found


rule(ops.reduce_sum, numbers=[1])(
    _reducing(lambda x, axes, keepdims: torch.sum(x, axes, keepdim=keepdims, dtype=x.dtype))
)
rule(ops.reduce_mean, numbers=[1])(
    _reducing(
        lambda x, axes, keepdims: torch.mean(x, axes, keepdim=keepdims) if x.is_floating_point() else NotImplemented
    )
)
rule(ops.reduce_prod, numbers=[1])(_reducing(_product))
rule(ops.reduce_max, numbers=[1])(_reducing(_bound(torch.amax)))
rule(ops.reduce_min, numbers=[1])(_reducing(_bound(torch.amin)))
