"""Ops that choose elements by comparing them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, Index, Known, Op, TensorType, TypeMismatch, Value, dims, elements, op, primitive, static
from tenonnx.graph.values import operator
from tenonnx_standard.checking import Array, axis_within, numpy_rule

# ----- extreme positions ----------------------------------------------------------------------------------------------


@primitive("ArgMax", selects=True)
def argmax(data, *, axis=0, keepdims=1, select_last_index=0):
    """The position of the greatest element along ``axis``, the first or the last of equal ones."""
    ...


@primitive("ArgMin", selects=True)
def argmin(data, *, axis=0, keepdims=1, select_last_index=0):
    """The position of the least element along ``axis``, the first or the last of equal ones."""
    ...


def _position(made: Op, find: str) -> None:
    """All that is known of ArgMax or ArgMin."""
    made.until(12, lacks=["select_last_index"])
    made.vjp(lambda g, y, data, **_: None)

    @made.type
    def _(data: Value, *, axis: int, keepdims: int, select_last_index: int) -> TensorType:
        shape = data.tensor.shape
        if shape is None:
            return TensorType(DType.int64)
        axis = axis_within(made, axis, len(shape))
        return TensorType(DType.int64, (*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1 :]))

    @numpy_rule(made)
    def _(x: Array, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        axis = axis_within(made, axis, x.ndim)
        if not select_last_index:
            return np.asarray(getattr(x, find)(axis, keepdims=bool(keepdims)), dtype=np.int64)
        last = getattr(np.flip(x, axis), find)(axis, keepdims=bool(keepdims))
        return np.asarray(x.shape[axis] - 1 - last, dtype=np.int64)

    @made.lower()
    def _(data: Value, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        """The last one is the first one of the reversed axis."""
        from tenonnx_standard.slicing import slice_

        if not select_last_index or data.rank is None:
            return None
        low = np.iinfo(np.int64)
        back = slice_(data, [low.max], [low.min], [axis], [-1])
        return dims(data)[axis] - 1 - made(back, axis=axis, keepdims=keepdims)


_position(argmax, "argmax")
_position(argmin, "argmin")

# ----- the greatest ---------------------------------------------------------------------------------------------------


@primitive("TopK", selects=True)
def top_k(X, K: Index, *, axis=-1, largest=1, sorted=1):
    """The ``K`` greatest or least elements along ``axis`` in order, and their positions; of equal ones the first comes first."""
    ...


top_k.until(11, lacks=["largest", "sorted"])
top_k.until(10, attributes=["K"], renamed={"K": "k"}, vectors=["K"])


@top_k.type
def _(X, K, *, axis, largest, sorted):
    kind, known = X.tensor, elements(K)
    if not K.dtype.is_integer or K.rank not in (None, 0, 1):
        raise TypeMismatch(f"{top_k.title}: K must be one integer", given=repr(K))
    if kind.shape is None:
        return kind, kind.with_dtype(DType.int64)
    axis = axis_within(top_k, axis, len(kind.shape))
    count, size = known[0] if known else None, kind.shape[axis]
    if isinstance(count, int) and (count < 0 or isinstance(size, int) and count > size):
        raise TypeMismatch(f"{top_k.title}: K cannot exceed the length of the axis", given=f"K {count} for {X!r}")
    found = kind.with_shape((*kind.shape[:axis], count, *kind.shape[axis + 1 :]))
    return found, found.with_dtype(DType.int64)


@numpy_rule(top_k)
def _(x, k, *, axis, largest, sorted):
    axis, count = axis_within(top_k, axis, x.ndim), int(k.reshape(()))
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"there are no {count} elements along axis {axis}")
    keys = np.moveaxis(x, axis, -1)
    order = (_greatest if largest else _least)(keys)[..., :count]
    order = np.moveaxis(order, -1, axis)
    return np.take_along_axis(x, order, axis), np.ascontiguousarray(order, dtype=np.int64)


def _least(keys: Array) -> Array:
    return np.argsort(keys, axis=-1, kind="stable")


def _greatest(keys: Array) -> Array:
    back = np.argsort(keys[..., ::-1], axis=-1, kind="stable")
    return keys.shape[-1] - 1 - back[..., ::-1]


@top_k.vjp
def _(g, y, X, K, *, axis, largest, sorted):
    from tenonnx_standard.scatter import scatter_elements

    if g[0] is None:
        return None, None
    return scatter_elements(operator("zeros_like", X), y[1], g[0], axis=axis), None


@top_k.lower()
def _(X, K, *, axis, largest, sorted):
    """The least are the greatest of the negative ones; and sorted ones serve where any order would."""
    if largest and sorted:
        return None
    if largest:
        return top_k(X, K, axis=axis)
    if not X.dtype.is_float:
        return None
    values, places = top_k(-X, K, axis=axis)
    return -values, places
