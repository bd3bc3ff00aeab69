"""Gradients through bodies, against central differences in float32, in which these ops compute."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_onnx_ml.linear import linear_classifier, linear_regressor
from tenonnx_onnx_ml.preprocessing import imputer, normalizer, scaler
from tenonnx_onnx_ml.svm import svm_classifier, svm_regressor

STEP = 1e-2

X = np.array([[0.7, -0.4], [0.2, 0.9], [-0.8, 0.5]], np.float32)
LINES = {"coefficients": [0.5, -0.7, 0.3, 0.2, -0.4, 0.9], "intercepts": [0.1, 0.2, 0.3]}
VECTORS = {"support_vectors": [0.1, 0.2, -0.3, 0.4, 0.5, -0.6], "rho": [0.1, -0.2, 0.3]}
PARAMS = {"kernel_params": [0.5, 0.3, 3.0]}
MACHINE = {
    "vectors_per_class": [1, 1, 1],
    "coefficients": [0.5, -0.7, 0.3, 0.2, -0.4, 0.9],
    "classlabels_ints": [0, 1, 2],
}

CALLS = {
    "scaler": (scaler, {"offset": [0.1, 0.2], "scale": [2.0, -3.0]}),
    "normalizer L1": (normalizer, {"norm": "L1"}),
    "normalizer L2": (normalizer, {"norm": "L2"}),
    "imputer": (imputer, {"replaced_value_float": float("nan"), "imputed_value_floats": [1.0]}),
    "linear regressor": (linear_regressor, LINES | {"targets": 3}),
    "linear classifier": (linear_classifier, LINES | {"classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX"}),
} | {
    f"{op.name} {kernel}": (op, VECTORS | PARAMS | {"kernel_type": kernel} | attributes)
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
    for op, attributes in (
        (svm_regressor, {"n_supports": 3, "coefficients": [0.5, -0.7, 0.3]}),
        (svm_classifier, MACHINE),
    )
}


@pytest.mark.parametrize("name", CALLS)
def test_gradient(name):
    op, attributes = CALLS[name]
    graph = tx.Graph(opsets={"ai.onnx": 21, "ai.onnx.ml": 4})
    outputs = op(graph.input("x", "float32", ("n", 2)), **attributes)
    graph.output("y", outputs[-1] if isinstance(outputs, tuple) else outputs)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, graph.run({"x": X})["y"].shape).astype(np.float32)
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"}).run({"x": X, "g": weights})["x/grad"]
    expected = np.zeros_like(X)
    for place in np.ndindex(X.shape):
        ends = [X.copy(), X.copy()]
        ends[0][place] -= STEP
        ends[1][place] += STEP
        low, high = (float((graph.run({"x": x})["y"] * weights).sum()) for x in ends)
        expected[place] = (high - low) / (2 * STEP)
    np.testing.assert_allclose(slope, expected, rtol=2e-3, atol=1e-3)


def test_imputed_elements_have_no_gradient():
    graph = tx.Graph(opsets={"ai.onnx": 21, "ai.onnx.ml": 4})
    attributes = {"replaced_value_float": float("nan"), "imputed_value_floats": [1.0]}
    graph.output("y", imputer(graph.input("x", "float32", (3,)), **attributes))
    feeds = {"x": np.float32([1, np.nan, 3]), "g": np.float32([5, 6, 7])}
    assert tx.grad(graph, of="y", wrt="x", seeds={"y": "g"}).run(feeds)["x/grad"].tolist() == [5, 0, 7]
