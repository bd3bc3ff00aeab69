"""Tables of pandas, polars and Arrow with columns of every type, against the pipelines that were fitted on them."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

import tenonnx as tx
from tenonnx_sklearn import feeds

CITIES = ["Łódź", "Paris", "Rome", "New York", "Oslo", "Bern"]


def frame(rows=200, seed=0):
    draw = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": draw.normal(40, 12, rows),
            "city": draw.choice(CITIES, rows, p=[0.4, 0.3, 0.2, 0.06, 0.03, 0.01]).astype(object),
            "member": draw.random(rows) > 0.5,
            "visits": draw.integers(0, 9, rows),
            "note": [" ".join(draw.choice(["good", "bad", "slow", "fast"], 3)) for _ in range(rows)],
        }
    )
    made.loc[::7, "age"] = np.nan
    made["city"] = made["city"].astype(object).where(np.arange(rows) % 11 > 0, np.nan)
    return made


def target(rows):
    return np.where(rows["age"].fillna(40) + 5 * rows["visits"] + 9 * (rows["city"] == "Rome") > 65, "yes", "no")


def pipeline(encoder, last, sparse_threshold=0.0):
    steps = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["age", "visits"]),
            ("city", make_pipeline(SimpleImputer(strategy="most_frequent"), encoder), ["city"]),
            ("member", "passthrough", ["member"]),
            ("note", TfidfVectorizer(ngram_range=(1, 2)), "note"),
        ],
        sparse_threshold=sparse_threshold,
    )
    return make_pipeline(steps, last)


def onnxruntime_of(graph, path, **options):
    import onnxruntime

    tx.export(graph, path, **options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda fed: dict(zip(names, session.run(names, fed), strict=True))


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20),
        OneHotEncoder(drop="first", handle_unknown="ignore"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=4),
        TargetEncoder(),
    ],
    ids=lambda encoder: f"{type(encoder).__name__}-{len(str(encoder))}",
)
def test_a_mixed_table(encoder, opset, tmp_path):
    rows = frame()
    model = pipeline(encoder, LogisticRegression()).fit(rows, target(rows))
    graph = tx.load(model, rows)
    assert [str(value.dtype) for value in graph.inputs] == ["float32", "string", "bool", "int64", "string"]
    run = onnxruntime_of(graph, tmp_path / "m.onnx", opset_version=opset)
    unseen = frame(50, seed=1)
    unseen.loc[:5, "city"] = "Atlantis"
    result = run(feeds(graph, unseen))
    assert result["label"].tolist() == model.predict(unseen).tolist()
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(unseen), atol=1e-5)
    assert run(feeds(graph, unseen[:0]))["probabilities"].shape == (0, 2)


def test_the_kinds_of_columns_follow_from_the_fit_where_they_do():
    rows = frame()
    model = pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, target(rows))
    graph = tx.load(model)
    assert [str(value.dtype) for value in graph.inputs] == ["float32", "string", "float32", "float32", "string"]


def test_zipmap_returns_maps(tmp_path):
    rows = frame()
    model = pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, target(rows))
    run = onnxruntime_of(tx.load(model, rows, zipmap=True), tmp_path / "m.onnx")
    result = run(feeds(tx.load(model, rows, verify=False), rows[:3]))["probabilities"]
    assert [set(each) for each in result] == [{"no", "yes"}] * 3


def test_the_same_rows_as_pandas_polars_and_arrow():
    rows = frame()
    model = pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, target(rows))
    graph = tx.load(model, rows, verify=False)
    expected = feeds(graph, rows)
    for other in (
        polars.from_pandas(rows),
        pyarrow.Table.from_pandas(rows),
        rows.to_dict("list"),
        rows.convert_dtypes(),
        rows[rows.columns[::-1]],
    ):
        for name, array in feeds(graph, other).items():
            np.testing.assert_array_equal(array, expected[name])


def test_a_pipeline_fitted_on_polars():
    rows = polars.from_pandas(frame().drop(columns="note"))
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    steps = ColumnTransformer([("city", encoder, ["city"])], remainder="passthrough")
    model = make_pipeline(steps, HistGradientBoostingClassifier(max_iter=5))
    model.fit(rows, target(frame()))
    graph = tx.load(model, rows)
    result = graph.run(feeds(graph, rows))
    assert result["label"].tolist() == model.predict(rows).tolist()


def test_steps_that_return_tables():
    rows = frame().drop(columns="note")
    impute = ColumnTransformer(
        [
            ("age", SimpleImputer(strategy="median"), ["age", "visits"]),
            ("city", SimpleImputer(strategy="constant", fill_value="none"), ["city"]),
        ],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    encode = ColumnTransformer(
        [("text", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), make_column_selector("city"))],
        remainder="passthrough",
    ).set_output(transform="pandas")
    model = make_pipeline(impute, encode, RandomForestClassifier(20, random_state=0)).fit(rows, target(rows))
    graph = tx.load(model, rows)
    assert graph.run(feeds(graph, rows))["label"].tolist() == model.predict(rows).tolist()


def test_missing_numbers_where_an_integer_was_promised_are_refused():
    rows = frame()
    model = pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, target(rows))
    graph = tx.load(model, rows, verify=False)
    with pytest.raises(tx.InvalidCall, match="visits"):
        feeds(graph, rows.assign(visits=[None] + [1] * 199))
    with pytest.raises(tx.InvalidCall, match="age"):
        feeds(graph, rows.drop(columns="age"))
    with pytest.raises(tx.InvalidCall, match="numbers"):
        feeds(graph, rows.assign(age="old"))


@pytest.mark.parametrize("kind", [pd.Series, polars.Series, list, np.asarray], ids=lambda kind: kind.__name__)
def test_texts_of_any_kind(kind):
    texts = frame()["note"].to_numpy()
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, target(frame()))
    rows = kind(texts)
    graph = tx.load(model, rows)
    assert graph.run(feeds(graph, rows))["label"].tolist() == model.predict(rows).tolist()


def test_functions_access_columns_by_name():
    rows = frame()[["age", "visits", "member"]].fillna(40.0)
    function = FunctionTransformer(lambda table: np.column_stack([table["age"] / 10, np.log1p(table[["visits"]])]))
    model = make_pipeline(function, LinearRegression()).fit(rows, rows["visits"])
    graph = tx.load(model, rows)
    np.testing.assert_allclose(graph.run(feeds(graph, rows))["variable"], model.predict(rows), atol=1e-3)
    wrong = FunctionTransformer(lambda table: table[["size"]] if hasattr(table, "names") else table).fit(rows)
    with pytest.raises(tx.NotRepresentable, match="'size' is not known where the function is traced"):
        tx.load(wrong, rows)


def test_bounds_of_pandas_and_dates_that_nothing_reads():
    table = pd.DataFrame({"a": [1.0, -2.0, np.nan] * 5, "day": [pd.Timestamp("2024-01-01")] * 15})
    steps = FunctionTransformer(lambda rows: rows.clip(lower=0).fillna(-1))
    model = make_pipeline(ColumnTransformer([("a", steps, ["a"])]), LinearRegression()).fit(table, np.arange(15))
    graph = tx.load(model, table)
    np.testing.assert_allclose(graph.run(feeds(graph, table))["variable"], model.predict(table), rtol=1e-5)
    with pytest.raises(tx.NotRepresentable, match="clip with inplace is not supported"):
        tx.load(FunctionTransformer(lambda rows: rows.clip(0, 1, inplace=True)).fit(table[["a"]]))


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_function_counts_words_of_a_column(backend):
    table = pd.DataFrame({"text": ["a b  c", "", "\tone\ntwo\u00a0three ", " "], "other": ["a", "b", "c", "d"]})
    model = FunctionTransformer(lambda X: X["text"].str.split().str.len().to_frame()).fit(table)
    graph = tx.load(model, table)
    (result,) = graph.run({graph.inputs[0].name: table.to_numpy(object)}, backend=backend).values()
    np.testing.assert_array_equal(result, [[3], [0], [3], [0]])
    with pytest.raises(tx.NotRepresentable, match="texts are split at white space alone"):
        tx.load(FunctionTransformer(lambda X: X["text"].str.split(",").str.len().to_frame()).fit(table), table)
