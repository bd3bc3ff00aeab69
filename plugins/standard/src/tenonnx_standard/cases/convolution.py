"""Cases of convolutions, their transposes and gradients, and of Col2Im."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.convolution import conv, conv_transpose, conv_weight_gradient
from tenonnx_standard.convolution_tuning import MANY_COLUMNS, MANY_PLACES
from tenonnx_standard.deformable import col2im, deform_conv
from tenonnx_testing import Gap, call, cases, tensors

FLOATS = ["float32", "float32", "float64", "float16", "bfloat16"]


def numbers(draw, count, low, high):
    return [draw(st.integers(low, high)) for _ in range(count)]


def window(draw, *, pads=2, same=True):
    """The attributes of a window over one to three axes, and sizes of an input that it fits into."""
    rank = draw(st.integers(1, 3))
    kernel, strides = numbers(draw, rank, 1, 3), numbers(draw, rank, 1, 3)
    dilations = numbers(draw, rank, 1, 2)
    sizes = [(k - 1) * d + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilations, strict=True)]
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", *(["SAME_UPPER", "SAME_LOWER"] if same else [])]))
    if auto_pad == "NOTSET":
        attributes["pads"] = numbers(draw, 2 * rank, 0, pads)
    else:
        attributes["auto_pad"] = auto_pad
    return attributes, sizes


def covered(sizes, attributes):
    """The number of windows along each axis."""
    if attributes.get("auto_pad", "").startswith("SAME"):
        return [-(-n // s) for n, s in zip(sizes, attributes["strides"], strict=True)]
    pads = attributes.get("pads") or [0] * (2 * len(sizes))
    keys = ("kernel_shape", "strides", "dilations")
    axes = zip(sizes, pads[: len(sizes)], pads[len(sizes) :], *(attributes[k] for k in keys), strict=True)
    return [(n + b + e - (k - 1) * d - 1) // s + 1 for n, b, e, k, s, d in axes]


def holds_no_number(call):
    return any(not np.isfinite(v.astype(np.float64)).all() for v in call.inputs if v is not None)


def holds_infinity(call):
    return any(bool(np.isinf(v.astype(np.float64)).any()) for v in call.inputs if v is not None)


INFINITE = Gap(
    "derivative",
    "the numpy rules multiply an infinity by the zeros of the padding, of dilated kernels and of tables of positions",
    holds_infinity,
)


@cases(
    conv,
    gaps=[INFINITE],
)
def conv_cases(draw):
    attributes, sizes = window(draw)
    group, depth, results = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from(FLOATS))
    x = draw(tensors(dtype, shape=(draw(st.integers(1, 2)), group * depth, *sizes), min_value=-2, max_value=2))
    w = draw(tensors(dtype, shape=(group * results, depth, *attributes["kernel_shape"]), min_value=-1, max_value=1))
    b = draw(st.none() | tensors(dtype, shape=(group * results,)))
    return call(x, w, b, group=group, **attributes)


@cases(conv_weight_gradient, gaps=[INFINITE])
def conv_weight_gradient_cases(draw):
    attributes, sizes = window(draw)
    group, depth, results = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch = draw(st.integers(1, 2))
    x = draw(tensors(shape=(batch, group * depth, *sizes), min_value=-2, max_value=2))
    g = draw(tensors(shape=(batch, group * results, *covered(sizes, attributes)), min_value=-1, max_value=1))
    return call(x, g, group=group, **attributes)


@cases(conv_weight_gradient, gaps=[INFINITE])
def conv_weight_gradient_cases_2(draw):
    """Enough channels for the body to become one convolution."""
    attributes, sizes = window(draw)
    group, results = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    depth = -(-MANY_COLUMNS // math.prod(attributes["kernel_shape"]))
    x = draw(tensors(shape=(2, group * depth, *sizes), min_value=-2, max_value=2))
    g = draw(tensors(shape=(2, group * results, *covered(sizes, attributes)), min_value=-1, max_value=1))
    return call(x, g, group=group, **attributes)


@cases(conv_weight_gradient, gaps=[INFINITE])
def conv_weight_gradient_cases_3(draw):
    """A kernel large enough for the body to become one convolution."""
    stride, dilation, group = (draw(st.integers(1, 2)) for _ in range(3))
    extent = dilation * MANY_PLACES + 1
    x = draw(tensors(shape=(1, group, extent + draw(st.integers(0, 3))), min_value=-2, max_value=2))
    g = draw(tensors(shape=(1, group, (x.shape[2] - extent) // stride + 1), min_value=-1, max_value=1))
    return call(x, g, kernel_shape=[MANY_PLACES + 1], strides=[stride], dilations=[dilation], group=group)


def too_short(call):
    """Whether auto_pad SAME or output_shape asks for more than the windows and output_padding cover."""
    a = call.attributes
    extra, strides = a["output_padding"] or [0] * len(a["strides"]), a["strides"]
    if not a["output_shape"] and not a["auto_pad"].startswith("SAME"):
        return False
    wanted = a["output_shape"] or [n * s for n, s in zip(call.inputs[0].shape[2:], strides, strict=True)]
    axes = zip(call.inputs[0].shape[2:], a["kernel_shape"], strides, a["dilations"], extra, wanted, strict=True)
    return any((n - 1) * s + (k - 1) * d + 1 + more < m for n, k, s, d, more, m in axes)


def too_short_for_same(call):
    return too_short(call) and not call.attributes["output_shape"]


def not_padded(call):
    sized = bool(call.attributes["output_shape"]) and not call.attributes["auto_pad"].startswith("SAME")
    return sized or too_short(call)


def groups_with_more(call):
    return call.attributes["group"] > 1 and (call.inputs[2] is not None or call.inputs[1].shape[1] > 1)


ZEROS_BETWEEN = "the body multiplies a NaN by the zeros between strides, the rule by those in the gaps of kernels"
SHORT = "onnxruntime ends the output with the last window, where auto_pad asks for input times stride"


@cases(
    conv_transpose,
    gaps=[
        INFINITE,
        Gap("special values", ZEROS_BETWEEN, holds_no_number),
        Gap("onnxruntime", SHORT, too_short_for_same),
        Gap("export", SHORT, too_short_for_same),
        Gap("reference", "it pads by negative amounts, and ignores the padding that output_shape implies", not_padded),
        Gap("reference", "it confuses the biases and channels of groups", groups_with_more),
    ],
)
def conv_transpose_cases(draw):
    attributes, _ = window(draw, pads=1)
    rank = len(attributes["kernel_shape"])
    sizes = numbers(draw, rank, 3, 4)
    strides, dilations = attributes["strides"], attributes["dilations"]
    if draw(st.booleans()):
        limits = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
        attributes["output_padding"] = [draw(st.integers(0, limit)) for limit in limits]
    if draw(st.integers(0, 3)) == 0:
        attributes.pop("pads", None)
        attributes["output_shape"] = [n * s for n, s in zip(sizes, strides, strict=True)]
    group, depth, results = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from(FLOATS))
    x = draw(tensors(dtype, shape=(draw(st.integers(1, 2)), group * depth, *sizes), min_value=-2, max_value=2))
    w = draw(tensors(dtype, shape=(group * depth, results, *attributes["kernel_shape"]), min_value=-1, max_value=1))
    b = draw(st.none() | tensors(dtype, shape=(group * results,)))
    return call(x, w, b, group=group, **attributes)


def deformable(draw):
    """A call of a deformable convolution whose offsets avoid integers."""
    attributes, sizes = window(draw, same=False)
    attributes.pop("auto_pad", None)
    group, offset_group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    rank, places = len(sizes), int(np.prod(attributes["kernel_shape"]))
    outputs = covered(sizes, attributes)
    x = draw(tensors(shape=(1, 4, *sizes), min_value=-2, max_value=2))
    w = draw(tensors(shape=(2 * group, 4 // group, *attributes["kernel_shape"]), min_value=-1, max_value=1))
    offset = draw(tensors(shape=(1, offset_group * places * rank, *outputs), min_value=-1, max_value=1))
    whole = np.round(offset)
    offset = whole + np.clip(offset - whole, -0.4, 0.4) + np.where(offset < whole, -0.05, 0.05).astype(np.float32)
    mask = draw(st.none() | tensors(shape=(1, offset_group * places, *outputs), min_value=0, max_value=1))
    b = draw(st.none() | tensors(shape=(2 * group,)))
    return call(x, w, offset, b, mask, group=group, offset_group=offset_group, **attributes)


@cases(deform_conv)
def deform_conv_cases(draw):
    return deformable(draw)


def dilated_volume(call):
    return len(call.inputs[2]) > 2 and max(call.attributes["dilations"]) > 1


WRONG_VOLUMES = "onnxruntime forgets dilations of blocks of three axes"


@cases(
    col2im,
    gaps=[
        Gap("special values", "the body adds products with zeros, which are NaN for NaN"),
        Gap("onnxruntime", WRONG_VOLUMES, dilated_volume),
        Gap("export", WRONG_VOLUMES, dilated_volume),
    ],
)
def col2im_cases(draw):
    attributes, image = window(draw, same=False)
    attributes.pop("auto_pad", None)
    if len(image) == 1:
        image.append(1)
        for name, value in (("kernel_shape", 1), ("strides", 1), ("dilations", 1)):
            attributes[name] = [*attributes[name], value]
        if "pads" in attributes:
            attributes["pads"] = [attributes["pads"][0], 0, attributes["pads"][1], 0]
    counts, block = int(np.prod(covered(image, attributes))), attributes.pop("kernel_shape")
    dtype = draw(st.sampled_from([*FLOATS, "int32", "int64", "uint8"]))
    x = draw(tensors(dtype, shape=(draw(st.integers(1, 2)), draw(st.integers(1, 2)) * int(np.prod(block)), counts)))
    return call(x, np.asarray(image, np.int64), np.asarray(block, np.int64), **attributes)
