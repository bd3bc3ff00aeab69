"""Convolutions, pooling, resizing and matrix products, with channels last."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, static
from tenonnx_litert.builtins.builtin import activated, as_int64, builtin

_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]

AUTO_PAD = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _convolved(input: Any, weights: Value, bias: Value | None, group: int, options: dict[str, Any]) -> Value:
    y = ops.conv(
        ops.transpose(input, perm=_FIRST),
        weights,
        bias,
        auto_pad=AUTO_PAD[options["padding"]],
        strides=[options["stride_h"], options["stride_w"]],
        dilations=[options["dilation_h_factor"], options["dilation_w_factor"]],
        group=group,
    )
    return activated(ops.transpose(y, perm=_LAST), options["fused_activation_function"])


@builtin("CONV_2D", "Conv2DOptions")
def conv_2d(
    input,
    filter,
    bias=None,
    *,
    padding="SAME",
    stride_w=1,
    stride_h=1,
    dilation_w_factor=1,
    dilation_h_factor=1,
    fused_activation_function="NONE",
):
    """2-D convolution of images (batch, height, width, channels).

    ``filter`` has the shape (output channels, height, width, depth); the number of groups is channels / depth.
    """
    options = {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "dilation_w_factor": dilation_w_factor,
        "dilation_h_factor": dilation_h_factor,
        "fused_activation_function": fused_activation_function,
    }
    group = input.shape[3] // filter.shape[3]
    return _convolved(input, ops.transpose(filter, perm=_FIRST), bias, group, options)


@builtin("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
def depthwise_conv_2d(
    input,
    filter,
    bias=None,
    *,
    padding="SAME",
    stride_w=1,
    stride_h=1,
    depth_multiplier=1,
    fused_activation_function="NONE",
    dilation_w_factor=1,
    dilation_h_factor=1,
):
    """Depthwise convolution; ``filter`` has the shape (1, height, width, channels times ``depth_multiplier``)."""
    options = {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "dilation_w_factor": dilation_w_factor,
        "dilation_h_factor": dilation_h_factor,
        "fused_activation_function": fused_activation_function,
    }
    return _convolved(input, ops.transpose(filter, perm=[3, 0, 1, 2]), bias, input.shape[3], options)


@builtin("TRANSPOSE_CONV", "TransposeConvOptions")
def transpose_conv(
    output_shape, weights, input, bias=None, *, padding="SAME", stride_w=1, stride_h=1, fused_activation_function="NONE"
):
    """Transposed convolution; ``weights`` has the shape (output channels, height, width, channels)."""
    sizes = static(output_shape)
    shape = {} if sizes is None else {"output_shape": [int(n) for n in sizes[1:3]]}
    y = ops.conv_transpose(
        ops.transpose(input, perm=_FIRST),
        ops.transpose(weights, perm=[3, 0, 1, 2]),
        bias,
        auto_pad=AUTO_PAD[padding] if padding == "SAME" or not shape else "SAME_UPPER",
        strides=[stride_h, stride_w],
        **shape,
    )
    return activated(ops.transpose(y, perm=_LAST), fused_activation_function)


def _pooled(pool: Any, input: Value, options: dict[str, Any]) -> Value:
    y = pool(
        ops.transpose(input, perm=_FIRST),
        auto_pad=AUTO_PAD[options["padding"]],
        kernel_shape=[options["filter_height"], options["filter_width"]],
        strides=[options["stride_h"], options["stride_w"]],
    )
    return activated(ops.transpose(y, perm=_LAST), options["fused_activation_function"])


@builtin("MAX_POOL_2D", "Pool2DOptions")
def max_pool_2d(
    input,
    *,
    padding="SAME",
    stride_w=1,
    stride_h=1,
    filter_width: int,
    filter_height: int,
    fused_activation_function="NONE",
):
    options = {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "filter_width": filter_width,
        "filter_height": filter_height,
        "fused_activation_function": fused_activation_function,
    }
    return _pooled(ops.max_pool, input, options)


@builtin("AVERAGE_POOL_2D", "Pool2DOptions")
def average_pool_2d(
    input,
    *,
    padding="SAME",
    stride_w=1,
    stride_h=1,
    filter_width: int,
    filter_height: int,
    fused_activation_function="NONE",
):
    """The mean of each window, without the padding."""
    options = {
        "padding": padding,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "filter_width": filter_width,
        "filter_height": filter_height,
        "fused_activation_function": fused_activation_function,
    }
    return _pooled(ops.average_pool, input, options)


# ----- resizing -------------------------------------------------------------------------------------------------------


def _resized(images: Value, size: Value, mode: str, align_corners: int, half_pixel_centers: int) -> Value:
    coordinates = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    nearest = "round_prefer_ceil" if align_corners or half_pixel_centers else "floor"
    return ops.resize(  # type: ignore[no-any-return]
        images,
        None,
        None,
        as_int64(size),
        axes=[1, 2],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
    )


@builtin("RESIZE_BILINEAR", "ResizeBilinearOptions")
def resize_bilinear(images, size, *, align_corners=0, half_pixel_centers=0):
    return _resized(images, size, "linear", align_corners, half_pixel_centers)


@builtin("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")
def resize_nearest_neighbor(images, size, *, align_corners=0, half_pixel_centers=0):
    return _resized(images, size, "nearest", align_corners, half_pixel_centers)


@builtin("DEPTH_TO_SPACE", "DepthToSpaceOptions")
def depth_to_space(input, *, block_size: int):
    """Rearrange channels to blocks of pixels, in the order (block row, block column, channel)."""
    y = ops.depth_to_space(ops.transpose(input, perm=_FIRST), blocksize=block_size, mode="DCR")
    return ops.transpose(y, perm=_LAST)


@builtin("SPACE_TO_DEPTH", "SpaceToDepthOptions")
def space_to_depth(input, *, block_size: int):
    y = ops.space_to_depth(ops.transpose(input, perm=_FIRST), blocksize=block_size)
    return ops.transpose(y, perm=_LAST)


# ----- products -------------------------------------------------------------------------------------------------------


@builtin("FULLY_CONNECTED", "FullyConnectedOptions")
def fully_connected(
    input, weights, bias=None, *, fused_activation_function="NONE", keep_num_dims=0, asymmetric_quantize_inputs=0
):
    """Rows times the transposed ``weights`` (output features, input features), plus ``bias``.

    With quantized weights and ``asymmetric_quantize_inputs``, the kernel rounds each row of a float input to int8.
    """
    x = input if keep_num_dims else ops.reshape(input, [-1, dims(weights)[1]])
    y = ops.matmul(x, ops.transpose(weights, perm=[1, 0]))
    return activated(y if bias is None else y + bias, fused_activation_function)


@builtin("BATCH_MATMUL", "BatchMatMulOptions")
def batch_matmul(x, y, *, adj_x=0, adj_y=0):
    return ops.matmul(_swapped(x) if adj_x else x, _swapped(y) if adj_y else y)


def _swapped(x: Value) -> Value:
    order = list(np.arange(x.ndim))
    order[-2:] = order[:-3:-1]
    return ops.transpose(x, perm=[int(axis) for axis in order])  # type: ignore[no-any-return]


# ----- detection ------------------------------------------------------------------------------------------------------


@builtin("NON_MAX_SUPPRESSION_V4", "NonMaxSuppressionV4Options")
def non_max_suppression_v4(boxes, scores, max_output_size, iou_threshold, score_threshold):
    """Indices of the selected boxes, padded with zeros, and their number.

    A box is dropped if its overlap with a better one reaches the threshold; ONNX's op requires more than the threshold.
    """
    most, iou, least = (ops.reshape(v, [1]) for v in (as_int64(max_output_size), iou_threshold, score_threshold))
    less = iou * constant(np.float32(1 - 2**-24))
    rows = ops.non_max_suppression(ops.unsqueeze(boxes, [0]), ops.unsqueeze(scores, [0, 1]), most, less, least)
    selected = ops.gather(rows, 2, axis=1)
    count = ops.shape(selected)
    padded = ops.pad(selected, ops.concat(constant(np.zeros(1, np.int64)), most - count, axis=0))
    return ops.cast(padded, to=DType.int32), ops.cast(ops.reshape(count, []), to=DType.int32)
