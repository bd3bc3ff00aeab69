"""Canonicalization rules (``normal``), by which fusion recognizes equivalent forms of an op's body."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Op, TensorType, Value, dims, static, symbolic
from tenonnx_standard.activation import relu
from tenonnx_standard.algebra import (
    by_common_factor,
    is_float,
    number_of,
    parts_of_product,
    rectified,
    with_numbers_placed,
)
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.concat_last_axis import each, lifted
from tenonnx_standard.constants import constant_of_shape
from tenonnx_standard.contraction import einsum
from tenonnx_standard.convolution_forms import folded
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_standard.math import add, div, mul, neg, pow_, reciprocal, sqrt, sub
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.operators import lengths
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from tenonnx_standard.shapes import expand, identity, reshape, shape, transpose, unsqueeze
from tenonnx_standard.simplification import reshaped_once, transposed_once
from tenonnx_standard.symbolic_ints import fixed, is_spread

#: Larger constants are not examined.
MOST_BYTES = 1 << 16


@sub.rule("normal")
def sub_normal(A: Value, B: Value) -> Value | None:
    return A + B * -1.0 if is_float(A) else None


@neg.rule("normal")
def neg_normal(X: Value) -> Value | None:
    return X * -1.0 if is_float(X) else None


@div.rule("normal")
def div_normal(A: Value, B: Value) -> Value | None:
    if not is_float(A):
        return None
    number = number_of(B)
    return A * reciprocal(B) if number is None else A * (1.0 / number) if number else None


@pow_.rule("normal")
def pow_normal(X: Value, Y: Value) -> Value | None:
    power = number_of(Y) if is_float(X) else None
    if power == 0.5:
        return sqrt(X)
    if power == -0.5:
        return reciprocal(sqrt(X))
    if power in (2.0, 3.0):
        return X * X if power == 2.0 else X * X * X
    return None


def _is_constant_equal_to(number: float, x: Value) -> bool:
    """Whether a small float constant is not trainable and equals one number everywhere."""
    contents = fixed(x) if is_float(x) and x.data is not None and x.data.nbytes <= MOST_BYTES else None
    return contents is not None and bool((contents == number).all())


def _before_redundant_expand(x: Value, other: Value, *ops: Op) -> Value | None:
    """The input of ``other`` before ``ops`` expanded it, if broadcasting with ``x`` has the same effect."""
    node = other.producer
    inner = None if node is None or node.op not in ops else node.uses[0]
    if inner is not None and node is not None and node.op is unsqueeze:
        places = static(node.uses[1])
        inner = inner if places is not None and places.tolist() == list(range(len(places))) else None
    shapes = [None if v is None or not isinstance(v.type, TensorType) else v.type.shape for v in (x, other, inner)]
    if inner is None or any(shape is None or None in shape for shape in shapes):
        return None
    full, wide, thin = (tuple(shape or ()) for shape in shapes)
    try:
        same = symbolic.broadcast_shapes(full, thin) == symbolic.broadcast_shapes(full, wide) == full
    except ValueError:
        return None
    return inner if same else None


def _normalize_neutral(op: Op, unit: float, *spreading: Op, placed: Callable[[Value, Value], Value | None]) -> None:
    """Drop the neutral operand and redundant expansion; fold into convolutions and parts, or reorder by ``placed``."""

    @op.rule("normal")
    def op_normal(A: Value, B: Value) -> Value | None:
        for x, other in ((A, B), (B, A)):
            if _is_constant_equal_to(unit, other) and is_spread(x, other):
                return x
            if (spread := _before_redundant_expand(x, other, *spreading)) is not None:
                return op(x, spread)  # type: ignore[no-any-return]
        found = (rule(A, B) for rule in (functools.partial(folded, op), functools.partial(lifted, op), placed))
        return next((each for each in found if each is not None), None) if is_float(A) else None


_normalize_neutral(add, 0.0, expand, placed=by_common_factor)  # masks keep their axes
_normalize_neutral(mul, 1.0, expand, unsqueeze, placed=with_numbers_placed)


@identity.rule("normal")
def identity_normal(input: Value) -> Value:
    return input


@constant_of_shape.rule("normal")
def constant_of_shape_normal(input: Value, *, value: Any) -> Value:
    return constant_of_shape.function(input, value=value)  # type: ignore[no-any-return]


@cast.rule("normal")
def cast_normal(input: Value, *, to: int, **_: Any) -> Value | None:
    if isinstance(input.type, TensorType) and input.type.dtype == to:
        return input
    return each(cast, input, to=to) if is_float(input) else None


@transpose.rule("normal")
def transpose_normal(data: Value, *, perm: Sequence[int] | None) -> Value | None:
    """As ``simplify`` does, with an explicit permutation, and constant factors moved behind."""
    inner, number = parts_of_product(data)
    order = list(range(data.ndim))[::-1] if perm is None else list(perm)
    if number != 1.0:
        return transpose(inner, perm=order) * number
    result = transposed_once(data, perm=perm)
    return transpose(data, perm=order) if result is None and perm is None else result


@reshape.rule("normal")
def reshape_normal(data: Value, shape: Value, *, allowzero: int) -> Value | None:
    """As ``simplify`` does, with constant factors moved behind."""
    inner, number = parts_of_product(data)
    if number != 1.0:
        return reshape(inner, shape, allowzero=allowzero) * number
    return reshaped_once(data, shape, allowzero=allowzero, compared=True)


@matmul.rule("normal")
def matmul_normal(A: Value, B: Value) -> Value | None:
    """Move constant factors after the product; multiply repeated heads as rows of one product."""
    (left, one), (right, other) = parts_of_product(A), parts_of_product(B)
    if one != 1.0 or other != 1.0:
        return matmul(left, right) * (one * other)
    return product_by_groups(A, B)


def product_by_groups(rows: Value, columns: Value) -> Value | None:
    """Multiply by matrices repeated along axis 1 as one product per distinct matrix, with its rows stacked."""
    turned = columns.producer is not None and columns.producer.op is transpose
    found = repeated_heads(columns if not turned else columns.producer.inputs[0])
    kind = rows.type.shape if isinstance(rows.type, TensorType) else None
    if found is None or kind is None or len(kind) != 4:
        return None
    shared, groups, heads = found
    if turned:
        order = columns.producer.attributes["perm"]
        if order != [0, 1, 3, 2]:
            return None
        shared = transpose(shared, perm=order)
    batch, _, length, size = dims(rows)
    below = reshape(rows, [batch, groups, length * (heads // groups), size])
    return reshape(matmul(below, shared), [batch, heads, length, dims(columns)[3]])


def repeated_heads(x: Value) -> tuple[Value, int, int] | None:
    """The heads before repetition along axis 1, their number, and the number of repeated heads; else None."""
    merge = x.producer
    wide = None if merge is None or merge.op is not reshape else merge.inputs[0]
    spread = None if wide is None or wide.producer is None or wide.producer.op is not expand else wide.producer
    thin = None if spread is None else spread.inputs[0]
    added = None if thin is None or thin.producer is None else thin.producer
    if added is None or thin is None or wide is None or added.op not in (unsqueeze, reshape) or added.inputs[0] is None:
        return None
    shapes = [v.type.shape if isinstance(v.type, TensorType) else None for v in (added.inputs[0], thin, wide, x)]
    if any(s is None or None in s for s in shapes):
        return None
    once, apart, times, merged = (tuple(s or ()) for s in shapes)
    if not len(once) == len(merged) == 4:
        return None
    (batch, groups, length, size), heads = once, merged[1]
    if not isinstance(groups, int) or not isinstance(heads, int) or not groups:
        return None
    count = heads // groups
    fits = apart == (batch, groups, 1, length, size) and times == (batch, groups, count, length, size)
    return (added.inputs[0], groups, heads) if fits and merged == (batch, groups * count, length, size) else None


@softmax.rule("normal")
def softmax_normal(input: Value, *, axis: int) -> Value | None:
    return softmax(input, axis=axis % input.ndim) if axis < 0 and input.rank else None


@concat.rule("normal")
def concat_normal(*inputs: Value, axis: int) -> Value | None:
    if axis < 0:
        return concat(*inputs, axis=axis % inputs[0].ndim)
    if len(inputs) > 1 and set(inputs) == {inputs[0]} and inputs[0].shape[axis] == 1 and axis < inputs[0].ndim - 1:
        return expand(inputs[0], [len(inputs) if k == axis else 1 for k in range(inputs[0].ndim)])
    flat = [part for x in inputs for part in _joined(x, axis)]
    return concat(*flat, axis=axis) if len(flat) > len(inputs) else None


def _joined(x: Value, axis: int) -> Sequence[Value]:
    node = x.producer
    return node.uses if node is not None and node.op is concat and node.attributes["axis"] == axis else (x,)


@gemm.rule("normal")
def gemm_normal(A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int) -> Value:
    left, right = (transpose(x, perm=[1, 0]) if turned else x for x, turned in ((A, transA), (B, transB)))
    product = matmul(left, right) * alpha
    return product if C is None else product + C * beta


@max_pool.rule("normal")
def max_pool_normal(
    X: Value,
    *,
    auto_pad: str,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    _outputs: int | None,
    **attributes: Any,
) -> Value | None:
    """Move a Relu after the pool, unless a window may contain only padding."""
    inner = rectified(X)
    if inner is None or (_outputs or 1) > 1:
        return None
    narrow = set(dilations or ()) <= {1} and max(pads or (0,)) < min(kernel_shape)
    if not narrow and (auto_pad.startswith("SAME") or any(pads or ())):
        return None
    window = {"auto_pad": auto_pad, "kernel_shape": kernel_shape, "pads": pads, "dilations": dilations}
    return relu(max_pool(inner, **window, **attributes))  # type: ignore[no-any-return]


@shape.rule("normal")
def shape_normal(data: Value, *, start: int, end: int | None) -> Value | None:
    """Express lengths by those of graph inputs."""
    sizes = data.type.shape if isinstance(data.type, TensorType) else None
    inputs = [] if data.graph is None else data.graph.all_inputs
    if sizes is None or None in sizes[start:end] or any(data is x for x in inputs):
        return None
    return lengths(sizes[start:end], inputs)


def _use_non_negative_axes(op: Op) -> None:
    """Use non-negative axes."""

    @op.rule("normal")
    def op_normal_2(data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Value | None:
        contents = static(axes) if axes is not None else None
        if contents is None or data.rank is None or (contents >= 0).all():
            return None
        placed = np.sort(contents % data.rank).tolist()
        return op(data, placed, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)  # type: ignore[no-any-return]


for _op in (reduce_mean, reduce_sum, reduce_max, reduce_min, reduce_prod):
    _use_non_negative_axes(_op)


@einsum.rule("normal")
def einsum_normal(*Inputs: Value, equation: str) -> Any:
    """Einsum as its body: a permutation or matrix products."""
    return einsum.function(*Inputs, equation=equation)
