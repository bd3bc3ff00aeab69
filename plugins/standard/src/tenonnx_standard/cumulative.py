"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.extend import Index, Op, TensorType, TypeMismatch, Value, constant, dims, op, static
from tenonnx_standard.checking import axis_within, counted, numpy_rule
from tenonnx_standard.computed_axes import along
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import greater, greater_or_equal, where
from tenonnx_standard.reduction import reduce_prod, reduce_sum
from tenonnx_standard.shapes import reshape, unsqueeze

Array = np.ndarray[Any, Any]


@op("CumSum", since=11)
def cumsum(x, axis: Index, *, exclusive=0, reverse=0):
    """The cumulative sum along ``axis``.

    With ``exclusive``, each element itself is left out; with ``reverse``, sums start at the end.
    """
    return _running(cumsum, x, axis, exclusive, reverse, reduce_sum, 0)


@op("CumProd", since=26)
def cumprod(x, axis: Index, *, exclusive=0, reverse=0):
    """The cumulative product along ``axis``.

    With ``exclusive``, each element itself is left out; with ``reverse``, products start at the end.
    """
    return _running(cumprod, x, axis, exclusive, reverse, reduce_prod, 1)


def _running(op: Op, x: Value, axis: Value, exclusive: int, reverse: int, reduce: Op, neutral: int) -> Value:
    """Reduce, for each position, a copy of ``x`` whose elements outside the accumulated range are ``neutral``."""
    contents = static(axis)
    if contents is None:
        return along(x, axis, lambda view, place: op(view, place, exclusive=exclusive, reverse=reverse))
    place = axis_within(op, int(contents.reshape(())), x.ndim)
    length = dims(x)[place]
    numbers = counted(length, "a sum") if isinstance(length, int) else range_(0, length, 1)
    behind = [1] * (x.ndim - place - 1)
    result, source = reshape(numbers, [-1, 1, *behind]), reshape(numbers, [1, -1, *behind])
    later, earlier = (source, result) if reverse else (result, source)
    taken = greater(later, earlier) if exclusive else greater_or_equal(later, earlier)
    copies = where(taken, unsqueeze(x, [place]), constant(np.asarray(neutral), x.dtype))
    return reduce(copies, [place + 1], keepdims=0)  # type: ignore[no-any-return]


def _type(op: Op) -> Callable[..., TensorType]:
    def rule(x: Value, axis: Value, *, exclusive: int, reverse: int) -> TensorType:
        if not x.dtype.is_numeric:
            raise TypeMismatch(f"{op.title}: x is not numeric", given=repr(x))
        if not axis.dtype.is_integer or axis.rank not in (None, 0, 1):
            raise TypeMismatch(f"{op.title}: axis is not one integer", given=repr(axis))
        contents = static(axis)
        if contents is not None and x.rank is not None:
            if contents.size != 1:
                raise TypeMismatch(f"{op.title}: axis is not one integer", given=f"{contents.tolist()}")
            axis_within(op, int(contents.reshape(())), x.ndim)
        return x.tensor

    return rule


#: Slices of at least this size are added one by one, faster than numpy's accumulation along a strided axis.
_LARGE_SLICE = 128


def _accumulate(ufunc: np.ufunc) -> Callable[..., Array]:
    def rule(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
        place = axis_within(cumsum if ufunc is np.add else cumprod, int(axis.reshape(())), x.ndim)
        wide = x.astype(np.float32) if x.dtype.kind not in "iuO" and x.dtype.itemsize <= 2 else x
        result = np.empty_like(wide, order="C")
        source, target = np.moveaxis(wide, place, 0), np.moveaxis(result, place, 0)
        if reverse:
            source, target = source[::-1], target[::-1]
        if exclusive:
            target[:1] = ufunc.identity
            source, target = source[:-1], target[1:]
        if place == x.ndim - 1 or source[:1].size < _LARGE_SLICE:
            ufunc.accumulate(np.moveaxis(source, 0, place), axis=place, out=np.moveaxis(target, 0, place))
        else:
            target[:1] = source[:1]
            for k in range(1, len(source)):
                ufunc(target[k - 1], source[k], out=target[k])
        return result.astype(x.dtype, copy=False)

    return rule


cumsum.type(_type(cumsum))
cumprod.type(_type(cumprod))
cumsum.symbolic(numpy_rule(cumsum)(_accumulate(np.add)))
cumprod.symbolic(numpy_rule(cumprod)(_accumulate(np.multiply)))


@cumsum.vjp
def cumsum_vjp(g: Value, y: Value, x: Value, axis: Value, *, exclusive: int, reverse: int) -> tuple[Value, None]:
    return cumsum(g, axis, exclusive=exclusive, reverse=int(not reverse)), None
