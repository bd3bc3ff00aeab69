"""Ops that select elements by index: slices, gathers and masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    ArrayConstant,
    Dim,
    DType,
    Index,
    Known,
    TensorType,
    TypeMismatch,
    UnknownType,
    Value,
    axis,
    constant,
    differ,
    dims,
    elements,
    holds,
    limits,
    op,
    primitive,
    shapes,
    static,
    symbolic,
)
from tenonnx_standard.checking import (
    Array,
    axes_within,
    axis_within,
    dim_of,
    dims_of,
    integer_vector,
    length,
    numbers,
    numpy_rule,
    positions,
)

_LAST = np.iinfo(np.int64).max

#: End of a slice that means "to the end", as the specification recommends for unknown lengths.
_FAR = np.iinfo(np.int32).max

# ----- slices ---------------------------------------------------------------------------------------------------------


@primitive("Slice", data_movement=True)
def slice_(data, starts: Index, ends: Index, axes: Index = None, steps: Index = None):
    """Slice ``data`` from ``starts`` up to, but excluding, ``ends`` along ``axes`` (all by default), by ``steps``.

    Negative positions count from the end, out-of-range ones are clipped, and negative steps go backwards.
    """


slice_.until(
    10, attributes=["starts", "ends", "axes"], lacks=["steps"], defaults={"starts": REQUIRED, "ends": REQUIRED}
)


@slice_.type
def slice_type(data, starts, ends, axes, steps):
    kind = data.tensor
    lists = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    known = {name: integer_vector(slice_, name, value) for name, value in lists.items() if value is not None}
    counts = {n for n in (length(value) for value in lists.values() if value is not None) if n is not None}
    if len(counts) > 1:
        given = ", ".join(f"{name} {length(value)}" for name, value in lists.items() if value is not None)
        raise TypeMismatch(f"{slice_.title}: starts, ends, axes and steps differ in length", given=given)
    if kind.shape is None:
        return kind
    rank = len(kind.shape)
    if axes is None and counts and max(counts) > rank:
        raise TypeMismatch(f"{slice_.title}: there are more starts than axes", given=f"{max(counts)} for {data!r}")
    places = known.get("axes") if axes is not None else list(range(rank))[: max(counts, default=0)] if counts else None
    if places is None or None in places:
        return kind.with_shape((None,) * rank)
    found, unknown = list(kind.shape), [None] * rank
    for k, axis in enumerate(axes_within(slice_, places, rank)):
        step = (known["steps"] or unknown)[k] if steps is not None else 1
        if step == 0:
            raise TypeMismatch(f"{slice_.title}: a step cannot be 0", given=f"steps {known['steps']}")
        found[axis] = _sliced(found[axis], (known["starts"] or unknown)[k], (known["ends"] or unknown)[k], step)
    return kind.with_shape(tuple(found))


def _sliced(size: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    """Number of elements of a slice of an axis."""
    if not isinstance(step, int):
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*_bounds(size, start, end, step)))
    if not all(isinstance(place, int) or symbolic.is_known_positive(symbolic.add(place, 1)) for place in (start, end)):
        return None  # unknown sign
    span = _forward(size, start, end) if step > 0 else _backward(size, start, end)
    return symbolic.maximum(symbolic.ceil_div(span, abs(step)), 0)


def _forward(size: Dim, start: Dim, end: Dim) -> Dim:
    """Number of positions in a forward slice; 0 or less if it is empty."""
    if (isinstance(start, int) and start >= _FAR) or (isinstance(end, int) and end <= -_FAR):
        return 0
    counts_back = isinstance(start, int) and -_FAR < start < 0
    ends_back = isinstance(end, int) and not 0 <= end < _FAR
    last = symbolic.add(size, min(end, 0)) if ends_back else symbolic.minimum(end, size)
    if counts_back:
        return symbolic.minimum(symbolic.subtract(last, symbolic.add(size, start)), last)
    return last if isinstance(start, int) and start < 0 else symbolic.subtract(last, start)


def _backward(size: Dim, start: Dim, end: Dim) -> Dim:
    if isinstance(end, int) and end >= _FAR:
        return 0
    first = last = top = symbolic.subtract(size, 1)
    if isinstance(start, int) and start < -1:
        nearest = symbolic.maximum(symbolic.add(size, start), 0) if start > -_FAR else 0
        first = nearest if symbolic.is_known_positive(size) else None
    elif not isinstance(start, int) or -1 < start < _FAR:
        first = symbolic.minimum(start, top)
    if isinstance(end, int) and end < 0:
        last = symbolic.maximum(symbolic.add(size, end), -1) if end > -_FAR else -1
    else:
        last = symbolic.minimum(end, top)
    return symbolic.subtract(first, last)


def _bounds(size: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """The range of positions in a slice."""
    if size == 0:
        return 0, 0, step
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size), step
    return min(max(start, 0), size - 1), min(max(end, -1), size - 1), step


@slice_.symbolic
@numpy_rule(slice_)
def slice_numpy(x, starts, ends, axes, steps):
    return x[_key(x, starts, ends, axes, steps)]


@slice_.specialize
def slice_specialize(x, *bounds):
    if any(bound is not None and bound.contents is None for bound in bounds):
        return None
    key = _key(x, *(None if bound is None else bound.contents for bound in bounds))
    return lambda x, *_: x[key]


def _key(x, starts, ends, axes, steps):
    """Index of ``x`` for numpy."""
    places = range(starts.size) if axes is None else axes_within(slice_, numbers(positions(axes)), x.ndim)
    strides = [1] * starts.size if steps is None else numbers(positions(steps))
    key = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        places, numbers(positions(starts)), numbers(positions(ends)), strides, strict=True
    ):
        first, last, step = _bounds(x.shape[axis], start, end, step)
        key[axis] = slice(first, None if last < 0 else last, step)
    return tuple(key)


@slice_.vjp
def slice_vjp(g, y, data, starts, ends, axes, steps):
    places = elements(axes) if axes is not None else list(range(length(starts) or 0)) or None
    strides = [1] if steps is None else elements(steps)
    if data.rank is None or places is None or strides is None or any(step != 1 for step in strides):
        return _scattered_slice(g, data, starts, ends, axes, steps), None, None, None, None
    known, rank = elements(starts), data.ndim
    pads: list[Any] = [0] * (2 * rank)
    for k, axis in enumerate(axes_within(slice_, places, rank)):
        start = known[k] if known is not None and isinstance(known[k], int) else starts[k]
        pads[axis] = _first(dim_of(data, axis), start)
        pads[axis + rank] = dim_of(data, axis) - dim_of(g, axis) - pads[axis]
    return ops.pad(g, pads), None, None, None, None


def _first(size: Any, start: Any) -> Any:
    """Start of a slice of step 1, an int or a value."""
    if isinstance(start, int):
        if isinstance(size, int):
            return _bounds(size, start, _LAST, 1)[0]
        return start if start == 0 else ops.minimum(size, start) if start > 0 else ops.maximum(size + start, 0)
    if start.dtype is not DType.int64:
        start = ops.as_int64(start)
    return ops.maximum(ops.minimum(ops.where(start < 0, start + size, start), size), 0)


def _scattered_slice(g: Value, data: Value, *arguments: Value | None) -> Value:
    """``g`` at the positions of a slice of ``data``, and 0 elsewhere."""
    places = slice_(ops.reshape_like(ops.range_(0, ops.size(data), 1), data), *arguments)
    zeros = ops.reshape(ops.zeros_like(data), [-1])
    return ops.reshape(ops.scatter_elements(zeros, ops.reshape(places, [-1]), ops.reshape(g, [-1])), ops.shape(data))


@slice_.lower()
def slice_lowering(data, starts, ends, axes, steps):
    """Drop ``steps`` if all are 1; else gather the positions."""
    strides = None if steps is None else elements(steps)
    if strides is None:
        return None
    if all(step == 1 for step in strides):
        return slice_(data, starts, ends, axes)
    lists = [elements(starts), elements(ends), list(range(len(strides))) if axes is None else elements(axes)]
    if data.rank is None or any(known is None or None in known for known in lists):
        return None
    places = axes_within(slice_, lists[2] or [], data.ndim)
    if not all(isinstance(data.shape[axis], int) for axis in places):
        return None
    for axis, start, end, step in zip(places, lists[0] or [], lists[1] or [], strides, strict=True):
        visited = range(*_bounds(data.shape[axis], start, end, step))
        limits.check_elements([len(visited)], slice_.title)
        data = gather(data, constant(np.arange(visited.start, visited.stop, visited.step)), axis=axis)
    return data


# ----- indices --------------------------------------------------------------------------------------------------------


@primitive("Gather", data_movement=True)
def gather(data, indices: Index, *, axis=0):
    """Gather slices of ``data`` along ``axis`` at ``indices``, whose shape replaces the axis."""


@gather.type
def gather_type(data, indices, *, axis):
    kind, places = data.tensor, indices.tensor
    if not places.dtype.is_integer:
        raise TypeMismatch(f"{gather.title}: indices are not integers", given=repr(indices), do="cast them")
    if kind.shape is None:
        return kind
    axis = axis_within(gather, axis, len(kind.shape))
    _check_range(gather, indices, kind.shape[axis])
    if places.shape is None:
        return kind.with_shape(None)
    return kind.with_shape((*kind.shape[:axis], *places.shape, *kind.shape[axis + 1 :]))


def _check_range(op: Any, indices: Value, size: Dim) -> None:
    contents = static(indices)
    if not isinstance(size, int) or contents is None or not 0 < contents.size <= 1024:
        return
    if contents.min() < -size or contents.max() >= size:
        given = f"from {contents.min()} to {contents.max()}"
        raise TypeMismatch(f"{op.title}: an index lies outside [{-size}, {size - 1}]", given=given)


@gather.symbolic
@numpy_rule(gather)
def gather_numpy(x, indices, *, axis):
    axis = axis_within(gather, axis, x.ndim)
    if indices.ndim == 0:
        return x[(*(slice(None),) * axis, int(positions(indices)), ...)]
    if not x.flags.c_contiguous:  # take would copy the entire array first
        return x[(*(slice(None),) * axis, positions(indices))]
    return x.take(positions(indices), axis)


@gather.specialize
def gather_specialize(x, indices, *, axis):
    """A single constant index is a view; unknown indices are checked by ``take``."""
    if indices.contents is None or indices.ndim:
        return None
    key = (*(slice(None),) * (axis % x.ndim), int(indices.contents), ...)
    return lambda x, _: x[key]


@gather.vjp
def gather_vjp(g, y, data, indices, *, axis):
    return put_back(g, data, indices, axis), None


def put_back(g: Value, data: Value, indices: Value, axis: int) -> Value:
    """Sum ``g`` at the positions of ``data`` that it was gathered from."""
    axis, rank, count = axis % data.ndim, data.ndim, indices.ndim
    place, length = static(indices), data.shape[axis]
    if place is not None and count == 0 and isinstance(length, int):
        before = int(place) % length
        around = [before if k == axis else length - 1 - before if k == axis + rank else 0 for k in range(2 * rank)]
        return ops.pad(ops.unsqueeze(g, [axis]), around)
    places = ops.unsqueeze(ops.as_int64(indices), [-1])
    if axis == 0:
        return ops.scatter_nd(ops.zeros_like(data), places, g, reduction="add")
    moved = [*range(axis, axis + count), *range(axis), *range(axis + count, g.ndim)]
    sizes = dims(data)
    zeros = ops.expand(constant(0, data.dtype), [sizes[axis], *sizes[:axis], *sizes[axis + 1 :]])
    summed = ops.scatter_nd(zeros, places, ops.transpose(g, perm=moved), reduction="add")
    return ops.transpose(summed, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])


@op("GatherElements", since=11, data_movement=True)
def gather_elements(data, indices: Index, *, axis=0):
    """Gather elements of ``data`` at the positions of ``indices``; along ``axis``, the position is the index itself."""
    return gather(ops.reshape(data, [-1]), flat_positions(data, indices, axis_within(gather_elements, axis, data.ndim)))


def flat_positions(data: Value, indices: Value, axis: int) -> Value:
    """Indices in flattened ``data`` of the elements that GatherElements reads."""
    flat: Any = None
    stride: Any = 1
    for place in reversed(range(data.ndim)):
        if place < data.ndim - 1:
            stride = dim_of(data, place + 1) * stride
        if place == axis:
            step = from_front(indices, dim_of(data, place))
        else:
            step = ops.reshape(ops.range_(0, dim_of(indices, place), 1), [-1] + [1] * (data.ndim - 1 - place))
        step = step if isinstance(stride, int) and stride == 1 else step * stride
        flat = step if flat is None else flat + step
    return flat


def from_front(indices: Value, size: Any) -> Value:
    """``indices`` as non-negative int64."""
    indices = ops.as_int64(indices)
    return ops.where(indices < 0, indices + size, indices)


def _same_rank(data: Value, indices: Value) -> str | None:
    return "ranks of data and indices differ" if None is not data.rank != indices.rank is not None else None


gather_elements.requires(axis("axis", of="data"), holds(_same_rank))


@gather_elements.symbolic
@numpy_rule(gather_elements)
def gather_elements_numpy(x, indices, *, axis):
    axis = axis_within(gather_elements, axis, x.ndim)
    if any(n > x.shape[k] for k, n in enumerate(indices.shape) if k != axis):
        raise IndexError("indices are longer than data along another axis")
    return x.reshape(-1).take(flat_places(x.shape, positions(indices), axis))


def flat_places(shape: tuple[int, ...], indices: Array, axis: int) -> Array:
    """Flat indices of elements in an array of ``shape``: their positions, with the given index along ``axis``."""
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    flat = wrapped(indices, shape[axis]) * strides[axis]
    for k, (count, stride) in enumerate(zip(indices.shape, strides, strict=True)):
        if k != axis and count > 1:
            flat += (np.arange(count) * stride).reshape([-1] + [1] * (len(shape) - 1 - k))
    return flat


def wrapped(indices: Array, size: int) -> Array:
    """Non-negative indices. Raises ``IndexError`` if one is out of range."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise IndexError(f"an index is out of range for an axis of length {size}")
    return np.where(indices < 0, indices + size, indices) if indices.size and indices.min() < 0 else indices


