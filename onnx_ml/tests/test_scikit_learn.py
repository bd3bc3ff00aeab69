"""Fitted models of scikit-learn, converted by skl2onnx: the numbers of both, and of onnxruntime, everywhere."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")


def flowers():
    from sklearn.datasets import load_iris

    measurements, kinds = load_iris(return_X_y=True)
    return measurements.astype(np.float32), kinds


def classifier(kernel, classes, **options):
    """A support vector machine on scaled measurements of the last so many kinds of flowers."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    x, y = flowers()
    kept = y >= 3 - classes
    names = np.array(["setosa", "versicolor", "virginica"])[y[kept]]
    return make_pipeline(StandardScaler(), SVC(kernel=kernel, random_state=0, **options)).fit(x[kept], names), x[kept]


def regressor(kernel):
    from sklearn.svm import SVR

    x, _ = flowers()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return SVR(kernel=kernel).fit(x[:, :3], x[:, 3]), x[:, :3]


def linear(classes):
    from sklearn.linear_model import LogisticRegression

    x, y = flowers()
    kept = y < classes
    return LogisticRegression(max_iter=500).fit(x[kept], y[kept]), x[kept]


def several_targets():
    from sklearn.linear_model import Ridge

    x, _ = flowers()
    return Ridge().fit(x[:, :2], x[:, 2:]), x[:, :2]


def outliers():
    from sklearn.svm import OneClassSVM

    x, _ = flowers()
    return OneClassSVM(gamma=0.5).fit(x[:, :2]), x[::7, :2] + np.float32(0.03)  # off the edge, where rounding decides


def bins():
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer

    x, _ = flowers()
    x[::5, 1] = np.nan
    return make_pipeline(SimpleImputer(), KBinsDiscretizer(4, encode="onehot-dense", quantile_method="linear")).fit(
        x
    ), x


def words(kind):
    from sklearn import preprocessing

    x = np.array([["a", "q"], ["b", "q"], ["c", "r"]], dtype=object)
    options = {"sparse_output": False} if kind == "OneHotEncoder" else {}
    return getattr(preprocessing, kind)(**options).fit(x), x


MODELS = {
    "probabilities of 3": lambda: classifier("rbf", 3, probability=True),
    "probabilities of 2": lambda: classifier("poly", 2, probability=True),
    "votes of 3": lambda: classifier("sigmoid", 3),
    "votes of 2": lambda: classifier("linear", 2),
    "rbf regression": lambda: regressor("rbf"),
    "linear regression": lambda: regressor("linear"),
    "outliers": outliers,
    "logistic of 3": lambda: linear(3),
    "logistic of 2": lambda: linear(2),
    "several targets": several_targets,
    "bins": bins,
    "one hot": lambda: words("OneHotEncoder"),
    "ordinal": lambda: words("OrdinalEncoder"),
}


def expected_of(fitted, x):
    """What scikit-learn gives first, and the probabilities where there are some."""
    if not hasattr(fitted, "predict"):
        return [fitted.transform(x)]
    return [fitted.predict(x), *([fitted.predict_proba(x)] if hasattr(fitted, "predict_proba") else [])]


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of scikit-learn and skl2onnx
        fitted, x = MODELS[name]()
        options = {"zipmap": False} if hasattr(fitted, "classes_") else None
        proto = to_onnx(fitted, x[:1], options=options, target_opset={"": 19, "ai.onnx.ml": 3})
        expected = expected_of(fitted, x)
    feeds = {i.name: x for i in proto.graph.input}
    if len(feeds) > 1:
        feeds = {i.name: x[:, k : k + 1] for k, i in enumerate(proto.graph.input)}
    graph = tx.load(proto)
    ours = list(graph.run(feeds, backend="numpy").values())
    agree(ours, by_onnxruntime(proto, feeds))
    agree([o.reshape(np.shape(e)) for o, e in zip(ours, expected, strict=False)], expected)
    agree(by_onnxruntime(to_model(tx.retarget(graph, 19, domains=["ai.onnx"])), feeds), ours)


def by_onnxruntime(proto, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def agree(actual, expected):
    for a, e in zip(actual, expected, strict=False):
        if np.asarray(e).dtype.kind in "OUSi":
            assert np.asarray(a).tolist() == np.asarray(e).tolist()
        else:
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)
