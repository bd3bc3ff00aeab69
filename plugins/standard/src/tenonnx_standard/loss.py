"""Classification losses."""

from __future__ import annotations

from tenonnx.extend import DType, Value, dims, one_of, op, shapes
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import equal, not_, where
from tenonnx_standard.reduction import over_count, reduce_mean, reduce_sum
from tenonnx_standard.shapes import reshape, size, squeeze, unsqueeze
from tenonnx_standard.slicing import gather, gather_elements


def _sample_weights(
    like: Value, target: Value, weight: Value | None, ignore_index: int | None
) -> tuple[Value, Value | None]:
    """The target with ignored labels replaced by a valid class, and the weights, None if all are 1."""
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
    """The negative log-probability in ``input`` of the class in ``target``, weighted by class.

    Samples whose target is ``ignore_index`` are ignored; the mean is the weighted mean.
    """
    target, weights = _sample_weights(input, target, weight, ignore_index)
    loss = -squeeze(gather_elements(input, unsqueeze(target, [1]), axis=1), [1])
    return _reduced(loss if weights is None else loss * weights, weights, reduction)


negative_log_likelihood_loss.requires(
    shapes(input="batch classes sizes...", target="batch sizes...", weight="classes"),
    one_of(reduction=("none", "sum", "mean")),
)


@negative_log_likelihood_loss.vjp
def negative_log_likelihood_loss_vjp(g, y, input, target, weight, *, ignore_index, reduction):
    """Mask the target class instead of scattering, which not every opset supports."""
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
    """The negative log-likelihood of ``labels`` under the softmax of ``scores`` along axis 1; and the log-softmax."""
    log_prob = log_softmax(scores, axis=1)
    loss = negative_log_likelihood_loss(log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction)
    return loss, log_prob


softmax_cross_entropy_loss.requires(
    shapes(scores="batch classes sizes...", labels="batch sizes...", weights="classes"),
    one_of(reduction=("none", "sum", "mean")),
)
