"""Ops that concatenate and split tensors."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Index,
    TensorType,
    TypeMismatch,
    Value,
    elements,
    limits,
    op,
    primitive,
    same_dtype,
    symbolic,
    vector,
)
from tenonnx_standard.checking import (
    axis_within,
    dim_of,
    integer_vector,
    known_contents,
    length,
    numbers,
    numpy_rule,
    positions,
    same_dtypes,
)

# ----- concatenation --------------------------------------------------------------------------------------------------


#: Longer vectors are not tracked element by element during type inference.
LARGEST_LIST = 1024


@primitive("Concat", data_movement=True)
def concat(*inputs, axis: int):
    """Concatenate the inputs along ``axis``."""


@concat.type
def concat_type(*inputs, axis):
    if not inputs:
        raise TypeMismatch(f"{concat.title} has no inputs")
    dtype = same_dtypes(concat, *inputs)
    shapes = [value.tensor.shape for value in inputs]
    known = [s for s in shapes if s is not None]
    if not known:
        return TensorType(dtype)
    rank = len(known[0])
    axis = axis_within(concat, axis, rank)
    if any(len(s) != rank for s in known):
        raise TypeMismatch(f"{concat.title}: inputs have different ranks", given=", ".join(map(repr, inputs)))
    found: list[Any] = list(known[0])
    try:
        for other in known[1:]:
            found = [
                symbolic.unify(a, b) if k != axis else None for k, (a, b) in enumerate(zip(found, other, strict=True))
            ]
    except ValueError as error:
        given = ", ".join(map(repr, inputs))
        raise TypeMismatch(f"{concat.title}: inputs differ along an axis other than {axis}", given=given) from error
    along: Any = 0
    for each in shapes:
        along = symbolic.add(along, None if each is None else each[axis])
    found[axis] = along
    kind = TensorType(dtype, tuple(found))
    if rank == 1 and isinstance(along, int) and along <= LARGEST_LIST and dtype.is_integer:
        return _partly_known(inputs, kind)
    return kind


def _partly_known(inputs: tuple[Value, ...], kind: TensorType) -> Any:
    """Concatenate vectors of which some have known elements; the others' elements are unknown."""
    items: list[Any] = []
    missing = False
    for value in inputs:
        contents = elements(value)
        missing = missing or contents is None
        items += [None] * value.shape[0] if contents is None else contents
    if not missing or kind.dtype is not DType.int64:
        return kind
    return known_contents(items, (len(items),))


@concat.symbolic
@numpy_rule(concat)
def concat_numpy(*arrays, axis):
    if any(a.dtype != arrays[0].dtype for a in arrays) and not any(a.dtype == object for a in arrays):
        raise ValueError("inputs have different dtypes")
    return np.concatenate(arrays, axis)


concat.specialize(lambda *arrays, axis: lambda *arrays: np.concatenate(arrays, axis))


@concat.vjp
def concat_vjp(g, y, *inputs, axis):
    if len(inputs) == 1:
        return g
    gradients, start = [], 0
    for value in inputs:
        end = start + dim_of(value, axis)
        gradients.append(ops.slice_(g, [start], [end], [axis]))
        start = end
    return tuple(gradients)


concat.until(11, positive=["axis"])


@concat.until(4)
def concat_by_default(*inputs, axis: int | None = None):
    """Concatenate the inputs along ``axis``, which is 1 by default."""
    return concat(*inputs, axis=1 if axis is None else axis)


# ----- splitting ------------------------------------------------------------------------------------------------------


@op("Split", data_movement=True)
def split(input, split: Index = None, *, axis=0, num_outputs: int | None = None, _outputs=None):
    """Split ``input`` along ``axis`` into pieces of lengths ``split``, or of equal length except for a shorter last."""
    pieces, start = [], 0
    for size in _pieces(split, _whole(input, axis) if split is None else None, num_outputs, _outputs):
        end = start + size
        pieces.append(ops.slice_(input, [start], [end], [axis]))
        start = end
    return tuple(pieces)


def _whole(input: Value, axis: int) -> Any:
    """The length of an axis, an int or a value; the rank may be unknown."""
    return ops.gather(ops.shape(input), axis) if input.rank is None else dim_of(input, axis)


def _number_of_pieces(lengths: int | None, num_outputs: int | None, outputs: int | None) -> int:
    """Number of outputs of Split; ``lengths`` is the number of given lengths, -1 if unknown."""
    if (lengths is None) == (num_outputs is None):
        both = "neither" if lengths is None else "both"
        raise TypeMismatch(f"{split.title}: split and num_outputs are both absent or both given", given=both)
    wanted = num_outputs if lengths is None else outputs if lengths < 0 else lengths
    if wanted is None or wanted < 1 or outputs not in (None, wanted):
        raise TypeMismatch(
            f"{split.title}: number of pieces differs from the number of outputs",
            given=f"{wanted} pieces, {outputs} outputs",
        )
    limits.check("entries", wanted, split.title)
    return wanted


def _length_if_known(lengths: Value | None) -> int | None:
    known = None if lengths is None else length(lengths)
    return -1 if lengths is not None and known is None else known


