"""Packages of others that register rules by an entry point: those in examples/, on the estimators themselves."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tenonnx as tx
from tenonnx_sklearn import feeds

pytestmark = pytest.mark.filterwarnings("ignore")


def rows(count=300, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(count, 4))
    return X, (X[:, 0] + X[:, 1] > 1.2).astype(int)


def made_by_imbalanced_learn():
    ensemble = pytest.importorskip("imblearn.ensemble")
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline as resampled
    from imblearn.under_sampling import RandomUnderSampler

    return [
        resampled(StandardScaler(), SMOTE(random_state=0), LogisticRegression()),
        resampled(RandomUnderSampler(random_state=0), StandardScaler()),
        ensemble.BalancedRandomForestClassifier(10, random_state=0),
        ensemble.BalancedBaggingClassifier(n_estimators=4, random_state=0),
        ensemble.EasyEnsembleClassifier(n_estimators=3, random_state=0),
        ensemble.RUSBoostClassifier(n_estimators=5, random_state=0),
    ]


@pytest.mark.parametrize("place", range(6))
def test_imbalanced_learn(place):
    X, y = rows()
    model = made_by_imbalanced_learn()[place].fit(X, y)
    asked = X.astype(np.float32)
    found = tx.load(model, asked).run({"X": asked})
    method = "predict" if hasattr(model, "predict") else "transform"
    expected = getattr(model, method)(asked)
    np.testing.assert_allclose(found["label" if method == "predict" else method], expected, rtol=1e-5, atol=1e-5)


NAMES = (
    "BackwardDifferenceEncoder BaseNEncoder BinaryEncoder CatBoostEncoder CountEncoder HelmertEncoder "
    "JamesSteinEncoder MEstimateEncoder OneHotEncoder OrdinalEncoder SumEncoder TargetEncoder WOEEncoder"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_category_encoders(name):
    module = pytest.importorskip("category_encoders")
    draw = np.random.default_rng(0)
    texts = {"city": draw.choice(["Oslo", "Rome", "Łódź"], 200), "kind": draw.choice(["a", "b", "c", "d"], 200)}
    table = pd.DataFrame({**texts, "size": draw.normal(size=200).astype(np.float32)}).astype(
        {"city": object, "kind": object}
    )
    y = (draw.random(200) < 0.3 + 0.4 * (table["city"] == "Rome")).astype(int)
    model = make_pipeline(getattr(module, name)(cols=["city", "kind"]), LogisticRegression()).fit(table, y)
    graph = tx.load(model, table)
    asked = pd.DataFrame(
        {"city": ["Rome", "Atlantis", "Oslo"], "kind": ["d", "a", "?"], "size": np.float32([0, 1, -1])}
    ).astype({"city": object, "kind": object})
    found = graph.run(feeds(graph, asked))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(asked), atol=1e-5)
