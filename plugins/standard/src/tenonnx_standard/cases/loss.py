"""Cases of losses."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.loss import negative_log_likelihood_loss, softmax_cross_entropy_loss
from tenonnx_testing import Gap, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def labeled(draw):
    """Scores, labels of which some may be ignored, class weights or None, and attributes."""
    scores = draw(tensors(FLOATS, shape=shapes(2, 4, 2)))
    classes = scores.shape[1]
    sides = (scores.shape[0], *scores.shape[2:])
    labels = draw(tensors(["int32", "int64"], shape=sides, min_value=0, max_value=classes - 1))
    ignored = draw(st.sampled_from([None, 0, -1]))
    if ignored == -1 and labels.size > 1:
        labels.reshape(-1)[0] = -1
    if ignored == 0:
        labels.reshape(-1)[0] = 1  # at least one that is not ignored
    weights = draw(tensors(scores.dtype.name, shape=(classes,), min_value=0.5)) if draw(st.booleans()) else None
    reduction = draw(st.sampled_from(["none", "sum", "mean"]))
    return scores, labels, weights, {"ignore_index": ignored, "reduction": reduction}


MINUS_ONE_COUNTS = Gap(
    "reference",
    "without weights it treats ignore_index=-1 as absent",
    when=lambda call: call.attributes["ignore_index"] == -1 and call.inputs[2] is None,
)


@cases(negative_log_likelihood_loss, gaps=[MINUS_ONE_COUNTS])
def negative_log_likelihood_loss_cases(draw):
    scores, labels, weights, attributes = labeled(draw)
    return call(np.asarray(-np.abs(scores)), labels, weights, **attributes)


@cases(softmax_cross_entropy_loss)
def softmax_cross_entropy_loss_cases(draw):
    scores, labels, weights, attributes = labeled(draw)
    return call(scores, labels, weights, **attributes)


@cases(softmax_cross_entropy_loss)
def softmax_cross_entropy_loss_cases_2(draw):
    scores, labels, weights, attributes = labeled(draw)
    return call(scores, labels, weights, _outputs=1, **attributes)
