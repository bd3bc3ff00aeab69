"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Graph,
    Index,
    InvalidCall,
    Op,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    TypeMismatch,
    Value,
    axis,
    constant,
    inline,
    join_types,
    limits,
    primitive,
    shapes,
    static,
    subgraph,
)
from tenonnx_standard.subgraphs import subgraph_types

LENGTH = TensorType(DType.int64, ())


def _element(title: str, sequence: Value) -> Type | None:
    kind = sequence.type
    if isinstance(kind, OptionalType):
        kind = kind.element
    if not isinstance(kind, SequenceType):
        raise TypeMismatch(f"{title}: the input is not a sequence", given=repr(sequence))
    return kind.element


def _common(kinds: list[Type | None]) -> Type | None:
    result = kinds[0] if kinds else None
    for kind in kinds[1:]:
        result = join_types(result, kind)
    return result


def place_in(op: Op, position: Any, length: int, *, last: int = -1) -> int:
    """A non-negative position in a sequence; negative ones count from the end."""
    index = int(np.reshape(position, -1)[0])
    if not -length <= index <= length + last:
        raise InvalidCall(f"{op.name}: the position lies outside the sequence", given=f"{index} of {length} elements")
    return index + length if index < 0 else index


# ----- sequences ------------------------------------------------------------------------------------------------------


def _construct_type(*inputs: Value) -> Type:
    if not inputs or any(v.dtype is not inputs[0].dtype for v in inputs):
        given = ", ".join(map(repr, inputs)) or "none"
        raise TypeMismatch("SequenceConstruct: inputs are missing, or are not tensors of one dtype", given=given)
    return SequenceType(_common([v.type for v in inputs]))


@primitive("SequenceConstruct", since=11, type=_construct_type)
def sequence_construct(*inputs):
    """A sequence of the inputs."""


sequence_construct.numpy(lambda *inputs: list(inputs))


@primitive("SequenceEmpty", since=11, type=lambda *, dtype: SequenceType(TensorType(DType(dtype or DType.float32))))
def sequence_empty(*, dtype: int | None = None):
    """An empty sequence."""


sequence_empty.numpy(lambda *, dtype: [])


def _insert_type(input_sequence: Value, tensor: Value, position: Value | None) -> Type:
    element = _element("SequenceInsert", input_sequence)
    if element is not None and getattr(element, "dtype", None) is not tensor.dtype:
        given = f"{tensor!r} into {input_sequence!r}"
        raise TypeMismatch(
            "SequenceInsert: the dtype of tensor differs from that of the sequence", given=given, do="cast it"
        )
    return SequenceType(tensor.type if element is None else join_types(element, tensor.type))


@primitive("SequenceInsert", since=11, type=_insert_type)
def sequence_insert(input_sequence, tensor, position: Index = None):
    """The sequence with ``tensor`` inserted before ``position``, or appended."""


@sequence_insert.numpy
def sequence_insert_numpy(input_sequence: list[Any], tensor: Any, position: Any) -> list[Any]:
    length = len(input_sequence)
    limits.check_memory(limits.ELEMENT * (length + 1) + getattr(tensor, "nbytes", 0), "the sequence of SequenceInsert")
    place = length if position is None else place_in(sequence_insert, position, length, last=0)
    return [*input_sequence[:place], tensor, *input_sequence[place:]]


@primitive("SequenceErase", since=11, type=lambda input_sequence, position: input_sequence.type)
def sequence_erase(input_sequence, position: Index = None):
    """The sequence without the element at ``position``, by default the last."""


@sequence_erase.numpy
def sequence_erase_numpy(input_sequence: list[Any], position: Any) -> list[Any]:
    place = place_in(sequence_erase, -1 if position is None else position, len(input_sequence))
    return [*input_sequence[:place], *input_sequence[place + 1 :]]


@primitive("SequenceAt", since=11, type=lambda input_sequence, position: _element("SequenceAt", input_sequence))
def sequence_at(input_sequence, position: Index):
    """The element at ``position``."""


