"""Reductions: sums, products, extrema, means and norms over axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Index,
    Op,
    Operand,
    TensorType,
    TypeMismatch,
    Value,
    elements,
    op,
    primitive,
    subgraph,
    symbolic,
)
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.checking import axis_within
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, exp, log, maximum, minimum, reciprocal, sqrt
from tenonnx_standard.shapes import expand, identity, shape, size, unsqueeze

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = np.ndarray[Any, Any]

# ----- axes -----------------------------------------------------------------------------------------------------------


def _chosen(op: Op, axes: Sequence[int] | None, rank: int, noop: int) -> tuple[int, ...]:
    """The reduced axes. No axes mean all of them, or none with ``noop``.

    A repeated axis is reduced once, like in runtimes.
    """
    if axes is None or not len(axes):
        return () if noop else tuple(range(rank))
    return tuple(sorted({axis_within(op, int(axis), rank) for axis in axes}))


def _reduced_type(
    op: Op, data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int, booleans: bool
) -> TensorType:
    """The type of ``data`` reduced over ``axes``; axes known only at run time leave the dims unknown."""
    kind = data.tensor
    if not kind.dtype.is_numeric and not (booleans and kind.dtype is DType.bool):
        raise TypeMismatch(f"{op.title}: data is not numeric", given=repr(data))
    if axes is not None and not axes.dtype.is_integer:
        raise TypeMismatch(f"{op.title}: axes is not int64", given=repr(axes))
    if axes is not None and axes.rank not in (None, 1):
        raise TypeMismatch(f"{op.title}: axes is not a list", given=repr(axes))
    count: Any = 0 if axes is None else None if axes.tensor.shape is None else axes.shape[0]
    if kind.shape is None:
        return kind.with_shape(() if count == 0 and not keepdims and not noop_with_empty_axes else None)
    rank = len(kind.shape)
    known = [] if count == 0 or axes is None else elements(axes)
    if known is not None and all(isinstance(axis, int) for axis in known):
        reduced = _chosen(op, known, rank, noop_with_empty_axes)
        if keepdims:
            return kind.with_shape(tuple(1 if k in reduced else d for k, d in enumerate(kind.shape)))
        return kind.with_shape(tuple(d for k, d in enumerate(kind.shape) if k not in reduced))
    if keepdims:
        return kind.with_shape(tuple(1 if d == 1 else None for d in kind.shape))
    if isinstance(count, int):
        if count > rank:
            raise TypeMismatch(
                f"{op.title}: axes names an axis twice", given=f"{count} axes of a tensor of rank {rank}"
            )
        return kind.with_shape((None,) * (rank - count))
    return kind.with_shape(None)


def _without_noop(op: Op) -> Callable[..., Any]:
    """Lower a reduction to opsets without ``noop_with_empty_axes``."""

    def lowered(data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        if not noop_with_empty_axes:
            return None
        count = 0 if axes is None else axes.shape[0] if axes.rank else None
        if count == 0:
            return identity(data) if op.primitive else None
        return op(data, axes, keepdims=keepdims) if symbolic.is_known_positive(count) else None

    return lowered


def _lower_computed_axes(op: Op) -> Callable[..., Any]:
    """Lower a reduction over computed axes to opsets where they are an attribute, by an If per axis."""

    def lowered(data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        if axes is None or elements(axes) is not None or data.rank is None or noop_with_empty_axes:
            return None
        rank, listed = data.ndim, ops.reshape(axes, [-1, 1])
        hits = ops.equal(ops.where(listed < 0, listed + data.ndim, listed), np.arange(rank))
        chosen = ops.reduce_sum(cast(hits, to=DType.int32), [0], keepdims=0) > 0
        chosen = ops.or_(chosen, ops.equal(ops.size(axes), 0))
        for axis in range(rank):
            reduced = subgraph(lambda data=data, axis=axis: op(data, [axis], keepdims=1), name="reduced")
            kept = subgraph(lambda data=data: identity(data), name="kept")
            data = ops.if_(ops.gather(chosen, axis), then_branch=reduced, else_branch=kept)
        return data if keepdims else ops.squeeze(data, axes)

    return lowered


def _lower_booleans(op: Op) -> Callable[..., Any]:
    """Lower the maximum or minimum of bools to numbers; for empty sets it is an infinity."""

    def lowered(data: Value, axes: Value | None, **attributes: int) -> Any:
        return op(cast(data, to=DType.float32), axes, **attributes) > 0 if data.dtype is DType.bool else None

    return lowered


def _reduction(
    name: str, *, moved: int = 18, define: Callable[..., Any] = primitive, booleans: bool = False, **flags: Any
) -> Callable[[Callable[..., Any]], Op]:
    """Define a reduction whose ``axes`` are an attribute below version ``moved``."""

    def decorate(function: Callable[..., Any]) -> Op:
        op: Op = define(name, **flags)(function)
        if op.primitive:
            op.type(lambda data, axes, **attributes: _reduced_type(op, data, axes, booleans=booleans, **attributes))
        op.until(moved, attributes=["axes"], lacks=["noop_with_empty_axes"])
        op.until(11, positive=["axes"])
        op.lower()(_without_noop(op))
        if op.primitive:  # other reductions expand to these
            op.lower()(_lower_computed_axes(op))
        if booleans:
            op.lower()(_lower_booleans(op))
        return op

    return decorate


# ----- numpy ----------------------------------------------------------------------------------------------------------

#: Longest row summed by einsum, which is faster; longer ones are summed pairwise, which is more accurate.
PLAIN_ROW = 4096
#: Longest row reduced as columns, since numpy's overhead per row exceeds the work.
SHORT_ROW = 32
#: For fewer rows, adding is faster than a matrix product.
FEW_ROWS = 16


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether a float type is too narrow for accumulation."""
    return dtype.itemsize < 4 and dtype.kind not in "biuSO"


