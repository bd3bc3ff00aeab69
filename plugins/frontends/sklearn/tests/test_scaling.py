"""Scaling folded into tree thresholds bit for bit, and into weights without loss of precision."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler

import tenonnx as tx
from tenonnx_sklearn.scaling import thresholds_before

SCALERS = [StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler()]
SCALERS.append(make_pipeline(MinMaxScaler((-3, 2)), StandardScaler(with_mean=False)))


def rows():
    draw = np.random.default_rng(0)
    X = (draw.normal(size=(500, 4)) * [1, 2, 3, 400] + [0, 1, 2, 100]).round(2)
    return X, (X[:, 0] + X[:, 1] > 1).astype(int)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: type(scaler).__name__)
@pytest.mark.parametrize(
    "trees", [RandomForestClassifier(8, random_state=0), HistGradientBoostingClassifier(max_iter=8)]
)
def test_trees_read_unscaled_rows(trees, scaler, dtype):
    X, y = rows()
    model = make_pipeline(scaler, trees).fit(X.astype(dtype), y)
    split = X.astype(dtype)  # thresholds are between these rows, or on them
    beside = np.concatenate([split, np.nextafter(split, np.inf), np.nextafter(split, -np.inf)]).astype(dtype)
    graph = tx.load(model, beside, dtype=dtype)
    first = graph.nodes[0]
    assert first.inputs[0] is graph.inputs[0]
    assert first.op_type in ("TreeEnsembleRegressor", "TreeEnsemble", "Cast")
    np.testing.assert_array_equal(graph.run({"X": beside})["label"], model.predict(beside))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_trees_read_rows_before_their_powers(method, dtype):
    X = np.random.default_rng(0).lognormal(size=(600, 4))  # more rows than bins, so that some thresholds are rows
    y = (X[:, 0] + X[:, 1] * np.random.default_rng(1).random(600) > 2).astype(int)
    model = make_pipeline(PowerTransformer(method), HistGradientBoostingClassifier(max_iter=30)).fit(X, y)
    graph = tx.load(model, X.astype(dtype), dtype=dtype)
    assert "Pow" not in {node.op_type for node in graph.nodes}
    result = graph.run({"X": X.astype(dtype)})["probabilities"]
    np.testing.assert_allclose(result, model.predict_proba(X.astype(dtype)), rtol=1e-4)


def test_weights_absorb_the_scale_unless_the_center_is_far():
    X, y = rows()
    near = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    assert tx.load(near, X).nodes[0].op_type == "MatMul"
    far = make_pipeline(StandardScaler(), LogisticRegression()).fit(X + 1e6, y)
    graph = tx.load(far)
    assert graph.nodes[0].op_type == "Sub"


def test_thresholds_are_the_greatest_numbers_below():
    steps = np.float32([0.1, 1.0, -5.0, np.inf, -np.inf])
    result = thresholds_before(lambda rows: (rows - np.float32(3)) / np.float32(7), np.zeros(5), steps, 1)
    after = (result - np.float32(3)) / np.float32(7)
    above = (np.nextafter(result, np.float32(np.inf)) - np.float32(3)) / np.float32(7)
    assert (after[:3] <= steps[:3]).all()
    assert (above[:3] > steps[:3]).all()
    assert result[3] == np.inf
    assert result[4] == -np.inf
