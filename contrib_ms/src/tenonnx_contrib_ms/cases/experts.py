"""Cases of mixtures of experts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.experts import mixture_of_experts
from tenonnx_testing import Gap, call, cases, shapes, tensors

HALF = Gap(
    "onnxruntime",
    "its kernel for float16 gives zeros where the processor has no product of such matrices",
    lambda call: call.inputs[0].dtype == np.float16,
)
PLAIN = Gap("onnxruntime", "its kernel for CPUs mixes as usual where use_sparse_mixer is set")


def mixture(draw, activation, *, fused=1, third=False, **attributes):
    """Tokens, logits and the layers of experts."""
    count, inner, size = draw(shapes(3, 3, 1, 4))
    rows = draw(shapes(1, 2, 1, 3))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    x = draw(tensors(dtype, shape=(*rows, size), min_value=-2, max_value=2))
    tokens = x.size // size
    logits = draw(tensors(dtype, shape=(tokens, count), distinct=True))
    sides = [(count, fused * inner, size), (count, fused * inner), (count, size, inner), (count, size)]
    sides += [(count, inner, size), (count, inner)]
    layers = [draw(tensors(dtype, shape=shape, min_value=-1, max_value=1)) for shape in sides]
    for bias in (1, 3, 5):
        layers[bias] = draw(st.sampled_from([None, layers[bias]]))
    if not third:
        layers = layers[:4]
    attributes |= {"activation_type": activation, "k": draw(st.integers(1, count))}
    attributes["normalize_routing_weights"] = draw(st.integers(0, 1))
    return call(x, logits, *layers, **attributes)


@cases(mixture_of_experts, gaps=[HALF])
def _(draw):
    return mixture(draw, draw(st.sampled_from(["gelu", "silu", "identity"])))


@cases(mixture_of_experts, gaps=[HALF], gradient=False)
def _(draw):
    return mixture(draw, "relu")


@cases(mixture_of_experts, gaps=[HALF])
def _(draw):
    """SwiGLU, whose limit is beyond what is drawn here."""
    fusion = draw(st.integers(1, 2))
    options = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": draw(st.sampled_from([100.0, 200.0]))}
    return mixture(draw, "swiglu", fused=2, swiglu_fusion=fusion, **options)


@cases(mixture_of_experts, gaps=[HALF], gradient=False)
def _(draw):
    """SwiGLU with a limit that counts."""
    return mixture(draw, "swiglu", fused=2, swiglu_fusion=1, swiglu_limit=1.0)


@cases(mixture_of_experts, gaps=[HALF])
def _(draw):
    """A third layer that gates the first one."""
    return mixture(draw, draw(st.sampled_from(["swiglu", "silu"])), third=True)


@cases(mixture_of_experts, gaps=[PLAIN], gradient=False)
def _(draw):
    """Experts that are chosen one after the other."""
    return mixture(draw, "silu", use_sparse_mixer=1)
