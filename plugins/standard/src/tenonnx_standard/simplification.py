"""Removal of calls without effect, and merging of two calls into one (rules ``rewrite``)."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, Node, Op, TensorType, Value, constant, elements, static
from tenonnx.extend.transforms import bind
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.control_flow import if_
from tenonnx_standard.joining import concat, split, split_exactly
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_standard.logic import where
from tenonnx_standard.math import add, div, maximum, mean, minimum, mul, pow_, sub, sum_
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import (
    reduce_l1,
    reduce_l2,
    reduce_log_sum,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reduce_sum_square,
)
from tenonnx_standard.regularization import dropout
from tenonnx_standard.shapes import expand, flatten, identity, reshape, squeeze, tile, transpose, unsqueeze
from tenonnx_standard.shapes import shape as shape_of
from tenonnx_standard.slicing import gather, slice_
from tenonnx_standard.symbolic_ints import fixed, is_spread, known_shape


def _is_all(x: Value, number: float) -> bool:
    """Whether a small constant equals ``number`` everywhere and is not trainable."""
    contents = fixed(x)
    return (
        contents is not None
        and contents.dtype.kind in "iuf"
        and contents.size <= 1024
        and bool((contents == number).all())
    )


@identity.rewrite
def identity_rewrite(input: Value) -> Value:
    return input


# ----- arithmetic -----------------------------------------------------------------------------------------------------


def _drop_neutral(op: Op, unit: float, *, either: bool) -> None:
    """Drop the second operand (or ``either``) if it equals the neutral element ``unit`` everywhere."""

    @op.rewrite
    def op_rewrite(A: Value, B: Value) -> Value | None:
        if _is_all(B, unit) and is_spread(A, B):
            return A
        return B if either and _is_all(A, unit) and is_spread(B, A) else None


_drop_neutral(add, 0, either=True)  # minus zero and zero compare equal
_drop_neutral(sub, 0, either=False)
_drop_neutral(mul, 1, either=True)
_drop_neutral(div, 1, either=False)
_drop_neutral(pow_, 1, either=False)


# ----- types and shapes -----------------------------------------------------------------------------------------------


def _cast_less(input: Value, *, to: int, **options: Any) -> Value | None:
    """Drop a cast to the same type, and a preceding cast to a wider type of the same kind."""
    if input.dtype == to:
        return input
    before = input.producer
    if before is None or before.op not in _CASTS or before.inputs[0] is None:
        return None
    first = before.inputs[0]
    return cast(first, to=to, **options) if _is_lossless_via(first.dtype, input.dtype, DType(to)) else None


def _is_lossless_via(first: DType, middle: DType, last: DType) -> bool:
    """Whether casting via ``middle`` equals casting from ``first`` to ``last`` directly."""
    if DType.string in (first, middle, last):
        return False
    if first.is_float and middle.is_float:
        return 16 <= first.bits < middle.bits
    if first is DType.bool:
        return middle.is_integer or middle.is_float
    if not first.is_integer:
        return False
    if middle.is_integer:
        return middle.bounds[0] <= first.bounds[0] and first.bounds[1] <= middle.bounds[1]
    exact = middle.is_float and max(map(abs, first.bounds)) <= _EXACT.get(middle, 0)
    return exact and (last.is_float or last is first)


#: Largest integer up to which the type represents all integers.
_EXACT = {DType.float16: 1 << 11, DType.bfloat16: 1 << 8, DType.float32: 1 << 24, DType.float64: 1 << 53}


_CASTS = list(cast.meanings)
for _cast in _CASTS:
    _cast.rewrite(_cast_less)


def _cast_to_known(input: Value, target_type: Value, **options: Any) -> Value:
    return input if input.dtype is target_type.dtype else cast(input, to=target_type.dtype, **options)


for _cast_like in cast_like.meanings:
    _cast_like.rewrite(_cast_to_known)


@reshape.rewrite
def reshaped_once(data: Value, shape: Value, *, allowzero: int, compared: bool = False) -> Value | None:
    """Merge consecutive reshapes, drop a reshape without effect, and make the shape constant where known.

    A shape that is only ``compared`` may be ambiguous for empty tensors.
    """
    wanted = static(shape)
    contents, known = elements(shape), known_shape(data)
    if known is not None and contents is not None and tuple(contents) == known:
        return data
    if wanted is not None and known is not None and _is_same_shape(wanted.tolist(), known):
        return data
    turned = _transposed_directly(data, shape, allowzero)
    if turned is not None:
        return turned
    before = data.producer
    first = None if before is None or before.op not in (reshape, flatten, unsqueeze, squeeze) else before.inputs[0]
    for source in (first, data):
        if source is not None and (spelled := _constant_shape(source, data, shape, allowzero, compared)) is not None:
            same = source is data and wanted is not None and not allowzero and spelled == wanted.tolist()
            return None if same else reshape(source, spelled)
    if wanted is None or (wanted == 0).any() or first is None:
        return None
    return reshape(first, shape, allowzero=allowzero)


def _transposed_directly(data: Value, shape: Value, allowzero: int) -> Value | None:
    """Simplify reshape, transpose, reshape around the last two axes to one Transpose."""
    swap = data.producer
    if swap is None or swap.op is not transpose or swap.attributes.get("perm") != [0, 2, 1] or swap.inputs[0] is None:
        return None
    merge = swap.inputs[0].producer
    x = None if merge is None or merge.op is not reshape else merge.inputs[0]
    sizes = None if x is None else known_shape(x)
    merged, result = known_shape(swap.inputs[0]), _shape_after(data, shape, allowzero)
    if x is None or sizes is None or merged is None or len(sizes) < 3 or sizes[-2:] != merged[-2:]:
        return None
    rank = len(sizes)
    same = result == (*sizes[:-2], sizes[-1], sizes[-2])
    return transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2]) if same else None


def _shape_after(data: Value, shape: Value, allowzero: int) -> tuple[Any, ...] | None:
    result: tuple[Any, ...] | None = reshape.rules["type"](data, shape, allowzero=allowzero).shape
    return None if result is None or None in result else result


def _constant_shape(source: Value, data: Value, shape: Value, allowzero: int, compared: bool) -> list[int] | None:
    """The constant shape of a Reshape of ``data``, where symbolic dims are copied from ``source`` or one is -1.

    -1 together with copied dims is used only if it was there before: it is ambiguous if those dims are 0.
    """
    result, contents = _shape_after(data, shape, allowzero), elements(shape)
    if result is None or 0 in result or contents is None:
        return None
    known = source.type.shape if isinstance(source.type, TensorType) and source.type.shape is not None else ()
    spelled = [
        dim if isinstance(dim, int) else 0 if k < len(known) and known[k] == dim else -1 for k, dim in enumerate(result)
    ]
    certain = compared or -1 in contents or not (-1 in spelled and 0 in spelled)
    return spelled if certain and spelled.count(-1) <= 1 else None


def _is_same_shape(wanted: Sequence[int], known: Sequence[Any]) -> bool:
    """Whether a shape, as Reshape reads it, equals the input's shape."""
    if len(wanted) != len(known) or wanted.count(-1) > 1:
        return False
    return all(w in (0, -1) or w == k for w, k in zip(wanted, known, strict=True)) and (
        -1 not in wanted or all(k != 0 for k, w in zip(known, wanted, strict=True) if w != -1)
    )


