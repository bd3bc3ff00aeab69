"""Non-maximum suppression of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims
from tenonnx_litert.builtins import neural
from tenonnx_litert.lowerings.registry import as_floats, int32, lowers, narrow, sizes, unless

#: Maximum number of kernel calls; there is one for each class of each image.
_MOST_CALLS = 256


@lowers(ops.non_max_suppression)
def non_max_suppression(
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None,
    iou_threshold: Value | None,
    score_threshold: Value | None,
    *,
    center_point_box: int,
) -> Any:
    as_floats(boxes, scores)
    batch, classes = sizes(scores)[:2]
    unless(batch is None or classes is None, "the number of images or classes is dynamic")
    unless(max_output_boxes_per_class is None, "max_output_boxes_per_class is missing, so that no box is kept")
    unless(batch * classes > _MOST_CALLS, f"the lowering takes more than {_MOST_CALLS} calls of the kernel")
    if center_point_box:
        middle, extent = ops.slice_(boxes, [0], [2], [2]), ops.slice_(boxes, [2], [4], [2]) * 0.5
        boxes = ops.concat(middle - extent, middle + extent, axis=2)
    most = ops.minimum(narrow(ops.reshape(max_output_boxes_per_class, [])), narrow(_count(boxes)))
    overlap = constant(np.float32(0)) if iou_threshold is None else ops.reshape(iou_threshold, [])
    above = (
        constant(np.float32(1 + 2**-23)),
        constant(np.float32(np.finfo(np.float32).tiny)),
    )  # since the kernel also drops boxes whose overlap equals the threshold
    iou = ops.maximum(ops.mul(overlap, above[0]), above[1])
    lowest = constant(np.asarray(np.finfo(np.float32).min))
    least = lowest if score_threshold is None else ops.reshape(score_threshold, [])
    rows = []
    for image in range(batch):
        own = ops.gather(boxes, image, axis=0)
        for label in range(classes):
            of_class = ops.gather(ops.gather(scores, image, axis=0), label, axis=0)
            places, count = neural.non_max_suppression_v4(own, of_class, most, iou, least)
            selected = ops.slice_(
                ops.cast(places, to=DType.int64), [0], ops.cast(ops.reshape(count, [1]), to=DType.int64), [0]
            )
            front = constant(np.asarray([[image, label]]))
            shape = ops.concat(ops.shape(selected), constant(np.asarray([2])), axis=0)
            rows.append(ops.concat(ops.expand(front, shape), ops.unsqueeze(selected, [1]), axis=1))
    return rows[0] if len(rows) == 1 else ops.concat(*rows, axis=0)


def _count(boxes: Value) -> Value:
    size = dims(boxes)[1]
    return int32(size) if isinstance(size, int) else size
