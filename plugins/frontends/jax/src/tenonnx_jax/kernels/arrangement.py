"""Ops that move, select and count elements."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx_jax.kernels import (
    DataDependent,
    Inconclusive,
    Unproven,
    axes_of,
    in_range,
    ints,
    is_symbolic,
    known,
    rule,
    sizes,
    traced,
    with_symbols,
)

#: Ends from here on mean the end of the axis.
_FAR = 2**31 - 1


@rule(ops.shape)
def shape_rule(x: Any, *, start: int, end: int | None) -> Any:
    return sizes(x.shape[start:end])


@rule(ops.size)
def size_rule(x: Any) -> Any:
    return sizes([math.prod(x.shape)]).reshape(())


@rule(ops.reshape)
def reshape_rule(x: Any, shape: Any, *, allowzero: int) -> Any:
    dims = [x.shape[k] if n == 0 and not allowzero else n for k, n in enumerate(ints(shape))]
    if -1 in dims:
        rest, size = math.prod(n for n in dims if n != -1), math.prod(x.shape)
        dims = [(size // rest if rest != 0 else 0) if n == -1 else n for n in dims]
    return x.reshape(dims)


@rule(ops.flatten)
def flatten_rule(x: Any, *, axis: int) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@rule(ops.transpose)
def transpose_rule(x: Any, *, perm: list[int] | None) -> Any:
    return jnp.transpose(x, perm)


@rule(ops.squeeze)
def squeeze_rule(x: Any, axes: Any) -> Any:
    return jnp.squeeze(x, None if axes is None or not len(axes) else axes_of(axes, x.ndim))


@rule(ops.unsqueeze)
def unsqueeze_rule(x: Any, axes: Any) -> Any:
    return jnp.expand_dims(x, axes_of(axes, x.ndim + len(ints(axes))))


@rule(ops.expand)
def expand_rule(x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, tuple(ints(shape))))


@rule(ops.tile)
def tile_rule(x: Any, repeats: Any) -> Any:
    return jnp.tile(x, ints(repeats)) if x.ndim else x


@rule(ops.constant_of_shape)
def constant_of_shape_rule(shape: Any, *, value: Any) -> Any:
    if value is None:
        return jnp.zeros(ints(shape), jnp.float32)
    array = np.asarray(value).reshape(())
    return jnp.full(ints(shape), array, jax.dtypes.canonicalize_dtype(array.dtype))


@rule(ops.concat)
def concat_rule(*inputs: Any, axis: int) -> Any:
    return jnp.concatenate(inputs, axis)


@rule(ops.split)
def split_rule(x: Any, split: Any, *, axis: int, num_outputs: int | None, _outputs: int) -> Any:
    if split is not None:
        lengths = ints(split)
    else:
        count, length = num_outputs or _outputs, x.shape[axis]
        size = -(-length // count)
        lengths = [max(0, min(size, length - k * size)) for k in range(count)]
    ends = np.cumsum(lengths)
    return tuple(lax.slice_in_dim(x, int(e) - n, int(e), axis=axis) for e, n in zip(ends, lengths, strict=True))


@rule(ops.slice_)
def slice_rule(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    count = len(ints(ends))
    where = axes_of(axes, x.ndim) if axes is not None else range(count)
    by = ints(steps) if steps is not None else [1] * count
    index: list[Any] = [slice(None)] * x.ndim
    ending = ints(ends)
    for axis, start, end, step in zip(where, ints(starts), ending, by, strict=True):
        if any(map(is_symbolic, (x.shape[axis], start, end))):
            index[axis] = _symbolic_slice(x.shape[axis], start, end, step)
            continue
        first, last, _ = slice(start, end, step).indices(x.shape[axis])
        if step < 0 and (end < -x.shape[axis] or last < 0):
            index[axis] = slice(first, None, step) if first >= 0 else slice(0, 0)
        else:
            index[axis] = slice(first, last, step)
    return x[tuple(index)]


def _require_at_least(larger: Any, smaller: Any) -> None:
    """Raise ``Unproven`` unless a symbolic dim is provably at least another."""
    try:
        if larger >= smaller:
            return
    except Inconclusive:
        pass
    raise Unproven(f"{larger} >= {smaller}")


def _from_front(place: Any, length: Any) -> Any:
    """A non-negative position; symbolic ones are assumed to be non-negative unless provably negative."""
    try:
        return place + length if place < 0 else place
    except Inconclusive:
        return place


def _symbolic_slice(length: Any, start: Any, end: Any, step: int) -> slice:
    """A slice of an axis with a symbolic size or bound. Raises ``DataDependent`` where it depends on the sizes."""
    if step != 1:
        raise DataDependent("cannot slice a symbolic dim with a step", given=f"a step of {step}")
    fixed = not is_symbolic(start) and not is_symbolic(end)
    end = length if not is_symbolic(end) and end >= _FAR else _from_front(end, length)
    start = 0 if not is_symbolic(start) and start <= -_FAR else _from_front(start, length)
    if not fixed:
        for larger, smaller in ((start, 0), (length, end), (end, start)):
            _require_at_least(larger, smaller)
    return slice(start, end)


@rule(ops.pad, takes=lambda data, pads, value=None, axes=None, *, mode: mode in ("constant", "edge"))
def pad_rule(x: Any, pads: Any, value: Any, axes: Any, *, mode: str) -> Any:
    where, numbers = axes_of(axes, x.ndim), ints(pads)
    both = {axis: (numbers[k], numbers[k + len(where)]) for k, axis in enumerate(where)}
    widths = [both.get(axis, (0, 0)) for axis in range(x.ndim)]
    if mode == "edge":
        return jnp.pad(x, widths, mode="edge") if all(n >= 0 for pair in widths for n in pair) else NotImplemented
    fill = jnp.zeros((), x.dtype) if value is None else jnp.asarray(value).reshape(-1)[0].astype(x.dtype)
    return lax.pad(x, fill, [(before, behind, 0) for before, behind in widths])


def wrapped(indices: Any, length: int) -> Any:
    """Non-negative indices."""
    return jnp.where(indices < 0, indices + length, indices)


@rule(ops.gather)
def gather_rule(x: Any, indices: Any, *, axis: int) -> Any:
    in_range(indices, x.shape[axis])
    return jnp.take(x, wrapped(indices, x.shape[axis]), axis, mode="clip")


@rule(ops.gather_elements)
def gather_elements_rule(x: Any, indices: Any, *, axis: int) -> Any:
    return jnp.asarray(x)[_along(x, indices, axis)]


def _along(x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """The index of every element, with ``indices`` along ``axis``."""
    in_range(indices, x.shape[axis])
    found = [lax.broadcasted_iota(indices.dtype, indices.shape, k) for k in range(x.ndim)]
    found[axis % x.ndim] = wrapped(indices, x.shape[axis])
    return tuple(found)


def _tuples(x: Any, indices: Any) -> tuple[Any, ...]:
    return tuple(wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))


@rule(ops.gather_nd)
def gather_nd_rule(x: Any, indices: Any, *, batch_dims: int) -> Any:
    def gather(row: Any, places: Any) -> Any:
        return jnp.asarray(row)[_tuples(row, places)]

    in_range(indices, x.shape[batch_dims : batch_dims + indices.shape[-1]])
    for _ in range(batch_dims):
        gather = jax.vmap(gather)
    return gather(x, indices)


def _scatter(x: Any, where: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    at = jnp.asarray(x).at[where]
    if x.dtype == bool and reduction != "none":
        return NotImplemented
    ways = {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}
    return ways[reduction](updates)


@rule(ops.scatter_elements)
def scatter_elements_rule(x: Any, indices: Any, updates: Any, *, axis: int, reduction: str) -> Any:
    return _scatter(x, _along(x, indices, axis), updates, reduction)


@rule(ops.scatter_nd)
def scatter_nd_rule(x: Any, indices: Any, updates: Any, *, reduction: str) -> Any:
    if not indices.shape[-1]:
        return NotImplemented
    in_range(indices, x.shape[: indices.shape[-1]])
    return _scatter(x, _tuples(x, indices), updates, reduction)


@rule(ops.non_zero)
def non_zero_rule(x: Any) -> Any:
    return np.array(np.nonzero(known(x)), np.int64).reshape(x.ndim, -1) if x.ndim else NotImplemented


@rule(ops.range_)
def range_rule(start: Any, limit: Any, delta: Any, **_: Any) -> Any:
    first, last, step = (known(v).reshape(()) for v in (start, limit, delta))
    if any(map(with_symbols, (first, last, step))):
        length = -((first.item() - last.item()) // step.item())
        return traced(first) + lax.iota("int64", length) * traced(step)
    count = max(0, math.ceil((last - first) / step))
    return jnp.asarray(first + np.arange(count, dtype=first.dtype) * step)


@rule(ops.trilu)
def trilu_rule(x: Any, k: Any, *, upper: int) -> Any:
    ahead = jnp.arange(x.shape[-1]) - jnp.arange(x.shape[-2])[:, None]  # distance from the diagonal
    diagonal = 0 if k is None else k.reshape(())
    return jnp.where(ahead >= diagonal if upper else ahead <= diagonal, x, jnp.zeros((), x.dtype))


@rule(ops.eye_like, takes=lambda x, *, dtype=None, k=0: x.dtype.is_float and dtype is None)
def eye_like_rule(x: Any, *, k: int, **_: Any) -> Any:
    return jnp.eye(*x.shape, k=k, dtype=x.dtype)


@rule(ops.top_k)
def top_k_rule(x: Any, k: Any, *, axis: int, largest: int, sorted: int) -> tuple[Any, Any]:
    order = jnp.argsort(x, axis=axis, stable=True, descending=bool(largest))
    places = lax.slice_in_dim(order, 0, ints(k)[0], axis=axis)
    return jnp.take_along_axis(x, places, axis), places.astype(jax.dtypes.canonicalize_dtype(jnp.int64))


@rule(ops.cumsum)
def cumsum_rule(x: Any, axis: Any, *, exclusive: int, reverse: int) -> Any:
    where = ints(axis)[0] % x.ndim
    total = lax.cumsum(x, where, reverse=bool(reverse))
    return total - x if exclusive else total
