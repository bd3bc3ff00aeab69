"""Cases of pooling over windows and over whole images, and of unpooling."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.average_pooling import average_pool
from tenonnx_standard.global_pooling import (
    global_average_pool,
    global_lp_pool,
    global_lp_pool_float,
    global_max_pool,
)
from tenonnx_standard.lp_pooling import lp_pool, lp_pool_float
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.pooling_gradient import max_pool_gradient
from tenonnx_standard.unpooling import max_unpool
from tenonnx_testing import Gap, call, cases, holds_negative_zero, tensors

FLOATS = ["float32", "float32", "float64", "float16", "bfloat16"]


def numbers(draw, count, low, high):
    return [draw(st.integers(low, high)) for _ in range(count)]


def pooling(draw, **also):
    """The attributes of a pooling over one to three axes, and the shape of an input that it fits into."""
    rank = draw(st.integers(1, 3))
    kernel, strides = numbers(draw, rank, 1, 3), numbers(draw, rank, 1, 3)
    attributes = {"kernel_shape": kernel, "strides": strides}
    if draw(st.booleans()):
        attributes["dilations"] = numbers(draw, rank, 1, 2)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    sizes = [extent + draw(st.integers(0, 3)) for extent in extents]
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if auto_pad == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, min(1, k - 1))) for k in kernel * 2]
    else:
        attributes["auto_pad"] = auto_pad
    if draw(st.booleans()):
        attributes["ceil_mode"] = 1
    return {**attributes, **also}, (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *sizes)


def same(call):
    return call.attributes["auto_pad"].startswith("SAME")


def dilations(call):
    return call.attributes["dilations"] or [1] * len(call.attributes["kernel_shape"])


def wide_stride(call):
    """Whether a stride is greater than the kernel under auto_pad SAME."""
    a = call.attributes
    extents = [(k - 1) * d + 1 for k, d in zip(a["kernel_shape"], dilations(call), strict=True)]
    return a["auto_pad"].startswith("SAME") and any(e < s for e, s in zip(extents, a["strides"], strict=True))


def same_beyond_kernel(call):
    return wide_stride(call) or (same(call) and max(dilations(call)) > 1)


def unusual(call):
    a = call.attributes
    return same(call) or any(a["pads"] or ()) or max(dilations(call)) > 1 or a["ceil_mode"] or call.inputs[0].ndim != 4


NEGATIVE = "onnxruntime ignores dilations with auto_pad SAME, and pads less than nothing where strides are wide"
GAPS = [
    Gap("onnxruntime", NEGATIVE, same_beyond_kernel),
    Gap("export", NEGATIVE, same_beyond_kernel),
    Gap("broadcast", NEGATIVE, same_beyond_kernel),
    Gap("reference", "it rounds, pads and dilates differently, and images differently from other inputs", unusual),
]


def holds_nan(call):
    return bool(np.isnan(call.inputs[0].astype(np.float64)).any())


def may_read_padding_alone(call):
    kernel, pads = call.attributes["kernel_shape"], call.attributes.get("pads") or ()
    is_dilated = any(dilation > 1 for dilation in call.attributes.get("dilations") or ())
    return is_dilated or any(pad >= kernel[k % len(kernel)] for k, pad in enumerate(pads))


def lowest(call):
    return bool(np.isneginf(call.inputs[0].astype(np.float64)).any())


def integers_in_padding(call):
    """Whether a window of integers may contain only padding."""
    a = call.attributes
    wide = any(p >= k for p, k in zip(a["pads"] or (), a["kernel_shape"] * 2, strict=False))
    return call.inputs[0].dtype.kind in "iu" and wide


PADDING_AS_FLOAT = "below 12 the padding is -inf in float32, and what a cast makes of that is not specified"


@cases(max_pool, gaps=[*GAPS, Gap("other attributes", PADDING_AS_FLOAT, integers_in_padding)])
def max_pool_cases(draw):
    attributes, shape = pooling(draw)
    dtype = draw(st.sampled_from([*FLOATS, "int8", "uint8"]))
    return call(draw(tensors(dtype, shape=shape, distinct="float" in dtype)), **attributes)


@cases(
    max_pool,
    gaps=[
        *GAPS,
        Gap("reference", "its positions start again in every image"),
        Gap("special values", "in a window of -inf the body may select the padding, which is also -inf", lowest),
        Gap("special values", "in numpy the maximum of 0 and -0 may be either", holds_negative_zero),
    ],
)
def max_pool_cases_2(draw):
    attributes, shape = pooling(draw, storage_order=draw(st.integers(0, 1)))
    return call(draw(tensors(FLOATS, shape=shape, distinct=True)), _outputs=2, **attributes)


@cases(
    max_pool_gradient,
    gradient=("dY",),
    undrawn={"Y": "it avoids the forward pass, and does not change the result"},
    gaps=[
        Gap("special values", "its body adds up from 0, and 0 + -0 is 0", when=holds_negative_zero),
        Gap("special values", "the position of the maximum of numbers with a NaN is not specified", when=holds_nan),
        Gap(
            "other attributes",
            "the position of the maximum of padding alone is not specified",
            when=may_read_padding_alone,
        ),
    ],
)
def max_pool_gradient_cases(draw):
    attributes, shape = pooling(draw)
    x = draw(tensors(shape=shape, distinct=True))
    return call(x, draw(tensors(shape=max_pool(x, **attributes).shape)), **attributes)


def has_windows_of_padding(call):
    """Whether a window may contain only padding."""
    kernel, pads = call.attributes["kernel_shape"], call.attributes.get("pads") or ()
    return any(pad >= size for pad, size in zip(pads, [*kernel, *kernel], strict=False))


NO_MEAN = Gap(
    "other attributes", "a window of padding only has no mean, and is refused elsewhere", has_windows_of_padding
)


@cases(average_pool, gaps=[*GAPS, NO_MEAN])
def average_pool_cases(draw):
    attributes, shape = pooling(draw, count_include_pad=draw(st.integers(0, 1)))
    return call(draw(tensors(FLOATS, shape=shape)), **attributes)


@cases(lp_pool, gaps=GAPS)
def lp_pool_cases(draw):
    attributes, shape = pooling(draw, p=draw(st.integers(1, 3)))
    return call(draw(tensors(FLOATS, shape=shape, min_value=-2, max_value=2, exclude_near=(0.0,))), **attributes)


@cases(lp_pool_float)
def lp_pool_float_cases(draw):
    attributes, shape = pooling(draw, p=draw(st.sampled_from([1.0, 1.5, 2.0, 3.0])))
    for name in ("ceil_mode", "dilations"):
        attributes.pop(name, None)
    if draw(st.booleans()):
        attributes = {"p": attributes["p"]}
    return call(draw(tensors(shape=shape, max_value=2, exclude_near=(0.0,))), **attributes)


def images(draw, dtypes=FLOATS, **keywords):
    return draw(tensors(dtypes, min_rank=3, max_rank=5, max_side=4, **keywords))


@cases(global_average_pool)
def global_average_pool_cases(draw):
    return call(images(draw))


@cases(global_max_pool, gaps=[Gap("reference", "it reduces only axes 2 and 3", lambda c: c.inputs[0].ndim != 4)])
def global_max_pool_cases(draw):
    return call(images(draw, distinct=True))


@cases(global_lp_pool)
def global_lp_pool_cases(draw):
    return call(images(draw, min_value=-2, max_value=2, exclude_near=(0.0,)), p=draw(st.integers(1, 3)))


@cases(global_lp_pool_float)
def global_lp_pool_float_cases(draw):
    x = images(draw, ["float32"], min_value=-2, max_value=2, exclude_near=(0.0,))
    return call(x, p=draw(st.sampled_from([1.0, 1.5, 2.0, 3.0])))


ANOTHER_SHAPE = "it takes places to count in the tensor of output_shape, against the example of ONNX"


def resized(call):
    return call.inputs[2] is not None


@cases(
    max_unpool,
    gradient=("X",),
    gaps=[
        Gap("empty axes", "the body reshapes to a shape with a 0"),
        Gap("onnxruntime", ANOTHER_SHAPE, resized),
        Gap("export", ANOTHER_SHAPE, resized),
    ],
)
def max_unpool_cases(draw):
    rank = draw(st.integers(1, 3))
    kernel = numbers(draw, rank, 1, 3)
    shape = (1, draw(st.integers(1, 2)), *(k * draw(st.integers(1, 2)) for k in kernel))
    attributes = {"kernel_shape": kernel, "strides": kernel}
    pooled, places = max_pool(draw(tensors(shape=shape, distinct=True)), _outputs=2, **attributes)
    size = [*shape[:2], *(n + draw(st.integers(0, 1)) for n in shape[2:])] if draw(st.booleans()) else None
    return call(pooled, places, None if size is None else np.asarray(size), **attributes)
