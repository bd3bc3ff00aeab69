"""Rules registered by an entry point of other packages: those in examples/, against their estimators."""

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
    X_test = X.astype(np.float32)
    result = tx.load(model, X_test).run({"X": X_test})
    method = "predict" if hasattr(model, "predict") else "transform"
    expected = getattr(model, method)(X_test)
    np.testing.assert_allclose(result["label" if method == "predict" else method], expected, rtol=1e-5, atol=1e-5)


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
    unseen = pd.DataFrame(
        {"city": ["Rome", "Atlantis", "Oslo"], "kind": ["d", "a", "?"], "size": np.float32([0, 1, -1])}
    ).astype({"city": object, "kind": object})
    result = graph.run(feeds(graph, unseen))
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(unseen), atol=1e-5)


def tables_of_skrub(count=300, seed=0):
    draw = np.random.default_rng(seed)
    letters = np.random.default_rng(7).choice(list("abcdefghijkł"), (60, 5))
    words = np.asarray(["".join(each) for each in letters])  # enough strings that no component is a rounding error
    made = pd.DataFrame(
        {
            "city": draw.choice(["Oslo", "Rome", "Łódź", "N/A", "  "], count),
            "note": [" ".join(draw.choice(words, 6)) for _ in range(count)],
            "size": draw.normal(size=count).astype(np.float32),
            "visits": draw.integers(0, 5, count),
            "member": draw.random(count) > 0.5,
            "kind": draw.choice(["u", "v"], count),
        }
    )
    return made.astype({"city": object, "note": object, "kind": object})


def made_by_skrub():
    skrub = pytest.importorskip("skrub")
    vectorizer = skrub.TableVectorizer(high_cardinality=skrub.StringEncoder(n_components=5, random_state=0))
    low = skrub.TableVectorizer(
        high_cardinality=skrub.StringEncoder(n_components=200, random_state=0), low_cardinality=skrub.ToCategorical()
    )
    return {
        "vectorizer": vectorizer,
        "logistic": make_pipeline(vectorizer, skrub.SquashingScaler(), LogisticRegression()),
        "histogram": skrub.tabular_pipeline("classifier"),
        "linear": skrub.tabular_pipeline(LogisticRegression()),
        "categories": make_pipeline(low, skrub.tabular_pipeline("classifier")[-1]),
    }


@pytest.mark.parametrize("name", ["vectorizer", "logistic", "histogram", "linear", "categories"])
def test_skrub(name):
    rows, X_test = tables_of_skrub(), tables_of_skrub(100, seed=1)
    X_test.loc[:5, ["city", "note"]] = ["Atlantis", "unseen words"]
    X_test.loc[6:9, "kind"] = None
    y = ((rows["city"] == "Rome") ^ (rows["size"] > 0)).astype(int)
    model = made_by_skrub()[name].fit(rows, y)
    graph = tx.load(model, rows)
    result = graph.run(feeds(graph, X_test))
    if name == "vectorizer":
        np.testing.assert_allclose(result["transform"], model.transform(X_test), atol=1e-5)
        return
    assert result["label"].tolist() == model.predict(X_test).tolist()
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(X_test), atol=1e-5)


def test_skrub_squashes_infinities_and_constants():
    skrub = pytest.importorskip("skrub")
    draw = np.random.default_rng(0)
    X = np.stack([draw.normal(size=50), np.full(50, 3.0), np.where(np.arange(50) < 45, 0.0, 7.0)], axis=1)
    model = skrub.SquashingScaler().fit(X)
    X_test = np.vstack([X, [np.inf, -np.inf, np.nan]]).astype(np.float32)
    result = tx.load(model, verify=False).run({"X": X_test})["transform"]
    np.testing.assert_allclose(result, model.transform(X_test), atol=1e-6)


def test_hashes_and_dates_of_skrub_are_refused_by_name():
    skrub = pytest.importorskip("skrub")
    rows = tables_of_skrub()
    with pytest.raises(tx.NotRepresentable, match=r"skrub\.MinHashEncoder"):
        tx.load(skrub.TableVectorizer(high_cardinality=skrub.MinHashEncoder()).fit(rows), rows)
    with pytest.raises(tx.NotRepresentable, match="an example"):
        tx.load(skrub.TableVectorizer(high_cardinality="drop").fit(rows))
