"""Lowering of sequences of known length to tensors: rules ``rewrite`` and ``vjp(surrogate=True)`` of their readers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Node, Value, constant, limits, static
from tenonnx_standard.sequence import (
    concat_from_sequence,
    place_in,
    sequence_at,
    sequence_construct,
    sequence_empty,
    sequence_erase,
    sequence_insert,
    sequence_length,
    split_to_sequence,
)

#: Adds the nodes of an element and returns its value.
Element = Callable[[], Value]

#: Returns the piece with a given index of a tensor split along an axis into pieces of given sizes.
TakePiece = Callable[[Value, list[int], int, int], Value]


def _replace_readers(kind: str, cut: TakePiece) -> None:
    """Register rules of a kind that replace readers of a known sequence by its elements."""

    @sequence_at.rule(kind)
    def sequence_at_kind(input_sequence: Value, position: Value) -> Value | None:
        found, place = _elements(input_sequence, cut), static(position)
        return None if found is None or place is None else found[place_in(sequence_at, place, len(found))]()

    @sequence_length.rule(kind)
    def sequence_length_kind(input_sequence: Value) -> Value | None:
        found = _elements(input_sequence, cut)
        return None if found is None else constant(np.asarray(len(found), np.int64))

    @concat_from_sequence.rule(kind)
    def concat_from_sequence_kind(input_sequence: Value, *, axis: int, new_axis: int) -> Value | None:
        pieces = [piece() for piece in _elements(input_sequence, cut) or ()]
        if new_axis:
            pieces = [ops.unsqueeze(piece, [axis]) for piece in pieces]
        return ops.concat(*pieces, axis=axis) if pieces else None


def _elements(sequence: Value, cut: TakePiece) -> list[Element] | None:
    """The elements of a sequence whose length and positions are known, else None."""
    edits: list[Node] = []
    node = sequence.producer
    while node is not None and node.op in (sequence_insert, sequence_erase, ops.identity):
        edits.append(node)
        before = node.inputs[0]
        node = None if before is None else before.producer
    result = None if node is None else _constructed(node, cut)
    for edit in reversed(edits):
        result = None if result is None else _edited(result, edit)
    return result


def _constructed(node: Node, cut: TakePiece) -> list[Element] | None:
    """The elements of a sequence that a node constructs from tensors."""
    if node.op is sequence_empty:
        return []
    if node.op is sequence_construct:
        return [functools.partial(_same, value) for value in node.uses]
    return _pieces(node, cut) if node.op is split_to_sequence else None


def _edited(found: list[Element], edit: Node) -> list[Element] | None:
    """The elements after an insertion or erasure."""
    if edit.op is ops.identity:
        return found
    _, *tensors, given = (*edit.inputs, None)[: 3 if edit.op is sequence_insert else 2]
    place = static(given)
    if given is not None and place is None:
        return None
    if edit.op is sequence_erase:
        at = place_in(sequence_erase, -1 if place is None else place, len(found))
        return [*found[:at], *found[at + 1 :]]
    at = len(found) if place is None else place_in(sequence_insert, place, len(found), last=0)
    return [*found[:at], *(functools.partial(_same, v) for v in tensors if v is not None), *found[at:]]


def _same(value: Value) -> Value:
    return value


def _pieces(node: Node, cut: TakePiece) -> list[Element] | None:
    """The pieces of SplitToSequence, if the length of the axis or of the pieces is known."""
    x, lengths = (*node.uses, None)[:2]
    if x is None or x.rank is None:
        return None
    axis = node.attributes.get("axis", 0) % x.ndim
    whole, contents = x.shape[axis], static(lengths)
    if contents is not None and contents.ndim:
        sizes: list[Any] = contents.tolist()
    elif isinstance(whole, int) and (lengths is None or (contents is not None and contents > 0)):
        size = 1 if contents is None else int(contents)
        if -(-whole // size) > limits.current().entries:
            return None
        sizes = [min(size, whole - start) for start in range(0, whole, size)]
    else:
        return None
    pieces: list[Element] = [functools.partial(cut, x, sizes, axis, place) for place in range(len(sizes))]
    if lengths is None and not node.attributes.get("keepdims", 1):
        return [lambda piece=piece: ops.squeeze(piece(), [axis]) for piece in pieces]  # type: ignore[misc]
    return pieces


def _by_split(x: Value, sizes: list[int], axis: int, place: int) -> Value:
    """Take a piece by a Split into all pieces, which common subexpression elimination shares."""
    result: Any = x if len(sizes) == 1 else ops.split(x, sizes, axis=axis, _outputs=len(sizes))[place]
    return result


def _by_slice(x: Value, sizes: list[int], axis: int, place: int) -> Value:
    """Take a piece by its own Slice, so that each piece keeps its name."""
    start = sum(sizes[:place])
    result: Value = ops.slice_(x, [start], [start + sizes[place]], [axis])
    return result


_replace_readers("rewrite", _by_split)
_replace_readers("vjp.surrogate", _by_slice)