def widened(x: Array) -> Array:
    """``x``, in float32 if its float type is too narrow for accumulation."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def total(x: Array, axes: tuple[int, ...], dtype: Any = None) -> Array:
    """The sum over ``axes``, kept as dims of 1."""
    rows = _plain_rows(x, axes) if dtype is None else None
    if rows is None:
        if dtype is None and len(axes) == 1 and 0 < axes[0] < x.ndim - 1:
            return _middle_total(x, axes[0])
        return np.add.reduce(x, axis=axes, dtype=dtype, keepdims=True)
    return np.einsum("ij->i", rows).reshape(*x.shape[: x.ndim - len(axes)], *(1,) * len(axes))


def _middle_total(x: Array, axis: int) -> Array:
    """The sum over a middle axis, as a product with ones unless there are few elements."""
    count = x.shape[axis]
    if count < FEW_ROWS or not _is_plain(x, count):
        return np.asarray(np.add.reduce(x, axis=axis, keepdims=True))
    sums = np.matmul(np.ones((1, count), x.dtype), x.reshape(-1, count, math.prod(x.shape[axis + 1 :])))
    return sums.reshape(*x.shape[:axis], 1, *x.shape[axis + 1 :])


def sum_of_squares(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum of squares over ``axes``, kept as dims of 1."""
    rows = _plain_rows(x, axes)
    if rows is None:
        return total(x * x, axes, x.dtype if x.dtype.kind in "iu" else None)
    return np.einsum("ij,ij->i", rows, rows).reshape(*x.shape[: x.ndim - len(axes)], *(1,) * len(axes))


def _plain_rows(x: Array, axes: tuple[int, ...]) -> Array | None:
    """``x`` as a matrix with a row for each sum, if ``axes`` are the last ones and rows are short; else None."""
    first = x.ndim - len(axes)
    trailing = bool(axes) and axes == tuple(range(first, x.ndim))
    inner = math.prod(x.shape[first:])
    return x.reshape(-1, inner) if trailing and _is_plain(x, inner) else None


def _is_plain(x: Array, count: int) -> bool:
    """Whether sums of this many elements are accumulated sequentially."""
    plain = x.dtype in (np.float32, np.float64) and x.flags.c_contiguous
    return plain and x.size > 0 and count <= PLAIN_ROW