@gather_elements.vjp
def gather_elements_vjp(g, y, data, indices, *, axis):
    return ops.scatter_elements(ops.zeros_like(data), indices, g, axis=axis, reduction="add"), None


@op("GatherND", since=11, data_movement=True)
def gather_nd(data, indices: Index, *, batch_dims=0):
    """Gather slices of ``data`` at the index tuples in the last axis of ``indices``.

    The first ``batch_dims`` axes are shared.
    """
    depth = tuple_length(gather_nd, data, indices, batch_dims)
    flat, count = flat_tuples(data, indices, depth, batch_dims)
    return gather(ops.as_shape(data, [count, *dims_of(data, range(batch_dims + depth, data.ndim))]), flat)


gather_nd.until(12, lacks=["batch_dims"])


def tuple_length(op: Any, data: Value, indices: Value, batch_dims: int) -> int:
    """The length of the index tuples. Raises ``UnknownType`` if unknown."""
    depth = indices.shape[-1] if indices.ndim > batch_dims else 0
    given = f"{data!r}, {indices!r}, batch_dims {batch_dims}"
    if not isinstance(depth, int):
        raise UnknownType(f"{op.title}: the last dim of indices is unknown", given=given)
    if not 0 < depth <= data.ndim - batch_dims:
        what = f"{op.title}: last axis of indices does not hold an index for 1 or more axes of data"
        raise TypeMismatch(what, given=given)
    return depth


