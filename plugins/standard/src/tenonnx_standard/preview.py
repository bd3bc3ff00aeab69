"""The operators of the domain ai.onnx.preview, still subject to change."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, TypeMismatch, Value, floats, inline, same_dtype, shapes
from tenonnx.extend import op as define
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.casting import cast
from tenonnx_standard.dot_product_attention import float_dtype, grouped_product, grouped_scores
from tenonnx_standard.linear_algebra import matmul

Array = np.ndarray[Any, Any]


@define("FlexAttention", domain="ai.onnx.preview", since=1)
def flex_attention(
    Q,
    K,
    V,
    *,
    prob_mod: Graph | None = None,
    scale: float | None = None,
    score_mod: Graph | None = None,
    softmax_precision: int | None = None,
):
    """Attention with user-defined functions applied to the scores and to the probabilities.

    All inputs are (batch, heads, sequence, size); several heads of ``Q`` may share one of ``K`` and ``V``. The
    functions take (batch, heads, queries, keys) in the dtype of the softmax.
    """
    dtype = _precision(Q.dtype, softmax_precision)
    scores = _modified(cast(grouped_scores(Q, K, scale), to=dtype), score_mod, "score_mod")
    probabilities = _modified(softmax(scores), prob_mod, "prob_mod")
    return cast(grouped_product(probabilities, V), to=V.dtype)


flex_attention.requires(
    shapes(Q="batch _ _ size", K="batch groups keys size", V="batch groups keys _"),
    floats("Q", "K", "V"),
    same_dtype("Q", "K", "V"),
)


def _precision(dtype: DType, softmax_precision: int | None) -> DType:
    if softmax_precision is not None:
        return float_dtype(flex_attention.title, softmax_precision)
    return DType.float64 if dtype is DType.float64 else DType.float32


def _modified(x: Value, function: Graph | None, name: str) -> Value:
    if function is None:
        return x
    if len(function.all_inputs) != 1 or len(function.outputs) != 1:
        given = f"{len(function.all_inputs)} inputs and {len(function.outputs)} outputs"
        raise TypeMismatch(f"{flex_attention.title}: {name} does not have one input and one output", given=given)
    (y,) = inline(function, [x])
    if y is None or y.dtype is not x.dtype or y.rank not in (None, 4):
        raise TypeMismatch(f"{flex_attention.title}: {name} changes the type of its input", given=f"{x!r} became {y!r}")
    return y


@flex_attention.numpy
def flex_attention_numpy(Q, K, V, *, prob_mod, scale, score_mod, softmax_precision):
    multiply, normalize = matmul.rules["numpy"], softmax.rules["numpy"]
    dtype = _precision(DType.of(Q.dtype), softmax_precision).numpy
    batch, heads, queries, size = Q.shape
    groups, keys = K.shape[1:3]
    factor = np.asarray((size or 1) ** -0.25 if scale is None else np.sqrt(scale)).astype(Q.dtype)
    rows = (Q * factor).reshape(batch, groups, heads // (groups or 1) * queries, size)
    scores = multiply(rows, (K * factor).swapaxes(2, 3)).reshape(batch, heads, queries, keys)
    scores = scores.astype(dtype, copy=False)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    probabilities = normalize(scores, axis=-1)
    if prob_mod is not None:
        (probabilities,) = prob_mod(probabilities)
    y = multiply(probabilities.reshape(*rows.shape[:3], keys), V.astype(dtype, copy=False))
    return y.reshape(batch, heads, queries, V.shape[3]).astype(V.dtype, copy=False)
