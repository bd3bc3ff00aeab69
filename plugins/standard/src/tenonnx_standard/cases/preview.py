"""Cases of the operators of ai.onnx.preview."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType, TensorType, subgraph
from tenonnx_standard.preview import flex_attention
from tenonnx_standard.trigonometry import tanh
from tenonnx_testing import Gap, call, cases, tensors


def rounds_root(call):
    """Whether float64 results depend on how the square root of the head size is rounded."""
    q, k = call.inputs[:2]
    return q.dtype == np.float64 and call.attributes["scale"] is None and q.shape[3] in (2, 3) and k.shape[2] > 1


@cases(
    flex_attention,
    gaps=[
        Gap("empty axes", "without query heads the body returns those of the keys"),
        Gap("reference", "onnx.reference computes the square root of the size in float32", rounds_root),
    ],
)
def flex_attention_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float16", "float64"]))
    batch, groups, repeats = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    queries, keys, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    q = draw(tensors(dtype, shape=(batch, groups * repeats, queries, size), min_value=-2, max_value=2))
    k = draw(tensors(dtype, shape=(batch, groups, keys, size), min_value=-2, max_value=2))
    v = draw(tensors(dtype, shape=(batch, groups, keys, 2)))
    seen = TensorType(DType.float64 if dtype == "float64" else DType.float32, (batch, groups * repeats, queries, keys))
    attributes = {"scale": draw(st.sampled_from([None, 0.25]))}
    if draw(st.booleans()):
        attributes["score_mod"] = subgraph(tanh, [("scores", seen)], name="score_mod")
    if draw(st.booleans()):
        attributes["prob_mod"] = subgraph(lambda p: p * p, [("probabilities", seen)], name="prob_mod")
    return call(q, k, v, **attributes)