sequence_at.numpy(lambda sequence, position: sequence[place_in(sequence_at, position, len(sequence))])


@primitive("SequenceLength", since=11, type=lambda input_sequence: LENGTH)
def sequence_length(input_sequence):
    """The number of elements."""


sequence_length.numpy(lambda sequence: np.asarray(len(sequence), np.int64))


def _split_type(input: Value, split: Value | None, *, axis: int, keepdims: int) -> Type:
    shape = input.tensor.shape
    if shape is None:
        return SequenceType(input.tensor)
    place = axis % len(shape)
    contents = static(split)
    size = None if split is not None else 1
    if contents is not None and len(set(contents.reshape(-1).tolist())) == 1 and contents.ndim:
        size = int(contents.reshape(-1)[0])
    dims = [*shape[:place], *([] if split is None and not keepdims else [size]), *shape[place + 1 :]]
    return SequenceType(input.tensor.with_shape(tuple(dims)))


@primitive("SplitToSequence", since=11, type=_split_type)
def split_to_sequence(input, split: Index = None, *, axis=0, keepdims=1):
    """Split ``input`` along ``axis`` into pieces of sizes ``split``, of one size, or of length 1."""


split_to_sequence.requires(shapes(split="|_"), axis("axis", of="input"))


@split_to_sequence.numpy
def split_to_sequence_numpy(input: Any, split: Any, *, axis: int, keepdims: int) -> list[Any]:
    length = input.shape[axis]
    if split is None:
        _check_pieces(length)
        pieces = list(np.moveaxis(input, axis, 0)) if input.ndim > 1 else [input[k, ...] for k in range(length)]
        return [np.expand_dims(p, axis) for p in pieces] if keepdims else pieces
    if not split.ndim and split < 1:
        raise InvalidCall("SplitToSequence: the size of the pieces is not positive", given=f"split {split}")
    _check_pieces(split.size if split.ndim else length // int(split) + 1)
    sizes = split.tolist() if split.ndim else [int(split)] * (length // int(split))
    rest = length - sum(sizes)
    if rest < 0 or (rest and split.ndim):
        raise InvalidCall("SplitToSequence: the sizes do not add up to the axis", given=f"{sizes} for {length}")
    bounds = np.cumsum(sizes if rest else sizes[:-1])
    return list(np.split(input, bounds, axis=axis))


def _check_pieces(count: int) -> None:
    limits.check_memory(count * limits.ELEMENT, "the pieces of SplitToSequence")


def _concat_type(input_sequence: Value, *, axis: int, new_axis: int) -> Type | None:
    kind = _element("ConcatFromSequence", input_sequence)
    if new_axis not in (0, 1):
        raise TypeMismatch("ConcatFromSequence: new_axis is neither 0 nor 1", given=str(new_axis))
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims = list(kind.shape)
    if new_axis:
        dims.insert(axis % (len(dims) + 1), None)
    else:
        dims[axis] = None
    return kind.with_shape(tuple(dims))


@primitive("ConcatFromSequence", since=11, type=_concat_type)
def concat_from_sequence(input_sequence, *, axis: int, new_axis=0):
    """Concatenate the elements along ``axis``, or stack them along a new one with ``new_axis``."""


@concat_from_sequence.numpy
def concat_from_sequence_numpy(input_sequence: list[Any], *, axis: int, new_axis: int) -> Any:
    if not input_sequence:
        raise InvalidCall("ConcatFromSequence: the sequence is empty")
    limits.check_elements([sum(each.size for each in input_sequence)], concat_from_sequence.title)
    limits.check_memory(sum(each.nbytes for each in input_sequence), f"the result of {concat_from_sequence.title}")
    return np.stack(input_sequence, axis) if new_axis else np.concatenate(input_sequence, axis)


def _map_type(input_sequence: Value, *additional_inputs: Value, body: Graph, _outputs: int | None) -> tuple[Any, ...]:
    kinds = [_element("SequenceMap", input_sequence)]
    kinds += [v.type.element if isinstance(v.type, SequenceType) else v.type for v in additional_inputs]
    return tuple(SequenceType(kind) for kind in subgraph_types("SequenceMap", body, kinds))


@primitive("SequenceMap", since=17, type=_map_type)
def sequence_map(input_sequence, *additional_inputs, body: Graph, _outputs=None):
    """Apply ``body`` to each element; further sequences are iterated in parallel, tensors are passed as they are."""


@sequence_map.lower()
def sequence_map_lowering(input_sequence, *additional_inputs, body, _outputs=None):
    """A Loop that appends to initially empty sequences."""

    def step(place: Value, going_on: Value, *sequences: Value) -> list[Value]:
        inputs = (input_sequence, *additional_inputs)
        given = [sequence_at(v, place) if isinstance(v.type, SequenceType) else v for v in inputs]
        found = inline(body, given)
        return [
            ops.identity(going_on),
            *(sequence_insert(sequence, each) for sequence, each in zip(sequences, found, strict=True)),
        ]

    kinds = _map_type(input_sequence, *additional_inputs, body=body, _outputs=_outputs)
    empty = [sequence_empty(dtype=kind.element.dtype) for kind in kinds]
    formals = [("place", LENGTH), ("going_on", TensorType(DType.bool, ()))]
    formals += [(f"made_{k}", value.type) for k, value in enumerate(empty)]
    return ops.loop(sequence_length(input_sequence), None, *empty, body=subgraph(step, formals))


@sequence_map.numpy
def sequence_map_numpy(
    input_sequence: list[Any], *additional_inputs: Any, body: Any, _outputs: int | None
) -> tuple[Any, ...]:
    rows = [
        body(element, *(other[k] if isinstance(other, list) else other for other in additional_inputs))
        for k, element in enumerate(input_sequence)
    ]
    return tuple([row[k] for row in rows] for k in range(len(body.graph.outputs)))


# ----- optionals ------------------------------------------------------------------------------------------------------


def _optional_type(input: Value | None, *, type: Type | None) -> Type:
    if input is None and type is None:
        raise TypeMismatch("Optional has neither an input nor the attribute type")
    return OptionalType(type if input is None else input.type)


@primitive("Optional", since=15, type=_optional_type)
def optional(input=None, *, type: Type | None = None):
    """An optional of ``input``, or an empty optional of ``type``."""


optional.numpy(lambda input, *, type: input)


def _get_type(input: Value) -> Type | None:
    return input.type.element if isinstance(input.type, OptionalType) else input.type


@primitive("OptionalGetElement", since=15, type=_get_type)
def optional_get_element(input):
    """The element of an optional; a tensor or sequence is returned unchanged."""


@optional_get_element.numpy
def optional_get_element_numpy(input: Any) -> Any:
    if input is None:
        raise InvalidCall("OptionalGetElement: the optional has no element", given="none")
    return input


optional_get_element.vjp(lambda g, y, input: g)


@optional_get_element.lower()
def optional_get_element_lowering(input):
    """Identity, for opsets that accept only optionals, since the input is none."""
    return None if isinstance(input.type, OptionalType) else ops.identity(input)


@primitive("OptionalHasElement", since=15, type=lambda input: TensorType(DType.bool, ()))
def optional_has_element(input=None):
    """Whether an optional has an element."""


optional_has_element.numpy(lambda input: np.asarray(input is not None))


@optional_has_element.lower()
def optional_has_element_lowering(input):
    """True, for opsets that accept only optionals, since the input is none."""
    optional = input is not None and isinstance(input.type, OptionalType)
    return None if optional else constant(np.asarray(input is not None))


@optional_has_element.until(18)
def optional_has_element_of(input):
    """Whether an optional has an element; the input is required."""
    return optional_has_element(input)


optional_has_element_of.numpy(lambda input: np.asarray(input is not None))


@optional_has_element.lower(to=optional_has_element_of)
def optional_has_element_to_optional_has_element_of(input):
    return None if input is None else optional_has_element_of(input)
