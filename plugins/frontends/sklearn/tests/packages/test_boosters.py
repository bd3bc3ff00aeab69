"""Boosters without an estimator, and their files."""

from __future__ import annotations

import io
from functools import cache

import lightgbm
import numpy as np
import pandas
import pytest
import xgboost
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor
from scipy.sparse import csr_array
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

import tenonnx as tx
from tenonnx_run.worker_process import packed, receive
from tenonnx_sklearn import booster_process, feeds
from tenonnx_sklearn.booster_files import sendable

QUIET = {"verbose": 0, "allow_writing_files": False, "iterations": 8}


@cache
def data():
    draw = np.random.default_rng(0)
    X = np.where(draw.random((150, 4)) < 0.1, np.nan, draw.normal(size=(150, 4)))
    score = np.nan_to_num(X) @ [1.0, -2.0, 0.5, 1.0]
    X_test = np.where(draw.random((300, 4)) < 0.1, np.nan, draw.normal(size=(300, 4))).astype(np.float32)
    return X, score, X_test


def _target(objective):
    score = data()[1]
    if objective.startswith("multi") or "rank" in objective or "ndcg" in objective:
        return np.digitize(score, [-1, 1])
    if objective.startswith("binary"):
        return (score > 0).astype(int)
    return 1 / (1 + np.exp(-score)) if "logistic" in objective or "entropy" in objective else np.exp(score / 3)


def _run(source, rows):
    graph = tx.load(source)
    return graph.run(feeds(graph, rows))


def _near(graph, rows, expected):
    for array in (rows, rows[:1], rows[:0]):
        (result,) = graph.run(feeds(graph, array)).values()
        wanted = expected[: len(array)]
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "objective",
    [
        "binary",
        "cross_entropy",
        "cross_entropy_lambda",
        "gamma",
        "lambdarank",
        "multiclass",
        "multiclassova",
        "poisson",
        "quantile",
        "regression",
    ],
)
def test_boosters_of_lightgbm_and_their_files(objective, tmp_path):
    X, _, X_test = data()
    settings = {"objective": objective, "verbose": -1, **({"num_class": 3} if "multi" in objective else {})}
    groups = [50] * 3 if objective == "lambdarank" else None
    booster = lightgbm.train(settings, lightgbm.Dataset(X, _target(objective), group=groups), 8)
    booster.save_model(tmp_path / "model.txt")
    expected = booster.predict(X_test)
    for source in (booster, tmp_path / "model.txt"):
        graph = tx.load(source)
        assert [value.name for value in graph.outputs] == ["variable"]
        _near(graph, X_test, expected)


@pytest.mark.parametrize(
    "objective",
    [
        "binary:hinge",
        "binary:logistic",
        "binary:logitraw",
        "count:poisson",
        "multi:softmax",
        "multi:softprob",
        "rank:ndcg",
        "reg:absoluteerror",
        "reg:logistic",
        "reg:squarederror",
        "reg:tweedie",
    ],
)
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_boosters_of_xgboost_and_their_files(objective, suffix, tmp_path):
    X, _, X_test = data()
    settings = {"objective": objective, **({"num_class": 3} if "multi" in objective else {})}
    groups = np.arange(len(X)) // 30 if "rank" in objective else None
    booster = xgboost.train(settings, xgboost.DMatrix(X, _target(objective), qid=groups), 8)
    booster.save_model(tmp_path / f"model.{suffix}")
    expected = booster.predict(xgboost.DMatrix(X_test))
    for source in (booster, tmp_path / f"model.{suffix}"):
        _near(tx.load(source), X_test, expected)


def test_boosters_by_the_names_of_columns():
    X, score, X_test = data()
    names = list("abcd")
    table = pandas.DataFrame(X, columns=names)
    for booster in (
        xgboost.train({}, xgboost.DMatrix(table, score), 5),
        lightgbm.train({"verbose": -1}, lightgbm.Dataset(table, score), 5),
    ):
        graph = tx.load(booster, inputs="columns")
        assert [value.name for value in graph.inputs] == names
        assert np.isfinite(graph.run(feeds(graph, pandas.DataFrame(X_test, columns=names)))["variable"]).all()


def test_a_booster_of_xgboost_predicts_by_all_rounds_and_its_estimator_by_the_best():
    X, score, X_test = data()
    labels, others = (score > 0).astype(int), np.roll(score > 0, 1).astype(int)
    estimator = xgboost.XGBClassifier(n_estimators=30, early_stopping_rounds=2)
    estimator.fit(X, labels, eval_set=[(X, others)], verbose=False)
    booster = estimator.get_booster()
    assert booster.best_iteration + 1 < booster.num_boosted_rounds()
    _near(tx.load(booster), X_test, booster.predict(xgboost.DMatrix(X_test)))
    result = _run(estimator, X_test)["probabilities"]
    np.testing.assert_allclose(result, estimator.predict_proba(X_test), rtol=1e-4, atol=1e-6)


