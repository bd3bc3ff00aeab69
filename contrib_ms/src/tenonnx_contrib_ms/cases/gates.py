"""Cases of gated activations, SwiGLU and hyper-connections."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_contrib_ms.gates import (
    branchwise_rms_norm,
    engram_gate,
    gated_add,
    gated_rms_norm,
    hyper_connection_low_rank_mix,
    hyper_connection_post_mix,
    hyper_connection_pre_mix,
    router_gate_up_proj,
    scaled_silu,
    swiglu,
)
from tenonnx_testing import call, cases, shapes, tensors

FLOATS = ["float32", "float16"]
MIXED = [("float32", "float32"), ("float16", "float16"), ("float16", "float32"), ("bfloat16", "float32")]


@cases(gated_add)
def gated_add_cases(draw):
    shape, dtype = draw(shapes(1, 3)), draw(st.sampled_from(FLOATS))
    if draw(st.booleans()):
        return call(*(draw(tensors(dtype, shape=sides)) for sides in (shape, shape, (*shape[:-1], 1))))
    inner = draw(st.integers(1, 3))
    return call(*(draw(tensors(dtype, shape=sides)) for sides in (shape, shape, (*shape[:-1], inner), (inner, 1))))


@cases(gated_rms_norm)
def gated_rms_norm_cases(draw):
    rows, size, heads = draw(shapes(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    dtype, shape = draw(st.sampled_from(FLOATS)), (*rows, heads * size)
    x, scale, gate = (draw(tensors(dtype, shape=sides)) for sides in (shape, (size,), shape))
    return call(x, scale, gate, activation=draw(st.sampled_from(["silu", "swish", "sigmoid"])), epsilon=1e-2)


@cases(scaled_silu)
def scaled_silu_cases(draw):
    dtype, other = draw(st.sampled_from(MIXED))
    x = draw(tensors(dtype))
    scale = draw(st.none() | tensors(other, shape=(), min_value=0.5, max_value=2))
    return call(x, scale, **({} if scale is not None else {"alpha": 1.5}))


@cases(engram_gate)
def engram_gate_cases(draw):
    batch, length, streams, size = draw(shapes(4, 4, 1, 3))
    dtype = draw(st.sampled_from(FLOATS))
    whole, parameter = (batch, length, streams, size), (streams, size)
    sides = (whole, whole, (batch, length, size), parameter, parameter, parameter)
    *inputs, last = (draw(tensors(dtype, shape=shape, min_value=0.5, max_value=3)) for shape in sides)
    return call(*inputs, draw(st.sampled_from([None, last])), epsilon=draw(st.sampled_from([1e-5, 1e-2])))


def limits(draw):
    """Draw activation parameters, or a limit beyond all inputs, since clipping is not differentiable at the limit."""
    return draw(st.sampled_from([{}, {"activation_alpha": 1.7, "activation_beta": 1.0}, {"limit": 200.0}]))


@cases(swiglu)
def swiglu_cases(draw):
    shape, dtype = draw(shapes(1, 3)), draw(st.sampled_from(FLOATS))
    rounded = draw(st.integers(0, 1))
    if draw(st.booleans()):
        return call(*(draw(tensors(dtype, shape=shape)) for _ in range(2)), round_activation=rounded, **limits(draw))
    return call(draw(tensors(dtype, shape=(*shape[:-1], 2 * shape[-1]))), round_activation=rounded, **limits(draw))


@cases(swiglu, gradient=False)
def swiglu_cases_2(draw):
    """An effective limit."""
    shape = draw(shapes(1, 3))
    return call(*(draw(tensors(shape=shape)) for _ in range(2)), limit=draw(st.sampled_from([0.5, 1.0])))


@cases(router_gate_up_proj)
def router_gate_up_proj_cases(draw):
    *rows, depth, first, inner = draw(shapes(4, 5, 1, 3))
    dtype = draw(st.sampled_from(["float16", "bfloat16"]))
    x, w = (
        draw(tensors(dtype, shape=sides, min_value=-1, max_value=1))
        for sides in ((*rows, depth), (depth, first + 2 * inner))
    )
    return call(x, w, router_size=first, **limits(draw))


@cases(hyper_connection_low_rank_mix)
def hyper_connection_low_rank_mix_cases(draw):
    rows, (count, size, rank) = draw(shapes(1, 2, 1, 3)), draw(shapes(3, 3, 1, 3))
    dtype, flat = draw(st.sampled_from(FLOATS)), count * size
    sides = [(*rows, flat), (flat,), (flat, rank), (rank, flat), (flat, count)]
    if draw(st.booleans()):
        sides += [(*rows, size), (*rows, count)]
    inputs = [draw(tensors(dtype, shape=shape, min_value=-1, max_value=1)) for shape in sides]
    options = {"gate_div": 2.0, "gate_mul": 2.0, "silu_alpha": 1.5, "reduction_scale": 0.5, "epsilon": 1e-1}
    return call(*inputs, num_branches=count, **draw(st.sampled_from([{"epsilon": 1e-1}, options])))


def streams(draw):
    """Draw numbers of rows and streams and their size, grouped or flat data, and the dtype of other inputs."""
    rows, count, size = draw(shapes(1, 2, 1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dtype, other = draw(st.sampled_from(MIXED))
    flat = draw(st.booleans())
    x = draw(tensors(dtype, shape=(*rows, count * size) if flat else (*rows, count, size)))
    return rows, count, size, x, {"num_branches": count} if flat else {}, other


@cases(branchwise_rms_norm)
def branchwise_rms_norm_cases(draw):
    _, count, size, x, attributes, other = streams(draw)
    shape = draw(st.sampled_from([(count * size,), (count, size), (size,)]))
    scale = draw(st.none() | tensors(other, shape=shape))
    return call(x, scale, epsilon=1e-2, **attributes)


def weights(draw, rows, count, size, dtype):
    shape = draw(st.sampled_from([(*rows, count), (*rows, count, 1), (*rows, count, size)]))
    return draw(tensors(dtype, shape=shape))


@cases(hyper_connection_pre_mix)
def hyper_connection_pre_mix_cases(draw):
    rows, count, size, x, attributes, other = streams(draw)
    mix = weights(draw, rows, count, size, other)
    if attributes and draw(st.booleans()):
        mix = draw(tensors(other, shape=x.shape))
    return call(x, mix, reduction_scale=draw(st.sampled_from([1.0, 0.5])), **attributes)


@cases(hyper_connection_post_mix)
def hyper_connection_post_mix_cases(draw):
    rows, count, size, x, attributes, other = streams(draw)
    block = draw(tensors(x.dtype, shape=(*rows, size)))
    mix = draw(st.none() | tensors(other, shape=(*rows, count, count)))
    return call(x, block, weights(draw, rows, count, size, other), mix, **attributes)
