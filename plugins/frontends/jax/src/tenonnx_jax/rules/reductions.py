"""Reductions, cumulative ones, sorting, and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_jax.dims import same
from tenonnx_jax.promotion import NARROW, WIDE, scalar, widened
from tenonnx_jax.rules import rule
from tenonnx_jax.rules.elementwise import converted
from tenonnx_jax.rules.shapes import reshaped, transposed


def _reducing(op: Any) -> Any:
    def reduce(equation: Any, x: Value, *, axes: Any, **_: Any) -> Value:
        reduced = [int(axis) for axis in axes]
        return widened(lambda x: op(x, reduced, keepdims=0), NARROW, x) if reduced else x

    return reduce


for _name, _op in {"reduce_sum": ops.reduce_sum, "reduce_prod": ops.reduce_prod}.items():
    rule(_name)(_reducing(_op))


def _bound(name: str, op: Any) -> None:
    @rule(name)
    def name_rule(equation: Any, x: Value, *, axes: Any, **_: Any) -> Value:
        return _of_bools(op, x, axes) if x.dtype is DType.bool else _reducing(op)(equation, x, axes=axes)


_bound("reduce_max", ops.reduce_max)
_bound("reduce_min", ops.reduce_min)


def _of_bools(op: Any, x: Value, axes: Any) -> Value:
    reduced = [int(axis) for axis in axes]
    return ops.cast(op(ops.cast(x, to=DType.int32), reduced, keepdims=0), to=DType.bool) if reduced else x


def _of_bits(name: str, of_bools: Any, of_bits: Any) -> None:
    """Register a reduction, for booleans by an op, and for integers by their bits along a last axis."""

    @rule(name)
    def name_rule_2(equation: Any, x: Value, *, axes: Any, **_: Any) -> Value:
        if x.dtype is DType.bool:
            return of_bools(x, axes)

        def reduced(x: Any) -> Any:
            unsigned = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
            places = jnp.arange(8 * x.dtype.itemsize, dtype=unsigned.dtype)
            bits = of_bits((unsigned[..., None] >> places) & 1, tuple(axes)) << places
            return lax.bitcast_convert_type(jnp.sum(bits, -1, dtype=unsigned.dtype), x.dtype)

        return equation.trace(reduced, x)[0]


_of_bits("reduce_or", lambda x, axes: _of_bools(ops.reduce_max, x, axes), jnp.max)
_of_bits("reduce_and", lambda x, axes: _of_bools(ops.reduce_min, x, axes), jnp.min)
_of_bits("reduce_xor", lambda x, axes: _odd(x, axes), lambda bits, axes: jnp.sum(bits, axes, dtype=bits.dtype) & 1)


def _odd(x: Value, axes: Any) -> Value:
    total = ops.reduce_sum(ops.cast(x, to=DType.int64), [int(axis) for axis in axes], keepdims=0)
    return ops.cast(ops.mod(total, scalar(2, total)), to=DType.bool)


def _position(name: str, op: Any, extreme: float) -> None:
    @rule(name)
    def name_rule_3(equation: Any, x: Value, *, axes: Any, index_dtype: Any, **_: Any) -> Value:
        if x.dtype is DType.bool:
            x = ops.cast(x, to=DType.int32)
        if x.dtype.is_float:  # the first NaN counts as the extremum
            x = ops.where(ops.isnan(x), scalar(extreme, x), x)
        if x.dtype in NARROW:
            x = ops.cast(x, to=WIDE[x.dtype])
        return ops.cast(op(x, axis=int(axes[0]), keepdims=0), to=equation.dtype)


_position("argmax", ops.argmax, np.inf)
_position("argmin", ops.argmin, -np.inf)

# ----- along an axis --------------------------------------------------------------------------------------------------


@rule("cumsum")
def cumsum_rule(equation: Any, x: Value, *, axis: int, reverse: bool, **_: Any) -> Value:
    along = constant(np.asarray(axis, np.int64))
    return widened(lambda x: ops.cumsum(x, along, reverse=int(reverse)), NARROW, x)


def _doubling(name: str, combine: Any, neutral: Any) -> None:
    """Register a cumulative operation by doubling: after k rounds each element combines 2**k elements."""

    @rule(name)
    def name_rule_4(equation: Any, x: Value, *, axis: int, reverse: bool, **_: Any) -> Value:
        return widened(lambda x: cumulative(equation.shape[axis], x, axis, reverse), NARROW, x)

    def cumulative(length: Any, x: Value, axis: int, reverse: bool) -> Value:
        if not isinstance(length, int):
            return _by_scan(x, axis, reverse, combine, neutral)
        step = 1
        while step < length:
            start, end = (step, np.iinfo(np.int64).max) if reverse else (0, length - step)
            moved = ops.slice_(x, [start], [end], [axis])
            pads = [0] * (2 * x.ndim)
            pads[axis + (x.ndim if reverse else 0)] = step
            x = combine(x, ops.pad(moved, pads, scalar(neutral(x.dtype), x)))
            step *= 2
        return x


def _by_scan(x: Value, axis: int, reverse: bool, combine: Any, neutral: Any) -> Value:
    from tenonnx.extend import TensorType, subgraph

    row = ops.reduce_max(x, [axis], keepdims=0)  # any row, for its shape
    zero = ops.where(ops.equal(row, row), scalar(neutral(x.dtype), x), scalar(neutral(x.dtype), x))
    kind = TensorType(x.dtype, tuple(dim for k, dim in enumerate(x.shape) if k != axis))

    def step(state: Value, element: Value) -> Any:
        result = combine(state, element)
        return result, ops.identity(result)

    body = subgraph(step, [("state", kind), ("element", kind)])
    way = {"scan_input_directions": [int(reverse)], "scan_output_directions": [int(reverse)]}
    return ops.scan(zero, x, body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis], **way)[1]


def _limit(sign: int) -> Any:
    def found(dtype: DType) -> Any:
        if dtype.is_float:
            return sign * np.inf
        limits = np.iinfo(dtype.numpy)
        return limits.max if sign > 0 else limits.min

    return found


def _log_sum(a: Value, b: Value) -> Value:
    high = ops.maximum(a, b)
    safe = ops.where(ops.isinf(high), scalar(0, high), high)
    return ops.add(safe, ops.log(ops.add(ops.exp(ops.sub(a, safe)), ops.exp(ops.sub(b, safe)))))


_doubling("cumprod", ops.mul, lambda dtype: 1)
_doubling("cummax", ops.maximum, _limit(-1))
_doubling("cummin", ops.minimum, _limit(1))
_doubling("cumlogsumexp", _log_sum, _limit(-1))


def _sortable(x: Value) -> Value:
    """Map elements, preserving their order, to an element type that runtimes can sort."""
    if x.dtype in (DType.float32, DType.float64, DType.int64, DType.int32):
        return x
    wide = DType.float32 if x.dtype.is_float else DType.int32 if x.dtype.bits < 32 else DType.int64
    if x.dtype is DType.uint64:  # where the highest bit is the sign
        return ops.bitcast(ops.bitwise_xor(x, constant(np.asarray(1 << 63, np.uint64))), to=DType.int64)
    return ops.cast(x, to=wide)


@rule("sort")
def sort_rule(equation: Any, *values: Value, dimension: int, num_keys: int, **_: Any) -> Any:
    axis = int(dimension)
    length = ops.unsqueeze(equation.sizes.value(equation.shape[axis]), [0])
    keys: list[Value] = []
    for value in values[:num_keys]:
        if value.dtype.is_float:  # NaNs come last, after infinity
            missing = ops.isnan(value)
            keys += [ops.cast(missing, to=DType.int32), ops.where(missing, scalar(0, value), value)]
        else:
            keys.append(value)
    order: Value | None = None
    for key in reversed(keys):
        sortable = _sortable(key)
        sortable = sortable if order is None else ops.gather_elements(sortable, order, axis=axis)
        places = ops.top_k(sortable, length, axis=axis, largest=0)[1]
        order = places if order is None else ops.gather_elements(order, places, axis=axis)
    assert order is not None
    return [_permuted(value, order, axis) for value in values]


def _permuted(value: Value, order: Value, axis: int) -> Value:
    return ops.gather_elements(value, order, axis=axis)


@rule("top_k")
def top_k_rule(equation: Any, x: Value, *, k: Any, operand_dtype: Any = None, axis: int = -1, **_: Any) -> Any:
    count = ops.unsqueeze(equation.sizes.value(k), [0])
    axis = int(axis) % x.ndim
    key = ops.where(ops.isnan(x), scalar(np.inf, x), x) if x.dtype.is_float else x  # NaN is the largest
    places = ops.top_k(_sortable(key), count, axis=axis)[1]
    return [ops.gather_elements(x, places, axis=axis), ops.cast(places, to=DType.of(np.dtype(equation.outs[1].dtype)))]


@rule("approx_top_k")
def approx_top_k_rule(equation: Any, x: Value, *, k: int, reduction_dimension: int, is_max_k: bool, **_: Any) -> Any:
    found = ops.top_k(x, [int(k)], axis=int(reduction_dimension), largest=int(is_max_k))
    return [found[0], ops.cast(found[1], to=DType.int32)]


# ----- products of matrices -------------------------------------------------------------------------------------------


@rule("dot_general")
def dot_general_rule(equation: Any, x: Value, y: Value, *, dimension_numbers: Any, **_: Any) -> Value:
    ((x_sum, y_sum), (x_batch, y_batch)) = dimension_numbers
    dtype = equation.dtype
    return contracted(
        equation, (x, equation.ins[0].shape, x_batch, x_sum), (y, equation.ins[1].shape, y_batch, y_sum), dtype
    )


def contracted(equation: Any, left: Any, right: Any, dtype: DType) -> Value:
    """Tensor contraction of two operands, given as (value, shape, batch axes, contracted axes)."""
    (x, x_shape, x_batch, x_sum), (y, y_shape, y_batch, y_sum) = left, right
    wide = _summed_in(dtype)
    x, y = converted(x, wide), converted(y, wide)
    x_free = _rest(len(x_shape), x_batch, x_sum)
    y_free = _rest(len(y_shape), y_batch, y_sum)
    orders = [[*x_batch, *x_free, *x_sum], [*y_batch, *y_sum, *y_free]]
    others = [[*y_batch, *y_free, *y_sum], [*x_batch, *x_sum, *x_free]]
    shapes = (x_shape, y_shape)
    if x_batch and sum(map(_is_permuted, shapes, orders)) > sum(map(_is_permuted, shapes[::-1], others)):
        start, n, m = len(x_batch), len(y_free), len(x_free)
        back = [*range(start), *range(start + n, start + n + m), *range(start, start + n)]
        return transposed(contracted(equation, right, left, dtype), back)
    batch = [x_shape[axis] for axis in x_batch]
    shape = [*batch, *(x_shape[axis] for axis in x_free), *(y_shape[axis] for axis in y_free)]
    summed = [x_shape[axis] for axis in x_sum]
    if not summed:  # an outer product
        x = ops.unsqueeze(x := transposed(x, [*x_batch, *x_free]), _last(len(batch) + len(x_free), len(y_free)))
        y = ops.unsqueeze(y := transposed(y, [*y_batch, *y_free]), _last(len(batch), len(x_free)))
        return converted(ops.mul(x, y), dtype)
    x, y = transposed(x, orders[0]), transposed(y, orders[1])
    if len(x_sum) > 1:
        total = int(np.prod(summed)) if all(isinstance(n, int) for n in summed) else _product(summed)
        x = reshaped(equation, x, [*batch, *(x_shape[a] for a in x_free), total])
        y = reshaped(equation, y, [*batch, total, *(y_shape[a] for a in y_free)])
    else:
        total = summed[0]
    if len(x_free) != 1 and (batch or not x_free):
        x = reshaped(equation, x, [*batch, _product([x_shape[a] for a in x_free]), total])
    if len(y_free) != 1:
        y = reshaped(equation, y, [*batch, total, _product([y_shape[a] for a in y_free])])
    result = converted(ops.matmul(x, y), dtype)
    whole = len(y_free) == 1 and (len(x_free) == 1 or (len(x_free) > 1 and not batch))
    return result if whole else reshaped(equation, result, shape)


def _is_permuted(shape: Sequence[Any], order: Sequence[int]) -> bool:
    """Whether axes of size other than 1 are permuted."""
    moved_axes = [axis for axis in order if not same(shape[axis], 1)]
    return moved_axes != sorted(moved_axes)


def _summed_in(dtype: DType) -> DType:
    if dtype.is_float:
        return dtype
    if dtype in (DType.int32, DType.int64, DType.uint32, DType.uint64):
        return dtype
    return DType.int32  # the result keeps fewer bits


def _product(dims: Sequence[Any]) -> Any:
    result: Any = 1
    for dim in dims:
        result = result * dim
    return result


def _rest(rank: int, *used: Sequence[int]) -> list[int]:
    taken = {int(axis) for axes in used for axis in axes}
    return [axis for axis in range(rank) if axis not in taken]


def _last(start: int, count: int) -> Any:
    return list(range(start, start + count)) if count else constant(np.zeros(0, np.int64))


__all__ = ["contracted", "same"]
