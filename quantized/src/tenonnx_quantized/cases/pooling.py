"""Cases of QLinear average pooling and means."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.cases.elementwise import EIGHT_BITS, parameters, quantized
from tenonnx_quantized.pooling import qlinear_average_pool, qlinear_global_average_pool, qlinear_reduce_mean
from tenonnx_testing import call, cases


def image(draw, kernel):
    """An image that a kernel fits into, and whether it is channels-last."""
    channels_last = draw(st.integers(0, 1))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    sides = [draw(st.integers(k, k + 3)) for k in kernel]
    shape = (batch, *sides, channels) if channels_last else (batch, channels, *sides)
    return quantized(draw, shape, draw(st.sampled_from(EIGHT_BITS))), channels_last


@cases(qlinear_average_pool, gradient=False, steps=1)
def qlinear_average_pool_cases(draw):
    kernel = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    x, channels_last = image(draw, kernel)
    inputs = *parameters(draw, x.dtype.name, optional=True), *parameters(draw, x.dtype.name, optional=True)
    pads = [{}, {"auto_pad": "SAME_UPPER"}, {"pads": [draw(st.integers(0, k - 1)) for k in kernel * 2]}]
    return call(
        x,
        *inputs,
        kernel_shape=kernel,
        channels_last=channels_last,
        ceil_mode=draw(st.integers(0, 1)),
        count_include_pad=draw(st.integers(0, 1)),
        strides=[draw(st.integers(1, 2)) for _ in kernel],
        **draw(st.sampled_from(pads)),
    )


@cases(qlinear_global_average_pool, gradient=False, steps=1)
def qlinear_global_average_pool_cases(draw):
    x, channels_last = image(draw, [1] * draw(st.integers(1, 3)))
    inputs = *parameters(draw, x.dtype.name), *parameters(draw, x.dtype.name)
    return call(x, *inputs, channels_last=channels_last)


@cases(qlinear_reduce_mean, gradient=False, steps=1)
def qlinear_reduce_mean_cases(draw):
    x = quantized(draw, min_rank=1)
    inputs = *parameters(draw, x.dtype.name, optional=True), *parameters(draw, x.dtype.name, optional=True)
    axes = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    return call(x, *inputs, axes=axes, keepdims=draw(st.integers(0, 1)))
