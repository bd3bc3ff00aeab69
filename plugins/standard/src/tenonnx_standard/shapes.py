"""Ops that change a tensor's shape or return it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    ArrayConstant,
    DType,
    Index,
    Known,
    Op,
    SequenceType,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    elements,
    limits,
    op,
    primitive,
    symbolic,
)
from tenonnx_standard.checking import (
    axes_within,
    axis_within,
    integer_vector,
    known_contents,
    length,
    numbers,
    numpy_rule,
    positions,
    same_elements,
)
from tenonnx_standard.joining import concat as concat
from tenonnx_standard.joining import split as split
from tenonnx_standard.padding import pad as pad

# ----- entire tensors -------------------------------------------------------------------------------------------------


@primitive("Identity", data_movement=True)
def identity(input):
    """``input`` itself: a tensor, a sequence or an optional."""


identity.type(lambda x: Known(x.type, x.symbolic_contents, x.data))
identity.numpy(lambda x: x)
identity.vjp(lambda g, y, x: g)


@identity.lower()
def identity_lowering(input):
    """Below opset 16, where Identity lacks sequences: append an element and erase it."""
    if not isinstance(input.type, SequenceType) or not isinstance(input.type.element, TensorType):
        return None
    dtype = input.type.element.dtype
    return ops.sequence_erase(ops.sequence_insert(input, constant(np.zeros((), dtype.numpy), dtype)))


@primitive("Shape")
def shape(data, *, start=0, end: int | None = None):
    """The lengths of the axes of ``data`` from ``start`` up to, but excluding, ``end``, both clipped to the rank."""


@shape.type
def shape_type(data, *, start, end):
    kind = data.tensor
    if kind.shape is None:
        return TensorType(DType.int64, (None,))
    chosen = list(kind.shape[start:end])
    return known_contents(chosen, (len(chosen),))


shape.numpy(lambda x, *, start, end: np.array(x.shape[start:end], dtype=np.int64))
shape.vjp(lambda g, y, data, *, start, end: None)
shape.until(15, lacks=["start", "end"])


@shape.lower()
def shape_lowering(data, *, start, end):
    if start == 0 and end is None:
        return None
    return ops.slice_(shape(data), [start], [np.iinfo(np.int64).max if end is None else end], [0])


@op("Size")
def size(data):
    """The number of elements of ``data``, an int64 scalar."""
    return ops.reduce_prod(shape(data), keepdims=0)


size.numpy(lambda x: np.array(x.size, dtype=np.int64))
size.vjp(lambda g, y, data: None)

# ----- reshaping ------------------------------------------------------------------------------------------------------


@primitive("Reshape", data_movement=True)
def reshape(data, shape: Index, *, allowzero=0):
    """``data`` reshaped, where -1 is inferred from the other dims.

    A 0 copies the dim of ``data`` on that axis, or is 0 with ``allowzero``.
    """


reshape.until(14, lacks=["allowzero"])
reshape.until(5, attributes=["shape"], ignored=["consumed_inputs"])


@reshape.type
def reshape_type(data, shape, *, allowzero):
    kind, wanted = data.tensor, integer_vector(reshape, "shape", shape)
    if wanted is None:
        count = length(shape)
        return kind.with_shape(None if count is None else (None,) * count)
    found = _reshaped(kind.shape, wanted, allowzero)
    if kind.shape is not None:
        before, after = symbolic.product(kind.shape), symbolic.product(found)
        if isinstance(before, int) and isinstance(after, int) and before != after:
            raise TypeMismatch(
                f"{reshape.title}: the new shape does not have as many elements as the tensor",
                given=f"shape {wanted} for {data!r}",
            )
    return kind.with_shape(tuple(found))


def _reshaped(old: tuple[Any, ...] | None, wanted: list[Any], allowzero: int) -> list[Any]:
    """The new dims, as far as known; works on ints and on symbolic dims."""
    problem = ""
    if wanted.count(-1) > 1:
        problem = "several dims are -1"
    elif any(isinstance(item, int) and item < -1 for item in wanted):
        problem = "a dim is below -1"
    elif allowzero and -1 in wanted and 0 in wanted:
        problem = "dims are both 0 and -1, with allowzero"
    elif not allowzero and old is not None and 0 in wanted[len(old) :]:
        problem = "a dim is 0 where the input has no dim to copy"
    if problem:
        raise TypeMismatch(f"{reshape.title}: {problem}", given=f"shape {wanted}")
    copied = [k for k, item in enumerate(wanted) if not allowzero and isinstance(item, int) and item == 0]
    result = [(None if old is None else old[k]) if k in copied else item for k, item in enumerate(wanted)]
    open_places = [k for k, item in enumerate(wanted) if item is None or item == -1]
    for place in open_places:
        result[place] = None
    if len(open_places) == 1 and old is not None:
        # Dims copied on both sides cancel: they may be unknown, or 0.
        whole = symbolic.product(d for k, d in enumerate(old) if k not in copied)
        others = symbolic.product(d for k, d in enumerate(result) if k not in copied and k not in open_places)
        if isinstance(whole, int) and isinstance(others, int) and others and whole % others:
            raise TypeMismatch(
                f"{reshape.title}: the dim for -1 is not a whole number", given=f"shape {wanted} for dims {old}"
            )
        result[open_places[0]] = symbolic.floor_div(whole, others)
    return result


@reshape.symbolic
@numpy_rule(reshape)
def reshape_numpy(x, shape, *, allowzero):
    wanted = numbers(shape)
    if (not allowzero and 0 in wanted) or not x.size:
        wanted = _reshaped(x.shape, [int(d) for d in wanted], allowzero)
        wanted = [-1 if d is None else d for d in wanted]
    return x.reshape(wanted)


same_elements(reshape)


@reshape.vjp
def reshape_vjp(g, y, data, shape, *, allowzero):
    return ops.reshape_like(g, data), None


@reshape.lower()
def reshape_lowering(data, shape, *, allowzero):
    """Without ``allowzero``: a tensor with a dim of 0 is empty, and so is one that is reshaped to such a dim."""
    if not allowzero:
        return None
    if 0 in (elements(shape) or ()) or (data.rank is not None and 0 in data.shape):
        return ops.constant_of_shape(
            ops.maximum(shape, 0), value=ArrayConstant(np.zeros(1, data.dtype.numpy), data.dtype)
        )
    return reshape(data, shape)


@op("Flatten", data_movement=True)
def flatten(input, *, axis=1):
    """``input`` flattened to a matrix: the product of the dims before ``axis`` by that of the rest."""
    before, after = (_product(part) for part in _parted(dims(input), axis))
    return ops.as_shape(input, [before, after])


def _parted(items: Any, axis: int) -> tuple[Any, Any]:
    rank = len(items)
    if not -rank <= axis <= rank:
        raise TypeMismatch(f"{flatten.title}: axis lies outside [{-rank}, {rank}]", given=f"axis {axis} of rank {rank}")
    axis += rank if axis < 0 else 0
    return items[:axis], items[axis:]


def _product(items: list[Any]) -> Any:
    """The product of dims, which are ints or values."""
    values = [item for item in items if isinstance(item, Value)]
    whole: Any = math.prod(item for item in items if not isinstance(item, Value))
    for value in values:
        whole = value if isinstance(whole, int) and whole == 1 else value * whole
    return whole


flatten.until(11, positive=["axis"])


@flatten.numpy
def flatten_numpy(x, *, axis):
    before, after = _parted(x.shape, axis)
    return x.reshape(math.prod(before), math.prod(after))


same_elements(flatten)
flatten.vjp(lambda g, y, x, *, axis: ops.reshape_like(g, x))


@primitive("Squeeze", data_movement=True)
def squeeze(data, axes: Index = None):
    """Remove ``axes``, which have length 1; without ``axes``, remove all axes of length 1.

    An empty list means no ``axes``, as in onnxruntime; NumPy would keep all axes.
    """


squeeze.until(13, attributes=["axes"])


@squeeze.type
def squeeze_type(data, axes):
    kind = data.tensor
    if axes is None or length(axes) == 0:
        sizes = kind.shape
        if sizes is None or any(d != 1 and (symbolic.known_lower_bound(d) or 0) < 2 and d != 0 for d in sizes):
            return kind.with_shape(None)
        return kind.with_shape(tuple(d for d in sizes if d != 1))
    contents = integer_vector(squeeze, "axes", axes, or_scalar=True)
    if kind.shape is None:
        return kind
    if contents is None or None in contents:
        count = length(axes)
        return kind.with_shape(None if not isinstance(count, int) else (None,) * (len(kind.shape) - count))
    dropped = {axis_within(squeeze, int(axis), len(kind.shape)) for axis in contents}  # runtimes accept repeated axes
    for axis in dropped:
        if isinstance(kind.shape[axis], int) and kind.shape[axis] != 1:
            raise TypeMismatch(
                f"{squeeze.title}: the length of a squeezed axis is not 1", given=f"axis {axis} of {data!r}"
            )
    return kind.with_shape(tuple(d for k, d in enumerate(kind.shape) if k not in dropped))


@squeeze.symbolic
@numpy_rule(squeeze)
def squeeze_numpy(x, axes):
    dropped = tuple({axis_within(squeeze, axis, x.ndim) for axis in ([] if axes is None else numbers(axes))})
    return x.squeeze(axis=dropped or None)


same_elements(squeeze)


@squeeze.vjp
def squeeze_vjp(g, y, data, axes):
    known = None if axes is None else length(axes)
    return (unsqueeze(g, axes) if isinstance(known, int) and known else ops.reshape_like(g, data)), None


@squeeze.until(11)
def squeeze_from_front(data, *, axes: list[int] | None = None):
    """Remove ``axes``, which are not negative; without ``axes``, remove all axes of length 1."""
    return squeeze(data, axes)


@squeeze.lower(to=squeeze_from_front)
def squeeze_to_squeeze_from_front(data, axes):
    if axes is None or length(axes) == 0:
        return squeeze_from_front(data)
    counted = _counted(squeeze, axes, data.rank)
    return None if counted is None else squeeze_from_front(data, axes=counted)


def _counted(op: Op, axes: Value, rank: int | None) -> list[int] | None:
    """Known axes as sorted non-negative numbers."""
    contents = elements(axes)
    if contents is None or rank is None or not all(isinstance(axis, int) for axis in contents):
        return None
    return sorted({axis_within(op, int(axis), rank) for axis in contents})


@primitive("Unsqueeze", data_movement=True)
def unsqueeze(data, axes: Index):
    """Insert axes of length 1 at the positions ``axes`` of the result."""


unsqueeze.until(13, attributes=["axes"], defaults={"axes": REQUIRED})


@unsqueeze.type
def unsqueeze_type(data, axes):
    kind = data.tensor
    contents = integer_vector(unsqueeze, "axes", axes, or_scalar=True)
    count = length(axes)
    if kind.shape is None or count is None:
        return kind.with_shape(None)
    rank = len(kind.shape) + count
    if contents is None or None in contents:
        return kind.with_shape((None,) * rank)
    added, rest = axes_within(unsqueeze, contents, rank), iter(kind.shape)
    return kind.with_shape(tuple(1 if k in added else next(rest) for k in range(rank)))


@unsqueeze.symbolic
@numpy_rule(unsqueeze)
def unsqueeze_numpy(x, axes):
    rank = x.ndim + axes.size
    added, rest = axes_within(unsqueeze, numbers(axes), rank), iter(x.shape)
    return x.reshape([1 if k in added else next(rest) for k in range(rank)])


same_elements(unsqueeze)
unsqueeze.vjp(lambda g, y, data, axes: (squeeze(g, axes), None))


@unsqueeze.until(11)
def unsqueeze_from_front(data, *, axes: list[int]):
    """Insert axes of length 1 at the non-negative positions ``axes``."""
    return unsqueeze(data, axes)


@unsqueeze.lower(to=unsqueeze_from_front)
def unsqueeze_to_unsqueeze_from_front(data, axes):
    counted = _counted(unsqueeze, axes, None if data.rank is None else data.rank + (length(axes) or 0))
    return None if counted is None else unsqueeze_from_front(data, axes=counted)


# ----- transposition --------------------------------------------------------------------------------------------------


@primitive("Transpose", data_movement=True)
def transpose(data, *, perm: list[int] | None = None):
    """Permute the axes of ``data`` by ``perm``, reversed by default."""


@transpose.type
def transpose_type(data, *, perm):
    kind = data.tensor
    if kind.shape is None:
        return kind.with_shape(None if perm is None else (None,) * len(perm))
    if perm is None:
        return kind.with_shape(kind.shape[::-1])
    if sorted(perm) != list(range(len(kind.shape))):
        raise TypeMismatch(
            f"{transpose.title}: perm does not name every axis once", given=f"perm {list(perm)} for {data!r}"
        )
    return kind.with_shape(tuple(kind.shape[axis] for axis in perm))


@transpose.symbolic
@numpy_rule(transpose)
def transpose_numpy(x, *, perm):
    return x.transpose(perm)


transpose.specialize(lambda x, *, perm: lambda x: x.transpose(perm))


@transpose.vjp
def transpose_vjp(g, y, data, *, perm):
    return transpose(g) if perm is None else transpose(g, perm=sorted(range(len(perm)), key=lambda k: perm[k]))


# ----- repetition -----------------------------------------------------------------------------------------------------


@primitive("Expand", since=8, data_movement=True, broadcasts=True)
def expand(input, shape: Index):
    """Broadcast ``input`` against a tensor of that shape."""


@expand.type
def expand_type(input, shape):
    kind, wanted, count = input.tensor, integer_vector(expand, "shape", shape), length(shape)
    if kind.shape is None or wanted is None:
        return kind.with_shape(None if kind.shape is None or count is None else (None,) * max(len(kind.shape), count))
    try:
        return kind.with_shape(symbolic.broadcast_shapes(kind.shape, wanted))
    except ValueError as error:
        raise TypeMismatch(f"{expand.title}: {error}", given=f"shape {wanted} for {input!r}") from error


@expand.symbolic
@numpy_rule(expand)
def expand_numpy(x, shape):
    wanted = np.broadcast_shapes(x.shape, tuple(numbers(positions(shape))))
    if wanted != x.shape:
        limits.check_elements(wanted, expand.title)  # a view, but the results of most ops on it are not
    return np.broadcast_to(x, wanted)


@expand.specialize
def expand_specialize(x, shape):
    if shape.contents is None:
        return None
    wanted = np.broadcast_shapes(x.shape, tuple(numbers(positions(shape.contents))))
    if wanted == x.shape:
        return lambda x, _: x
    strides = np.broadcast_to(np.empty(x.shape, x.dtype), wanted).strides
    if x.dtype.hasobject:
        return None

    def expanded(x, _):
        y = np.ndarray(wanted, x.dtype, np.ascontiguousarray(x), 0, strides)
        y.flags.writeable = False
        return y

    return expanded


expand.vjp(lambda g, y, x, shape: (g, None))


@expand.lower()
def expand_lowering(input, shape):
    """Repeat axes of length 1, if it is known which axes these are."""
    wanted, count = elements(shape), length(shape)
    if input.rank is None or wanted is None or count is None:
        return None
    missing = max(count - input.ndim, 0)
    sizes, wanted = [1] * missing + list(input.shape), [1] * (input.ndim - count) + wanted
    repeats: list[Any] = []
    for k, (size, times) in enumerate(zip(sizes, wanted, strict=True)):
        if size == 1:
            repeats.append(times if isinstance(times, int) else shape[k - (len(wanted) - count)])
        elif times == 1 or (size is not None and size == times):
            repeats.append(1)
        else:
            return None
    return tile(unsqueeze(input, list(range(missing))) if missing else input, repeats)


@op("Tile", data_movement=True)
def tile(input, repeats: Index):
    """Repeat ``input`` along every axis as often as ``repeats`` states."""
    sizes, contents = dims(input), elements(repeats)
    fixed = contents is not None and all(isinstance(times, int) for times in contents)
    counts: Any = contents if fixed else [repeats[k] for k in range(len(sizes))]
    split_shape = ops.as_shape(input, [part for size in sizes for part in (1, size)])
    copies = expand(split_shape, [part for pair in zip(counts, sizes, strict=True) for part in pair])
    return ops.as_shape(copies, [times * size for times, size in zip(counts, sizes, strict=True)])


@tile.type
def tile_type(input, repeats):
    kind, contents, count = input.tensor, integer_vector(tile, "repeats", repeats), length(repeats)
    if kind.shape is None:
        return kind.with_shape(None if count is None else (None,) * count)
    if count not in (None, len(kind.shape)):
        raise TypeMismatch(
            f"{tile.title}: repeats does not have one element for every axis", given=f"{count} for {input!r}"
        )
    return kind.with_shape(tuple(map(symbolic.multiply, kind.shape, contents or [None] * len(kind.shape))))


@tile.symbolic
@numpy_rule(tile)
def tile_numpy(x, repeats):
    counts = numbers(positions(repeats))
    if len(counts) != x.ndim:
        raise ValueError(f"{len(counts)} numbers for {x.ndim} axes")
    reshaped = x.reshape([part for size in x.shape for part in (1, size)])
    copies = np.broadcast_to(reshaped, [part for pair in zip(counts, x.shape, strict=True) for part in pair])
    whole = [times * size for times, size in zip(counts, x.shape, strict=True)]
    return copies.reshape(whole if x.dtype == object else limits.sized(whole, tile.title))


@tile.until(6)
def tile_along(input, tiles, axis):
    """Repeat ``input`` along one axis; both numbers are one-element tensors with the dtype of ``input``."""
    places = constant(np.arange(input.ndim))
    return tile(input, ops.where(ops.equal(places, ops.cast(axis, to=DType.int64)), ops.cast(tiles, to=DType.int64), 1))
