"""Folding of factors, shifts and padding into convolutions and matrix products with constant weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Op, Value, constant, is_trainable, static
from tenonnx.extend.transforms import bind
from tenonnx_standard.activation import relu, sigmoid
from tenonnx_standard.average_pooling import average_pool
from tenonnx_standard.batch_norm import (
    batch_normalization,
    batch_normalization_by_outputs,
    batch_normalization_is_test,
    batch_normalization_spatial,
)
from tenonnx_standard.checking import Array
from tenonnx_standard.convolution import conv, conv_transpose
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_standard.math import add, clip, div, mul, sub
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.normalization import instance_normalization
from tenonnx_standard.padding import pad
from tenonnx_standard.recurrent import gru, lstm, rnn
from tenonnx_standard.shapes import expand, identity, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import slice_
from tenonnx_standard.symbolic_ints import fixed, is_spread


class Affine(NamedTuple):
    """``x`` times a factor per channel (axis 1) plus a shift per channel, and the constants they come from."""

    x: Value
    factor: Array
    shift: Array
    told_by: Sequence[Value]


# ----- factors and shifts ---------------------------------------------------------------------------------------------


def _per_channel_constant(x: Value, number: Value) -> Array | None:
    """A constant with one element per channel of ``x``, or one for all channels; else None."""
    contents, rank = static(number), x.rank
    if contents is None or contents.dtype.kind not in "fV" or rank is None or rank < 2 or not is_spread(x, number):
        return None
    contents = contents.reshape((1,) * (rank - contents.ndim) + contents.shape).astype(np.float64)
    return contents.reshape(-1) if contents.size == contents.shape[1] else None


_ONE, _ZERO = np.ones(1), np.zeros(1)


def _scaled_and_shifted(op: Any, first: Value, second: Value) -> Affine | None:
    """Match a sum, difference, product or quotient with a constant."""
    turned = first.is_constant
    x, number = (second, first) if turned else (first, second)
    constants = None if x.is_constant else _per_channel_constant(x, number)
    if constants is None or (turned and op is div):
        return None
    if op is add:
        return Affine(x, _ONE, constants, [number])
    if op is sub:
        return Affine(x, -_ONE if turned else _ONE, constants if turned else -constants, [number])
    with np.errstate(all="ignore"):
        return Affine(x, constants if op is mul else 1 / constants, _ZERO, [number])


def _batch_norm(X: Value, scale: Value, B: Value, mean: Value, variance: Value, *, epsilon: float) -> Affine | None:
    """Match BatchNormalization with constant statistics."""
    constants = [static(v) for v in (scale, B, mean, variance)]
    if any(h is None or h.ndim != 1 for h in constants):
        return None
    weight, shift, center, spread = (np.asarray(h, np.float64) for h in constants)
    with np.errstate(all="ignore"):
        factor = weight / np.sqrt(spread + epsilon)
    return Affine(X, factor, shift - center * factor, [B, scale, mean, variance])


# ----- after a layer --------------------------------------------------------------------------------------------------


def _fold_into_layer(found: Affine | None) -> Value | None:
    """Fold a factor and shift into the weights and bias of the layer that computes ``x``."""
    layer = None if found is None else found.x.producer
    if found is None or layer is None or layer.op not in (conv, conv_transpose, gemm):
        return None
    inputs, attributes = bind(layer)
    x, kernel, shift = inputs
    weights, bias = static(kernel), np.zeros(()) if shift is None else static(shift)
    if x is None or weights is None or bias is None or x.is_constant:
        return None
    if layer.op is gemm:
        axis, channels = (0, weights.shape[0]) if attributes["transB"] else (1, weights.shape[1])
        if bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
            return None
        bias, attributes = bias.reshape(-1) * attributes["beta"], {**attributes, "beta": 1.0}
        factor = np.broadcast_to(found.factor, channels)
        scaled = weights * np.expand_dims(factor, 1 - axis)
    else:
        groups = attributes["group"]
        channels = weights.shape[0] if layer.op is conv else weights.shape[1] * groups
        factor = np.broadcast_to(found.factor, channels)
        scaled = _times_outputs(weights, factor, groups, transposed=layer.op is conv_transpose)
    shifted = np.broadcast_to(bias * found.factor + found.shift, channels)
    return _with_weights(layer.op, x, kernel, inputs[2], found, scaled, shifted, attributes)


def _times_outputs(weights: Array, factor: Array, groups: int, *, transposed: bool) -> Array:
    """Weights of a convolution with each output channel multiplied by its factor."""
    if not transposed:
        return weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
    parts = weights.reshape(groups, -1, *weights.shape[1:])
    return (parts * factor.reshape(groups, 1, -1, *(1,) * (weights.ndim - 2))).reshape(weights.shape)


def _with_weights(
    op: Any, x: Value, kernel: Any, before: Value | None, taken: Affine, weights: Array, bias: Array, attributes: Any
) -> Value | None:
    """The layer with new weights and bias instead of ``kernel`` and the bias ``before``."""
    new_weights: list[Value] = []
    trainable = any(is_trainable(v) for v in taken.told_by)
    adds = bool(np.any(bias)) or (trainable and (len(taken.told_by) > 1 or bool((taken.factor == 1).all())))
    for array, of in ((weights, kernel), *([(bias, before)] if before is not None or adds else [])):
        with np.errstate(all="ignore"):
            rounded = np.asarray(array).astype(kernel.dtype.numpy)
        if not np.isfinite(rounded.astype(np.float64)).all():  # two finite factors may have an infinite product
            return None
        stays = of is kernel and bool((taken.factor == 1).all())
        new_weights.append(kernel if stays else constant(rounded, kernel.dtype, made_of=[of, *taken.told_by]))
    result: Value = op(x, *new_weights, **attributes)
    return result


for _made in (sub, mul, div):

    @_made.rewrite(alone=True)
    def made_rewrite(A: Value, B: Value, _made: Any = _made) -> Value | None:
        return _fold_into_layer(_scaled_and_shifted(_made, A, B))


@add.rewrite(alone=True)
def add_rewrite(A: Value, B: Value) -> Value | None:
    """Fold a shift per channel, constant or not, into the bias of a convolution."""
    result = _fold_into_layer(_scaled_and_shifted(add, A, B))
    for x, shift in ((A, B), (B, A)) if result is None else ():
        layer = x.producer
        if layer is None or layer.op not in (conv, conv_transpose) or layer.inputs[2:] not in ((), (None,)):
            continue
        vector, channels = _vector_under(shift), x.shape[1]
        wide = (1,) * (x.ndim - shift.ndim) + shift.shape
        if vector is not None and vector.shape == (channels,) and wide == (1, channels, *(1,) * (x.ndim - 2)):
            (image, kernel, *_), attributes = bind(layer)
            return layer.op(image, kernel, vector, **attributes)
    return result


def _vector_under(x: Value) -> Value | None:
    """The vector of which a value is an Unsqueeze or Reshape with axes of length 1."""
    while x.ndim > 1:
        node = x.producer
        if node is None or node.op not in (unsqueeze, reshape) or node.inputs[0] is None:
            return None
        x = node.inputs[0]
    return x if x.ndim == 1 else None


@batch_normalization.rewrite(alone=True)
def batch_normalization_rewrite(*inputs: Value, epsilon: float, training_mode: int, **_: Any) -> Value | None:
    return None if training_mode else _fold_into_layer(_batch_norm(*inputs, epsilon=epsilon))


@batch_normalization_by_outputs.rewrite(alone=True)
def batch_normalization_by_outputs_rewrite(*inputs: Value, epsilon: float, **_: Any) -> Value | None:
    return _fold_into_layer(_batch_norm(*inputs, epsilon=epsilon))


@batch_normalization_spatial.rewrite(alone=True)
def batch_normalization_spatial_rewrite(*inputs: Value, epsilon: float, spatial: int, **_: Any) -> Value | None:
    return _fold_into_layer(_batch_norm(*inputs, epsilon=epsilon)) if spatial else None


@batch_normalization_is_test.rewrite(alone=True)
def batch_normalization_is_test_rewrite(
    *inputs: Value, epsilon: float, spatial: int, is_test: int, **_: Any
) -> Value | None:
    return _fold_into_layer(_batch_norm(*inputs, epsilon=epsilon)) if spatial and is_test else None


@add.rewrite(if_fewer=True)
def add_rewrite_if_fewer(A: Value, B: Value) -> Value | None:
    """A matrix product plus bias as Gemm; an image with a factor and shift per channel as BatchNormalization."""
    for product, bias in ((A, B), (B, A)):
        producer = product.producer
        if producer is None or producer.op is not matmul or producer.uses[0].rank != 2 or producer.uses[1].rank != 2:
            continue
        if product.dtype.is_float and bias.is_constant and bias.rank == 1 and is_spread(product, bias):
            return gemm(*producer.uses, bias)
    shifted = _scaled_and_shifted(add, A, B)
    scaled = None if shifted is None else shifted.x.producer
    if shifted is None or scaled is None or scaled.op is not mul or A.dtype not in (DType.float32, DType.float64):
        return None
    found = _scaled_and_shifted(mul, *scaled.uses)
    if found is None or found.x.ndim < 3 or _is_normalized(found.x):
        return None
    channels = found.x.shape[1]
    if not found.factor.size == shifted.shift.size == channels:
        return None
    factor, shift = (reshape(v, [-1]) for v in (*found.told_by, *shifted.told_by))
    kind = A.dtype.numpy
    neither = constant(np.zeros(channels, kind)), constant(np.ones(channels, kind))
    return batch_normalization(found.x, factor, shift, *neither, epsilon=0.0)


def _is_normalized(x: Value) -> bool:
    """Whether factors and shifts of ``x`` may be the end of a normalization, which fusion is to match."""
    producer = x.producer
    return producer is not None and producer.op in (reshape, instance_normalization, mul, div)


def _is_product(x: Value) -> bool:
    """Whether ``x`` is a product of computed values, which with a constant factor ends activations such as Gelu."""
    producer = x.producer
    return producer is not None and producer.op is mul and not any(v.is_constant for v in producer.uses)


# ----- before a layer -------------------------------------------------------------------------------------------------


@conv.rewrite(alone=True)
def conv_rewrite(
    X: Value, W: Value, B: Value | None, *, group: int, auto_pad: str, pads: Any, **attributes: Any
) -> Value | None:
    """Fold a factor per input channel into a convolution, and a shift unless zeros are padded."""
    producer, weights = _laid_out(X).producer, static(W)
    bias = np.zeros(()) if B is None else static(B)
    if producer is None or producer.op not in (add, sub, mul, div) or weights is None or bias is None:
        return None
    found = _scaled_and_shifted(producer.op, *producer.uses) if len(producer.uses) == 2 else None
    around = auto_pad not in ("NOTSET", "VALID") or any(pads or ())
    if found is None or (around and found.shift.any()) or _is_product(found.x):
        return None
    channels = weights.shape[1] * group
    rest = (1,) * (weights.ndim - 2)
    by_group = [np.broadcast_to(v, channels).reshape(group, 1, -1, *rest) for v in (found.factor, found.shift)]
    parts = weights.reshape(group, -1, *weights.shape[1:]).astype(np.float64)
    scaled = (parts * by_group[0]).reshape(weights.shape)
    shifted = bias + (parts * by_group[1]).sum(axis=tuple(range(2, parts.ndim))).reshape(-1)
    attributes |= {"group": group, "auto_pad": auto_pad, "pads": pads}
    return _with_weights(conv, found.x, W, B, found, scaled, shifted, attributes)


@conv.rewrite
def conv_rewrite_2(X: Value, W: Value, B: Value | None, *, auto_pad: str, pads: Any, **attributes: Any) -> Value | None:
    """Fold zero padding of the image into a convolution, and drop a bias of zeros."""
    x, around = _inside(_laid_out(X), _is_zero)
    rank = X.ndim - 2
    if around is None or auto_pad not in ("NOTSET", "VALID"):
        return conv(X, W, auto_pad=auto_pad, pads=pads, **attributes) if _is_zero(B) else None
    own = pads if pads is not None and auto_pad == "NOTSET" else [0] * (2 * rank)
    return conv(x, W, None if _is_zero(B) else B, pads=[a + b for a, b in zip(own, around, strict=True)], **attributes)


def _laid_out(X: Value) -> Value:
    """Swap a Transpose with the constant operation or padding before it."""
    turn = X.producer
    producer = None if turn is None or turn.op is not transpose else turn.uses[0].producer
    if turn is None or producer is None or not isinstance(producer.op, Op):
        return X
    perm = turn.attributes.get("perm") or list(range(X.ndim))[::-1]
    if producer.op in pad.meanings:
        (x, pads, *filled), attributes = bind(producer)
        amounts = None if x is None or filled[1:] not in ([], [None]) else static(pads)
        if x is None or amounts is None:
            return X
        moved = amounts.reshape(2, -1)[:, perm].reshape(-1).tolist()
        return producer.op(transpose(x, perm=perm), moved, *filled[:1], **attributes)  # type: ignore[no-any-return]
    if producer.op not in (add, sub, mul, div) or not any(v.is_constant for v in producer.uses):
        return X
    if not all(v.rank == X.ndim or (v.is_constant and v.rank is not None) for v in producer.uses):
        return X
    whole = (v if v.ndim == X.ndim else reshape(v, [*(1,) * (X.ndim - v.ndim), *v.shape]) for v in producer.uses)
    return producer.op(*(transpose(v, perm=perm) for v in whole))  # type: ignore[no-any-return]


def _inside(X: Value, fits: Callable[[Value], bool]) -> tuple[Value, list[int] | None]:
    """The input of a Pad with an accepted fill value, and the pads of the spatial axes."""
    node = X.producer
    if node is None or node.op not in pad.meanings or X.rank is None:
        return X, None
    (x, pads, filled, *axes), attributes = bind(node)
    listed = None if not axes or axes[0] is None else static(axes[0])
    numbers = static(pads)
    if x is None or attributes["mode"] != "constant" or numbers is None or (axes and axes[0] and listed is None):
        return X, None
    if not fits(constant(0.0, X.dtype) if filled is None else filled):
        return X, None
    around = np.zeros((2, X.ndim), np.int64)
    around[:, range(X.ndim) if listed is None else listed.reshape(-1)] = numbers.reshape(2, -1)
    if around[:, :2].any() or (around < 0).any():
        return X, None
    return x, around[:, 2:].reshape(-1).tolist()


def _padded_pool(op: Any, X: Value, fits: Callable[[Value], bool], attributes: dict[str, Any]) -> Value | None:
    """Fold padding into a pool if each window overlaps the image."""
    x, around = _inside(X, fits)
    sizes, rank = attributes["kernel_shape"], X.ndim - 2
    if around is None or attributes["auto_pad"] not in ("NOTSET", "VALID") or attributes["ceil_mode"]:
        return None
    own = attributes["pads"] or [0] * (2 * rank)
    pads = [a + b for a, b in zip(own, around, strict=True)]
    dilated = any(step != 1 for step in attributes["dilations"] or ())
    if dilated or any(p >= size for p, size in zip(pads, [*sizes, *sizes], strict=True)):
        return None
    return op(x, **{**attributes, "auto_pad": "NOTSET", "pads": pads})  # type: ignore[no-any-return]


@max_pool.rewrite
def max_pool_rewrite(X: Value, **attributes: Any) -> Value | None:
    """Fold padding with numbers not greater than the image's, since MaxPool ignores its own padding."""
    image = X.producer.inputs[0] if X.producer is not None and X.producer.inputs else None
    least = None if image is None or not X.dtype.is_float else _least(image)

    def fits(filled: Value) -> bool:
        number = _one_number(filled)
        return number is not None and least is not None and number <= least

    attributes.pop("_outputs", None)
    return _padded_pool(max_pool, X, fits, attributes)


