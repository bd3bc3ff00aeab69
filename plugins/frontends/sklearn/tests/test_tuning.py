"""Further training of a fitted linear model or neural network in a pipeline, in ONNX."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tenonnx as tx

CASES = {
    "logistic": (LogisticRegression(), "decision_function", "binary_cross_entropy"),
    "ridge": (Ridge(), "predict", "mean_squared_error"),
    "net": (MLPRegressor(hidden_layer_sizes=(8,), max_iter=5, random_state=0), "predict", "mean_squared_error"),
}
NAMES = {"net": {"coefs_0", "coefs_1", "intercepts_0", "intercepts_1"}}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_pipeline_is_tuned(name):
    training = pytest.importorskip("tenonnx_training")
    estimator, method, loss = CASES[name]
    draw = np.random.default_rng(0)
    X = (draw.normal(size=(320, 4)) * [1, 2, 3, 4] + [0, 1, 2, 3]).astype(np.float32)
    y = (X[:, 0] * 2 - X[:, 1] > 1).astype(int)
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X[:40], 1 - y[:40])  # with exchanged labels
    graph = tx.load(pipeline, outputs=[method])
    assert {value.name for value in graph.variables} == NAMES.get(name, {"coef", "intercept"})
    limit = 0.0 if method == "decision_function" else 0.5
    (before,) = graph.run({"X": X}).values()
    optimizer = training.Adam(3e-2)
    history = training.fit(graph, (X, y.astype(np.float32)), loss=loss, optimizer=optimizer, epochs=12, seed=0)
    assert history.epochs[-1]["loss"] < 0.7 * history.epochs[0]["loss"]
    (after,) = graph.run({"X": X}).values()
    assert ((after > limit) == y).mean() > max(0.8, ((before > limit) == y).mean())
