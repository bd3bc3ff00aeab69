"""Cases of sampling, cropping, pooling and convolution of images."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.image import (
    conv_transpose_with_dynamic_pads,
    crop_and_resize,
    grid_sample,
    max_pool_with_mask,
)
from tenonnx_testing import call, cases, shapes, tensors


@cases(grid_sample, gradient=False)
def grid_sample_cases(draw):
    batch, channels, height, width = draw(shapes(4, 4, 1, 3))
    x = draw(tensors(shape=(batch, channels, height + 1, width + 1)))
    grid = draw(tensors(shape=(batch, 2, 3, 2), min_value=-1.3, max_value=1.3))
    attributes = {"mode": draw(st.sampled_from(["bilinear", "nearest", "bicubic"]))}
    attributes["padding_mode"] = draw(st.sampled_from(["zeros", "border", "reflection"]))
    return call(x, grid, align_corners=draw(st.integers(0, 1)), **attributes)


@cases(crop_and_resize, gradient=["X"])
def crop_and_resize_cases(draw):
    batch, channels, height, width = draw(shapes(4, 4, 1, 3))
    count = draw(st.integers(1, 3))
    x = draw(tensors(shape=(batch, channels, height + 1, width + 1)))
    boxes = draw(tensors(shape=(count, 4), min_value=-0.2, max_value=1.2))
    images = draw(tensors("int32", shape=(count,), min_value=0, max_value=batch - 1))
    size = np.array([draw(st.integers(1, 4)), draw(st.integers(1, 4))], np.int32)
    options = {"mode": draw(st.sampled_from(["bilinear", "nearest"]))}
    return call(x, boxes, images, size, extrapolation_value=draw(st.sampled_from([0.0, 1.5])), **options)


@cases(conv_transpose_with_dynamic_pads)
def conv_transpose_with_dynamic_pads_cases(draw):
    group, depth, results, height, width = draw(shapes(5, 5, 1, 2))
    x = draw(tensors(shape=(1, group * depth, height + 1, width + 1)))
    w = draw(tensors(shape=(group * depth, results, 2, 3)))
    b = draw(st.none() | tensors(shape=(group * results,)))
    pads = np.array([draw(st.integers(0, 1)) for _ in range(4)])
    options = {"strides": [draw(st.integers(1, 2)) for _ in range(2)], "group": group, "kernel_shape": [2, 3]}
    longer = [draw(st.integers(0, stride - 1)) for stride in options["strides"]]
    options |= draw(st.sampled_from([{}, {"dilations": [2, 1]}, {"auto_pad": "VALID"}, {"output_padding": longer}]))
    return call(x, w, draw(st.sampled_from([None, pads])), b, **options)


def masked_pooling(draw, least):
    """Draw an image and one mask for all channels, since onnxruntime reads wrong elements of masks per channel."""
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    sizes = [size + draw(st.integers(0, 2)) for size in kernel]
    x = draw(tensors(shape=(*draw(shapes(2, 2, 1, 2)), *sizes), distinct=True))
    mask = draw(tensors("int32", shape=(1, 1, *sizes), min_value=least, max_value=3))
    strides = [draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [draw(st.integers(0, min(1, size - 1))) for size in kernel * 2]
    options = draw(st.sampled_from([{"pads": pads}, {"auto_pad": "VALID"}, {"storage_order": 1}, {}]))
    return call(x, mask, kernel_shape=kernel, strides=strides, **options)


@cases(max_pool_with_mask, gradient=False)
def max_pool_with_mask_cases(draw):
    """Masked windows, whose result is the lowest float: finite differences vanish next to it."""
    return masked_pooling(draw, 0)


@cases(max_pool_with_mask)
def max_pool_with_mask_cases_2(draw):
    """Masks without zeros."""
    return masked_pooling(draw, 1)