def flat_tuples(data: Value, indices: Value, depth: int, batch_dims: int = 0) -> tuple[Value, Any]:
    """The row index of each tuple if the indexed axes of ``data`` are flattened, and the number of rows."""
    flat: Any = None
    stride: Any = 1
    for place in reversed(range(batch_dims + depth)):
        size = dim_of(data, place)
        if place >= batch_dims:
            step = from_front(indices[..., place - batch_dims], size)
        else:
            step = ops.reshape(ops.range_(0, size, 1), [-1] + [1] * (indices.ndim - 2 - place))
        step = step if isinstance(stride, int) and stride == 1 else step * stride
        flat = step if flat is None else flat + step
        stride = size * stride
    return flat, stride


def _batches_agree(data: Value, indices: Value, batch_dims: int) -> str | None:
    shapes_of = data.tensor.shape, indices.tensor.shape
    if None in shapes_of:
        return None
    unlike = any(differ(one, other) for one, other in list(zip(*shapes_of, strict=False))[: max(batch_dims, 0)])
    return 'first batch_dims dims of "data" and "indices" differ' if unlike else None


gather_nd.requires(holds(_batches_agree))


@gather_nd.type
def gather_nd_type(data, indices, *, batch_dims):
    kind, places = data.tensor, indices.tensor
    if not places.dtype.is_integer:
        raise TypeMismatch(f"{gather_nd.title}: indices are not integers", given=repr(indices), do="cast them")
    if batch_dims < 0:
        raise TypeMismatch(f"{gather_nd.title}: batch_dims cannot be negative", given=str(batch_dims))
    if kind.shape is None or places.shape is None or (places.shape and not isinstance(places.shape[-1], int)):
        return kind.with_shape(None)
    depth = tuple_length(gather_nd, data, indices, batch_dims)
    return kind.with_shape((*places.shape[:-1], *kind.shape[batch_dims + depth :]))


