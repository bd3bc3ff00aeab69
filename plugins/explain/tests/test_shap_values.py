"""KernelSHAP and LinearSHAP, compared with Shapley values by their definition."""

import numpy as np
import pytest
from sklearn import linear_model

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import InvalidCall
from tenonnx_explain.perturbation import coalitions

RANDOM = np.random.default_rng(0)

W = RANDOM.standard_normal((5, 7)).astype(np.float32)
V = RANDOM.standard_normal((7, 3)).astype(np.float32)
ROWS = RANDOM.standard_normal((12, 5)).astype(np.float32)


@pytest.fixture
def graph():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("rows", 5))
    graph.output("y", ops.softmax(ops.matmul(ops.tanh(ops.matmul(x, graph.variable("w", W))), graph.variable("v", V))))
    return graph


def test_kernel_shap_of_all_coalitions_is_exact(graph, interventional):
    explained = tx.explain(graph, "kernel-shap", background=ROWS[6:])
    results = explained.run({"x": ROWS[:4]}, backend="onnxruntime")
    expected = [interventional(lambda rows: graph.run({"x": rows})["y"], row, ROWS[6:]) for row in ROWS[:4]]
    np.testing.assert_allclose(results["x/attribution"], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results["y/expected"], graph.run({"x": ROWS[6:]})["y"].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(results["y/delta"], 0, atol=1e-6)


def test_kernel_shap_of_some_coalitions_is_near_and_complete(graph, interventional):
    explained = tx.explain(graph, "kernel-shap", background=ROWS[6:], samples=24)
    results = explained.run({"x": ROWS[:4]})
    expected = [interventional(lambda rows: graph.run({"x": rows})["y"], row, ROWS[6:]) for row in ROWS[:4]]
    np.testing.assert_allclose(results["x/attribution"], expected, atol=0.05)
    np.testing.assert_allclose(results["y/delta"], 0, atol=1e-6)


def test_background_is_an_input(graph):
    explained = tx.explain(graph, "kernel-shap")
    assert [str(value.type) for value in explained.inputs] == ["float32[rows, 5]", "float32[background, 5]"]
    results = explained.run({"x": ROWS[:2], "x/background": ROWS[3:8]})["x/attribution"]
    stored = tx.explain(graph, "kernel-shap", background=ROWS[3:8]).run({"x": ROWS[:2]})["x/attribution"]
    np.testing.assert_allclose(results, stored, rtol=1e-5, atol=1e-7)


def test_coalitions_come_in_pairs_of_complements():
    masks, weights = coalitions(20, 200, 0)
    weight_of = {mask.tobytes(): weight for mask, weight in zip(masks, weights, strict=True)}
    assert all(weight_of[(~mask).tobytes()] == weight_of[mask.tobytes()] for mask in masks)
    assert masks.sum(axis=1).min() > 0
    assert masks.sum(axis=1).max() < 20


@pytest.mark.parametrize(
    "model",
    [linear_model.LinearRegression(), linear_model.LogisticRegression(), linear_model.LogisticRegression(C=0.1)],
    ids=["regression", "two classes", "three classes"],
)
def test_linear_shap_is_coefficients_times_distances(model, request):
    classes = 3 if "three" in request.node.name else 2
    y = ROWS @ [1, 2, 0, -1, 0.5]
    model.fit(ROWS, y if "regression" in request.node.name else np.argsort(np.argsort(y)) * classes // len(y))
    graph = tx.load(model)
    explained = tx.explain(graph, "linear-shap", background=ROWS[4:])
    results = explained.run({graph.inputs[0].name: ROWS[:3]}, backend="onnxruntime")
    expected = (ROWS[:3] - ROWS[4:].mean(axis=0))[:, :, None] * model.coef_.reshape(-1, 5).T
    attribution = next(each for name, each in results.items() if name.endswith("/attribution"))
    np.testing.assert_allclose(attribution.reshape(expected.shape), expected, rtol=1e-4, atol=1e-6)
    assert attribution.ndim == (3 if classes == 3 else 2)


def test_linear_shap_of_a_network_is_refused(graph):
    with pytest.raises(InvalidCall, match="is not linear in"):
        tx.explain(graph, "linear-shap", of="y", background=ROWS)
