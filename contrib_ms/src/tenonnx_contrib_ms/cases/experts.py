"""Cases of mixtures of experts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.experts import mixture_of_experts, moe_group_router
from tenonnx_testing import Gap, call, cases, shapes, tensors

PLAIN = Gap("onnxruntime", "its CPU kernel ignores use_sparse_mixer")


def mixture(draw, activation, *, fused=1, third=False, **attributes):
    """Draw tokens, router logits and expert layers."""
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


@cases(mixture_of_experts)
def mixture_of_experts_cases(draw):
    return mixture(draw, draw(st.sampled_from(["gelu", "silu", "identity"])))


@cases(mixture_of_experts, gradient=False)
def mixture_of_experts_cases_2(draw):
    return mixture(draw, "relu")


@cases(mixture_of_experts)
def mixture_of_experts_cases_3(draw):
    """SwiGLU with a limit that no input reaches."""
    fusion = draw(st.integers(1, 2))
    options = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": draw(st.sampled_from([100.0, 200.0]))}
    return mixture(draw, "swiglu", fused=2, swiglu_fusion=fusion, **options)


@cases(mixture_of_experts, gradient=False)
def mixture_of_experts_cases_4(draw):
    """SwiGLU with an effective limit."""
    return mixture(draw, "swiglu", fused=2, swiglu_fusion=1, swiglu_limit=1.0)


@cases(mixture_of_experts)
def mixture_of_experts_cases_5(draw):
    """With a third layer that gates the first one."""
    return mixture(draw, draw(st.sampled_from(["swiglu", "silu"])), third=True)


@cases(mixture_of_experts, gaps=[PLAIN], gradient=False)
def mixture_of_experts_cases_6(draw):
    """The sparse mixer, which selects experts one after the other."""
    return mixture(draw, "silu", use_sparse_mixer=1)


@cases(mixture_of_experts, gradient=False)
def mixture_of_experts_cases_7(draw):
    """Features only of GPU kernels."""
    kind = draw(st.sampled_from(["relu2", "geglu", "swiglu"]))
    if kind == "relu2":
        return mixture(draw, kind)
    after = {"swiglu_limit": 0.5, "swiglu_limit_after_activation": 1} if kind == "swiglu" else {}
    return mixture(draw, kind, fused=2, swiglu_fusion=draw(st.integers(1, 2)), **after)


def routed(draw, *, groups):
    """Draw distinct logits of grouped experts, and their bias."""
    rows, size = draw(shapes(1, 2, 1, 3)), draw(st.integers(2, 3))
    shape = (*rows, groups * size)
    dtype = draw(st.sampled_from(["float32", "float16"]))
    logits = draw(tensors(dtype, shape=shape, distinct=True, min_value=-4, max_value=4))
    bias = np.arange(shape[-1]).astype(np.float32) * np.float32(0.003)
    return logits, draw(st.sampled_from([bias, 0 * bias])), size


@cases(moe_group_router, gradient=False)
def moe_group_router_cases(draw):
    groups = draw(st.integers(1, 4))
    logits, bias, size = routed(draw, groups=groups)
    best = draw(st.integers(1, groups))
    attributes = {"n_group": groups, "topk_group": best, "top_k": draw(st.integers(1, size * best))}
    return call(logits, bias, group_topk=draw(st.sampled_from([1, 2, 9])), router_sentinel=-7.0, **attributes)


@cases(moe_group_router, gradient=["logits", "expert_bias", "projection_weight"])
def moe_group_router_cases_2(draw):
    """With the scores of all experts as third output, optionally computed by a projection."""
    logits, bias, _ = routed(draw, groups=2)
    weight = None
    if draw(st.booleans()):
        experts, width = bias.size, 256
        logits = draw(tensors(logits.dtype.name, shape=(2, width), min_value=-0.1, max_value=0.1))
        weight = draw(tensors(logits.dtype.name, shape=(experts, width), min_value=-0.1, max_value=0.1))
    return call(logits, bias, weight, top_k=1, _outputs=3)
