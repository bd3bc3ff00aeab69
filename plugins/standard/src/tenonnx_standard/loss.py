"""Losses of classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import Dim, DType, Op, TensorType, TypeMismatch, Value, dims, op
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import equal, not_, where
from tenonnx_standard.reduction import over_count, reduce_mean, reduce_sum
from tenonnx_standard.shapes import reshape, size, squeeze, unsqueeze
from tenonnx_standard.slicing import gather, gather_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

_REDUCTIONS = ("none", "sum", "mean")


def _loss_type(
    made: Op, scores: Value, labels: Value, weights: Value | None, ignore_index: int | None, reduction: str
) -> TensorType:
    """The type of a loss of ``labels``, which are the classes along axis 1 of ``scores``."""
    if reduction not in _REDUCTIONS:
        raise TypeMismatch(f"{made.title}: unknown reduction", given=repr(reduction), available=", ".join(_REDUCTIONS))
    kind = scores.tensor
    if not kind.dtype.is_float or (weights is not None and weights.dtype is not kind.dtype):
        given = f"{scores!r}, {weights!r}" if weights is not None else repr(scores)
        raise TypeMismatch(f"{made.title}: scores and weights must hold floats of one dtype", given=given)
    if not labels.dtype.is_integer:
        raise TypeMismatch(f"{made.title}: labels must be integers", given=repr(labels))
    given = f"{scores!r}, {labels!r}"
    if scores.rank is not None and labels.rank is not None:
        wanted = [d for axis, d in enumerate(scores.shape) if axis != 1]
        if scores.ndim < 2 or not _may_equal(wanted, labels.shape):
            raise TypeMismatch(f"{made.title}: labels must have the shape of scores without axis 1", given=given)
    if weights is not None and weights.rank is not None:
        classes = [None] if scores.rank is None else scores.shape[1:2]
        if not _may_equal(classes, weights.shape):
            given = f"{scores!r}, {weights!r}"
            raise TypeMismatch(f"{made.title}: there must be one weight for each class", given=given)
    return kind.with_shape(labels.tensor.shape if reduction == "none" else ())


def _may_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    known = [(m, n) for m, n in zip(a, b, strict=False) if isinstance(m, int) and isinstance(n, int)]
    return len(a) == len(b) and all(m == n for m, n in known)


def _sample_weights(
    like: Value, target: Value, weight: Value | None, ignore_index: int | None
) -> tuple[Value, Value | None]:
    """The target, the ignored ones replaced by a class that exists, and the weights, None where all are 1."""
    if ignore_index is None:
        return target, None if weight is None else gather(weight, target)
    ignored = equal(target, ignore_index)
    target = where(ignored, 0, target)
    if weight is None:
        return target, cast_like(not_(ignored), like)
    return target, where(ignored, 0.0, gather(weight, target))


def _reduced(loss: Value, weights: Value | None, reduction: str) -> Value:
    if reduction == "none":
        return loss
    if reduction == "mean" and weights is None:
        return reduce_mean(loss, keepdims=0)
    total = reduce_sum(loss, keepdims=0)
    return total / reduce_sum(weights, keepdims=0) if reduction == "mean" else total


@op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(input, target, weight=None, *, ignore_index: int | None = None, reduction="mean"):
    """Minus the log-probability that ``input`` gives to the class in ``target``, weighted by class.

    Samples whose target is ``ignore_index`` count for nothing; the mean is the weighted one.
    """
    target, weights = _sample_weights(input, target, weight, ignore_index)
    loss = -squeeze(gather_elements(input, unsqueeze(target, [1]), axis=1), [1])
    return _reduced(loss if weights is None else loss * weights, weights, reduction)


negative_log_likelihood_loss.type(
    lambda scores, labels, weights, **options: _loss_type(
        negative_log_likelihood_loss, scores, labels, weights, **options
    )
)


@negative_log_likelihood_loss.vjp
def _(g, y, input, target, weight, *, ignore_index, reduction):
    """By a mask of the target's class instead of a scatter, which not every opset can say."""
    given = target
    target, weights = _sample_weights(input, target, weight, ignore_index)
    if reduction == "mean":
        g = over_count(g, size(target)) if weights is None else g / reduce_sum(weights, keepdims=0)
    at_class = -g if weights is None else -(g * weights)
    classes = reshape(range_(0, dims(input)[1], 1), [1, -1] + [1] * (input.ndim - 2))
    chosen = equal(unsqueeze(cast(target, to=DType.int64), [1]), classes)
    along = where(chosen, unsqueeze(at_class, [1]) if at_class.ndim else at_class, 0.0)
    if weight is None:
        return along, None, None
    score = reduce_sum(where(chosen, input, 0.0), [1])
    each = -score - y if reduction == "mean" else -score
    each = each * (unsqueeze(g, [1]) if g.ndim else g)
    if ignore_index is not None:
        each = where(unsqueeze(equal(given, ignore_index), [1]), 0.0, each)
    axes = [axis for axis in range(input.ndim) if axis != 1]
    return along, None, reduce_sum(where(chosen, each, 0.0), axes, keepdims=0)


@op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(scores, labels, weights=None, *, ignore_index: int | None = None, reduction="mean"):
    """The negative log-likelihood of ``labels`` by the softmax of ``scores`` along axis 1; the logarithm of that."""
    log_prob = log_softmax(scores, axis=1)
    loss = negative_log_likelihood_loss(log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction)
    return loss, log_prob


@softmax_cross_entropy_loss.type
def _(scores, labels, weights, **options):
    return _loss_type(softmax_cross_entropy_loss, scores, labels, weights, **options), scores.tensor
