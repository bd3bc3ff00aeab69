"""Categories of pandas, polars and Arrow, against the boosters that were fitted on them."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import tenonnx as tx
from tenonnx_sklearn import feeds

catboost = pytest.importorskip("catboost")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

pytestmark = pytest.mark.filterwarnings("ignore")

CITIES = ["Rome", "Oslo", "Łódź", "Bern"]


def table(rows=300, seed=0, missing=True):
    draw = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "city": pd.Categorical(draw.choice(CITIES, rows), categories=CITIES),
            "level": pd.Categorical(draw.choice([10, 20, -3], rows), categories=[20, 10, -3]),
            "only": pd.Categorical(["x"] * rows),
            "x": draw.normal(size=rows).astype(np.float32),
        }
    )
    if missing:
        made.loc[::9, "city"] = np.nan
        made.loc[::7, "x"] = np.nan
    return made


def target(rows):
    return (rows["city"].isin(["Rome", "Bern"]) ^ (rows["level"].astype(int) == 10) ^ (rows["x"].fillna(0) > 0)) * 1


def light():
    return lightgbm.LGBMClassifier(n_estimators=10, min_child_samples=5, n_jobs=1, verbose=-1)


def extreme(**settings):
    return xgboost.XGBClassifier(n_estimators=8, enable_categorical=True, n_jobs=1, **settings)


def histogram(**settings):
    return HistGradientBoostingClassifier(max_iter=8, **settings)


def cat(**settings):
    settings = {"iterations": 15, "cat_features": ["city", "level", "only"], **settings}
    return catboost.CatBoostClassifier(verbose=0, allow_writing_files=False, thread_count=1, **settings)


def check(model, rows, asked, **options):
    graph = tx.load(model, rows, verify=False, **options)
    result = graph.run(feeds(graph, asked))
    assert np.ravel(result["label"]).tolist() == np.ravel(model.predict(asked)).tolist()
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(asked), atol=1e-6)
    return graph


MODELS = [light, extreme, lambda: extreme(max_cat_to_onehot=1), histogram, lambda: histogram(class_weight="balanced")]


@pytest.mark.parametrize("make", MODELS)
def test_categories_of_pandas(make):
    rows = table()
    graph = check(make().fit(rows, target(rows)), rows, table(200, seed=1))
    assert [str(value.dtype) for value in graph.inputs] == ["string", "int64", "string", "float32"]


def plain(rows):
    """Rows with Arrow strings and integers instead of categories."""
    return rows.astype({"level": "int64"}).drop(columns="only")


@pytest.mark.parametrize("make", [extreme, histogram])
@pytest.mark.parametrize("kind", [polars.Categorical, polars.Enum(CITIES)], ids=["categorical", "enum"])
def test_categories_of_polars(make, kind):
    if make is extreme and isinstance(kind, polars.Enum):
        pytest.skip("XGBoost takes no Enum")
    rows, X_test = (
        polars.from_pandas(plain(each)).with_columns(polars.col("city").cast(polars.String).cast(kind))
        for each in (table(), table(200, seed=1))
    )
    check(make().fit(rows, target(table())), rows, X_test)


def test_tables_of_arrow_are_fed_to_what_was_fitted_on_pandas():
    rows, X_test = table(), table(200, seed=1)
    model = light().fit(rows, target(rows))
    graph = tx.load(model, rows, verify=False)
    for other in (pyarrow.Table.from_pandas(X_test), polars.from_pandas(X_test.astype({"level": "int64"}))):
        assert graph.run(feeds(graph, other))["label"].tolist() == model.predict(X_test).tolist()


def test_only_the_fit_of_histogram_boosting_determines_categories():
    rows = table()
    model = histogram().fit(rows, target(rows))
    graph = tx.load(model)
    assert graph.run(feeds(graph, rows))["label"].tolist() == model.predict(rows).tolist()


SETTINGS = [
    {},
    {"one_hot_max_size": 10},
    {"grow_policy": "Depthwise"},
    {"grow_policy": "Lossguide", "one_hot_max_size": 3},
    {"max_ctr_complexity": 3, "iterations": 40},
    {"simple_ctr": ["Buckets", "BinarizedTargetMeanValue", "Counter"]},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_categories_of_catboost(settings, classes):
    rows, X_test = (table(n, seed, missing=False).astype({"city": object}) for n, seed in ((600, 0), (400, 1)))
    X_test.loc[:20, "city"] = "unknown"
    y = target(rows) if classes == 2 else target(rows) + (rows["level"] == 20)
    model = cat(**settings).fit(rows, y)
    graph = check(model, rows, X_test)
    empty = graph.run(feeds(graph, X_test[:0]))
    assert empty["probabilities"].shape == (0, classes)


def test_categories_that_occurred_together_are_counted_together(tmp_path):
    import onnxruntime

    draw = np.random.default_rng(0)
    rows = pd.DataFrame({"a": draw.choice(list("abcdefgh"), 2000).astype(object), "k": draw.integers(0, 5, 2000)})
    model = cat(cat_features=["a", "k"], max_ctr_complexity=3, one_hot_max_size=2, iterations=30)
    model.fit(rows, (rows["a"].isin(["a", "b"]) & (rows["k"] == 2)) | (rows["a"].eq("c") & (rows["k"] < 2)))
    model.save_model(str(tmp_path / "m.json"), format="json")
    assert '"combination_element":"cat_feature_value"},{' in (tmp_path / "m.json").read_text().replace(" ", "").replace(
        "\n", ""
    )
    graph = check(model, rows, rows.assign(k=rows["k"] * 2))
    for domains in (None, ["ai.onnx"]):
        tx.export(graph, tmp_path / "m.onnx", opset_version=13, domains=domains)
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        result = session.run(["probabilities"], feeds(graph, rows))[0]
        np.testing.assert_allclose(result, model.predict_proba(rows), atol=1e-6)


def test_categories_of_catboost_after_a_step():
    rows = table(missing=False).astype({"city": object})
    upper = FunctionTransformer().set_output(transform="pandas")
    model = make_pipeline(upper, cat()).fit(rows, target(rows))
    check(model, rows, rows)


def test_texts_that_the_example_does_not_show_are_refused():
    rows = table(missing=False)
    model = cat(one_hot_max_size=10).fit(rows, target(rows))
    with pytest.raises(tx.NotRepresentable, match="1 categories of city that do not occur"):
        tx.load(model, rows[rows["city"] != "Rome"])
    with pytest.raises(tx.NotRepresentable, match="hashes alone"):
        tx.load(model)


def test_cut_texts_of_xgboost_are_those_of_the_example_or_refused():
    rows = table(missing=False)
    model = extreme().fit(rows, target(rows))
    with pytest.raises(tx.NotRepresentable, match="beyond ASCII"):
        tx.load(model, rows.assign(city=rows["city"].astype(object).replace({"Łódź": "Unseen town"})))


@pytest.mark.parametrize("size", [0, 1, 3, 5, 9, 16, 17, 32, 33, 64, 65, 130])
def test_texts_of_any_length_are_hashed_as_catboost_does(size):
    text = "é" * (size % 2) + "x" * (size // 2) + "y" * (size - size // 2)
    draw = np.random.default_rng(size)
    texts = [text, f"{text}a", f"b{text}"]
    rows = pd.DataFrame({"city": draw.choice(np.asarray(texts, object), 120), "x": draw.normal(size=120)})
    model = cat(cat_features=["city"], one_hot_max_size=9, iterations=6).fit(rows, rows["city"].map(texts.index))
    check(model, rows, rows)
