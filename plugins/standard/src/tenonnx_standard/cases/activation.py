"""Cases of activation functions."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.activation import (
    celu,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    mish,
    prelu,
    prelu_by_channel,
    relu,
    selu,
    shrink,
    sigmoid,
    softplus,
    softsign,
    swish,
    thresholded_relu,
)
from tenonnx_testing import Gap, call, cases, holds_negative_zero, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def is_double(call):
    return call.inputs[0].dtype == np.float64


def in_float32(check, whose):
    return Gap(check, f"{whose} computes float64 with constants or functions of float32", when=is_double)


#: numpy's maximum may return either zero, so Relu, and ops that add to it, have no defined sign of zero.
EITHER_ZERO = Gap("special values", "in numpy the maximum of 0 and -0 may be either", when=holds_negative_zero)

factors = st.sampled_from([-1.5, -0.25, 0.5, 1.0, 2.0])


@cases(relu)
def relu_cases(draw):
    return call(draw(tensors([*FLOATS, "int8", "int16", "int32", "int64"], exclude_near=(0.0,))))


@cases(leaky_relu)
def leaky_relu_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))), alpha=draw(factors))


@cases(thresholded_relu)
def thresholded_relu_cases(draw):
    alpha = draw(factors)
    return call(draw(tensors(FLOATS, exclude_near=(alpha,))), alpha=alpha)


@cases(
    prelu,
)
def prelu_cases(draw):
    dtype = draw(st.sampled_from([*FLOATS, "int32", "int64", "uint32", "uint64"]))
    x = draw(tensors(dtype, exclude_near=(0.0,)))
    sides = tuple(draw(st.sampled_from([1, side])) for side in x.shape)
    slope = draw(tensors(dtype, shape=sides[draw(st.integers(0, x.ndim)) :]))
    if x.ndim and draw(st.sampled_from([False, False, False, True])):  # onnxruntime broadcasts either operand
        x, slope = x[..., :1], np.broadcast_to(slope, x.shape).copy()
    return call(x, slope)


BY_LAST_AXIS = Gap(
    "reference",
    "it broadcasts a slope of one axis along the last axis where that fits, as from version 7 on",
    when=lambda call: call.inputs[0].ndim > 2 and call.inputs[1].ndim == 1,
)


@cases(prelu_by_channel, gaps=[BY_LAST_AXIS])
def prelu_by_channel_cases(draw):
    x = draw(tensors(FLOATS, min_rank=2, exclude_near=(0.0,)))
    sides = draw(st.sampled_from([(1,), x.shape, x.shape[1:2]]))
    return call(x, draw(tensors(x.dtype.name, shape=sides)))


@cases(shrink, gaps=[in_float32("onnxruntime", "onnxruntime"), in_float32("export", "onnxruntime")])
def shrink_cases(draw):
    lambd = draw(st.sampled_from([-1.0, 0.0, 0.5, 1.5]))
    whole = ["int8", "int16", "int32", "int64"]
    x = draw(tensors([*FLOATS, *whole], exclude_near=(lambd, -lambd)))
    biases = [0.5, 1.5, -2.0]
    if lambd:  # else it is the identity, except for its gradient at 0
        biases.insert(0, 0.0)
    return call(x, lambd=lambd, bias=draw(st.sampled_from(biases)))


@cases(shrink, gradient=False)
def shrink_cases_2(draw):
    x = draw(tensors(["uint8", "uint16", "uint32", "uint64"], min_value=0, max_value=20))
    return call(x, lambd=draw(st.sampled_from([0.5, 3.0])), bias=draw(st.sampled_from([0.0, 0.5])))


@cases(elu, gaps=[EITHER_ZERO])
def elu_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))), alpha=draw(factors))


@cases(selu, gaps=[EITHER_ZERO])
def selu_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))), alpha=draw(factors), gamma=draw(factors))


@cases(selu, gaps=[EITHER_ZERO])
def selu_cases_2(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))))


@cases(celu, gaps=[EITHER_ZERO])
def celu_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))), alpha=draw(st.sampled_from([-1.5, 0.5, 1.0, 2.0])))


@cases(sigmoid)
def sigmoid_cases(draw):
    return call(draw(tensors(FLOATS, min_value=-8, max_value=8)))


@cases(hard_sigmoid)
def hard_sigmoid_cases(draw):
    alpha, beta = draw(st.sampled_from([0.25, 0.5, 1.0])), draw(st.sampled_from([0.0, 0.25, 0.5]))
    kinks = (-beta / alpha, (1 - beta) / alpha)
    return call(draw(tensors(FLOATS, exclude_near=kinks)), alpha=alpha, beta=beta)


@cases(hard_swish)
def hard_swish_cases(draw):
    return call(draw(tensors(FLOATS, min_value=-6, max_value=6, exclude_near=(-3.0, 3.0))))


@cases(swish)
def swish_cases(draw):
    return call(draw(tensors(FLOATS)), alpha=draw(factors))


@cases(softplus)
def softplus_cases(draw):
    return call(draw(tensors(FLOATS, min_value=-20, max_value=20)))


@cases(softsign)
def softsign_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))))


@cases(mish)
def mish_cases(draw):
    return call(draw(tensors(FLOATS, exclude_near=(0.0,))))


@cases(
    gelu,
    gaps=[
        in_float32("onnxruntime", "onnxruntime"),
        in_float32("export", "onnxruntime"),
        in_float32("reference", "onnx.reference"),
    ],
)
def gelu_cases(draw):
    return call(draw(tensors(FLOATS)), approximate=draw(st.sampled_from(["none", "tanh"])))