@gather_nd.symbolic
@numpy_rule(gather_nd)
def gather_nd_numpy(x, indices, *, batch_dims):
    places = positions(indices)
    key = [places[..., k] for k in range(places.shape[-1])]
    for axis in range(batch_dims):
        grid = np.arange(x.shape[axis])
        key.insert(axis, grid.reshape([-1] + [1] * (places.ndim - 2 - axis)))
    return np.asarray(x[tuple(key)], x.dtype)


@gather_nd.vjp
def gather_nd_vjp(g, y, data, indices, *, batch_dims):
    if batch_dims == 0:
        return ops.scatter_nd(ops.zeros_like(data), indices, g, reduction="add"), None
    depth = tuple_length(gather_nd, data, indices, batch_dims)
    flat, count = flat_tuples(data, indices, depth, batch_dims)
    zeros = ops.as_shape(ops.zeros_like(data), [count, *dims_of(data, range(batch_dims + depth, data.ndim))])
    return ops.reshape_like(ops.scatter_nd(zeros, ops.unsqueeze(flat, [-1]), g, reduction="add"), data), None


# ----- masks ----------------------------------------------------------------------------------------------------------


@primitive("NonZero", since=9)
def non_zero(X):
    """The indices of non-zero elements, one column each, in row-major order."""


@non_zero.type
def non_zero_type(X):
    kind = X.tensor
    rank = None if kind.shape is None else max(len(kind.shape), 1)
    if X.data is not None and X.data.nbytes <= 8192:
        found = ArrayConstant(_non_zero(X.data.array()))
        return Known(found.type, data=found)
    return TensorType(DType.int64, (rank, None))


def _non_zero(x: Array) -> Array:
    return np.array(np.nonzero(np.atleast_1d(x)), dtype=np.int64)


non_zero.numpy(_non_zero)
non_zero.vjp(lambda g, y, X: None)


@op("Compress", since=9, data_movement=True)
def compress(input, condition, *, axis: int | None = None):
    """Slices of ``input`` along ``axis`` where ``condition`` is true; without ``axis``, its flattened elements."""
    data = ops.reshape(input, [-1]) if axis is None else input
    return gather(data, ops.reshape(non_zero(condition), [-1]), axis=axis or 0)


compress.until(11, positive=["axis"])


compress.requires(shapes(input="first rest...", condition="_"), axis("axis", of="input"))


@numpy_rule(compress)
def compress_numpy(x, condition, *, axis):
    return x.compress(condition, axis)