@expand.rewrite
def expand_rewrite(input: Value, shape: Value) -> Value | None:
    contents, known = static(shape), known_shape(input)
    if known is None:
        return None
    wanted = shape.symbolic_contents if contents is None else contents
    if wanted is None or wanted.ndim != 1 or len(wanted) > len(known):
        return None
    tail = known[len(known) - len(wanted) :]
    return input if all(w == 1 or w == k for w, k in zip(wanted.tolist(), tail, strict=True)) else None


@transpose.rewrite
def transposed_once(data: Value, *, perm: Sequence[int] | None) -> Value | None:
    """Merge consecutive transposes, and drop one without effect."""
    order = list(range(data.ndim))[::-1] if perm is None else list(perm)
    before = data.producer
    if before is not None and before.op is transpose and before.inputs[0] is not None:
        first = before.attributes.get("perm") or list(range(data.ndim))[::-1]
        return transpose(before.inputs[0], perm=[first[axis] for axis in order])
    return data if order == sorted(order) else None


#: Reductions with their axes as an input, or no axes.
_REDUCTIONS = (
    reduce_l1,
    reduce_l2,
    reduce_log_sum,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reduce_sum_square,
)

#: Ops that keep the elements and their order.
_RESHAPES = (reshape, flatten, squeeze, unsqueeze)


