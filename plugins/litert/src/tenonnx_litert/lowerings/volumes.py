"""Convolutions of volumes, with the channels moved to the last axis."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Value, dims
from tenonnx_litert.builtins import volumes
from tenonnx_litert.lowerings.images import bias_of, channels_first, channels_last, padded, padding_of
from tenonnx_litert.lowerings.registry import as_floats, lowers, shape_vector, sizes, unless
from tenonnx_standard.windows import windows


@lowers(ops.conv, spatial=True)
def conv(x: Value, weights: Value, bias: Value | None, *, group: int, **attributes: Any) -> Any:
    as_floats(x, weights, bias)
    unless(x.ndim != 5 or group != 1, "CONV_3D takes volumes in one group")
    attributes["kernel_shape"] = attributes["kernel_shape"] or list(sizes(weights)[2:])
    unless(None in attributes["kernel_shape"], "the size of the kernels is dynamic")
    window = windows(ops.conv.title, attributes.pop("kernel_shape"), **attributes)
    padding, widths = padding_of(window, x)
    bias = bias_of(weights.shape[0]) if bias is None else bias
    axes = ("d", "h", "w")
    y = volumes.conv_3d(
        padded(channels_last(x), widths),
        ops.transpose(weights, perm=[2, 3, 4, 1, 0]),
        bias,
        padding=padding,
        **{f"stride_{axis}": n for axis, n in zip(axes, window.strides, strict=True)},
        **{f"dilation_{axis}_factor": n for axis, n in zip(axes, window.dilations, strict=True)},
    )
    return channels_first(y)


@lowers(ops.conv_transpose, spatial=True)
def conv_transpose(x: Value, weights: Value, bias: Value | None, *, group: int, **attributes: Any) -> Any:
    """CONV_3D_TRANSPOSE without padding, whose result is cropped by the pads."""
    as_floats(x, weights, bias)
    unless(x.ndim != 5 or group != 1, "CONV_3D_TRANSPOSE takes volumes in one group")
    unless(any(n != 1 for n in attributes["dilations"] or ()), "CONV_3D_TRANSPOSE has no dilations")
    kernel, strides = sizes(weights)[2:], attributes["strides"] or [1] * 3
    unless(None in kernel or attributes["output_shape"] is not None, "the output's shape is given")
    unless(attributes["auto_pad"].startswith("SAME"), "the padding depends on the output")
    pads = [0] * 6 if attributes["pads"] is None or attributes["auto_pad"] == "VALID" else attributes["pads"]
    further = attributes["output_padding"] or [0] * 3
    unless(min(pads) < 0, "a padding is negative")
    batch, _, *lengths = dims(x)
    count = weights.shape[1]
    bias = bias_of(count) if bias is None else bias
    uncropped = [(n - 1) * s + max(k, s) for n, s, k in zip(lengths, strides, kernel, strict=True)]  # type: ignore[operator]
    cut = [pads[axis + 3] - further[axis] + max(strides[axis] - kernel[axis], 0) for axis in range(3)]  # type: ignore[operator]
    unless(min(cut) < 0, "the output goes beyond the last window")
    y = volumes.conv_3d_transpose(
        shape_vector([batch, *uncropped, count]),
        ops.transpose(weights, perm=[2, 3, 4, 1, 0]),
        channels_last(x),
        bias,
        padding="VALID",
        **{f"stride_{axis}": n for axis, n in zip("dhw", strides, strict=True)},
    )
    if any(pads) or any(cut):
        ends = [full - n for full, n in zip(uncropped, cut, strict=True)]
        y = ops.slice_(y, pads[:3], ends, [1, 2, 3])
    return channels_first(y)
