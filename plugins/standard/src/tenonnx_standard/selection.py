"""Ops that select elements by comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Index,
    Op,
    TensorType,
    TypeMismatch,
    Value,
    axis,
    constant,
    elements,
    limits,
    op,
    primitive,
    shapes,
    symbolic,
)
from tenonnx_standard.checking import Array, axis_within, check_shape, dim_of, numpy_rule
from tenonnx_standard.slicing import from_front, put_back

# ----- ArgMax and ArgMin ----------------------------------------------------------------------------------------------


@primitive("ArgMax", data_movement=True)
def argmax(data, *, axis=0, keepdims=1, select_last_index=0):
    """The index of the maximum along ``axis``, the first or the last one of equal elements."""


@primitive("ArgMin", data_movement=True)
def argmin(data, *, axis=0, keepdims=1, select_last_index=0):
    """The index of the minimum along ``axis``, the first or the last one of equal elements."""


def _register_arg_extremum(op: Op, find: str) -> None:
    """Register the rules of ArgMax or ArgMin."""
    op.until(12, lacks=["select_last_index"])
    op.until(11, positive=["axis"])
    op.vjp(lambda g, y, data, **_: None)

    @op.type
    def made_type(data: Value, *, axis: int, keepdims: int, select_last_index: int) -> TensorType:
        shape = data.tensor.shape
        if shape is None:
            return TensorType(DType.int64)
        axis = axis_within(op, axis, len(shape))
        return TensorType(DType.int64, (*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1 :]))

    @numpy_rule(op)
    def made_numpy(x: Array, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        axis = axis_within(op, axis, x.ndim)
        if not select_last_index:
            return np.asarray(getattr(x, find)(axis, keepdims=bool(keepdims)), dtype=np.int64)
        last = getattr(np.flip(x, axis), find)(axis, keepdims=bool(keepdims))
        return np.asarray(x.shape[axis] - 1 - last, dtype=np.int64)

    @op.lower()
    def made_lowering(data: Value, *, axis: int, keepdims: int, select_last_index: int) -> Any:
        """The last index is found as the first one on the reversed axis."""
        if not select_last_index or data.rank is None:
            return None
        low = np.iinfo(np.int64)
        back = ops.slice_(data, [low.max], [low.min], [axis], [-1])
        return dim_of(data, axis) - 1 - op(back, axis=axis, keepdims=keepdims)


_register_arg_extremum(argmax, "argmax")
_register_arg_extremum(argmin, "argmin")

# ----- TopK -----------------------------------------------------------------------------------------------------------


@primitive("TopK", data_movement=True)
def top_k(X, K: Index, *, axis=-1, largest=1, sorted=1):
    """The ``K`` largest or smallest elements along ``axis``, sorted, and their indices.

    Equal elements keep their order. NaN counts as the largest number, as in onnxruntime and PyTorch.
    """


top_k.until(11, lacks=["largest", "sorted"], positive=["axis"])
top_k.until(10, attributes=["K"], renamed={"K": "k"}, vectors=["K"], defaults={"K": REQUIRED})


@top_k.type
def top_k_type(X, K, *, axis, largest, sorted):
    kind, contents = X.tensor, elements(K)
    check_shape(top_k, "K", K, [1])
    if kind.shape is None:
        return kind, kind.with_dtype(DType.int64)
    axis = axis_within(top_k, axis, len(kind.shape))
    count, size = contents[0] if contents else None, kind.shape[axis]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise TypeMismatch(f"{top_k.title}: K cannot exceed the length of the axis", given=f"K {count} for {X!r}")
    result = kind.with_shape((*kind.shape[:axis], count, *kind.shape[axis + 1 :]))
    return result, result.with_dtype(DType.int64)


@numpy_rule(top_k)
def top_k_numpy(x, k, *, axis, largest, sorted):
    axis, count = axis_within(top_k, axis, x.ndim), int(k.reshape(()))
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"there are no {count} elements along axis {axis}")
    narrow = x.dtype.itemsize < 4 and x.dtype.kind not in "biu"
    keys = np.moveaxis(x.astype(np.float32) if narrow else x, axis, -1)
    order = _best(keys.reshape(-1, keys.shape[-1]), count, bool(largest)).reshape(*keys.shape[:-1], count)
    order = np.ascontiguousarray(np.moveaxis(order, -1, axis))
    return np.take_along_axis(x, order, axis), order


#: For shorter rows, or fewer elements in total, sorting everything is faster than selecting first.
_SHORT, _FEW = 64, 1000


def _best(keys: Array, count: int, largest: bool) -> Array:
    """The indices of the best elements in each row, sorted."""
    size = keys.shape[1]
    if 0 < 4 * count <= size and size >= _SHORT and keys.size >= _FEW:
        result = _best_of_few(keys, count, largest)
        if result is not None:
            return result
    order = np.argsort(_reversed(keys) if largest else keys, axis=1, kind="stable")
    if largest and keys.dtype.kind == "f" and np.isnan(np.take_along_axis(keys, order[:, -1:], axis=1)).any():
        order = np.lexsort((_reversed(keys), ~np.isnan(keys)), axis=1)
    return order[:, :count]


def _best_of_few(keys: Array, count: int, largest: bool) -> Array | None:
    """Sort only the elements not worse than the ``count``-th best one, found by partitioning.

    Returns None if NaNs make this fail.
    """
    rows, size = keys.shape
    place = size - count if largest else count - 1
    parts = np.partition(keys, place, axis=1)
    if largest and keys.dtype.kind == "f" and np.isnan(parts[:, place:]).any():
        return None
    bound = parts[:, place, None]
    found = np.flatnonzero(keys >= bound if largest else keys <= bound)
    values, (row, column) = keys.reshape(-1)[found], np.divmod(found, size)
    counts = np.bincount(row, minlength=rows)
    if counts.min() < count:
        return None
    values = _reversed(values) if largest else values
    if len(found) == rows * count:
        order = np.argsort(values.reshape(rows, count), axis=1, kind="stable")
        return np.asarray(np.take_along_axis(column.reshape(rows, count), order, axis=1))
    order = np.argsort(values, kind="stable")
    order = order[np.argsort(row[order], kind="stable")]
    first = np.cumsum(counts) - counts
    return np.asarray(column[order[first[:, None] + np.arange(count)]])


def _reversed(keys: Array) -> Array:
    """Keys that sort in the opposite order."""
    return ~keys if keys.dtype.kind in "iu" else -keys


@top_k.vjp
def top_k_vjp(g, y, X, K, *, axis, largest, sorted):
    if g[0] is None:
        return None, None
    places = top_k(X, K, axis=axis, largest=largest, sorted=sorted)[1] if y[1] is None else y[1]
    return ops.scatter_elements(ops.zeros_like(X), places, g[0], axis=axis), None


@top_k.lower()
def top_k_lowering(X, K, *, axis, largest, sorted):
    """Use negated elements for the smallest, and sorted results if unsorted ones are allowed."""
    if largest and sorted:
        return None
    if largest:
        return top_k(X, K, axis=axis)
    if not X.dtype.is_float:
        return None
    values, places = top_k(-X, K, axis=axis)
    return -values, places


# ----- Unique ---------------------------------------------------------------------------------------------------------


@primitive("Unique", since=11, data_movement=True)
def unique(X, *, axis: int | None = None, sorted=1):
    """The unique elements of ``X``, or unique slices along ``axis``, sorted or in order of first occurrence.

    Further outputs: the index of first occurrence, the inverse indices of the elements of ``X``, and the counts.
    """


@unique.type
def unique_type(X, *, axis, sorted):
    kind, places = X.tensor, TensorType(DType.int64, (None,))
    if axis is None:
        whole = None if kind.shape is None else symbolic.product(kind.shape)
        return kind.with_shape((None,)), places, places.with_shape((whole,)), places
    if kind.shape is None:
        return kind, places, places, places
    axis = axis_within(unique, axis, len(kind.shape))
    result = kind.with_shape((*kind.shape[:axis], None, *kind.shape[axis + 1 :]))
    return result, places, places.with_shape((kind.shape[axis],)), places


@numpy_rule(unique)
def unique_numpy(x, *, axis, sorted):
    keys, along = x, 0 if axis is None else axis_within(unique, axis, x.ndim)
    if axis is not None and x.dtype.kind not in "biuf":
        # Only numbers are sorted by slices; other elements are replaced by their ranks.
        keys = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    _, first, inverse, counts = np.unique(keys, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        first, inverse, counts = first[order], ranks[inverse], counts[order]
    result = (x.reshape(-1) if axis is None else x).take(first, along)
    return result, *(places.astype(np.int64, copy=False) for places in (first, inverse, counts))


@unique.vjp
def unique_vjp(g, y, X, *, axis, sorted):
    if g[0] is None:
        return None
    first = unique(X, axis=axis, sorted=sorted)[1] if y[1] is None else y[1]
    if axis is not None:
        return put_back(g[0], X, first, axis)
    return ops.reshape_like(put_back(g[0], ops.reshape(X, [-1]), first, 0), X)


# ----- OneHot ---------------------------------------------------------------------------------------------------------


@op("OneHot", since=9)
def one_hot(indices, depth: Index, values, *, axis=-1):
    """Add an axis of length ``depth``, with ``values[1]`` at the index and ``values[0]`` elsewhere.

    Negative indices count from the end; out-of-range ones have ``values[0]`` everywhere.
    """
    axis = axis_within(one_hot, axis, indices.ndim + 1)
    count = ops.reshape(ops.cast(depth, to=DType.int64), constant(np.zeros(0, np.int64)))
    places = from_front(ops.cast(indices, to=DType.int64), count)
    grid = ops.reshape(ops.range_(0, count, 1), [-1] + [1] * (indices.ndim - axis))
    return ops.where(ops.equal(ops.unsqueeze(places, [axis]), grid), values[1], values[0])


one_hot.requires(
    shapes(indices="_ ...", depth="|1", values="2"),
    axis("axis", of="indices", end=True),
)


@numpy_rule(one_hot)
def one_hot_numpy(indices, depth, values, *, axis):
    axis, size = axis_within(one_hot, axis, indices.ndim + 1), int(depth.reshape(()))
    places = np.expand_dims(indices.astype(np.int64), axis)
    inside = (places >= -size) & (places < size)
    y = np.full(
        limits.sized((*indices.shape[:axis], size, *indices.shape[axis:]), one_hot.title), values[0], values.dtype
    )
    if size:
        np.put_along_axis(y, np.where(inside, places, 0), np.where(inside, values[1], y.take([0], axis)), axis)
    return y


@one_hot.until(11)
def one_hot_unsigned(indices, depth: Index, values, *, axis=-1):
    """One-hot vectors of non-negative indices; negative ones have ``values[0]`` everywhere."""
    places = ops.cast(indices, to=DType.int64)
    count = ops.reshape(ops.cast(depth, to=DType.int64), constant(np.zeros(0, np.int64)))
    return one_hot(ops.where(places < 0, count, places), depth, values, axis=axis)


@one_hot.lower(to=one_hot_unsigned)
def one_hot_to_one_hot_unsigned(indices, depth, values, *, axis):
    """Replace out-of-range indices by ``depth``, since runtimes disagree on negative ones."""
    count = ops.reshape(ops.cast(depth, to=DType.int64), constant(np.zeros(0, np.int64)))
    places = from_front(ops.cast(indices, to=DType.int64), count)
    axis += indices.ndim + 1 if axis < -1 else 0
    return one_hot_unsigned(ops.where(places < 0, count, places), depth, values, axis=axis)
