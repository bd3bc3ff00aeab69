"""Operators and detectors of ``torchvision``, referred to by name, so that it need not be installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

import tenonnx_standard as ops
from tenonnx.extend import DType, Value


def nms(dets: Value, scores: Value, iou_threshold: float) -> Any:
    """Indices of the selected boxes, best first."""
    all_of_them, threshold = np.array(np.iinfo(np.int32).max, np.int64), np.array(iou_threshold, np.float32)
    boxes, of_one_class = ops.unsqueeze(dets, [0]), ops.unsqueeze(scores, [0, 1])
    found = ops.non_max_suppression(boxes, of_one_class, all_of_them, threshold)
    return ops.gather(found, 2, axis=1)


def roi_align(
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """Region pooling of boxes whose first column is the image index."""
    image = ops.cast(ops.gather(rois, 0, axis=1), to=DType.int64)
    return ops.roi_align(
        input,
        ops.gather(rois, [1, 2, 3, 4], axis=1),
        image,
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


def deform_conv2d(
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    return ops.deform_conv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w] * 2,
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )


#: Lowerings by operator.
VISION: Mapping[str, Callable[..., Any]] = {
    "torchvision::deform_conv2d": deform_conv2d,
    "torchvision::nms": nms,
    "torchvision::roi_align": roi_align,
}


@contextlib.contextmanager
def without_branches() -> Iterator[None]:
    """Make detectors traceable: class-wise suppression branches on whether there are boxes."""
    modules = [m for name in ("torchvision.ops.boxes", "torchvision.ops") if (m := sys.modules.get(name)) is not None]
    before = [(module, vars(module).get("batched_nms")) for module in modules]
    for module in modules:
        vars(module)["batched_nms"] = _nms_by_class
    try:
        yield
    finally:
        for module, function in before:
            vars(module)["batched_nms"] = function


def _nms_by_class(boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Class-wise suppression: shift the boxes of each class so that classes do not overlap."""
    width = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).amax() + 1
    moved = boxes + (idxs.to(boxes.dtype) * width).unsqueeze(1)
    return torch.ops.torchvision.nms(moved, scores, iou_threshold)
