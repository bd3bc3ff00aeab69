"""Sequences of known length as tensors: rules ``rewrite`` and ``vjp(surrogate=True)`` of ops that read them."""

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

#: Adds the nodes that give one element, and returns it.
Element = Callable[[], Value]

#: Gives the piece at a place of a tensor that is cut along an axis into pieces of such sizes.
TakePiece = Callable[[Value, list[int], int, int], Value]


def _read_by(kind: str, cut: TakePiece) -> None:
    """By rules of a kind, what reads a sequence of known length is made of its elements."""

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
    found = None if node is None else _made(node, cut)
    for edit in reversed(edits):
        found = None if found is None else _edited(found, edit)
    return found


def _made(node: Node, cut: TakePiece) -> list[Element] | None:
    """The elements of what a node makes of tensors."""
    if node.op is sequence_empty:
        return []
    if node.op is sequence_construct:
        return [functools.partial(_same, value) for value in node.uses]
    return _pieces(node, cut) if node.op is split_to_sequence else None


def _edited(found: list[Element], edit: Node) -> list[Element] | None:
    """The elements after one more is put among them, or taken away."""
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
    """Outputs of SplitToSequence, where the length of the axis or those of the pieces are known."""
    x, lengths = (*node.uses, None)[:2]
    if x is None or x.rank is None:
        return None
    axis = node.attributes.get("axis", 0) % x.ndim
    whole, held = x.shape[axis], static(lengths)
    if held is not None and held.ndim:
        sizes: list[Any] = held.tolist()
    elif isinstance(whole, int) and (lengths is None or (held is not None and held > 0)):
        size = 1 if held is None else int(held)
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
    """By a Split into all pieces, which the other calls come to share."""
    found: Any = x if len(sizes) == 1 else ops.split(x, sizes, axis=axis, _outputs=len(sizes))[place]
    return found


def _by_slice(x: Value, sizes: list[int], axis: int, place: int) -> Value:
    """Alone, so that each piece keeps its name."""
    start = sum(sizes[:place])
    found: Value = ops.slice_(x, [start], [start + sizes[place]], [axis])
    return found


_read_by("rewrite", _by_split)
_read_by("vjp.surrogate", _by_slice)
