"""Boxes, scores and labels from the outputs of transformers' detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant

#: Models with a softmax whose last class is "no object", by ``model_type``: each box has its most probable class.
OF_SOFTMAX = ("detr", "table-transformer", "yolos")

#: Models with independent classes: pairs of a box and a class compete; mapped to the number of pairs kept, or None for
#: the number of boxes.
OF_SIGMOID = {
    "conditional_detr": 100,
    "d_fine": None,
    "deformable_detr": 100,
    "rt_detr": None,
    "rt_detr_v2": None,
}


def detected(
    kind: str, logits: Value, boxes: Value, size: Value, names: Sequence[str], threshold: float
) -> dict[str, Value]:
    """The boxes of all images with scores above a threshold, like ``post_process_object_detection``.

    ``logits`` is float32[batch, boxes, classes], ``boxes`` float32[batch, boxes, 4] with centers and sizes relative to
    the image, whose height and width is ``size``. Results are ``scores``, ``labels`` and ``boxes``, with corners in
    pixels, and ``images``, the image index of each box.
    """
    corners = _corners(boxes, size)
    if kind in OF_SOFTMAX:
        shares = ops.slice_(ops.softmax(logits, axis=-1), [0], [-1], [2])
        scores, labels = ops.reduce_max(shares, [2], keepdims=0), ops.argmax(shares, axis=2, keepdims=0)
    else:
        scores, labels, corners = _best_pairs(ops.sigmoid(logits), corners, OF_SIGMOID[kind])
    places = ops.transpose(ops.non_zero(ops.greater(scores, constant(np.float32(threshold)))), perm=[1, 0])
    return {
        "scores": ops.gather_nd(scores, places),
        "labels": ops.gather(constant(np.array(names, object)), ops.gather_nd(labels, places)),
        "boxes": ops.gather_nd(corners, places),
        "images": ops.squeeze(ops.slice_(places, [0], [1], [1]), [1]),
    }


def _corners(boxes: Value, size: Value) -> Value:
    """Left, top, right and bottom in pixels."""
    centers, sizes = ops.split(boxes, [2, 2], axis=-1)
    half = sizes * constant(np.float32(0.5))
    scale = ops.cast_like(ops.gather(size, constant(np.array([1, 0, 1, 0]))), boxes)
    return ops.concat(centers - half, centers + half, axis=-1) * scale


def _best_pairs(shares: Any, corners: Value, count: int | None) -> tuple[Value, Value, Value]:
    """Scores, classes and boxes of the most probable (box, class) pairs of each image."""
    shape = ops.shape(shares)
    classes, most = shape[2], shape[1:2]
    flat = ops.reshape(shares, constant(np.array([0, -1])))
    if count is not None:
        most = ops.minimum(ops.slice_(ops.shape(flat), [1], [2], [0]), constant(np.array([count])))
    scores, pairs = ops.top_k(flat, most)
    owners = pairs / classes
    rows = ops.expand(ops.unsqueeze(owners, [2]), ops.concat(ops.shape(owners), constant(np.array([4])), axis=0))
    return scores, pairs - owners * classes, ops.gather_elements(corners, rows, axis=1)