def _before(data: Value, result: Sequence[Any]) -> Value | None:
    """The value of which ``data`` is a reshape, possibly in several steps, with the shape ``result``."""
    found: Value | None = data
    while found is not None and known_shape(found) != tuple(result):
        node = found.producer
        found = node.inputs[0] if node is not None and node.op in _RESHAPES else None
    return found


def _places(axes: Value | None, rank: int) -> set[int] | None:
    contents = None if axes is None else static(axes)
    return None if contents is None else {int(axis) % rank for axis in contents.reshape(-1)}


@flatten.rewrite
def flatten_rewrite(input: Value, *, axis: int) -> Value | None:
    shape = known_shape(input)
    if shape is None or len(shape) != 2 or axis % 2 != 1:
        return None
    return input


@squeeze.rewrite
def squeeze_rewrite(data: Value, axes: Value | None) -> Value | None:
    """Merge consecutive squeezes, and drop those that restore an earlier shape."""
    places, node = _places(axes, data.rank or 1), data.producer
    if places is not None and not places:
        return squeeze(data)  # type: ignore[no-any-return]
    if places is None or data.rank is None:
        return None
    if node is not None and node.op is unsqueeze and _places(node.inputs[1], data.rank) == places:
        return node.inputs[0]
    if (shape := known_shape(data)) is not None:
        result = _before(data, [dim for axis, dim in enumerate(shape) if axis not in places])
        if result is not None:
            return result
    if node is None or node.op is not squeeze or node.inputs[0] is None or node.inputs[0].rank is None:
        return None
    first = node.inputs[0]
    inner = _places(node.inputs[1], first.ndim)
    if not inner:
        return None
    left = [axis for axis in range(first.ndim) if axis not in inner]
    return squeeze(first, sorted(inner | {left[axis] for axis in places}))


@squeeze.rewrite(alone=True)
def squeeze_rewrite_alone(data: Value, axes: Value | None) -> Value | None:
    """Merge into a reduction with ``keepdims`` over the same axes."""
    node = data.producer
    if node is None or node.op not in _REDUCTIONS or data.rank is None:
        return None
    (x, reduced), attributes = bind(node)
    places = set(range(data.ndim)) if reduced is None else _places(reduced, data.ndim)
    if not places or places != _places(axes, data.ndim) or not attributes["keepdims"] or not isinstance(node.op, Op):
        return None
    return node.op(x, sorted(places), **{**attributes, "keepdims": 0})  # type: ignore[no-any-return]


@unsqueeze.rewrite
def unsqueeze_rewrite(data: Value, axes: Value) -> Value | None:
    """Merge consecutive unsqueezes, and drop those that restore an earlier shape."""
    node, contents = data.producer, static(axes)
    if contents is None or data.rank is None:
        return None
    rank = data.rank + contents.size
    outer = {int(axis) % rank for axis in contents.reshape(-1)}
    left = [axis for axis in range(rank) if axis not in outer]
    if (shape := known_shape(data)) is not None:
        result = _before(data, [1 if axis in outer else shape[left.index(axis)] for axis in range(rank)])
        if result is not None:
            return result
    if node is None or node.op is not unsqueeze or node.inputs[0] is None:
        return None
    inner = _places(node.inputs[1], data.rank)
    return None if inner is None else unsqueeze(node.inputs[0], sorted(outer | {left[axis] for axis in inner}))