def test_a_file_of_catboost_has_the_outputs_of_its_kind(tmp_path):
    X, score, X_test = data()
    words = np.where(score > 0, "yes", "no")
    classifier, regressor = CatBoostClassifier(**QUIET).fit(X, words), CatBoostRegressor(**QUIET).fit(X, score)
    classifier.save_model(tmp_path / "c.cbm")
    regressor.save_model(tmp_path / "r.cbm")
    result = _run(tmp_path / "c.cbm", X_test)
    assert result["label"].ravel().tolist() == classifier.predict(X_test).ravel().tolist()
    np.testing.assert_allclose(result["probabilities"], classifier.predict_proba(X_test), rtol=1e-4, atol=1e-6)
    _near(tx.load(tmp_path / "r.cbm"), X_test, regressor.predict(X_test))
    raw = CatBoost({**QUIET, "loss_function": "Logloss"}).fit(X, score > 0)
    _near(tx.load(raw), X_test, raw.predict(X_test))


@pytest.mark.parametrize("name", ["notes.txt", "settings.json"])
def test_a_file_of_something_else_is_refused(name, tmp_path):
    (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(tx.InvalidCall, match="as LightGBM, XGBoost or CatBoost save it"):
        tx.load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("cut.cbm", b"CBM1"),
        ("cut.txt", b"tree\nversion=v4\n"),
        ("cut.json", b'{"learner": {}}'),
    ],
)
def test_a_file_that_is_cut_is_refused(name, head, tmp_path):
    (tmp_path / name).write_bytes(head)
    with pytest.raises(tx.InvalidModel, match=r"catboost cannot read a file|a file of a booster is broken"):
        tx.load(tmp_path / name)
    with pytest.raises(tx.InvalidCall, match="cannot read"):
        tx.load(tmp_path / f"none-{name}")


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_kernels_that_are_given_are_columns(kernel):
    draw = np.random.default_rng(1)
    X = draw.normal(size=(60, 3))
    X_test = draw.normal(size=(100, 3))
    given = {"linear": lambda rows: rows, "precomputed": lambda rows: rows @ X.T}[kernel]
    model = SVC(kernel=kernel).fit(given(X), np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5]))
    rows = given(X_test).astype(np.float32)
    assert _run(model, rows)["label"].tolist() == model.predict(rows).tolist()


def test_sparse_weights():
    X, score, asked = np.nan_to_num(data()[0]), data()[1], np.nan_to_num(data()[2])
    model = LogisticRegression(C=0.05, l1_ratio=1.0, solver="saga").fit(X, score > 0).sparsify()
    assert (_run(model, asked)["label"] == model.predict(asked)).all()


@pytest.mark.parametrize(
    "step",
    [
        HashingVectorizer(n_features=8),
        make_pipeline(CountVectorizer(), FunctionTransformer(np.sqrt)),
        make_union(CountVectorizer(), HashingVectorizer(n_features=8)),
    ],
)
def test_zeros_that_a_sparse_matrix_stores_are_not_missing(step):
    texts = ["a dog", "the cat and", "no dog and no cat", "cat", "dog the", "one two three"] * 10
    model = make_pipeline(step, xgboost.XGBClassifier(n_estimators=3)).fit(texts, ["dog" in each for each in texts])
    with pytest.raises(tx.NotRepresentable, match="some zeros are stored"):
        tx.load(model)


def test_texts_that_were_fitted_lie_at_the_thresholds_of_xgboost():
    """XGBoost's thresholds are fitted numbers, so that strings must be encoded in float64, as in training."""
    draw = np.random.default_rng(3)
    texts = [" ".join(draw.choice(list("abcdefgh"), 5)) for _ in range(100)]
    words = make_pipeline(TfidfVectorizer(token_pattern=r"[a-z]"), TruncatedSVD(3, random_state=0))
    model = make_pipeline(words, xgboost.XGBClassifier(n_estimators=5)).fit(texts, ["a" in each for each in texts])
    graph = tx.load(model, texts, dtype="float64")
    assert graph.run(feeds(graph, texts))["label"].tolist() == model.predict(texts).tolist()


TABLE = pandas.DataFrame(
    {
        "number": [1.5, np.nan],
        "whole": np.array([1, 2], np.int32),
        "flag": [True, False],
        "text": np.array(["a", None], object),
        "kind": pandas.Categorical(["x", "y"], ["y", "x", "z"], ordered=True),
        "year": pandas.Categorical([7, 8]),
    }
)


def test_rows_arrive_as_they_were_sent():
    def arrived(rows):
        header, text, *parts = packed(sendable(rows))
        return booster_process.table_of(receive(io.BytesIO(header + text + b"".join(map(bytes, parts)))))

    pandas.testing.assert_frame_equal(arrived(TABLE), TABLE)
    mixed = np.array([[1.5, "a"], [None, "b"]], object)
    assert arrived(mixed).tolist() == mixed.tolist()
    sparse = csr_array(np.array([[0, 2.5], [1, 0]]))
    assert (arrived(sparse) != sparse).nnz == 0
    assert arrived([[1, 2.5]]).tolist() == [[1.0, 2.5]]
    with pytest.raises(TypeError):
        arrived(pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01"])}))