def _pieces(lengths: Value | None, whole: Any, num_outputs: int | None, outputs: int | None) -> list[Any]:
    """The lengths of the pieces, ints and values."""
    count = _number_of_pieces(_length_if_known(lengths), num_outputs, outputs)
    if lengths is not None:
        contents = elements(lengths)
        fixed = contents is not None and all(isinstance(size, int) for size in contents)
        return contents if contents is not None and fixed else [lengths[k] for k in range(count)]
    if isinstance(whole, int):
        return _even(whole, count)
    size = (whole + (count - 1)) // count
    return [ops.minimum(ops.maximum(whole - size * k, 0), size) for k in range(count)]


def _even(whole: int, count: int) -> list[int]:
    size = -(-whole // count)
    return [min(max(whole - size * k, 0), size) for k in range(count)]


@split.type
def split_type(input, lengths, *, axis, num_outputs, _outputs):
    kind, contents = input.tensor, None if lengths is None else integer_vector(split, "split", lengths)
    count = _number_of_pieces(_length_if_known(lengths), num_outputs, _outputs)
    if kind.shape is None:
        return (kind,) * count
    axis = axis_within(split, axis, len(kind.shape))
    whole = kind.shape[axis]
    sizes: list[Any] = contents or [None] * count
    if lengths is None:
        even = symbolic.modulo(whole, count) == 0
        sizes = (
            _even(whole, count)
            if isinstance(whole, int)
            else [symbolic.floor_div(whole, count) if even else None] * count
        )
    elif all(isinstance(each, int) for each in [whole, *sizes]) and sum(sizes) != whole:
        raise TypeMismatch(f"{split.title}: lengths do not sum to that of the axis", given=f"{sizes} for {input!r}")
    return tuple(kind.with_shape((*kind.shape[:axis], each, *kind.shape[axis + 1 :])) for each in sizes)


@split.symbolic
@numpy_rule(split)
def split_numpy(x, lengths, *, axis, num_outputs, _outputs):
    return tuple(x[key] for key in _keys(x, lengths, axis, num_outputs, _outputs))


@split.specialize
def split_specialize(x, lengths, *, axis, num_outputs, _outputs):
    if lengths is not None and lengths.contents is None:
        return None
    keys = _keys(x, None if lengths is None else lengths.contents, axis, num_outputs, _outputs)
    return lambda x, _: tuple([x[key] for key in keys])


def _keys(x, lengths, axis, num_outputs, _outputs):
    """Slices of the pieces, as numpy indices."""
    axis = axis_within(split, axis, x.ndim)
    count = _number_of_pieces(None if lengths is None else lengths.size, num_outputs, _outputs)
    sizes = _even(x.shape[axis], count) if lengths is None else numbers(positions(lengths))
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"lengths {sizes} do not sum to {x.shape[axis]}")
    before, ends = (slice(None),) * axis, itertools.accumulate(sizes)
    return [(*before, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


@split.vjp
def split_vjp(g, y, input, lengths, *, axis, num_outputs, _outputs):
    pieces = zip(g, y, strict=True) if isinstance(g, tuple) else [(g, y)]
    return concat(*(ops.zeros_like(piece) if each is None else each for each, piece in pieces), axis=axis), None


@split.until(18)
def split_exactly(input, split: Index = None, *, axis=0, _outputs=None):
    """Split ``input`` along ``axis`` into pieces of lengths ``split``, or into equal ones, one per output."""
    return _cut(input, split, axis, _outputs)


split_exactly.until(13, attributes=["split"])
split_exactly.until(11, positive=["axis"])


def _cut(input: Value, lengths: Value | None, axis: int, outputs: int | None) -> Any:
    whole = (
        None if lengths is not None or input.rank is None else input.shape[axis_within(split_exactly, axis, input.ndim)]
    )
    if isinstance(whole, int) and outputs and whole % outputs:
        raise TypeMismatch(f"{split_exactly.title}: pieces are not equal", given=f"{outputs} of {whole} elements")
    return split(input, lengths, axis=axis, num_outputs=outputs if lengths is None else None, _outputs=outputs)


@split.lower(to=split_exactly)
def split_to_split_exactly(input, lengths, *, axis, num_outputs):
    limits.check("entries", num_outputs or 0, split.title)
    if lengths is not None:
        count = length(lengths)
        return None if count is None else split_exactly(input, lengths, axis=axis, _outputs=count)
    if input.rank is not None and symbolic.modulo(input.shape[axis], num_outputs) == 0:
        return split_exactly(input, axis=axis, _outputs=num_outputs)
    sizes = _pieces(None, _whole(input, axis), num_outputs, None)
    return split_exactly(input, vector(sizes), axis=axis, _outputs=num_outputs)


@split_exactly.until(2)
def split_by_either(input, lengths=None, *, axis: int | None = None, split: list[int] | None = None, _outputs=None):
    """Split ``input`` along ``axis`` (0 by default); the lengths of the pieces are an input or an attribute."""
    sizes = split if lengths is None else ops.cast(lengths, to=DType.int64)
    return split_exactly(input, sizes, axis=axis or 0, _outputs=_outputs)


# A Python function cannot have two parameters named split; the operator has.
_inputs = split_by_either.signature.inputs
split_by_either.signature = split_by_either.signature._replace(inputs=(_inputs[0], replace(_inputs[1], name="split")))
split_by_either.requires(same_dtype("input", "split"))