def mean_array(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean of floats over ``axes``, kept as dims of 1."""
    wide = widened(x)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.divide(total(wide, axes), wide.dtype.type(count)).astype(x.dtype, copy=False)


def extremum(ufunc: np.ufunc, x: Array, axes: tuple[int, ...]) -> Array:
    """The maximum, minimum or product over non-empty ``axes``, kept as dims of 1."""
    rank, count = x.ndim, len(axes)
    if count and axes == tuple(range(rank - count, rank)) and x.size:
        inner = math.prod(x.shape[rank - count :])
        if inner <= SHORT_ROW and x.size >= 64 * inner:
            columns = np.ascontiguousarray(x.reshape(-1, inner).T)
            return ufunc.reduce(columns, axis=0).reshape(*x.shape[: rank - count], *(1,) * count)
    return np.asarray(ufunc.reduce(x, axis=axes, keepdims=True))


def _numpy(op: Op) -> Callable[[Callable[[Array, tuple[int, ...]], Array]], Callable[..., Array]]:
    """Register a numpy rule for ``op``, from a function of data and axes that keeps the reduced dims."""

    def register(kept: Callable[[Array, tuple[int, ...]], Array]) -> Callable[..., Array]:
        _prepare(op, kept)
        return op.numpy(_over_axes(op, kept))

    return register


def _over_axes(op: Op, kept: Callable[[Array, tuple[int, ...]], Array]) -> Callable[..., Array]:
    @np.errstate(all="ignore")
    def rule(data: Array, axes: Array | None, *, keepdims: int, noop_with_empty_axes: int) -> Array:
        given = None if axes is None else [int(axis) for axis in axes.reshape(-1)]
        reduced = _chosen(op, given, data.ndim, noop_with_empty_axes)
        result = np.asarray(kept(data, reduced))
        if result.dtype != data.dtype:
            result = result.astype(data.dtype)
        if keepdims:
            return result
        return result.reshape([d for k, d in enumerate(data.shape) if k not in reduced])

    return rule


def _symbolic(op: Op, ufunc: np.ufunc) -> None:
    """Register a symbolic rule for ``op``, from a function of two dims."""

    def kept(x: Array, axes: tuple[int, ...]) -> Array:
        for axis in axes:
            x = np.asarray(ufunc.reduce(x, axis=axis, keepdims=True))
        return x

    op.symbolic(_over_axes(op, kept))


def _prepare(op: Op, kept: Callable[[Array, tuple[int, ...]], Array]) -> None:
    @op.specialize
    def op_specialize(
        data: Operand, axes: Operand | None, *, keepdims: int, noop_with_empty_axes: int
    ) -> Callable[..., Array] | None:
        if axes is not None and axes.contents is None:
            return None
        given = None if axes is None else [int(axis) for axis in axes.contents.reshape(-1)]
        reduced = _chosen(op, given, data.ndim, noop_with_empty_axes)
        whole = [1 if k in reduced else d for k, d in enumerate(data.shape)]
        shape = whole if keepdims else [d for k, d in enumerate(data.shape) if k not in reduced]
        return lambda data, axes=None: np.asarray(kept(data, reduced)).astype(data.dtype, copy=False).reshape(shape)


# ----- sums, means, products, extrema ---------------------------------------------------------------------------------


@_reduction("ReduceSum", moved=13)
def reduce_sum(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The sum over ``axes``; 0 for an empty set."""


@_numpy(reduce_sum)
def reduce_sum_numpy(x, axes):
    if not axes:
        return x
    if x.dtype.kind in "iu":
        return np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=True)
    return total(widened(x), axes)


def _restored(reduced: Value, data: Value, axes: Value | None, keepdims: int) -> Value:
    """A reduced value with its reduced dims restored as 1; a scalar of unknown axes is left to broadcast."""
    if keepdims or axes is None or axes.shape[0] == 0:
        return reduced
    contents = elements(axes)
    if contents is not None and data.rank is not None and all(isinstance(axis, int) for axis in contents):
        places = sorted({axis % data.rank for axis in contents})
        if len(places) < len(contents):
            return unsqueeze(reduced, places)
    return unsqueeze(reduced, axes)


