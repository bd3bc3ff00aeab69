"""LinearSHAP: exact Shapley values of values that are linear in the features."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, Value
from tenonnx_explain.affine import affine_values, last_affine
from tenonnx_explain.parts import Explained, fixed_dims, free_name


def linear_shap(graph: Graph, of: Value | None, x: Value, background: Value) -> dict[str, Value]:
    """Coefficients times the distance to the mean of the background (Lundberg and Lee, 2017, corollary 1).

    The coefficients are the outputs for unit vectors minus those for zeros. ``of`` is by default the last linear value:
    the margin before a logistic function or softmax. Raises ``InvalidCall`` if ``of`` is not linear in ``x``.
    """
    (features,) = fixed_dims(x, "LinearSHAP")
    affine = affine_values(graph, [x])
    of = last_affine(graph, [x]) if of is None else of
    if of not in affine or of is x:
        raise InvalidCall(
            f'"{of.name}" is not linear in "{x.name}"' if of is not x else f'no value is linear in "{x.name}"',
            available=", ".join(value.name for value in affine if value is not x) or "nothing else is linear in it",
            do="use kernel-shap",
        )
    function = Explained(graph, of, [x], None).function([x])
    mean = ops.reduce_mean(background, [0], keepdims=1)
    units = np.concatenate([np.zeros((1, features)), np.eye(features)]).astype(x.dtype.numpy)
    outputs = function(graph.variable(free_name(graph, f"{x.name}/units"), units))[0]
    slopes = outputs[1:] - outputs[:1]
    base = function(mean)[0]
    distance = x - mean
    if of.ndim > 1:
        distance = ops.unsqueeze(distance, [-1])
    attribution = distance * slopes
    total = ops.reduce_sum(attribution, [1], keepdims=0)
    return {
        f"{x.name}/attribution": attribution,
        f"{of.name}/expected": ops.squeeze(base, [0]),
        f"{of.name}/delta": total - (of - base),
    }
