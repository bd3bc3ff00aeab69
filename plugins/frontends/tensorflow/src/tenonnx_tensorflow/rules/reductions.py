"""Reductions and cumulative sums."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import as_dtype, axis_of, int64, integers, number

_REDUCING = {
    "Sum": ops.reduce_sum,
    "Mean": ops.reduce_mean,
    "Prod": ops.reduce_prod,
    "Max": ops.reduce_max,
    "Min": ops.reduce_min,
    "EuclideanNorm": ops.reduce_l2,
}


@rule(*_REDUCING)
def reduced(node: Any, x: Value, axes: Value) -> Value:
    """Reduce; no axes mean no reduction. Means of integers are truncated, and short integers are reduced in 64 bits."""
    keep = int(node.get("keep_dims", False))
    places = [axis_of(k, x) for k in integers(axes, f"the axes of {node.op}")] if x.ndim else []
    if not places:
        return ops.absolute(x) if node.op == "EuclideanNorm" else x
    if x.dtype.numpy.kind not in "iu":
        return _REDUCING[node.op](x, places, keepdims=keep)
    widened = x if x.dtype in (DType.int32, DType.int64) else ops.cast(x, to=DType.int64)
    if node.op == "Mean":
        total = ops.reduce_sum(widened, places, keepdims=keep)
        sizes = ops.gather(ops.shape(x), constant(np.asarray(places)))
        found = ops.div(total, as_dtype(ops.reduce_prod(sizes, keepdims=0), widened.dtype))
    else:
        found = _REDUCING[node.op](widened, places, keepdims=keep)
    return as_dtype(found, x.dtype)


@rule("All", "Any")
def logical(node: Any, x: Value, axes: Value) -> Value:
    places = [axis_of(k, x) for k in integers(axes, f"the axes of {node.op}")] if x.ndim else []
    if not places:
        return x
    number_of = ops.cast(x, to=DType.int32)
    reduce = ops.reduce_min if node.op == "All" else ops.reduce_max
    found = reduce(number_of, places, keepdims=int(node.get("keep_dims", False)))
    return ops.greater(found, number(0, found))  # without elements it is the lowest or highest number


@rule("Cumsum", "Cumprod")
def cumulated(node: Any, x: Value, axis: Value) -> Value:
    (place,) = integers(axis, f"the axis of {node.op}")
    op = ops.cumsum if node.op == "Cumsum" else ops.cumprod
    given = {"exclusive": int(node.get("exclusive", False)), "reverse": int(node.get("reverse", False))}
    return op(x, constant(np.asarray(axis_of(place, x))), **given)


@rule("CumulativeLogsumexp")
def cumulative_logsumexp(node: Any, x: Value, axis: Value) -> Value:
    (place,) = integers(axis, "the axis")
    place %= x.ndim
    top = ops.reduce_max(x, [place], keepdims=1)
    given = {"exclusive": int(node.get("exclusive", False)), "reverse": int(node.get("reverse", False))}
    total = ops.cumsum(ops.exp(ops.sub(x, top)), constant(np.asarray(place)), **given)
    return ops.add(ops.log(total), top)


@rule("L2Loss")
def l2_loss(node: Any, x: Value) -> Value:
    return ops.mul(ops.reduce_sum_square(x, keepdims=0), number(0.5, x))


@rule("SparseSoftmaxCrossEntropyWithLogits", outputs="loss backprop")
def sparse_cross_entropy(node: Any, logits: Value, labels: Value) -> list[Value]:
    logged = ops.log_softmax(logits, axis=-1)
    own = ops.gather_elements(logged, ops.unsqueeze(int64(labels), [1]), axis=1)
    return [ops.neg(ops.squeeze(own, [1]))]


@rule("SoftmaxCrossEntropyWithLogits", outputs="loss backprop")
def cross_entropy(node: Any, logits: Value, labels: Value) -> list[Value]:
    logged = ops.log_softmax(logits, axis=-1)
    return [ops.neg(ops.reduce_sum(ops.mul(labels, logged), [1], keepdims=0))]