# ----- slices and concatenation ---------------------------------------------------------------------------------------


@concat.rewrite
def concat_rewrite(*inputs: Value, axis: int) -> Value | None:
    kept = [x for x in inputs if x.tensor.shape is None or x.shape[axis % x.ndim] != 0]
    if len(kept) == 1:
        return kept[0]
    return concat(*kept, axis=axis) if kept and len(kept) < len(inputs) else None


@concat.rewrite(alone=True)
def concat_rewrite_alone(*inputs: Value, axis: int) -> Value | None:
    """Flatten nested concatenations, except inputs used twice, since nesting would double the size each time."""
    joined = [(node := x.producer) is not None and _is_joined(node, axis % x.ndim) for x in inputs]
    times = collections.Counter(inputs)
    parts = [x.producer.uses if absorbed and times[x] == 1 else [x] for absorbed, x in zip(joined, inputs, strict=True)]
    flat = list(itertools.chain.from_iterable(parts))
    return concat(*flat, axis=axis) if len(flat) > len(inputs) else None


def _is_joined(node: Node, axis: int) -> bool:
    return node.op is concat and node.attributes["axis"] % node.uses[0].ndim == axis


@gather.rewrite
def gather_rewrite(data: Value, indices: Value, *, axis: int) -> Value | None:
    """Drop a Gather of all positions in order."""
    contents, shape = static(indices), known_shape(data)
    if (
        contents is None
        or not shape
        or contents.size != shape[axis]
        or not np.array_equal(contents.reshape(-1), np.arange(contents.size))
    ):
        return None
    axis %= len(shape)
    if contents.ndim == 1:
        return data
    wanted = [*shape[:axis], *contents.shape, *shape[axis + 1 :]]
    return reshape(data, wanted) if all(isinstance(dim, int) for dim in wanted) else None


@slice_.rewrite
def slice_rewrite(data: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None) -> Value | None:
    """Drop a Slice of all elements."""
    begin, end = elements(starts), elements(ends)
    if begin is None or end is None or (steps is not None and not _is_all(steps, 1)):
        return None
    places = list(range(len(begin))) if axes is None else static(axes)
    if places is None or data.rank is None or None in begin or None in end:
        return None
    sizes = [data.shape[int(place) % data.ndim] for place in places]
    from_first = all(b == 0 or (isinstance(n, int) and b <= -n) for b, n in zip(begin, sizes, strict=True))
    to_last = all(e == n or _reaches(e, n) for e, n in zip(end, sizes, strict=True))
    return data if from_first and to_last else None


def _reaches(end: Any, size: Any) -> bool:
    return isinstance(end, int) and end >= (size if isinstance(size, int) else np.iinfo(np.int32).max)


def _padded_by_nothing(data: Value, pads: Value, *others: Value | None, **attributes: Any) -> Value | None:
    return data if _is_all(pads, 0) else None


for _pad in pad.meanings:
    _pad.rewrite(_padded_by_nothing)


def _one_piece(input: Value, lengths: Value | None, *, num_outputs: int | None = None, **_: Any) -> Value | None:
    """Drop a Split into a single piece."""
    alone = num_outputs in (None, 1) and (lengths is None or lengths.shape == (1,))
    return input if alone else None


for _split in (split, split_exactly):
    _split.rewrite(_one_piece)


@tile.rewrite
def tile_rewrite(input: Value, repeats: Value) -> Value | None:
    return input if _is_all(repeats, 1) else None


for _fold in (maximum, minimum, sum_, mean):

    @_fold.rewrite
    def fold_rewrite(*inputs: Value) -> Value | None:
        return inputs[0] if len(inputs) == 1 else None


