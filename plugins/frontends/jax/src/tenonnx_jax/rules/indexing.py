"""Gather and scatter, with all XLA modes of out-of-bounds indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_jax.dims import same
from tenonnx_jax.promotion import scalar, where
from tenonnx_jax.rules import MOVING, rule
from tenonnx_jax.rules.shapes import counted, transposed


class Points:
    """Positions of the elements of windows, for each indexed axis of the operand.

    ``axes`` are the indexed axes of the operand, in order. ``positions`` is [*batch, *window, axes], where the window
    has the axes that are neither of size 1 nor complete. ``outside`` is whether each window is out of bounds, None if
    none can be.
    """

    def __init__(
        self, equation: Any, indices: Value, shapes: Any, sizes: Any, mapped: Any, batching: Any, mode: str
    ) -> None:
        operand, held = shapes
        self.equation, self.batch = equation, held[:-1]
        whole = [same(size, dim) for size, dim in zip(sizes, operand, strict=True)]
        given = dict(zip(map(int, mapped), range(len(mapped)), strict=True))
        paired = dict(zip(map(int, batching[0]), map(int, batching[1]), strict=True))
        self.axes = sorted(
            a for a in range(len(operand)) if a in paired or (a in given and not (whole[a] and mode != "fill"))
        )
        self.axes += [a for a in range(len(operand)) if a not in self.axes and not whole[a]]
        self.axes.sort()
        self.windows = [a for a in self.axes if not same(sizes[a], 1) and a not in paired]
        self.outside: Value | None = None
        columns = []
        rank = len(self.batch)
        for axis in self.axes:
            if axis in paired:
                column = counted(equation, self.batch, paired[axis])
            elif axis in given:
                column = self._starts(indices, given[axis], operand[axis], sizes[axis], mode)
            else:
                column = constant(np.zeros((1,) * rank, np.int64))
            columns.append(self._extended(column, axis, sizes[axis], rank))
        self.sizes = [*self.batch, *(sizes[a] for a in self.windows)]
        self._columns = columns

    def _starts(self, indices: Value, position: int, length: Any, size: Any, mode: str) -> Value:
        column = ops.gather(indices, constant(np.asarray(position, np.int64)), axis=self.equation_rank(indices))
        column = column if column.dtype is DType.int64 else ops.cast(column, to=DType.int64)
        last = self.equation.sizes.size(length - size)
        contents = static(column)
        if contents is not None and isinstance(last, int) and ((contents >= 0) & (contents <= last)).all():
            return column
        last_value = last if isinstance(last, Value) else constant(np.asarray(last, np.int64))
        clamped = ops.maximum(ops.minimum(column, last_value), constant(np.asarray(0, np.int64)))
        if mode == "fill":
            wrong = ops.not_(ops.equal(clamped, column))
            self.outside = wrong if self.outside is None else ops.or_(self.outside, wrong)
        return clamped

    @staticmethod
    def equation_rank(indices: Value) -> int:
        return indices.ndim - 1

    def _extended(self, column: Value, axis: int, size: Any, rank: int) -> Value:
        """Starts of windows, or for larger windows all positions along the axis."""
        if not self.windows:
            return column
        column = ops.unsqueeze(column, [rank + k for k in range(len(self.windows))])
        if axis not in self.windows:
            return column
        offsets = counted(self.equation, (size,), 0)
        place = self.windows.index(axis)
        others = [k for k in range(len(self.windows)) if k != place]
        return ops.add(column, ops.unsqueeze(offsets, others) if others else offsets)

    def column(self) -> Value:
        """The positions along the only indexed axis."""
        return self._columns[0]

    def positions(self) -> Value:
        shape = self.equation.sizes.vector(self.sizes)
        full = [ops.unsqueeze(ops.expand(c, shape) if self.sizes else c, [len(self.sizes)]) for c in self._columns]
        return full[0] if len(full) == 1 else ops.concat(*full, axis=len(self.sizes))


def _mode(mode: Any) -> str:
    name = str(mode).rpartition(".")[2].upper()
    return {"CLIP": "clip", "FILL_OR_DROP": "fill", "PROMISE_IN_BOUNDS": "clip", "0": "clip", "1": "fill", "2": "clip"}[
        name
    ]


@rule("gather", moves=True)
def gather_rule(
    equation: Any,
    x: Value,
    indices: Value,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Value:
    numbers, shape = dimension_numbers, equation.ins[0].shape
    batching = (numbers.operand_batching_dims, numbers.start_indices_batching_dims)
    kind = _mode(mode)
    points = Points(
        equation, indices, (shape, equation.ins[1].shape), slice_sizes, numbers.start_index_map, batching, kind
    )
    rest = [axis for axis in range(len(shape)) if axis not in points.axes]
    batch = len(points.batch)
    # ``found`` has the axes [*batch, *windows, *rest].
    if not points.axes:
        result = x
        if batch:
            result = ops.unsqueeze(x, list(range(batch)))
            result = ops.expand(result, equation.sizes.vector([*points.batch, *(shape[a] for a in rest)]))
    elif len(points.axes) == 1:
        axis, positions = points.axes[0], points.column()
        result = ops.gather(x, positions, axis=axis)
        count = batch + len(points.windows)
        order = [*range(axis, axis + count), *range(axis), *range(axis + count, count + len(rest))]
        result = _placed(result, order, points, rest, numbers, batch, len(equation.shape))
    else:
        moved = transposed(x, [*points.axes, *rest])
        result = ops.gather_nd(moved, points.positions())
        count = batch + len(points.windows)
        result = _placed(result, list(range(count + len(rest))), points, rest, numbers, batch, len(equation.shape))
    if not points.axes:
        result = _placed(result, list(range(batch + len(rest))), points, rest, numbers, batch, len(equation.shape))
    if kind == "fill" and points.outside is not None:
        axes = [axis for axis in range(len(equation.shape)) if axis in set(map(int, numbers.offset_dims))]
        outside = points.outside
        outside = ops.unsqueeze(outside, axes) if axes else outside
        result = where(outside, _filling(result, fill_value), result)
    return result


def _placed(
    found: Value, order: list[int], points: Points, rest: list[int], numbers: Any, batch: int, rank: int
) -> Any:
    """Move windows to the axes of the result; axis k of [*batch, *windows, *rest] is axis ``order[k]`` of ``found``."""
    collapsed = {*map(int, numbers.collapsed_slice_dims), *map(int, numbers.operand_batching_dims)}
    axes_after_batch = [*points.windows, *rest]  # axes of the operand after the batch
    kept = sorted(a for a in {*points.axes, *rest} if a not in collapsed)
    single = [a for a in kept if a not in axes_after_batch]  # windows of one element that remain axes
    offsets = list(map(int, numbers.offset_dims))
    places = dict(zip(kept, offsets, strict=True))
    removed_axes = [a for a in axes_after_batch if a in collapsed]
    places_of = {axis: order[batch + k] for k, axis in enumerate(axes_after_batch)}
    if removed_axes:
        cut = sorted(places_of[a] for a in removed_axes)
        found = ops.squeeze(found, cut)
        order = [o - sum(c < o for c in cut) for o in order]
        places_of = {axis: order[batch + k] for k, axis in enumerate(axes_after_batch)}
    perm: list[int | None] = [None] * rank
    for axis, place in places.items():
        if axis in places_of:
            perm[place] = places_of[axis]
    rows = iter(order[:batch])
    for place in range(rank):
        if place not in offsets:
            perm[place] = next(rows)
    found = transposed(found, [p for p in perm if p is not None])
    added = sorted(places[a] for a in single)
    return ops.unsqueeze(found, added) if added else found


def _filling(x: Value, fill_value: Any) -> Value:
    if fill_value is not None:
        return scalar(fill_value, x)
    if x.dtype.is_float:
        return scalar(np.nan, x)
    if x.dtype is DType.bool:
        return scalar(1, x)
    limits = np.iinfo(x.dtype.numpy)
    return scalar(limits.min if x.dtype.is_signed else limits.max, x)


# ----- scattering -----------------------------------------------------------------------------------------------------

_WAYS = {
    "scatter": "none",
    "scatter-add": "add",
    "scatter_add": "add",
    "scatter-mul": "mul",
    "scatter_mul": "mul",
    "scatter_min": "min",
    "scatter_max": "max",
    "scatter-min": "min",
    "scatter-max": "max",
    "scatter_sub": "sub",
    "scatter-sub": "sub",
}


MOVING.update({"scatter", "scatter-add", "scatter_add"})  # for complex numbers, part by part


@rule(*_WAYS)
def ways_rule(
    equation: Any, x: Value, indices: Value, updates: Value, *, dimension_numbers: Any, mode: Any, **given: Any
) -> Value:
    combine = given.get("update_jaxpr")
    if equation.name == "scatter" and combine is not None and combine.outvars[0] is not combine.invars[1]:
        return _applied(equation, (x, indices, updates), dimension_numbers, mode, given)
    numbers, shape, changed = dimension_numbers, equation.ins[0].shape, equation.ins[2].shape
    kind, way, dtype = _mode(mode), _WAYS[equation.name], x.dtype
    x, updates = _combinable(x, way), _combinable(updates, way)
    inserted = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
    kept = [axis for axis in range(len(shape)) if axis not in inserted]
    window_places = list(map(int, numbers.update_window_dims))
    sizes: list[Any] = [1] * len(shape)
    for axis, place in zip(kept, window_places, strict=True):
        sizes[axis] = changed[place]
    batching = (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
    points = Points(
        equation, indices, (shape, equation.ins[1].shape), sizes, numbers.scatter_dims_to_operand_dims, batching, kind
    )
    rest = [axis for axis in range(len(shape)) if axis not in points.axes]
    batch_places = [k for k in range(len(changed)) if k not in window_places]
    places = dict(zip(kept, window_places, strict=True))
    single = [places[a] for a in kept if a not in points.windows and a not in rest]
    updates = ops.squeeze(updates, single) if single else updates
    order = [
        *batch_places,
        *(places[a] for a in points.windows if a in places),
        *(places[a] for a in rest if a in places),
    ]
    updates = transposed(updates, [o - sum(s < o for s in single) for o in order])
    absent = [len(batch_places) + k for k, a in enumerate([*points.windows, *rest]) if a not in places]
    updates = ops.unsqueeze(updates, absent) if absent else updates
    if way == "sub":
        updates, way = ops.neg(updates), "add"
    if not points.axes:
        result = _over_all(equation, x, updates, way, len(batch_places), points.batch)
        return result if result.dtype is dtype else ops.cast(result, to=dtype)
    moved, positions = transposed(x, [*points.axes, *rest]), points.positions()
    length = equation.sizes.size(shape[points.axes[0]])
    dropped = points.outside is not None
    if dropped:  # dropped elements go to an extra row, which is cut off
        row = equation.sizes.value(shape[points.axes[0]])
        outside = ops.unsqueeze(points.outside, [len(points.batch) + k for k in range(len(points.windows) + 1)])
        first = [1] + [0] * (len(points.axes) - 1)
        target = ops.mul(row, constant(np.asarray(first, np.int64)))
        positions = ops.where(outside, target, positions)
        pads = [0] * (2 * len(shape))
        pads[len(shape)] = 1
        moved = ops.pad(moved, pads)
    result = _scattered(moved, positions, updates, way)
    if dropped:
        result = ops.slice_(result, [0], [length] if isinstance(length, int) else ops.unsqueeze(length, [0]), [0])
    result = result if result.dtype is dtype else ops.cast(result, to=dtype)
    back = np.argsort([*points.axes, *rest])
    return transposed(result, back)


def _applied(equation: Any, values: Sequence[Value], numbers: Any, mode: Any, given: Any) -> Value:
    """A function of the elements at positions, ``x.at[places].apply(function)``, once per occurrence."""
    jaxpr, consts = given["update_jaxpr"], given["update_consts"]
    unique = given["unique_indices"]

    def apply(x: Any, indices: Any, updates: Any) -> Any:
        unused = jnp.zeros((), updates.dtype)
        counts = lax.scatter_add(
            jnp.zeros(x.shape, jnp.int32), indices, jnp.ones(updates.shape, jnp.int32), numbers, mode=mode
        )

        def applied(k: Any, x: Any) -> Any:
            found = jax.vmap(lambda a: jax.core.eval_jaxpr(jaxpr, consts, a, unused)[0])(x.reshape(-1))
            return jnp.where(counts > k, found.reshape(x.shape), x)

        return applied(0, x) if unique else lax.fori_loop(0, counts.max(), applied, x)

    return equation.trace(apply, *values)[0]


#: Element types for which onnxruntime has no ScatterND, and those for which it has none that combines.
_STORED = {DType.bool: DType.int32}
_COMBINED = {**_STORED, DType.float16: DType.float32, DType.bfloat16: DType.float32}


def _combinable(x: Value, way: str) -> Value:
    """Cast to an element type that onnxruntime can scatter in this way."""
    wide = (_STORED if way == "none" else _COMBINED).get(x.dtype)
    return x if wide is None else ops.cast(x, to=wide)


def _scattered(x: Value, positions: Value, updates: Value, way: str) -> Value:
    return ops.scatter_nd(x, positions, updates, reduction=way)


def _over_all(equation: Any, x: Value, updates: Value, way: str, count: int, batch: Any) -> Value:
    """Scatter of windows that cover the whole operand."""
    ways: dict[str, tuple[Any, Any]] = {
        "add": (ops.add, ops.reduce_sum),
        "mul": (ops.mul, ops.reduce_prod),
        "min": (ops.minimum, ops.reduce_min),
        "max": (ops.maximum, ops.reduce_max),
    }
    axes = list(range(count))
    if way == "none":
        if not all(same(dim, 1) for dim in batch):
            raise NotRepresentable("a scatter writes several windows more than once", given=str(batch))
        return ops.squeeze(updates, axes) if count else updates
    combine, reduce = ways[way]
    return combine(x, reduce(updates, axes, keepdims=0) if count else updates)
