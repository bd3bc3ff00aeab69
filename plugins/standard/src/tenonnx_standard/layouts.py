"""Layout rules: ops that only move axes, and ops that work in any layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import NotRepresentable, TensorType, Value, static
from tenonnx_standard.activation import (
    celu,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    mish,
    prelu,
    relu,
    selu,
    shrink,
    sigmoid,
    softplus,
    softsign,
    swish,
    thresholded_relu,
)
from tenonnx_standard.axis_activation import hardmax, log_softmax, softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.joining import concat
from tenonnx_standard.math import clip
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from tenonnx_standard.shapes import reshape, squeeze, transpose, unsqueeze

# ----- ops that move axes ---------------------------------------------------------------------------------------------


@transpose.rule("moves")
def transpose_moves(data: Value, *, perm: Any) -> Any:
    return data, list(range(data.ndim))[::-1] if perm is None else list(perm)


@unsqueeze.rule("moves")
def unsqueeze_moves(data: Value, axes: Value) -> Any:
    contents = static(axes)
    if contents is None:
        return None
    rank = data.ndim + contents.size
    added = _axes(axes, rank)
    kept = iter(range(data.ndim))
    return data, [None if axis in added else next(kept) for axis in range(rank)]


@squeeze.rule("moves")
def squeeze_moves(data: Value, axes: Value | None) -> Any:
    dropped = _axes(axes, data.ndim) if axes is not None else {k for k, dim in enumerate(data.shape) if dim == 1}
    return data, [axis for axis in range(data.ndim) if axis not in dropped]


@reshape.rule("moves")
def reshape_moves(data: Value, shape: Value, *, allowzero: int) -> Any:
    """A reshape that only adds or removes axes of length 1."""
    kind = reshape.rules["type"](data, shape, allowzero=allowzero)
    before, after = data.shape, kind.shape if isinstance(kind, TensorType) else None
    if after is None or None in (*before, *after):
        return None
    long = [axis for axis, dim in enumerate(before) if dim != 1]
    if [before[axis] for axis in long] != [dim for dim in after if dim != 1]:
        return None
    kept = iter(long)
    return data, [None if dim == 1 else next(kept) for dim in after]


def _axes(axes: Value, rank: int) -> set[int]:
    contents = static(axes)
    return set() if contents is None else {int(axis) % rank for axis in contents.reshape(-1)}


# ----- ops that work in any layout ------------------------------------------------------------------------------------

for _op in (
    cast,
    celu,
    clip,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    mish,
    prelu,
    relu,
    selu,
    shrink,
    sigmoid,
    softplus,
    softsign,
    swish,
    thresholded_relu,
):
    _op.traits(elementwise=True)

for _op in (softmax, log_softmax, hardmax):

    @_op.rule("laid_out")
    def op_laid_out(layout: Any, x: Value, *, axis: int, _op: Any = _op) -> Any:
        return _op(layout.of(x), axis=layout.axis(axis))


@concat.rule("laid_out")
def concat_laid_out(layout: Any, *inputs: Value, axis: int) -> Any:
    return concat(*map(layout.of, inputs), axis=layout.axis(axis))


@pad.rule("laid_out")
def pad_laid_out(
    layout: Any, data: Value, pads: Value, constant_value: Value | None, axes: Value | None, *, mode: str
) -> Any:
    laid, amounts = layout.of(data), static(pads)
    if amounts is None or axes is not None or laid.ndim != data.ndim:
        raise NotRepresentable("cannot move the axes of this padding", given=str(data.type))
    moved = np.zeros((2, data.ndim), np.int64)
    moved[:, [layout.axis(k) for k in range(data.ndim)]] = np.reshape(amounts, (2, -1))
    return pad(laid, moved.reshape(-1).tolist(), constant_value, mode=mode)


for _op in (reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum):

    @_op.rule("laid_out")
    def op_laid_out_2(layout: Any, x: Value, axes: Value, *, keepdims: int, _op: Any = _op, **attributes: Any) -> Any:
        reduced = _axes(axes, x.ndim)
        found = _op(layout.of(x), sorted(map(layout.axis, reduced)), keepdims=1, **attributes)
        left = [place for axis, place in enumerate(layout.axes) if keepdims or axis not in reduced]
        return layout.placed(found, left)

    @_op.rule("moves")
    def op_moves(x: Value, axes: Value, *, keepdims: int, _op: Any = _op, **attributes: Any) -> Any:
        """Treat a reduction without ``keepdims`` as one with it, followed by a Squeeze."""
        if keepdims or static(axes) is None:
            return None
        reduced = _axes(axes, x.ndim)
        return _op(x, axes, keepdims=1, **attributes), [axis for axis in range(x.ndim) if axis not in reduced]