@where.rewrite
def where_rewrite(condition: Value, X: Value, Y: Value) -> Value | None:
    contents = static(condition)
    for chosen, other, always_chosen in (
        (X, Y, contents is not None and bool(contents.all())),
        (Y, X, contents is not None and not contents.any()),
        (X, Y, X is Y),
    ):
        if always_chosen and is_spread(chosen, condition, other):
            return chosen
    return None


@if_.rewrite
def if_rewrite(cond: Value, *, then_branch: Graph, else_branch: Graph) -> Graph | None:
    contents = static(cond)
    return None if contents is None or contents.size != 1 else then_branch if contents.all() else else_branch


@dropout.rewrite
def dropout_rewrite(data: Value, ratio: Value | None, training_mode: Value | None, **attributes: Any) -> Any:
    """Drop Dropout in inference mode."""
    training = None if training_mode is None else static(training_mode)
    if training_mode is not None and (training is None or training.any()):
        return None
    return data, expand(constant(np.array(True)), shape_of(data))


# ----- matrix products ------------------------------------------------------------------------------------------------

#: Larger weights are not concatenated.
MOST_BYTES = 1 << 26


@reshape.rewrite(if_fewer=True)
def reshape_rewrite(data: Value, shape: Value, *, allowzero: int) -> Value | None:
    """A reshaped batched product with bias as Gemm, so that products of the same operand share its Reshape."""
    total, wanted = data.producer, elements(shape)
    if total is None or total.op is not add or wanted is None or allowzero:
        return None
    wanted = [data.shape[place] if dim == 0 else dim for place, dim in enumerate(wanted)]
    if not all(isinstance(dim, int) for dim in wanted):
        return None
    for product, bias in (total.inputs, total.inputs[::-1]):
        producer = None if product is None else product.producer
        if producer is None or producer.op is not matmul or bias is None or not bias.is_constant or bias.rank != 1:
            continue
        x, weight = producer.inputs
        if x is None or x.ndim < 3 or weight is None or not weight.is_constant or weight.rank != 2:
            continue
        if bias.shape[0] in (1, weight.shape[1]):
            return reshape(gemm(reshape(x, [-1, weight.shape[0]]), weight, bias), wanted)
    return None


def _split_before(input: Value, lengths: Value | None, *, axis: int, **_: Any) -> tuple[Value, ...] | None:
    """Move a Split of the last axis before a Reshape that keeps this axis."""
    node = input.producer
    before = None if node is None or node.op is not reshape else node.inputs[0]
    contents = None if lengths is None else static(lengths)
    if before is None or contents is None or known_shape(input) is None or known_shape(before) is None:
        return None
    if axis % input.ndim != input.ndim - 1 or input.shape[-1] != before.shape[-1]:
        return None
    sizes = contents.tolist()
    parts = split(before, sizes, axis=before.ndim - 1, _outputs=len(sizes))
    return tuple(reshape(part, [*input.shape[:-1], size]) for part, size in zip(parts, sizes, strict=True))


for _split in (split, split_exactly):
    _split.rewrite(_split_before, if_fewer=True)


@matmul.rewrite(together=True)
def matmul_rewrite(calls: Sequence[Sequence[Value]]) -> Sequence[Value] | None:
    """Three or more products of one operand with weights as one product with concatenated weights."""
    contents = [weight.data for _, weight in calls]
    if (
        len(calls) < 3 or sum(0 if data is None else data.nbytes for data in contents) > MOST_BYTES
    ):  # before reading them
        return None
    weights, x = [static(weight) for _, weight in calls], calls[0][0]
    if x.ndim < 2 or any(w is None or w.ndim != 2 or w.dtype != weights[0].dtype for w in weights):
        return None
    joined = np.concatenate(weights, axis=1)
    product = matmul(x, constant(joined, calls[0][1].dtype, made_of=[weight for _, weight in calls]))
    return split(product, [w.shape[1] for w in weights], axis=x.ndim - 1, _outputs=len(weights))
