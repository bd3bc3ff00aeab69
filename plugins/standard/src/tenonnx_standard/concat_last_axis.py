"""Normal form of values concatenated or interleaved along their last axis (rules ``normal``).

Rotary embeddings either rotate halves, or multiply whole vectors by tables whose halves repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import Node, Op, TensorType, Value, constant, dims, limits, static
from tenonnx_standard.joining import concat, split
from tenonnx_standard.math import add, mul
from tenonnx_standard.shapes import expand, reshape, squeeze, tile, unsqueeze
from tenonnx_standard.slicing import gather, slice_
from tenonnx_standard.symbolic_ints import counts, everywhere, fixed, known_shape
from tenonnx_standard.trigonometry import cos, sin

Array = np.ndarray[Any, Any]

_LAST = np.iinfo(np.int64).max
_FAR = np.iinfo(np.int32).max

#: Larger tables are not searched for equal halves.
MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Interleaved:
    """Values concatenated along the last axis, or with ``turns`` interleaved: first columns, second columns, ..."""

    parts: tuple[Value, ...]
    turns: bool

    @property
    def repeats(self) -> bool:
        """Whether all parts are the same value."""
        return all(part is self.parts[0] for part in self.parts)

    def fits(self, other: Interleaved) -> bool:
        """Whether the parts of both have the same lengths and arrangement."""
        sizes = ([p.shape[-1] if p.rank else None for p in interleaved.parts] for interleaved in (self, other))
        return self.turns == other.turns and next(sizes) == next(sizes)

    def joined(self) -> Value:
        rank = self.parts[0].ndim
        if not self.turns:
            return concat(*self.parts, axis=rank - 1)
        columns = concat(*(unsqueeze(part, [rank]) for part in self.parts), axis=rank)
        return reshape(columns, [*dims(self.parts[0])[:-1], dims(self.parts[0])[-1] * len(self.parts)])

    def repeating(self, part: Value) -> Value:
        """The value with ``part`` in place of every part."""
        return replace(self, parts=(part,) * len(self.parts)).joined()

    def taken_from(self, x: Value) -> Interleaved | None:
        """The inputs of the concatenation ``x`` if they have the same lengths, else None."""
        sizes = [part.shape[-1] for part in self.parts]
        if not all(isinstance(size, int) for size in sizes) or x.rank is None or x.shape[-1] != sum(sizes):
            return None
        last, count = x.ndim - 1, len(sizes)
        if self.turns:
            return Interleaved(tuple(slice_(x, [k], [_LAST], [last], [count]) for k in range(count)), turns=True)
        ends = np.cumsum(sizes).tolist()
        cuts = zip(ends, sizes, strict=True)
        return Interleaved(tuple(slice_(x, [end - size], [end], [last], [1]) for end, size in cuts), turns=False)


def interleaved(x: Value) -> Interleaved | None:
    """The parts whose concatenation or interleaving along the last axis is this value, else None."""
    node = x.producer
    if node is None or x.rank is None:
        return _halves(x) if x.data is not None else None
    if _joins_last(node):
        return Interleaved(tuple(node.uses), turns=False)
    return _in_rows(x, node.uses[0]) if node.op is reshape else None


def _joins_last(node: Node) -> bool:
    """Whether a node concatenates along the last axis."""
    rank = node.uses[0].rank if node.op is concat else None
    return rank is not None and node.attributes["axis"] % rank == rank - 1


def _in_rows(x: Value, columns: Value) -> Interleaved | None:
    """The parts interleaved in ``x``, a reshape that merges the last two axes of ``columns``; else None."""
    before, after = known_shape(columns), known_shape(x)
    if before is None or after is None or len(before) < 2 or before[:-2] != after[:-1]:
        return None
    parts = [_without_last(column) for column in _columns(columns, before)]
    found = tuple(part for part in parts if part is not None)
    return Interleaved(found, turns=True) if found and len(found) == len(parts) else None


def _columns(x: Value, shape: Sequence[Any]) -> Sequence[Value]:
    """Inputs of the Concat or Expand that produces a value along its last axis."""
    node = x.producer
    if node is not None and _joins_last(node):
        return node.uses
    if node is None or node.op is not expand or not isinstance(shape[-1], int):
        return ()
    return [node.uses[0]] * shape[-1] if known_shape(node.uses[0]) == (*shape[:-1], 1) else ()


def _without_last(column: Value) -> Value | None:
    """The input of an Unsqueeze that appends a last axis, else None."""
    node = column.producer
    if node is None or node.op is not unsqueeze:
        return None
    contents = static(node.uses[1])
    return node.uses[0] if contents is not None and contents.tolist() in ([-1], [column.ndim - 1]) else None


def _halves(table: Value) -> Interleaved | None:
    """The halves of a constant float table if they are equal, as halves or as alternating columns; else None."""
    kind = table.type
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.rank is None or kind.rank < 2:
        return None
    contents = fixed(table)
    if (
        contents is None
        or not 0 < contents.size <= MOST_ELEMENTS
        or contents.shape[-1] % 2
        or (contents == contents.flat[0]).all()
    ):
        return None
    size = contents.shape[-1] // 2
    for one, other, turns in (
        (contents[..., :size], contents[..., size:], False),
        (contents[..., ::2], contents[..., 1::2], True),
    ):
        if np.array_equal(one, other):
            half = constant(np.ascontiguousarray(one), kind.dtype)
            return Interleaved((half, half), turns)
    return None


def lifted(op: Op, *inputs: Value) -> Value | None:
    """Apply Add to parts with the same arrangement, or Mul if one side repeats a part, part by part."""
    found = [interleaved(x) for x in inputs]
    first, second = found
    if (
        first is not None
        and second is not None
        and first.fits(second)
        and (op is add or first.repeats or second.repeats)
    ):
        return _part_by_part(op, first, second)
    if op is mul:
        for one, other, x in ((first, second, inputs[1]), (second, first, inputs[0])):
            if one is not None and other is None and one.repeats and x.rank is not None and x.data is None:
                parts = one.taken_from(x)
                return None if parts is None else _part_by_part(op, one, parts)
    return None


def _part_by_part(op: Op, one: Interleaved, other: Interleaved) -> Value:
    return replace(one, parts=tuple(op(*pair) for pair in zip(one.parts, other.parts, strict=True))).joined()


def each(op: Op, x: Value, **attributes: Any) -> Value | None:
    """Apply an elementwise op to the part of a value that repeats it."""
    found = interleaved(x)
    if found is None or not found.repeats or x.data is not None:
        return None
    return found.repeating(op(found.parts[0], **attributes))


for _op in (cos, sin):
    _op.rule("normal", lambda input, op=_op: each(op, input))


@unsqueeze.rule("normal")
def unsqueeze_normal(data: Value, axes: Value) -> Value | None:
    """Unsqueeze before repeating, and each part of a concatenation."""
    contents = static(axes)
    if contents is None or data.rank is None:
        return None
    rank = data.rank + len(contents)
    places = sorted(int(axis) % rank for axis in contents)
    node = data.producer
    if node is not None and node.op is expand and node.uses[0].rank == data.rank:
        wide = dims(data)
        for place in places:
            wide.insert(place, 1)
        return expand(unsqueeze(node.uses[0], places), wide)  # type: ignore[no-any-return]
    found = interleaved(data) if rank - 1 not in places else None
    if found is not None and found.repeats and data.data is None:
        return found.repeating(unsqueeze(found.parts[0], places))
    return None if places == contents.tolist() else unsqueeze(data, places)


@split.rule("normal")
def split_normal(input: Value, split: Value | None, *, axis: int, num_outputs: int | None, _outputs: int | None) -> Any:
    """Pieces of known lengths become separate slices."""
    contents = None if split is None else static(split)
    whole = None if input.rank is None else input.shape[axis]
    if split is None and num_outputs and isinstance(whole, int) and whole % num_outputs == 0:
        limits.check("entries", num_outputs, "Split")
        contents = np.full(num_outputs, whole // num_outputs)
    if contents is None or input.rank is None:
        return None
    ends = np.cumsum(contents).tolist()
    cuts = zip(ends, contents.tolist(), strict=True)
    return tuple(slice_(input, [end - size], [end], [axis % input.ndim], [1]) for end, size in cuts)


class Cut(NamedTuple):
    """A Slice along one axis, with non-negative positions."""

    axis: int
    begin: int
    end: int
    step: int = 1

    def of(self, data: Value) -> Value:
        return slice_(data, [self.begin], [self.end], [self.axis], [self.step])  # type: ignore[no-any-return]


def _number(vector: Value | None, absent: int | None = None) -> int | None:
    """The element of a vector of length one; None if unknown."""
    contents = None if vector is None else static(vector)
    if contents is None:
        return absent if vector is None else None
    return int(contents[0]) if contents.shape == (1,) else None


def _cut_of(
    data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Cut | None:
    """The range of a Slice; None for several axes, negative steps or unknown bounds."""
    begin, end, axis, step = _number(starts), _number(ends), _number(axes, 0), _number(steps, 1)
    if not data.rank or begin is None or axis is None or step is None or step < 1:
        return None
    axis %= data.ndim
    size = data.shape[axis]
    if end is None and (begin, step) == (0, 1) and everywhere(ends) == size is not None:
        end = _LAST
    if end is None:
        return None
    if isinstance(size, int):
        return Cut(axis, *slice(begin, end, step).indices(size))
    return None if begin < 0 or end < 0 else Cut(axis, begin, end if end < _FAR else _LAST, step)


@slice_.rule("normal")
def slice_normal(data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> Value | None:
    """Normalize the axis and the bounds; merge with an inner slice, or slice the part of a concatenation."""
    cut = _cut_of(data, starts, ends, axes, steps)
    if cut is None:
        return None
    size = data.shape[cut.axis]
    if cut == Cut(cut.axis, 0, size if isinstance(size, int) else _LAST):
        return data
    if cut.step == 1:
        before = data.producer
        inner = _cut_of(*before.uses) if before is not None and before.op is slice_ else None
        if (
            before is not None
            and inner is not None
            and (inner.axis, inner.step) == (cut.axis, 1)
            and isinstance(size, int)
        ):
            return cut._replace(begin=inner.begin + cut.begin, end=inner.begin + cut.end).of(before.uses[0])
        found = interleaved(data) if cut.axis == data.ndim - 1 and data.data is None else None
        part = None if found is None or found.turns else _part_at(found.parts, cut.begin, cut.end)
        if part is not None:
            return part
    written = [None if v is None else static(v) for v in (starts, ends, axes, steps)]
    wanted = (cut.begin, cut.end, cut.axis, cut.step)
    same = all(
        contents is not None and contents.tolist() == [number] for contents, number in zip(written, wanted, strict=True)
    )
    return None if same else cut.of(data)


def _part_at(parts: Sequence[Value], begin: int, end: int) -> Value | None:
    start = 0
    for part in parts:
        size = part.shape[-1] if part.rank else None
        if not isinstance(size, int):
            return None
        if (begin, end) == (start, start + size):
            return part
        start += size
    return None


def _in_turns(columns: Value, place: int) -> Value | None:
    """Column ``place`` of an axis split into rows, as a strided slice of the input of the reshape."""
    node = columns.producer
    if node is None or node.op is not reshape:
        return None
    x, (before, after) = node.uses[0], (known_shape(v) for v in (node.uses[0], columns))
    if before is None or after is None or len(after) != len(before) + 1 or before[:-1] != after[:-2]:
        return None
    return slice_(x, [place], [_LAST], [x.ndim - 1], [after[-1]]) if isinstance(after[-1], int) else None


@squeeze.rule("normal")
def squeeze_normal(data: Value, axes: Value | None) -> Value | None:
    """A column of an axis that is split into rows."""
    node, contents = data.producer, None if axes is None else static(axes)
    if node is None or node.op is not slice_ or contents is None or data.rank is None:
        return None
    inner = [static(v) for v in node.uses[1:]]
    last = data.ndim - 1
    if [int(a) % data.ndim for a in contents] != [last] or len(inner) != 4 or inner[2] is None or inner[0] is None:
        return None
    return _in_turns(node.uses[0], int(inner[0][0])) if inner[2].tolist() == [last] else None


@gather.rule("normal")
def gather_normal(data: Value, indices: Value, *, axis: int) -> Value | None:
    """Normalize the identity, equal repetition of each row, a single column, and rows of a table that repeats."""
    contents, sizes = static(indices), known_shape(indices)
    shape = known_shape(data)
    if not shape:
        return None
    place = axis % len(shape)
    if (
        contents is not None
        and contents.ndim == 1
        and (repeated := _repeated(data, shape[place], contents, place)) is not None
    ):
        return repeated
    if contents is not None and contents.ndim == 0 and place == len(shape) - 1 and contents >= 0:
        return _in_turns(data, int(contents))
    if place:
        return None
    if sizes and sizes[-1] == shape[0] and counts(indices):
        rows = reshape(data, [*[1] * (len(sizes) - 1), *dims(data)])
        return expand(rows, [*dims(indices), *dims(data)[1:]])  # type: ignore[no-any-return]
    found = _halves(data) if data.data is not None and len(shape) == 2 else None
    return None if found is None else found.repeating(gather(found.parts[0], indices, axis=0))


def _repeated(data: Value, count: Any, rows: Array, place: int) -> Value | None:
    """Gather of all ``count`` rows in order, each repeated equally often, as an Expand; else None."""
    if not isinstance(count, int) or not 0 < count < rows.size:
        return None
    times = rows.size // count
    if not np.array_equal(rows, np.arange(count).repeat(times)):
        return None
    wide = [1] * (data.ndim + 1)
    wide[place + 1] = times
    sizes = [-1 if k == place else size for k, size in enumerate(dims(data))]
    return reshape(expand(unsqueeze(data, [place + 1]), wide), sizes)  # type: ignore[no-any-return]


@tile.rule("normal")
def tile_normal(input: Value, repeats: Value) -> Value | None:
    """Expand a single element instead of tiling it."""
    contents, shape = static(repeats), known_shape(input)
    if contents is None or shape is None or any(r != 1 != n for r, n in zip(contents.tolist(), shape, strict=True)):
        return None
    return expand(input, [int(r) if n == 1 else d for r, n, d in zip(contents, shape, dims(input), strict=True)])
