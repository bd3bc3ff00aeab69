"""Cases of non-maximum suppression and of pooling over regions of interest."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.detection import max_roi_pool, non_max_suppression, roi_align, roi_align_unshifted
from tenonnx_testing import Gap, call, cases, tensors


@cases(non_max_suppression, gradient=False)
def non_max_suppression_cases(draw):
    batch, kinds, count = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 6))
    boxes = draw(tensors(shape=(batch, count, 4), min_value=0, max_value=1))
    scores = draw(tensors(shape=(batch, kinds, count), min_value=0, max_value=1, distinct=True))
    most = np.asarray([draw(st.integers(0, 4))], np.int64)
    limits = [np.asarray([draw(st.sampled_from([0.0, 0.3, 0.7]))], np.float32) for _ in range(draw(st.integers(0, 2)))]
    return call(boxes, scores, most, *limits, center_point_box=draw(st.integers(0, 1)))


def regions(draw, count):
    """Corners of regions, some of which reach beyond the images."""
    corner = draw(tensors(shape=(count, 2), min_value=-1, max_value=4))
    extent = draw(tensors(shape=(count, 2), min_value=0.3, max_value=5))
    return np.concatenate([corner, corner + extent], axis=1)


def aligned(draw):
    count = draw(st.integers(1, 3))
    x = draw(tensors(shape=(2, draw(st.integers(1, 2)), draw(st.integers(2, 5)), draw(st.integers(2, 5)))))
    images = np.asarray([draw(st.integers(0, 1)) for _ in range(count)], np.int64)
    attributes = {
        "output_height": draw(st.integers(1, 3)),
        "output_width": draw(st.integers(1, 3)),
        "sampling_ratio": draw(st.integers(0, 2)),
        "spatial_scale": draw(st.sampled_from([1.0, 0.5])),
        "mode": draw(st.sampled_from(["avg", "max"])),
    }
    return x, regions(draw, count), images, attributes


@cases(
    roi_align,
    gradient=("X",),
    gaps=[
        Gap("special values", "the body multiplies elements by zero weights, and infinity times zero is NaN"),
    ],
)
def roi_align_cases(draw):
    x, rois, images, attributes = aligned(draw)
    coordinates = draw(st.sampled_from(["half_pixel", "output_half_pixel"]))
    return call(x, rois, images, coordinate_transformation_mode=coordinates, **attributes)


@cases(roi_align_unshifted, gradient=("X",), gaps=[Gap("reference", "it shifts positions by half a pixel")])
def roi_align_unshifted_cases(draw):
    x, rois, images, attributes = aligned(draw)
    return call(x, rois, images, **attributes)


@cases(
    max_roi_pool,
    gradient=("X",),
    gaps=[Gap("special values", "the maximum of numbers with a NaN is not specified")],
)
def max_roi_pool_cases(draw):
    count = draw(st.integers(1, 3))
    x = draw(tensors(shape=(2, draw(st.integers(1, 2)), 4, draw(st.integers(3, 5))), distinct=True))
    images = np.asarray([[draw(st.integers(0, 1))] for _ in range(count)], np.float32)
    corners = np.maximum(regions(draw, count), 0)
    shape = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    scale = draw(st.sampled_from([1.0, 0.5]))
    return call(x, np.concatenate([images, corners], axis=1), pooled_shape=shape, spatial_scale=scale)
