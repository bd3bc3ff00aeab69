"""Gradients and fine-tuning of the head of a pipeline lowered to plain ``ai.onnx``."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_onnx_ml.maps import without_zip_map

for package in ("sklearn", "skl2onnx"):
    pytest.importorskip(package)

OUTPUT = "output_probability"


@pytest.fixture(scope="module")
def flowers():
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return x.astype(np.float32), y


@pytest.fixture(scope="module")
def fitted(flowers):
    """A scaler, and a strongly regularized logistic regression, which can be improved."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(*flowers)


@pytest.fixture(scope="module")
def graph(fitted, flowers):
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return without_zip_map(tx.load(to_onnx(fitted, flowers[0][:1], target_opset=18)))


@pytest.fixture
def lowered(graph, tmp_path):
    """The pipeline as a model of plain ``ai.onnx``, with coefficients as initializers."""
    tx.export(graph, tmp_path / "plain.onnx", opset_version=17, domains=["ai.onnx"])
    return tx.load(tmp_path / "plain.onnx")


def test_gradient_of_a_probability_by_the_measurements(graph, fitted, flowers):
    x = flowers[0][::10]
    seeds = np.zeros((len(x), 3), np.float32)
    seeds[:, 1] = 1
    slope = tx.grad(graph, of=OUTPUT, wrt="X", seeds={OUTPUT: "g"}).run({"X": x, "g": seeds})["X/grad"]
    for k, step in enumerate(np.eye(4) * 1e-5):
        change = fitted.predict_proba(x + step)[:, 1] - fitted.predict_proba(x - step)[:, 1]
        np.testing.assert_allclose(slope[:, k], change / 2e-5, atol=1e-5)


def test_gradient_of_the_likelihood_by_the_coefficients(lowered, fitted, flowers):
    x, y = flowers
    scaled, p, truth = fitted[0].transform(x), fitted.predict_proba(x), np.eye(3)[y]
    weights = ["LinearClassifier/constant", "LinearClassifier/constant_1"]
    slopes = tx.grad(lowered, of=OUTPUT, wrt=weights, seeds={OUTPUT: "g"})
    result = slopes.run({"X": x, "g": (-truth / p / len(x)).astype(np.float32)})
    expected = [scaled.T @ (p - truth) / len(x), (p - truth).mean(axis=0)]
    for name, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(result[f"{name}/grad"], wanted, atol=1e-5)


def test_an_exported_logistic_regression_is_improved(lowered, flowers):
    tt = pytest.importorskip("tenonnx_training")
    x, y = flowers
    before = lowered.run({"X": x})[OUTPUT]
    scaler = lowered.variables[0].data.array().copy()
    loss = tt.FunctionLoss(
        lambda p, labels: ops.negative_log_likelihood_loss(ops.log(p), labels), tx.TensorType(tx.DType.int64, (None,))
    )
    history = tt.fit(
        lowered,
        {"X": x, "target": y},
        loss=loss,
        output=OUTPUT,
        trainable="LinearClassifier/*",
        optimizer=tt.Adam(0.1),
        epochs=5,
        seed=0,
        progress=False,
    )
    after = lowered.run({"X": x})
    rows = np.arange(len(y))
    likelihood = [np.log(p[rows, y]).mean() for p in (before, after[OUTPUT])]
    assert likelihood[1] > likelihood[0] / 3
    assert (after["output_label"] == y).mean() > max(0.95, (before.argmax(axis=1) == y).mean())
    assert len(history.epochs) == 5
    np.testing.assert_array_equal(lowered.variables[0].data.array(), scaler)
