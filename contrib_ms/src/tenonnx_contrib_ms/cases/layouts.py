"""Cases of channels-last convolutions and pooling."""

from __future__ import annotations

import numpy as np

from tenonnx_contrib_ms.cases.fused import KINKED, SMOOTH, convolution
from tenonnx_contrib_ms.layouts import nhwc_conv, nhwc_fused_conv, nhwc_max_pool
from tenonnx_standard.cases.pooling import GAPS, pooling
from tenonnx_testing import call, cases, tensors


@cases(nhwc_conv)
def nhwc_conv_cases(draw):
    (x, w, b, _), attributes = convolution(draw, [None], last=True)
    return call(x, np.moveaxis(w, 1, -1).copy(), b, **attributes)


@cases(nhwc_fused_conv)
def nhwc_fused_conv_cases(draw):
    inputs, attributes = convolution(draw, SMOOTH, last=True)
    return call(*inputs, **attributes)


@cases(nhwc_fused_conv, gradient=False)
def nhwc_fused_conv_cases_2(draw):
    """Activations that are not differentiable everywhere."""
    inputs, attributes = convolution(draw, KINKED, last=True)
    return call(*inputs, **attributes)


@cases(nhwc_max_pool, gaps=GAPS[:2])
def nhwc_max_pool_cases(draw):
    attributes, (batch, channels, *sizes) = pooling(draw)
    return call(draw(tensors(["int8", "uint8"], shape=(batch, *sizes, channels))), **attributes)