@reduce_sum.vjp
def reduce_sum_vjp(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    return expand(_restored(g, data, axes, keepdims), shape(data)), None


@_reduction("ReduceMean")
def reduce_mean(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The arithmetic mean over ``axes``; truncated for integers."""


@_numpy(reduce_mean)
def reduce_mean_numpy(x, axes):
    if not axes:
        return x
    count = math.prod(x.shape[axis] for axis in axes)
    if x.dtype.kind in "iu":
        sums = np.add.reduce(x, axis=axes, dtype=np.uint64 if x.dtype.kind == "u" else np.int64, keepdims=True)
        return np.sign(sums) * (np.abs(sums) // sums.dtype.type(max(count, 1)))
    return mean_array(x, axes)


@reduce_mean.vjp
def reduce_mean_vjp(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    mean = over_count(g, size(data) / maximum(size(y), 1))
    return expand(_restored(mean, data, axes, keepdims), shape(data)), None


def over_count(x: Value, count: Value) -> Value:
    """``x`` divided by an integer that may overflow the dtype of ``x``."""
    wide = DType.float64 if x.dtype is DType.float64 else DType.float32
    return x * _as_given(reciprocal(cast(count, to=wide)), x)


@_reduction("ReduceProd")
def reduce_prod(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The product over ``axes``; 1 for an empty set."""


@_numpy(reduce_prod)
def reduce_prod_numpy(x, axes):
    if not axes:
        return x
    if x.dtype.kind in "iu":
        return np.multiply.reduce(x, axis=axes, dtype=x.dtype, keepdims=True)
    return extremum(np.multiply, widened(x), axes)


@reduce_prod.vjp
def reduce_prod_vjp(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    """The gradient is the product of the other elements, computed correctly with zeros."""
    options = {"keepdims": 1, "noop_with_empty_axes": noop_with_empty_axes}
    zero = equal(data, 0.0)
    others = where(zero, 1.0, data)
    zeros = reduce_sum(cast_like(zero, data), axes, **options)
    rest = reduce_prod(others, axes, **options)
    at_zero = where(equal(zeros, 1.0), rest, 0.0)
    elsewhere = where(equal(zeros, 0.0), rest / others, 0.0)
    return _restored(g, data, axes, keepdims) * where(zero, at_zero, elsewhere), None


@_reduction("ReduceMax", booleans=True, data_movement=True)
def reduce_max(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The maximum over ``axes``; for an empty set the smallest value of the dtype (minus infinity for floats)."""


@_reduction("ReduceMin", booleans=True, data_movement=True)
def reduce_min(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The minimum over ``axes``; for an empty set the largest value of the dtype (infinity for floats)."""


def _extremum(ufunc: np.ufunc, sign: int) -> Callable[..., Array]:
    """The numpy rule of the maximum (``sign`` 1) or minimum (-1)."""

    def kept(x: Array, axes: tuple[int, ...]) -> Array:
        if not axes:
            return x
        if not math.prod(x.shape[axis] for axis in axes):
            return np.full([1 if k in axes else d for k, d in enumerate(x.shape)], worst(x.dtype, sign), x.dtype)
        return extremum(ufunc, x, axes)

    return kept


def worst(dtype: np.dtype[Any], sign: int) -> Any:
    """The maximum (``sign`` 1) or minimum (-1) of an empty set."""
    if dtype.kind == "b":
        return sign < 0
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if sign > 0 else limits.max
    return -np.inf if sign > 0 else np.inf


_numpy(reduce_max)(_extremum(np.maximum, 1))
_numpy(reduce_min)(_extremum(np.minimum, -1))

_symbolic(reduce_sum, np.add)
_symbolic(reduce_prod, np.multiply)
_symbolic(reduce_max, np.frompyfunc(symbolic.maximum, 2, 1))
_symbolic(reduce_min, np.frompyfunc(symbolic.minimum, 2, 1))


def _extremum_gradient(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    """The cotangent is split equally between the elements that attain the extremum."""
    attained = cast_like(equal(data, _restored(y, data, axes, keepdims)), g)
    share = attained / reduce_sum(attained, axes, keepdims=1, noop_with_empty_axes=noop_with_empty_axes)
    return _restored(g, data, axes, keepdims) * share, None


reduce_max.vjp(_extremum_gradient)
reduce_min.vjp(_extremum_gradient)


# ----- norms and logarithms -------------------------------------------------------------------------------------------


def _in_floats(data: Value) -> Value:
    """``data`` in a float type wide enough to sum squares: integers as float64, float16 as float32."""
    if data.dtype.is_integer:
        return cast(data, to=DType.float64)
    return cast(data, to=DType.float32) if data.dtype.bits < 32 else data


def _as_given(result: Value, data: Value) -> Value:
    return result if result.dtype is data.dtype else cast(result, to=data.dtype)


def _wide_array(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "iu" else widened(x)


@_reduction("ReduceL1", define=op)
def reduce_l1(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The sum of absolute values over ``axes``."""
    return reduce_sum(absolute(data), axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)


@_reduction("ReduceSumSquare", define=op)
def reduce_sum_square(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The sum of squares over ``axes``."""
    x = data if data.dtype.is_integer else _in_floats(data)
    return _as_given(reduce_sum(x * x, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes), data)


@_reduction("ReduceL2", define=op)
def reduce_l2(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The square root of the sum of squares over ``axes``; truncated for integers."""
    x = _in_floats(data)
    squares = reduce_sum(x * x, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    return _as_given(sqrt(squares), data)


@reduce_l2.vjp
def reduce_l2_vjp(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    """The unit vector; 0 at the origin, where the norm is not differentiable."""
    norm = _restored(y, data, axes, keepdims)
    return _restored(g, data, axes, keepdims) * data / where(equal(norm, 0.0), 1.0, norm), None


@_reduction("ReduceLogSum", define=op)
def reduce_log_sum(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The logarithm of the sum over ``axes``; minus infinity for an empty set."""
    x = _in_floats(data)
    return _as_given(log(reduce_sum(x, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)), data)


@_reduction("ReduceLogSumExp", define=op)
def reduce_log_sum_exp(data, axes: Index = None, *, keepdims=1, noop_with_empty_axes=0):
    """The logarithm of the sum of exponentials over ``axes``, with the maximum subtracted against overflow."""
    x = _in_floats(data)
    options = {"noop_with_empty_axes": noop_with_empty_axes}
    # Infinity minus itself is NaN, so a finite number is subtracted instead.
    limit = float(np.finfo(x.dtype.numpy).max)
    greatest = minimum(maximum(reduce_max(x, axes, keepdims=1, **options), -limit), limit)
    sums = reduce_sum(exp(x - greatest), axes, keepdims=keepdims, **options)
    if not keepdims:
        greatest = reduce_sum(greatest, axes, keepdims=0, **options)
    return _as_given(log(sums) + greatest, data)


@reduce_log_sum_exp.vjp
def reduce_log_sum_exp_vjp(g, y, data, axes, *, keepdims, noop_with_empty_axes):
    return _restored(g, data, axes, keepdims) * exp(data - _restored(y, data, axes, keepdims)), None


_numpy(reduce_sum_square)(lambda x, axes: sum_of_squares(widened(x), axes))
_numpy(reduce_l2)(lambda x, axes: np.sqrt(sum_of_squares(_wide_array(x), axes)))
_numpy(reduce_log_sum)(lambda x, axes: np.log(total(_wide_array(x), axes)))


@_numpy(reduce_l1)
def reduce_l1_numpy(x, axes):
    return total(np.abs(widened(x)), axes, x.dtype if x.dtype.kind in "iu" else None)


@_numpy(reduce_log_sum_exp)
def reduce_log_sum_exp_numpy(x, axes):
    x = _wide_array(x)
    if not x.size:
        return np.log(total(np.exp(x), axes))
    limit = np.finfo(x.dtype).max
    greatest = np.clip(extremum(np.maximum, x, axes), -limit, limit)
    return np.log(total(np.exp(x - greatest), axes)) + greatest
