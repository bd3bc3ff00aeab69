"""Ops that write elements at given indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Index,
    Op,
    TypeMismatch,
    Value,
    axis,
    constant,
    differ,
    dims,
    holds,
    one_of,
    op,
    primitive,
    shapes,
    symbolic,
)
from tenonnx_standard.checking import (
    Array,
    axis_within,
    dim_of,
    dims_of,
    numpy_rule,
    positions,
    same_dtypes,
)
from tenonnx_standard.slicing import (
    flat_places,
    flat_tuples,
    from_front,
    gather_elements,
    gather_nd,
    tuple_length,
    wrapped,
)

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}

#: Reductions before version 18, which added max and min.
_ARITHMETIC = ("none", "add", "mul")


def _check_reduction(
    op: Op, reduction: str, known: tuple[str, ...] = ("none", *_UFUNCS), *, of_texts: bool = False
) -> None:
    if reduction not in known:
        raise TypeMismatch(f"{op.title}: unknown reduction", given=repr(reduction), available=", ".join(known))
    if of_texts and reduction != "none":
        raise TypeMismatch(f"{op.title}: strings cannot be reduced", given=repr(reduction), do='use reduction="none"')


def _check_indices(op: Op, indices: Value) -> None:
    if not indices.dtype.is_integer:
        raise TypeMismatch(f"{op.title}: indices are not integers", given=repr(indices), do="cast them")


# ----- numpy ----------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def _combined(y: Array, flat: Array, updates: Array, reduction: str) -> Array:
    """Combine each of ``updates`` into the element of ``y`` at a flat index; indices may repeat."""
    if y.dtype.itemsize > 2 or y.dtype.kind in "biu":
        _UFUNCS[reduction].at(y.reshape(-1), flat, updates)
        return y
    wide = y.astype(np.float32)  # narrow floats would lose precision when added
    _UFUNCS[reduction].at(wide.reshape(-1), flat, updates.astype(np.float32))
    return wide.astype(y.dtype)


# ----- ScatterElements ------------------------------------------------------------------------------------------------


#: Overflowing sums and products differ in a wider element type.
_NO_SUMS = {"reduction": ["none", "max", "min"]}


@primitive("ScatterElements", since=11, data_movement=_NO_SUMS)
def scatter_elements(data, indices: Index, updates, *, axis=0, reduction="none"):
    """Write each of ``updates`` into ``data``, or combine it by ``reduction``, at its own position.

    Along ``axis``, the position is replaced by the index.
    """


@scatter_elements.type
def scatter_elements_type(data, indices, updates, *, axis, reduction):
    _check_reduction(scatter_elements, reduction, of_texts=data.dtype is DType.string)
    _check_indices(scatter_elements, indices)
    same_dtypes(scatter_elements, data, updates)
    kind = data.tensor
    ranks = {value.rank for value in (data, indices, updates)} - {None}
    if len(ranks) > 1:
        given = f"{data!r}, {indices!r}, {updates!r}"
        raise TypeMismatch(f"{scatter_elements.title}: data, indices and updates differ in rank", given=given)
    if kind.shape is not None:
        axis_within(scatter_elements, axis, len(kind.shape))
    return kind if kind.shape is not None or not ranks else kind.with_shape((None,) * ranks.pop())


@scatter_elements.symbolic
@numpy_rule(scatter_elements)
def scatter_elements_numpy(x, indices, updates, *, axis, reduction):
    _check_reduction(scatter_elements, reduction, of_texts=x.dtype.kind in "OSU")
    axis = axis_within(scatter_elements, axis, x.ndim)
    if indices.shape != updates.shape:
        raise ValueError("shapes of indices and updates differ")
    if any(n > x.shape[k] for k, n in enumerate(indices.shape) if k != axis):
        raise IndexError("indices are longer than data along another axis")
    y, flat = np.array(x, order="C"), flat_places(x.shape, positions(indices), axis)
    if reduction == "none":
        y.reshape(-1)[flat] = updates
        return y
    return _combined(y, flat.reshape(-1), updates.reshape(-1), reduction)


def _gradients(g: Value, y: Value, data: Value, updates: Value, reduction: str, write: Any, read: Any) -> Any:
    """Gradients of ``data`` and ``updates``, by functions that write at the indices and read there."""
    if reduction == "none":
        return write(g, ops.zeros_like(updates), "none"), None, read(g)
    if reduction == "add":
        return g, None, read(g)
    if reduction == "mul":
        none = ops.equal(updates, 0.0)
        rest = ops.where(none, 1.0, updates)
        zeros = write(ops.zeros_like(data), ops.cast_like(none, data), "add")
        alone = ops.where(ops.equal(zeros, 1.0), g * write(data, rest, "mul"), 0.0)  # for two zeros
        others = ops.where(none, read(alone), read(g * y) / rest)
        return g * write(ops.ones_like(data), updates, "mul"), None, others
    kept, won = ops.cast_like(ops.equal(data, y), g), ops.cast_like(ops.equal(updates, read(y)), g)
    share = g / write(kept, won, "add")
    return share * kept, None, read(share) * won


@scatter_elements.vjp
def scatter_elements_vjp(g, y, data, indices, updates, *, axis, reduction):
    return _gradients(
        g,
        y,
        data,
        updates,
        reduction,
        lambda x, u, how: scatter_elements(x, indices, u, axis=axis, reduction=how),
        lambda x: gather_elements(x, indices, axis=axis),
    )


@scatter_elements.until(18)
def scatter_elements_arithmetic(data, indices: Index, updates, *, axis=0, reduction="none"):
    """ScatterElements without max and min."""
    _check_reduction(scatter_elements_arithmetic, reduction, _ARITHMETIC)
    return scatter_elements(data, indices, updates, axis=axis, reduction=reduction)


@scatter_elements_arithmetic.until(16)
def scatter_elements_plain(data, indices: Index, updates, *, axis=0):
    """ScatterElements without reductions."""
    return scatter_elements(data, indices, updates, axis=axis)


@scatter_elements.lower(to=scatter_elements_arithmetic)
def scatter_elements_to_scatter_elements_arithmetic(data, indices, updates, *, axis, reduction):
    if reduction not in _ARITHMETIC:
        return None
    return scatter_elements_arithmetic(data, indices, updates, axis=axis, reduction=reduction)


@scatter_elements.lower()
def scatter_elements_lowering(data, indices, updates, *, axis, reduction):
    return None if reduction in _ARITHMETIC else _dense(data, indices, updates, axis, reduction)


@scatter_elements.lower()
def scatter_elements_lowering_2(data, indices, updates, *, axis, reduction):
    """Use ScatterND with full coordinates of every element, for runtimes that lack ScatterElements."""
    axis %= data.ndim
    sizes = dims(indices)
    coordinates = []
    for place, size in enumerate(sizes):
        if place == axis:
            along = ops.mod(ops.cast(indices, to=DType.int64), dims(data)[axis])
        else:
            along = ops.expand(ops.reshape(ops.range_(0, size, 1), [-1, *[1] * (data.ndim - place - 1)]), sizes)
        coordinates.append(ops.unsqueeze(along, [-1]))
    return ops.scatter_nd(data, ops.concat(*coordinates, axis=-1), updates, reduction=reduction)


@op("Scatter", since=9, before=11, data_movement=True)
def scatter(data, indices: Index, updates, *, axis=0):
    """Write each of ``updates`` into ``data`` at its own position; along ``axis``, at its index."""
    return scatter_elements(data, indices, updates, axis=axis)


@scatter_elements_arithmetic.lower(to=scatter_elements_plain)
def scatter_elements_arithmetic_to_scatter_elements_plain(data, indices, updates, *, axis, reduction):
    return scatter_elements_plain(data, indices, updates, axis=axis) if reduction == "none" else None


@scatter_elements_plain.lower(to=scatter)
def scatter_elements_plain_to_scatter(data, indices, updates, *, axis):
    return scatter(data, indices, updates, axis=axis_within(scatter, axis, data.ndim))


@scatter_elements_arithmetic.lower()
def scatter_elements_arithmetic_lowering(data, indices, updates, *, axis, reduction):
    return None if reduction == "none" else _dense(data, indices, updates, axis, reduction)


def _dense(data: Value, indices: Value, updates: Value, axis: int, reduction: str) -> Value:
    """Compare every index with every position, for targets without any scatter."""
    combine, reduce = {
        "add": (ops.add, ops.reduce_sum),
        "mul": (ops.mul, ops.reduce_prod),
        "max": (ops.maximum, ops.reduce_max),
        "min": (ops.minimum, ops.reduce_min),
    }[reduction]
    axis = axis_within(scatter_elements, axis, data.ndim)
    size, neutral = dim_of(data, axis), constant(_neutral(reduction, data.dtype), data.dtype)
    grid = ops.reshape(ops.range_(0, size, 1), [-1] + [1] * (data.ndim - axis))
    hit = ops.equal(ops.unsqueeze(from_front(indices, size), [axis]), grid)
    found = reduce(ops.where(hit, ops.unsqueeze(updates, [axis]), neutral), [axis + 1], keepdims=0)
    missing = [0 if k == axis else _missing(data, indices, k) for k in range(data.ndim)]
    if any(not isinstance(number, int) or number for number in missing):
        found = ops.pad(found, [0] * data.ndim + missing, neutral)
    return combine(data, found)


def _missing(data: Value, indices: Value, axis: int) -> Any:
    """Difference between the length of an axis of ``data`` and of ``indices``, an int or a value."""
    known = symbolic.subtract(data.shape[axis], indices.shape[axis])
    return known if isinstance(known, int) else dim_of(data, axis) - dim_of(indices, axis)


def _neutral(reduction: str, dtype: DType) -> Any:
    if reduction in ("add", "mul"):
        return int(reduction == "mul")
    if dtype.is_float:
        return -np.inf if reduction == "max" else np.inf
    limits = np.iinfo(dtype.numpy)
    return limits.min if reduction == "max" else limits.max


# ----- ScatterND ------------------------------------------------------------------------------------------------------


@op("ScatterND", since=11, data_movement=_NO_SUMS)
def scatter_nd(data, indices: Index, updates, *, reduction="none"):
    """Write each of ``updates`` into ``data``, or combine it by ``reduction``, at its index tuple.

    The last axis of ``indices`` has the tuples.
    """
    _check_reduction(scatter_nd, reduction)
    depth = tuple_length(scatter_nd, data, indices, 0)
    flat, count = flat_tuples(data, indices, depth)
    inner = data.ndim - depth
    rest = dims_of(data, range(depth, data.ndim))
    rows = ops.as_shape(updates, [_total(dims_of(indices, range(indices.ndim - 1))), *rest])
    places = ops.reshape(flat, [-1] + [1] * inner)
    places = ops.expand(places, ops.shape(rows)) if inner else places
    whole = ops.as_shape(data, [count, *rest])
    return ops.reshape_like(scatter_elements(whole, places, rows, axis=0, reduction=reduction), data)


def _total(sizes: list[Any]) -> Any:
    whole: Any = 1
    for size in sizes:
        whole = size if isinstance(whole, int) and whole == 1 else whole * size
    return whole


@scatter_nd.type
def scatter_nd_type(data, indices, updates, *, reduction):
    _check_reduction(scatter_nd, reduction, of_texts=data.dtype is DType.string)
    _check_indices(scatter_nd, indices)
    same_dtypes(scatter_nd, data, updates)
    if None not in (data.rank, indices.rank) and isinstance(indices.shape[-1] if indices.ndim else 0, int):
        depth = tuple_length(scatter_nd, data, indices, 0)
        if updates.rank not in (None, indices.ndim - 1 + data.ndim - depth):
            given = f"{data!r}, {indices!r}, {updates!r}"
            raise TypeMismatch(
                f"{scatter_nd.title}: updates does not hold a slice of data for every index tuple", given=given
            )
    return data.tensor


@scatter_nd.symbolic
@numpy_rule(scatter_nd)
def scatter_nd_numpy(x, indices, updates, *, reduction):
    _check_reduction(scatter_nd, reduction, of_texts=x.dtype.kind in "OSU")
    depth, y, places = indices.shape[-1], np.array(x, order="C"), positions(indices)
    rest = x.shape[depth:]
    if updates.shape != (*indices.shape[:-1], *rest):
        given = f"updates {list(updates.shape)}, indices {list(indices.shape)}, data {list(x.shape)}"
        raise TypeMismatch(
            f"{scatter_nd.title}: updates does not hold a slice of data for every index tuple", given=given
        )
    flat, count = np.zeros((), np.int64), 1
    for k in reversed(range(depth)):
        flat, count = flat + wrapped(places[..., k], x.shape[k]) * count, count * x.shape[k]
    if reduction == "none":
        y.reshape(count, *rest)[flat.reshape(-1)] = updates.reshape(flat.size, *rest)
        return y
    inner = math.prod(rest)
    elements = flat.reshape(-1, 1) * inner + np.arange(inner)
    return _combined(y, elements.reshape(-1), updates.reshape(-1), reduction)


@scatter_nd.vjp
def scatter_nd_vjp(g, y, data, indices, updates, *, reduction):
    return _gradients(
        g,
        y,
        data,
        updates,
        reduction,
        lambda x, u, how: scatter_nd(x, indices, u, reduction=how),
        lambda x: gather_nd(x, indices),
    )


@scatter_nd.until(18)
def scatter_nd_arithmetic(data, indices: Index, updates, *, reduction="none"):
    """ScatterND without max and min."""
    _check_reduction(scatter_nd_arithmetic, reduction, _ARITHMETIC)
    return scatter_nd(data, indices, updates, reduction=reduction)


scatter_nd_arithmetic.until(16, lacks=["reduction"])


@scatter_nd.lower(to=scatter_nd_arithmetic)
def scatter_nd_to_scatter_nd_arithmetic(data, indices, updates, *, reduction):
    if reduction in _ARITHMETIC:
        return scatter_nd_arithmetic(data, indices, updates, reduction=reduction)
    return None


@scatter_nd_arithmetic.lower()
def scatter_nd_arithmetic_lowering(data, indices, updates, *, reduction):
    """For older targets, the sum of updates as a product of a one-hot matrix with them."""
    if reduction != "add" or not data.dtype.is_float:
        return None
    depth = tuple_length(scatter_nd, data, indices, 0)
    flat, count = flat_tuples(data, indices, depth)
    hits = ops.cast(ops.equal(ops.reshape(ops.range_(0, count, 1), [-1, 1]), ops.reshape(flat, [-1])), to=data.dtype)
    counts = dims_of(indices, range(indices.ndim - 1)), dims_of(data, range(depth, data.ndim))
    rows = ops.as_shape(updates, [_total(part) for part in counts])
    return data + ops.reshape_like(ops.matmul(hits, rows), data)


# ----- caches ---------------------------------------------------------------------------------------------------------


@op("TensorScatter", since=24, data_movement=True)
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """Write ``update`` into ``past_cache`` along ``axis``, from a start position per batch entry.

    In mode ``circular``, positions wrap around the end.
    """
    axis, rank = axis % past_cache.ndim, past_cache.ndim
    places = ops.reshape(ops.range_(0, dim_of(update, axis), 1), [-1] + [1] * (rank - 1 - axis))
    if write_indices is not None:
        places = places + ops.reshape(write_indices, [-1] + [1] * (rank - 1))
    if mode == "circular":
        places = places % dim_of(past_cache, axis)
    return scatter_elements(past_cache, ops.expand(places, ops.shape(update)), update, axis=axis)


def _update_fits(past_cache: Value, update: Value, axis: int) -> str | None:
    if past_cache.rank is None:
        return None
    if axis % past_cache.ndim == 0:
        return "axis is 0, the batch axis"
    pairs = () if update.rank is None else zip(past_cache.shape, update.shape, strict=False)
    fits = update.rank in (None, past_cache.ndim)
    if not fits or any(differ(a, b) for k, (a, b) in enumerate(pairs) if k != axis % past_cache.ndim):
        return "update differs from past_cache along more than one axis"
    return None


tensor_scatter.requires(
    shapes(past_cache="batch ...", write_indices="batch"),
    one_of(mode=("linear", "circular")),
    axis("axis", of="past_cache"),
    holds(_update_fits),
)