@average_pool.rewrite
def average_pool_rewrite(X: Value, **attributes: Any) -> Value | None:
    """Fold zero padding if padding is counted."""
    if not attributes["count_include_pad"] and any(attributes["pads"] or ()):
        return None
    return _padded_pool(average_pool, X, _is_zero, {**attributes, "count_include_pad": 1})


def _least(x: Value) -> float:
    """A lower bound of the elements of ``x``."""
    producer = x.producer
    if producer is None:
        return -np.inf
    if producer.op in (relu, sigmoid):
        return 0.0
    if producer.op is clip and (low := _one_number(producer.inputs[1])) is not None:
        return low
    return _least(producer.uses[0]) if producer.op in (max_pool, identity) else -np.inf


def _one_number(x: Value | None) -> float | None:
    contents = None if x is None else static(x)
    return float(contents.reshape(-1)[0]) if contents is not None and contents.size == 1 else None


# ----- zeros ----------------------------------------------------------------------------------------------------------


def _is_zero(x: Value | None) -> bool:
    """Whether all elements are surely 0, for any shape, and not trainable."""
    node = None if x is None else x.producer
    if node is not None and node.op in (expand, slice_):
        return _is_zero(node.inputs[0])
    contents = fixed(x)
    return contents is not None and contents.dtype.kind in "iufV" and not contents.astype(np.float64).any()


@conv_transpose.rewrite
def conv_transpose_rewrite(X: Value, W: Value, B: Value | None, **attributes: Any) -> Value | None:
    return conv_transpose(X, W, **attributes) if _is_zero(B) else None


@gemm.rewrite
def gemm_rewrite(A: Value, B: Value, C: Value | None, **attributes: Any) -> Value | None:
    return (
        gemm(A, B, **attributes) if C is not None and is_spread(gemm(A, B, **attributes), C) and _is_zero(C) else None
    )


def _without_zeros(op: Any, states: Sequence[int]) -> None:
    """Drop initial states of zeros, which are the default."""

    @op.rewrite
    def made_rewrite_2(*inputs: Value | None, _outputs: int | None = None, **attributes: Any) -> Any:
        left = [None if k in states and _is_zero(v) else v for k, v in enumerate(inputs)]
        return None if left == list(inputs) else op(*left, **attributes)


_without_zeros(rnn, [3, 5])
_without_zeros(gru, [3, 5])
_without_zeros(lstm, [3, 5, 6, 7])
