"""Cases of ConvInteger and QLinearConv."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.cases.elementwise import parameters
from tenonnx_quantized.cases.quantize import QUANTIZED_NAN, seven_bits
from tenonnx_quantized.convolution import conv_integer, qlinear_conv, qlinear_conv_channels_last
from tenonnx_testing import Gap, call, cases, tensors

EIGHT_BITS = ["uint8", "int8"]


def images(draw, *, kinds=EIGHT_BITS):
    """Draw an image, weights of a convolution, and attributes."""
    rank, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels, results = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in kernel]
    sides = [draw(st.integers((k - 1) * d + 1, k + 3)) for k, d in zip(kernel, dilations, strict=True)]
    x = draw(tensors(kinds, shape=(draw(st.integers(1, 2)), group * channels, *sides), min_value=-200, max_value=200))
    w = draw(tensors(kinds, shape=(group * results, channels, *kernel), min_value=-200, max_value=200))
    attributes = {"group": group, "strides": [draw(st.integers(1, 2)) for _ in kernel]}
    attributes |= {"dilations": dilations} if max(dilations) > 1 else {}
    attributes |= draw(st.sampled_from([{}, {"kernel_shape": kernel}]))
    attributes |= draw(st.sampled_from([{}, {"pads": [1] * (2 * rank)}, {"auto_pad": "SAME_UPPER"}]))
    return seven_bits(x), seven_bits(w), attributes


@cases(
    conv_integer,
    gaps=[
        Gap(
            "reference",
            "onnx.reference reshapes per-channel zero points only for two-dimensional images",
            when=lambda c: c.inputs[3] is not None and c.inputs[3].ndim == 1 and c.inputs[0].ndim != 4,
        )
    ],
)
def conv_integer_cases(draw):
    x, w, attributes = images(draw)
    shape = draw(st.sampled_from([(), (w.shape[0],)]))
    zero_points = [
        draw(tensors(v.dtype.name, shape=s, min_value=-200, max_value=200)) if draw(st.booleans()) else None
        for v, s in ((x, ()), (w, shape))
    ]
    return call(x, w, *zero_points, **attributes)


@cases(
    qlinear_conv,
    gradient=False,
    gaps=[QUANTIZED_NAN],
)
def qlinear_conv_cases(draw):
    x, w, attributes = images(draw)
    shape = draw(st.sampled_from([(), (w.shape[0],)]))
    quantized = draw(st.sampled_from(EIGHT_BITS))
    bias = draw(tensors("int32", shape=(w.shape[0],), min_value=-1000, max_value=1000)) if draw(st.booleans()) else None
    return call(
        x,
        draw(tensors("float32", shape=(), min_value=0.01, max_value=0.1)),
        draw(tensors(x.dtype.name, shape=(), min_value=-200, max_value=200)),
        w,
        draw(tensors("float32", shape=shape, min_value=0.01, max_value=0.1)),
        draw(tensors(w.dtype.name, shape=shape, min_value=-200, max_value=200)),
        draw(tensors("float32", shape=(), min_value=1, max_value=4)),
        draw(tensors(quantized, shape=(), min_value=-200, max_value=200)),
        bias,
        **attributes,
    )


@cases(qlinear_conv_channels_last, gradient=False)
def qlinear_conv_channels_last_cases(draw):
    x, w, attributes = images(draw)
    last = draw(st.integers(0, 1))
    shape = draw(st.sampled_from([(), (w.shape[0],)]))
    bias = draw(tensors("int32", shape=(w.shape[0],), min_value=-999, max_value=999)) if draw(st.booleans()) else None
    return call(
        np.moveaxis(x, 1, -1) if last else x,
        *parameters(draw, x.dtype.name),
        w,
        draw(tensors("float32", shape=shape, min_value=0.01, max_value=0.1)),
        draw(tensors(w.dtype.name, shape=shape, min_value=-200, max_value=200)),
        *parameters(draw, x.dtype.name, low=1, high=4),
        bias,
        channels_last=last,
        **attributes,
    )
