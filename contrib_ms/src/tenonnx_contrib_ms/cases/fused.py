"""Cases of ops fused with an activation, a bias or a residual connection."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_contrib_ms.fused_ops import bias_add, bias_softmax, fused_conv, fused_gemm
from tenonnx_standard.cases.convolution import covered, window
from tenonnx_standard.cases.linear_algebra import broadcast_to, product
from tenonnx_testing import call, cases, tensors

FLOATS = ["float32", "float16", "float64"]

SMOOTH = [None, ("Tanh", None), ("Sigmoid", None), ("Silu", None)]
KINKED = [("Relu", None), ("LeakyRelu", [0.1]), ("Clip", [-1.0, 1.5]), ("HardSigmoid", [0.3, 0.4])]


def convolution(draw, activations, *, last=False):
    """Draw data, kernels, bias, residual and attributes of a convolution with an activation."""
    attributes, sizes = window(draw)
    group, depth, results = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    dtype, batch = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 2))
    spatial = covered(sizes, attributes)
    arrange = (lambda channels, lengths: (batch, *lengths, channels)) if last else (lambda c, n: (batch, c, *n))
    x = draw(tensors(dtype, shape=arrange(group * depth, sizes), min_value=-2, max_value=2))
    w = draw(tensors(dtype, shape=(group * results, depth, *attributes["kernel_shape"]), min_value=-1, max_value=1))
    b = draw(st.none() | tensors(dtype, shape=(group * results,)))
    z = draw(st.none() | tensors(dtype, shape=arrange(group * results, spatial)))
    activation = draw(st.sampled_from(activations))
    if activation:
        attributes["activation"] = activation[0]
        if activation[1]:
            attributes["activation_params"] = activation[1]
    return (x, w, b, z), {"group": group, **attributes}


@cases(fused_conv)
def fused_conv_cases(draw):
    inputs, attributes = convolution(draw, SMOOTH)
    return call(*inputs, **attributes)


@cases(fused_conv, gradient=False)
def fused_conv_cases_2(draw):
    """Activations that are not differentiable everywhere."""
    inputs, attributes = convolution(draw, KINKED)
    return call(*inputs, **attributes)


OF_GEMM = {
    "Tanh": {},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Elu": {"alpha": 0.5},
    "ParametricSoftplus": {"alpha": 0.5, "beta": 2.0},
    "ScaledTanh": {"alpha": 0.5, "beta": 2.0},
}
KINKED_OF_GEMM = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.1},
    "ThresholdedRelu": {"alpha": 0.5},
    "Selu": {"alpha": 1.5, "gamma": 1.1},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}


def activated_product(draw, activations):
    a, b, c, attributes = product(draw, FLOATS, broadcast_to)
    name = draw(st.sampled_from([None, *activations]))
    if name:
        attributes |= {"activation": name} | {f"activation_{key}": v for key, v in activations[name].items()}
    return call(a, b, draw(st.sampled_from([c, None])), **attributes)


@cases(fused_gemm)
def fused_gemm_cases(draw):
    return activated_product(draw, OF_GEMM)


@cases(fused_gemm, gradient=False)
def fused_gemm_cases_2(draw):
    """Activations that are not differentiable everywhere."""
    return activated_product(draw, KINKED_OF_GEMM)


@cases(bias_softmax)
def bias_softmax_cases(draw):
    batch, heads, rows, columns = (draw(st.integers(1, 3)) for _ in range(4))
    inner = draw(st.integers(0, 1))
    bias = (batch, 1, 1, columns) if inner else draw(st.sampled_from([(1, 1, rows, columns), (heads, rows, columns)]))
    x = draw(tensors(FLOATS, shape=(batch, heads, rows, columns)))
    return call(x, draw(tensors(x.dtype, shape=bias)), axis=draw(st.sampled_from([3, -1])), is_inner_broadcast=inner)


@cases(bias_add)
def bias_add_cases(draw):
    shape = tuple(draw(st.integers(1, 4)) for _ in range(3))
    dtype = draw(st.sampled_from(FLOATS))
    return call(*(draw(tensors(dtype, shape=sides)) for sides in (shape, shape[2:], shape)))
