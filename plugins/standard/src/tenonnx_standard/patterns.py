"""Fusion patterns of ops with many attributes: the rules ``pattern``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Op, TensorType, Value, constant, dims, static
from tenonnx_standard.algebra import is_float, parts_of_product
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.concat_last_axis import interleaved
from tenonnx_standard.dot_product_attention import attention, attention_of_full_masks
from tenonnx_standard.float_classes import isnan
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import add, clip, maximum, minimum, mul
from tenonnx_standard.normalization import (
    group_normalization,
    instance_normalization,
    layer_normalization,
    rms_normalization,
    simplified_layer_normalization,
)
from tenonnx_standard.reduction import reduce_max
from tenonnx_standard.rotary import rotary_embedding
from tenonnx_standard.shapes import expand, identity, reshape, squeeze, transpose, unsqueeze
from tenonnx_standard.slicing import gather, slice_
from tenonnx_standard.symbolic_ints import always_holds, is_spread, spread

After = Callable[[Value], Value] | None


class Guess(NamedTuple):
    """A candidate call for a value: ``after`` maps its first output to the value; ``outputs`` is its minimum number."""

    inputs: Sequence[Value | None]
    attributes: dict[str, Any]
    after: After = None
    outputs: int = 1


#: Larger scales of ones are expanded at run time instead of stored in the file.
MOST_ONES = 1 << 16

#: Maximum producers visited by a search for bounds.
MOST_STEPS = 12

#: Ops whose results are elements of their first input.
_ELEMENTS_OF = (reduce_max, expand, reshape, transpose, squeeze, unsqueeze, slice_, gather, identity)

# ----- fully masked rows ----------------------------------------------------------------------------------------------


def range_of(x: Value, steps: int = MOST_STEPS) -> tuple[float, float] | None:
    """Lower and upper bounds of all elements of ``x``; None if unknown."""
    if x.data is not None:
        contents = static(x)
        if (
            contents is None
            or not contents.size
            or contents.dtype.kind not in "biuf"
            or np.isnan(contents.astype(np.float64)).any()
        ):
            return None
        return float(contents.min()), float(contents.max())
    node = x.producer
    if node is None or not steps or not isinstance(x.type, TensorType):
        return None
    if node.op is cast and node.inputs[0] is not None and not node.inputs[0].dtype.is_float:
        return _range_of_type(node.inputs[0].dtype)
    chosen = node.inputs[:1] if node.op in _ELEMENTS_OF else node.inputs[1:] if node.op is where else ()
    if node.op in (concat, add, mul):
        chosen = node.inputs
    found = [None if v is None else range_of(v, steps - 1) for v in chosen]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    least, greatest = zip(*known, strict=True)
    if node.op is add:
        return _rounded(x, [sum(least), sum(greatest)])
    if node.op is mul:
        return _rounded(x, [one * other for one in known[0] for other in known[1]])
    return min(least), max(greatest)


def _range_of_type(kind: DType) -> tuple[float, float] | None:
    if kind is DType.bool:
        return 0.0, 1.0
    if not kind.is_integer:
        return None
    least, greatest = kind.bounds
    return float(least), float(greatest)


def _rounded(x: Value, numbers: Sequence[float]) -> tuple[float, float] | None:
    """The minimum and maximum of some numbers rounded to the dtype of ``x``."""
    with np.errstate(over="ignore"):
        rounded = [float(np.asarray(number).astype(x.dtype.numpy)) for number in numbers]
    return None if np.isnan(rounded).any() else (min(rounded), max(rounded))


def smallest(x: Value) -> float | None:
    """A lower bound of all elements of ``x``; None if unknown."""
    found = range_of(x)
    return None if found is None else found[0]


def _is_above_nothing(x: Value) -> bool:
    found = smallest(x)
    return found is not None and found > -np.inf


@equal.rule("normal")
def equal_normal(A: Value, B: Value) -> Value | None:
    """Comparing a finite value with minus infinity is False."""
    for x, other in ((A, B), (B, A)):
        contents = static(other) if isinstance(other.type, TensorType) and other.type.dtype.is_float else None
        if contents is not None and contents.size == 1 and np.isneginf(contents).all() and _is_above_nothing(x):
            return constant(np.array(False))
    return None


@where.rule("normal")
def where_normal(condition: Value, X: Value, Y: Value) -> Value | None:
    """Drop a constant condition, and one that replaces NaN in a softmax.

    The latter needs finite masks: fusion assumes that the scores are finite.
    """
    contents = static(condition)
    if contents is not None and not contents.any() and X.rank == 0 and is_spread(Y, condition):
        return Y
    if always_holds(condition):
        return spread(X, condition, Y)
    guard, producer = condition.producer, Y.producer
    guards = guard is not None and guard.op is isnan and guard.inputs[0] is Y
    if guards and producer is not None and producer.op is softmax and producer.inputs[0] is not None:
        masks = _terms(producer.inputs[0])[1:]
        return Y if all(map(_is_above_nothing, masks)) else None
    return None


def _terms(x: Value) -> list[Value]:
    """The terms of a sum, a scaled product first."""
    pending, found = [x], []
    while pending:
        term = pending.pop()
        if term.producer is not None and term.producer.op is add:
            pending += term.producer.uses
        else:
            found.append(term)
    return sorted(found, key=lambda v: not _is_scaled_product(v))


def _is_scaled_product(x: Value) -> bool:
    producer = _before_reshape(parts_of_product(x)[0]).producer
    return producer is not None and producer.op is matmul


def _before_reshape(x: Value) -> Value:
    node = x.producer
    return node.inputs[0] if node is not None and node.op is reshape and node.inputs[0] is not None else x


# ----- attention ------------------------------------------------------------------------------------------------------


def attended(y: Value) -> Iterator[tuple[Value, Value, Value, Value | None, float]]:
    """Match softmax(q k + mask) v; yields queries, keys, values, the mask, and the scale."""
    weighting = _product(y)
    producer = None if weighting is None else weighting[0].producer
    if weighting is None or producer is None or producer.op is not softmax or producer.inputs[0] is None:
        return
    product, *masks = _terms(producer.inputs[0])
    inner, scale = parts_of_product(product)
    scores = _product(inner)
    if scores is None:
        return
    mask = None
    for term in masks:
        mask = term if mask is None else mask + term
    queries, values = scores[0], weighting[1]
    if _of_one_batch(queries, scores[1], values, mask):
        yield queries, transpose(scores[1], perm=[0, 1, 3, 2]), values, mask, scale


def _of_one_batch(queries: Value, keys: Value, values: Value, mask: Value | None) -> bool:
    """Whether batches are equal: matrix products broadcast batches, attention in onnxruntime does not."""
    batch = queries.shape[0]
    if not batch == keys.shape[0] == values.shape[0]:
        return False
    if mask is None or mask.rank is None or mask.rank < 4:
        return True
    of_masks = mask.shape[0]
    return of_masks in (1, batch) or (of_masks is None and batch != 1)


def joined_heads(y: Value) -> tuple[Value, After] | None:
    """The heads (batch, heads, length, size) that ``y`` merges, and a function that restores its rank."""
    turned = None if y.producer is None or y.producer.op is not reshape else y.producer.uses[0]
    if turned is None or turned.producer is None or turned.producer.op is not transpose or turned.rank != 4:
        return None
    if y.rank == 2 and isinstance(y.shape[1], int):
        width = y.shape[1]
        return turned.producer.uses[0], lambda joined: reshape(joined, [-1, width])
    return (turned.producer.uses[0], None) if y.rank == 3 else None


def _product(x: Value) -> tuple[Value, Value] | None:
    """The operands of a product of heads, or of grouped heads with stacked rows."""
    node = x.producer
    if node is None or x.rank != 4:
        return None
    if node.op is matmul:
        return node.uses[0], node.uses[1]
    producer = _before_reshape(x).producer
    if node.op is not reshape or producer is None or producer.op is not matmul or producer.uses[0].producer is None:
        return None
    return (_before_reshape(producer.uses[0]), producer.uses[1]) if producer.uses[0].producer.op is reshape else None


def _register_attention_pattern(op: Op) -> None:
    @op.pattern
    def op_pattern(y: Value) -> Iterator[Guess]:
        for q, k, v, mask, scale in attended(y):
            if mask is not None and mask.ndim > 1 and mask.shape[-2] == 1 != q.shape[2]:
                mask = expand(mask, [1, 1, dims(q)[2], 1])  # onnxruntime does not broadcast rows
            if (cached := behind_past(k, v)) is not None:  # onnxruntime requires the new cache as outputs
                yield Guess((q, *cached.new, mask, *cached.past), {"scale": scale}, outputs=3)
            yield Guess((q, k, v, mask), {"scale": scale})


for _op in (attention, attention_of_full_masks):
    _register_attention_pattern(_op)


class Cached(NamedTuple):
    """New keys and values, and the cache to which they are appended."""

    past: tuple[Value, Value]
    new: tuple[Value, Value]


def behind_past(*heads: Value) -> Cached | None:
    """Match keys and values that are appended to a cache along the positions."""
    producers = [x.producer for x in heads]
    pairs = [n.uses for n in producers if n is not None and n.op is concat and n.attributes.get("axis") == 2]
    if len(pairs) != 2 or any(len(pair) != 2 for pair in pairs):
        return None
    (key, new_key), (value, new_value) = pairs
    return Cached((key, value), (new_key, new_value))


# ----- matrix products and clips --------------------------------------------------------------------------------------


@gemm.pattern
def gemm_pattern(y: Value) -> Iterator[Guess]:
    """A scaled product of optionally transposed matrices plus a scaled addend.

    A scale inside of a factor is left to patterns of activations, which need it.
    """
    sums = itertools.permutations(y.producer.uses) if y.producer is not None and y.producer.op is add else [(y, None)]
    for product, added in sums if y.rank == 2 and is_float(y) else ():
        inner, alpha = parts_of_product(product)
        if inner.producer is None or inner.producer.op is not matmul:
            continue
        addend, beta = (None, 1.0) if added is None else parts_of_product(added)
        (left, one), (right, other) = map(_untransposed, inner.producer.uses)
        if alpha != 1 and any(v.producer is not None and v.producer.op is mul for v in (left, right)):
            continue
        yield Guess((left, right, addend), {"alpha": alpha, "beta": beta, "transA": one, "transB": other})


def _untransposed(x: Value) -> tuple[Value, int]:
    turned = x.producer is not None and x.producer.op is transpose
    return (x.producer.uses[0], 1) if turned and x.producer is not None else (x, 0)


@clip.pattern
def clip_pattern(y: Value) -> Iterator[Guess]:
    above = y.producer.uses if y.producer is not None and y.producer.op is minimum else ()
    below = above[0].producer if len(above) == 2 else None
    if below is not None and below.op is maximum and len(below.uses) == 2 and is_float(y):
        yield Guess((*below.uses, above[1]), {})


# ----- rotary embedding -----------------------------------------------------------------------------------------------


def rotated(y: Value) -> Iterator[tuple[Value, Value, Value, dict[str, Any]]]:
    """Match rotary heads; yields the input, cosines and sines that broadcast to it, and attributes."""
    found = interleaved(y) if y.rank == 4 else None
    if found is None or len(found.parts) not in (2, 3):
        return
    factors = [_factors_of_parts(term) for term in _terms(found.parts[0])]
    if len(factors) != 2 or None in factors:
        return
    for (one, cosine), (other, sine) in itertools.permutations(f for f in factors if f is not None):
        (x, first, *_), (same, *_) = (v.uses for v in (one.producer, other.producer) if v is not None)
        if same is not x or static(first) != 0:  # the cosine multiplies the part that keeps its place
            continue
        attributes = {"interleaved": int(found.turns)}
        if len(found.parts) == 3 and isinstance(one.shape[-1], int):
            attributes["rotary_embedding_dim"] = 2 * one.shape[-1]
        yield x, cosine, sine, attributes


def _factors_of_parts(term: Value) -> tuple[Value, Value] | None:
    """The slice and the other factor of a product, constants left out; else None."""
    term = parts_of_product(term)[0]
    if term.producer is None or term.producer.op is not mul:
        return None
    operands = [parts_of_product(x)[0] for x in term.producer.uses]
    for one, other in (operands, operands[::-1]):
        if one.producer is not None and one.producer.op is slice_ and one.rank == 4:
            return one, other
    return None


def by_position(x: Value, table: Value, heads: int) -> Value | None:
    """A table that is the same for all heads (axis ``heads``), as (batch or 1, length, half); else None."""
    node, length = table.producer, x.shape[3 - heads]
    inner = None if node is None or node.op is not unsqueeze else node.uses[0]
    for result in (inner, table if heads == 1 else None):
        if result is not None and result.rank == 3 and result.shape[:2] in ((1, length), (x.shape[0], length)):
            return result
        if result is not None and result.rank == 2 and result.shape[0] == length:
            return unsqueeze(result, [0])
    wide = unsqueeze(table, [0]) if table.rank == 3 and heads == 2 else table
    return squeeze(wide, [heads]) if wide.rank == 4 and wide.shape[heads] == 1 else None


class _RotaryInputs(NamedTuple):
    """Inputs of a rotary embedding with tables (batch or 1, length, half), its attributes, and a final reshape."""

    x: Value
    cosine: Value
    sine: Value
    attributes: dict[str, Any]
    after: After = None


def turned(y: Value) -> Iterator[_RotaryInputs]:
    """Match rotary heads (batch, heads, length, size), or (batch, length, heads, size), which are merged for the op."""
    for x, *tables, attributes in rotated(y):
        for heads in (1, 2):
            cosine, sine = (by_position(x, table, heads) for table in tables)
            if cosine is None or sine is None:
                continue
            if heads == 1:
                yield _RotaryInputs(x, cosine, sine, attributes)
            elif isinstance(count := x.shape[2], int) and isinstance(size := x.shape[3], int):
                split_shape = [0, 0, count, size]
                flat = reshape(x, [0, 0, count * size])
                yield _RotaryInputs(
                    flat,
                    cosine,
                    sine,
                    {**attributes, "num_heads": count},
                    lambda y, split_shape=split_shape: reshape(y, split_shape),
                )


def common_gather(cosine: Value, sine: Value) -> tuple[Value, Value, Value] | None:
    """The tables and the positions, if cosines and sines are gathered with the same positions; else None."""
    one, other = cosine.producer, sine.producer
    if one is None or other is None or one.op is not gather or other.op is not gather:
        return None
    same = one.uses[1] is other.uses[1] and one.uses[1].rank == 2 and one.uses[0].rank == other.uses[0].rank == 2
    return (one.uses[0], other.uses[0], one.uses[1]) if same else None


@rotary_embedding.pattern
def rotary_embedding_pattern(y: Value) -> Iterator[Guess]:
    for x, cosine, sine, attributes, after in turned(y):
        found = common_gather(cosine, sine)
        if found is not None:
            yield Guess((x, *found), attributes, after)
        yield Guess((x, *(expand(t, [dims(x)[0], 1, 1]) for t in (cosine, sine))), attributes, after)


# ----- normalization --------------------------------------------------------------------------------------------------


def _scaled_by_ones(op: Op) -> None:
    """Use a scale of ones for a normalization without scale."""

    @op.pattern(absent=True)
    def op_pattern_absent(
        X: Value, scale: Value | None, *more: Value | None, axis: int, **_: Any
    ) -> Sequence[Value | None]:
        sizes = dims(X)[axis:]
        one = constant(1, X.dtype)
        if all(isinstance(size, int) for size in sizes) and math.prod(sizes) <= MOST_ONES:
            return X, constant(np.ones(sizes), X.dtype), *more
        return X, expand(one, sizes), *more


for _op in (layer_normalization, rms_normalization, simplified_layer_normalization):
    _scaled_by_ones(_op)

group_normalization.traits(on_request=True)  # without a CPU kernel in onnxruntime, slower than the unfused nodes


@group_normalization.pattern
def group_normalization_pattern(y: Value) -> Iterator[Guess]:
    if y.producer is None or y.producer.op is not add:
        return
    for product, bias in (y.producer.uses, y.producer.uses[::-1]):
        if product.producer is None or product.producer.op is not mul:
            continue
        for standard, scale in (product.producer.uses, product.producer.uses[::-1]):
            producer = _before_reshape(standard).producer
            if producer is None or producer.op is not instance_normalization or producer.inputs[0] is None:
                continue
            x, groups = _before_reshape(producer.inputs[0]), producer.inputs[0].shape[1]
            if isinstance(groups, int) and scale.data is not None and bias.data is not None:
                attributes = {"num_groups": groups, "epsilon": producer.attributes.get("epsilon", 1e-5)}
                yield Guess((x, reshape(scale, [-1]), reshape(bias, [-1])), attributes)
