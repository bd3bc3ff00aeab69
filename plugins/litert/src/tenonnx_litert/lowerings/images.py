"""Convolutions, pooling and resizing of images, with the channels moved to the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, dims
from tenonnx_litert.builtins import movement, neural
from tenonnx_litert.lowerings.registry import as_floats, int32, lowers, shape_vector, sizes, unless
from tenonnx_standard.windows import Windows, covering, windows


def channels_last(x: Value) -> Value:
    return ops.transpose(x, perm=[0, *range(2, x.ndim), 1])  # type: ignore[no-any-return]


def channels_first(x: Value) -> Value:
    return ops.transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)])  # type: ignore[no-any-return]


def _as_images(op: Any, x: Value, *weights: Value | None, **attributes: Any) -> Any:
    """Apply a 1-D op (batch, channels, length) as the 2-D op on images of height 1."""
    longer = {
        name: [fill, *value]
        for name, fill in (("kernel_shape", 1), ("strides", 1), ("dilations", 1))
        if (value := attributes.get(name)) is not None
    }
    if (pads := attributes.get("pads")) is not None:
        longer["pads"] = [0, pads[0], 0, pads[1]]
    images = [ops.unsqueeze(v, [2]) if v is not None and v.ndim == 3 else v for v in (x, *weights)]
    return ops.squeeze(op(*images, **{**attributes, **longer}), [2])


# ----- windows --------------------------------------------------------------------------------------------------------


def _same(window: Windows, known: Sequence[int | None], begins: Sequence[Any], ends: Sequence[Any]) -> bool:
    """Whether the padding equals the schema's SAME."""
    for axis, extent in enumerate(window.extents):
        size, stride = known[axis], window.strides[axis]
        if stride == 1:
            total = extent - 1
        elif size is not None:
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        else:
            return False
        if (begins[axis], ends[axis]) != (total // 2, total - total // 2):
            return False
    return True


def padding_of(window: Windows, x: Value) -> tuple[str, list[int] | None]:
    """SAME or VALID, and for VALID the explicit padding before and after each axis."""
    known = sizes(x)[2:]
    begins, ends = window.padding(known)
    if any(not isinstance(n, int) for n in (*begins, *ends)):
        unless(window.auto_pad != "SAME_UPPER", "the padding depends on dynamic dims")
        return "SAME", None
    if window.ceil_mode:
        unless(None in known, "rounding up depends on dynamic dims")
        begins, ends = covering(window, known)
    widths = [int(n) for n in (*begins, *ends)]  # type: ignore[arg-type]
    unless(min(widths) < 0, "a padding is negative")
    if not any(widths):
        return "VALID", None
    return ("SAME", None) if _same(window, known, begins, ends) else ("VALID", widths)


def padded(x: Value, widths: list[int] | None, fill: float | None = None) -> Value:
    """Pad the spatial axes of a channels-last tensor; ``widths`` are those before all axes, then after all axes."""
    if widths is None:
        return x
    half = len(widths) // 2
    paddings = int32([[0, 0], *zip(widths[:half], widths[half:], strict=True), [0, 0]])
    if fill is None:
        return movement.pad(x, paddings)  # type: ignore[no-any-return]
    return movement.padv2(x, paddings, constant(np.asarray([fill], np.float32)))  # type: ignore[no-any-return]


def bias_of(count: Any) -> Value:
    """A bias of zeros, which the kernels require. Raises ``NotRepresentable`` if the number of channels is dynamic."""
    unless(not isinstance(count, int), "the number of kernels is dynamic")
    return constant(np.zeros(count, np.float32))


# ----- convolutions ---------------------------------------------------------------------------------------------------


@lowers(ops.conv, spatial=True)
def conv(x: Value, weights: Value, bias: Value | None, *, group: int, **attributes: Any) -> Any:
    as_floats(x, weights, bias)
    if x.ndim == 3:
        return _as_images(ops.conv, x, weights, bias, group=group, **attributes)
    unless(x.ndim != 4, "CONV_2D takes images")
    attributes["kernel_shape"] = attributes["kernel_shape"] or list(sizes(weights)[2:])
    unless(None in attributes["kernel_shape"], "the size of the kernels is dynamic")
    window = windows(ops.conv.title, attributes.pop("kernel_shape"), **attributes)
    padding, widths = padding_of(window, x)
    count = weights.shape[0]
    bias = bias_of(count) if bias is None else bias
    channels = sizes(x)[1]
    images = padded(channels_last(x), widths)
    options = {
        "padding": padding,
        "stride_h": window.strides[0],
        "stride_w": window.strides[1],
        "dilation_h_factor": window.dilations[0],
        "dilation_w_factor": window.dilations[1],
    }
    if group == channels and group > 1:
        kernels = ops.transpose(weights, perm=[1, 2, 3, 0])
        options["depth_multiplier"] = count // group
        return channels_first(neural.depthwise_conv_2d(images, kernels, bias, **options))
    return channels_first(neural.conv_2d(images, channels_last(weights), bias, **options))


@lowers(ops.conv_transpose, spatial=True)
def conv_transpose(x: Value, weights: Value, bias: Value | None, *, group: int, **attributes: Any) -> Any:
    as_floats(x, weights, bias)
    if x.ndim == 3:
        for name in ("output_padding", "output_shape"):
            if attributes.get(name) is not None:
                attributes[name] = [0 if name == "output_padding" else 1, *attributes[name]]
        return _as_images(ops.conv_transpose, x, weights, bias, group=group, **attributes)
    unless(x.ndim != 4, "TRANSPOSE_CONV takes images")
    if group > 1:
        unless(sizes(weights)[0] is None or group > 64, "there are too many groups")
        parts = ops.split(x, axis=1, num_outputs=group), ops.split(weights, axis=0, num_outputs=group)
        groups = [ops.conv_transpose(a, b, None, group=1, **attributes) for a, b in zip(*parts, strict=True)]
        y = ops.concat(*groups, axis=1)
        return y if bias is None else y + ops.reshape(bias, [-1, 1, 1])
    unless(any(n != 1 for n in attributes["dilations"] or ()), "TRANSPOSE_CONV has no dilations")
    kernel, strides = sizes(weights)[2:], attributes["strides"] or [1, 1]
    unless(None in kernel or attributes["output_shape"] is not None, "the output's shape is given")
    unless(attributes["auto_pad"].startswith("SAME"), "the padding depends on the output")
    pads = attributes["pads"] if attributes["pads"] is not None else [0] * 4
    pads = [0] * 4 if attributes["auto_pad"] == "VALID" else pads
    further = attributes["output_padding"] or [0, 0]
    unless(min(pads) < 0, "a padding is negative")
    batch, _, *lengths = dims(x)
    uncropped = [(n - 1) * s + max(k, s) for n, s, k in zip(lengths, strides, kernel, strict=True)]
    count = weights.shape[1]
    kernels = ops.transpose(weights, perm=[1, 2, 3, 0])
    bias = bias_of(count) if bias is None else bias
    options = {"stride_h": strides[0], "stride_w": strides[1]}
    cut = [pads[axis + 2] - further[axis] + max(strides[axis] - kernel[axis], 0) for axis in (0, 1)]
    ends = [full - n for full, n in zip(uncropped, cut, strict=True)]
    unless(min(cut) < 0, "the output goes beyond the last window")
    wanted = [n * s for n, s in zip(lengths, strides, strict=True)]
    is_same = all(
        k >= s and pads[axis] == (k - s) // 2 and pads[axis + 2] - further[axis] == k - s - (k - s) // 2
        for axis, (k, s) in enumerate(zip(kernel, strides, strict=True))
    )
    if is_same:
        shape = shape_vector([batch, *wanted, count])
        return channels_first(neural.transpose_conv(shape, kernels, channels_last(x), bias, padding="SAME", **options))
    shape = shape_vector([batch, *uncropped, count])
    y = neural.transpose_conv(shape, kernels, channels_last(x), bias, padding="VALID", **options)
    if any(pads) or any(further):
        y = ops.slice_(y, pads[:2], ends, [1, 2])
    return channels_first(y)


# ----- pooling --------------------------------------------------------------------------------------------------------


@lowers(ops.max_pool, spatial=True)
def max_pool(x: Value, *, storage_order: int, _outputs: int | None, **attributes: Any) -> Any:
    as_floats(x)
    unless((_outputs or 1) > 1, "MAX_POOL_2D does not return indices")
    if x.ndim == 3:
        return _as_images(ops.max_pool, x, **attributes)
    unless(x.ndim != 4, "MAX_POOL_2D takes images")
    window = windows(ops.max_pool.title, attributes.pop("kernel_shape"), **attributes)
    unless(any(n != 1 for n in window.dilations), "MAX_POOL_2D has no dilations")
    padding, widths = padding_of(window, x)
    images = padded(channels_last(x), widths, float(np.finfo(np.float32).min))
    return channels_first(neural.max_pool_2d(images, **_pool_options(window, padding)))


def _pool_options(window: Windows, padding: str) -> dict[str, Any]:
    return {
        "padding": padding,
        "stride_h": window.strides[0],
        "stride_w": window.strides[1],
        "filter_height": window.kernel[0],
        "filter_width": window.kernel[1],
    }


@lowers(ops.average_pool, spatial=True)
def average_pool(x: Value, *, count_include_pad: int, **attributes: Any) -> Any:
    as_floats(x)
    if x.ndim == 3:
        return _as_images(ops.average_pool, x, count_include_pad=count_include_pad, **attributes)
    unless(x.ndim != 4, "AVERAGE_POOL_2D takes images")
    window = windows(ops.average_pool.title, attributes.pop("kernel_shape"), **attributes)
    unless(any(n != 1 for n in window.dilations), "AVERAGE_POOL_2D has no dilations")
    padding, widths = padding_of(window, x)
    images = channels_last(x)
    if padding == "SAME" and count_include_pad:
        unless(None in sizes(x)[2:] and window.auto_pad != "NOTSET", "the padding depends on dynamic dims")
        begins, ends = window.padding(sizes(x)[2:])
        padding, widths = "VALID", [int(n) for n in (*begins, *ends)]  # type: ignore[arg-type]
    y = neural.average_pool_2d(padded(images, widths), **_pool_options(window, padding))
    if widths is not None and not (count_include_pad and not window.ceil_mode):
        y = y * constant(_shares(window, sizes(x)[2:], widths, bool(count_include_pad)))
    return channels_first(y)


def _shares(window: Windows, known: Sequence[int | None], widths: list[int], with_padding: bool) -> Any:
    """Factor of each window from the mean with padding as zeros to the mean that the op defines."""
    unless(None in known, "the number of elements in a window depends on dynamic dims")
    factors = []
    for axis, size in enumerate(known):
        before, after = widths[axis], widths[axis + 2]
        inside = np.zeros(before + (size or 0) + after)
        own = window.pads if with_padding else (0, 0, 0, 0)
        inside[before - own[axis] : before + (size or 0) + own[axis + 2]] = 1
        sums = np.convolve(inside, np.ones(window.kernel[axis]), "valid")[:: window.strides[axis]]
        factors.append(window.kernel[axis] / np.maximum(sums, 1))
    return np.outer(*factors).astype(np.float32)[None, :, :, None]


@lowers(ops.global_average_pool, spatial=True)
def global_average_pool(x: Value) -> Any:
    return ops.reduce_mean(x, list(range(2, x.ndim)), keepdims=1)


@lowers(ops.global_max_pool, spatial=True)
def global_max_pool(x: Value) -> Any:
    return ops.reduce_max(x, list(range(2, x.ndim)), keepdims=1)


# ----- normalization --------------------------------------------------------------------------------------------------


@lowers(ops.instance_normalization, spatial=True)
def instance_normalization(x: Value, scale: Value, bias: Value, *, epsilon: float) -> Any:
    as_floats(x)
    axes = list(range(2, x.ndim))
    deviation = x - ops.reduce_mean(x, axes, keepdims=1)
    variance = ops.reduce_mean(deviation * deviation, axes, keepdims=1)
    per_channel = [-1, *[1] * len(axes)]
    factor = ops.reciprocal(ops.sqrt(variance + epsilon)) * ops.reshape(scale, per_channel)
    return deviation * factor + ops.reshape(bias, per_channel)


# ----- blocks of pixels -----------------------------------------------------------------------------------------------


@lowers(ops.depth_to_space, spatial=True)
def depth_to_space(x: Value, *, blocksize: int, mode: str) -> Any:
    as_floats(x)
    unless(mode != "DCR", "DEPTH_TO_SPACE keeps the channels of a pixel together")
    return channels_first(neural.depth_to_space(channels_last(x), block_size=blocksize))


@lowers(ops.space_to_depth, spatial=True)
def space_to_depth(x: Value, *, blocksize: int, mode: str = "DCR") -> Any:
    as_floats(x)
    unless(mode != "DCR", "SPACE_TO_DEPTH keeps the channels of a pixel together")
    return channels_first(neural.space_to_depth(channels_last(x), block_size=blocksize))
