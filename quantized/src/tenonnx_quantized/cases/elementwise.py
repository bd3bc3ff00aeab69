"""Cases of elementwise and softmax QLinear ops, and of QLinearWhere and QLinearConcat."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.elementwise import (
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    qlinear_softmax,
    qlinear_where,
)
from tenonnx_testing import axis_of, broadcastable, call, cases, shapes, tensors

EIGHT_BITS = ["uint8", "int8"]


def quantized(draw, shape=None, kind=None, **sizes):
    """Draw a tensor of quantized values."""
    return draw(tensors(kind or EIGHT_BITS, shape=shape, min_value=-200, max_value=200, **sizes))


def parameters(draw, kind, *, low=0.01, high=0.1, optional=False):
    """Draw a scale, and a zero point or None."""
    scale = draw(tensors("float32", shape=draw(st.sampled_from([(), (1,)])), min_value=low, max_value=high))
    if optional and draw(st.booleans()):
        return scale, None
    return scale, draw(tensors(kind, shape=scale.shape, min_value=-200, max_value=200))


def unary(draw, **result):
    """Draw a quantized tensor, its parameters, and those of the result.

    The result's zero point is always present, since onnxruntime crashes without it.
    """
    x = quantized(draw)
    kind = x.dtype.name
    return x, *parameters(draw, kind, optional=True), *parameters(draw, kind, **result)


def pair(draw):
    kind = draw(st.sampled_from(EIGHT_BITS))
    a, b = draw(broadcastable(2, kind, min_value=-200, max_value=200))
    return kind, a, *parameters(draw, kind, optional=True), b, *parameters(draw, kind, optional=True)


@cases(qlinear_add, gradient=False, steps=1)
def qlinear_add_cases(draw):
    """With a tolerance of one step, since onnxruntime multiplies by ratios of scales before adding."""
    kind, *inputs = pair(draw)
    return call(*inputs, *parameters(draw, kind, optional=True))


@cases(qlinear_mul, gradient=False, steps=1)
def qlinear_mul_cases(draw):
    """With a tolerance of one step, since onnxruntime multiplies integers, then by a single scale."""
    kind, *inputs = pair(draw)
    return call(*inputs, *parameters(draw, kind, optional=True))


@cases(qlinear_sigmoid, gradient=False, steps=1)
def qlinear_sigmoid_cases(draw):
    return call(*unary(draw, low=0.002, high=0.01))


@cases(qlinear_leaky_relu, gradient=False, steps=1)
def qlinear_leaky_relu_cases(draw):
    return call(*unary(draw), alpha=draw(st.sampled_from([0.01, 0.25])))


@cases(qlinear_softmax, gradient=False, steps=1)
def qlinear_softmax_cases(draw):
    x = quantized(draw, min_rank=1)
    inputs = *parameters(draw, x.dtype.name, optional=True), *parameters(draw, x.dtype.name, low=0.002, high=0.01)
    return call(x, *inputs, axis=draw(axis_of(x)), opset=draw(st.sampled_from([9, 13])))


@cases(qlinear_where, gradient=False, steps=1)
def qlinear_where_cases(draw):
    kind = draw(st.sampled_from(EIGHT_BITS))
    condition, x, y = (v.astype(k) for v, k in zip(draw(broadcastable(3, "int8")), ["bool", kind, kind], strict=True))
    return call(condition, x, *parameters(draw, kind), y, *parameters(draw, kind), *parameters(draw, kind))


@cases(qlinear_concat, gradient=False, steps=1)
def qlinear_concat_cases(draw):
    kind, shape = draw(st.sampled_from(EIGHT_BITS)), draw(shapes(1, 3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    inputs = []
    for _ in range(draw(st.integers(1, 3))):
        sides = list(shape)
        sides[axis] = draw(st.integers(1, 3))
        inputs += [quantized(draw, tuple(sides), kind), *parameters(draw, kind)]
    return call(*parameters(draw, kind), *inputs, axis=axis)
