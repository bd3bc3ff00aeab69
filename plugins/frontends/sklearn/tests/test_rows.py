"""Kinds of rows: integers before trees, labels, sets, mappings, images, and steps without column counts."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    MultiLabelBinarizer,
    Normalizer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import tenonnx as tx
from tenonnx_sklearn import feeds
from tenonnx_sklearn.judging import difference

GENERATOR = np.random.default_rng(1)
WHOLE = GENERATOR.integers(0, 60, (600, 3))
ABOVE = (WHOLE[:, 0] + WHOLE[:, 1] * (GENERATOR.random(600) + 0.5) > 50).astype(int)
NUMBERS = GENERATOR.normal(size=(60, 4))
PAIRS = np.stack([GENERATOR.integers(0, 3, 60), GENERATOR.integers(0, 2, 60)], axis=1)


def run(graph, rows):
    return graph.run(feeds(graph, rows), backend="onnxruntime")


@pytest.mark.parametrize("kind", [float, np.int64])
@pytest.mark.parametrize("kept", [None, 20])
def test_integers_take_the_branch_of_the_estimator_after_a_scaler(kind, kept):
    """Even for rows outside of the example: thresholds are derived from the scaler on float64 rows."""
    rows = WHOLE.astype(kind)
    model = make_pipeline(StandardScaler(), RandomForestClassifier(20, random_state=0)).fit(rows[:300], ABOVE[:300])
    graph = tx.load(model, rows[:kept])
    assert np.abs(run(graph, rows)["probabilities"] - model.predict_proba(rows)).max() < 1e-5


def _joined(rows, y):
    columns = ColumnTransformer([("a", StandardScaler(), [0, 1])], remainder="passthrough")
    return make_pipeline(columns, RandomForestClassifier(20, random_state=0)).fit(rows, y)


def _normalized(rows, y):
    return make_pipeline(Normalizer(), HistGradientBoostingClassifier(max_iter=30)).fit(rows, y)


@pytest.mark.parametrize("fitted", [_joined, _normalized])
def test_rows_that_float32_rounds_over_a_threshold_make_the_graph_float64(fitted, tmp_path):
    rows = WHOLE.astype(float)
    model = fitted(rows[:300], ABOVE[:300])
    graph = tx.load(model, rows)
    assert str(graph.inputs[0].dtype) == "float64"
    assert np.abs(run(graph, rows)["probabilities"] - model.predict_proba(rows)).max() < 1e-7
    with pytest.raises(tx.VerificationFailed, match='give dtype="float64"'):
        tx.load(model, rows, dtype="float32")


def test_rows_that_float32_represents_stay_float32():
    model = DecisionTreeClassifier().fit(NUMBERS, PAIRS[:, 0])
    assert str(tx.load(model, NUMBERS).inputs[0].dtype) == "float32"


@pytest.mark.parametrize("kind", [RandomForestClassifier, DecisionTreeClassifier, KNeighborsClassifier])
def test_targets_with_other_numbers_of_classes_have_an_output_each(kind):
    model = kind().fit(NUMBERS, PAIRS)
    graph = tx.load(model, outputs=["predict", "predict_proba"])
    result = run(graph, NUMBERS)
    assert [array.shape for array in result.values()] == [(60, 2), (60, 3), (60, 2)]
    assert difference(model, NUMBERS.astype(np.float32), result) == "right"


@pytest.mark.parametrize("settings", [{}, {"metric": "manhattan"}, {"n_neighbors": 1, "algorithm": "brute"}])
def test_nearest_neighbors_return_distances_and_indices(settings):
    model = NearestNeighbors(**settings).fit(NUMBERS[:40])
    distances, places = model.kneighbors(NUMBERS[40:])
    result = run(tx.load(model), NUMBERS[40:])
    np.testing.assert_allclose(result["distances"], distances, rtol=1e-5)
    np.testing.assert_array_equal(result["indices"], places)


@pytest.mark.parametrize("kind", [LabelEncoder, LabelBinarizer])
@pytest.mark.parametrize("labels", [["b", "a", "c"], [7, -3, 5], [2.0, 1.0, 4.0], [True, False, True], ["no", "yes"]])
def test_labels_are_a_vector(kind, labels):
    model = kind().fit(labels)
    for example in ((), (labels,), (np.asarray(labels),)):
        graph = tx.load(model, *example)
        assert graph.inputs[0].rank == 1
        np.testing.assert_array_equal(run(graph, labels)["transform"], model.transform(labels))


@pytest.mark.parametrize("rows", [[("b", "a"), ("c",), ()], [[1, 5], [], [5, 9]]])
def test_sets_of_labels_of_any_size(rows):
    model = MultiLabelBinarizer().fit(rows)
    for example in ((), (rows,)):
        np.testing.assert_array_equal(run(tx.load(model, *example), rows)["transform"], model.transform(rows))


HASHED = {
    "string": [["a", "b", "a"], ["c"], []],
    "dict": [{"a": 1, "b": 2.5}, {"c": "text"}, {}],
    "pair": [[("a", 1.0), ("b", -2.0)], [("a", 3.0)]],
}


@pytest.mark.parametrize("kind", HASHED)
@pytest.mark.parametrize("signed", [True, False])
def test_hashes_of_words_mappings_and_pairs(kind, signed):
    model, rows = FeatureHasher(8, input_type=kind, alternate_sign=signed), HASHED[kind]
    for example in ((), (rows,)):
        result = run(tx.load(model, *example), rows)["transform"]
        np.testing.assert_allclose(result, model.transform(rows).toarray())


def test_mappings_become_columns_before_a_classifier():
    rows = [{"city": "here", "size": 2.0}, {"city": "there", "size": 1.0}, {"size": 4.0}] * 4
    model = make_pipeline(DictVectorizer(), LogisticRegression()).fit(rows, [0, 1, 1] * 4)
    rows = [*rows[:3], {"city": "elsewhere", "other": 3}]
    result = run(tx.load(model, rows), rows)
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 6, 5), (3, 5, 6, 3)])
def test_patches_of_images(shape):
    images = np.random.default_rng(0).normal(size=shape)
    model = PatchExtractor(patch_size=(2, 3)).fit(images)
    np.testing.assert_allclose(run(tx.load(model, images), images)["transform"], model.transform(images), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "example", "error", "why"),
    [
        ({"max_patches": 2, "patch_size": (2, 2)}, (np.ones((1, 4, 4)),), tx.NotRepresentable, "at random"),
        ({"patch_size": (2, 2)}, (), tx.InvalidCall, "sizes of the images are unknown"),
        ({"patch_size": (2, 2)}, (np.ones((4, 4)),), tx.InvalidCall, r"shape \(4, 4\)"),
        ({}, (np.ones((1, 4, 4)),), tx.NotRepresentable, "patches of 0 x 0"),
    ],
)
def test_patches_that_have_no_form_are_refused(settings, example, error, why):
    with pytest.raises(error, match=why):
        tx.load(PatchExtractor(**settings).fit(np.ones((1, 4, 4))), *example)


class Doubled(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.factor_ = 2
        return self

    def transform(self, X):
        return X * self.factor_


@pytest.mark.parametrize("first", ["passthrough", None, FunctionTransformer(), make_union("passthrough")])
def test_pipelines_whose_first_step_has_no_column_names(first):
    model = make_pipeline(first, "passthrough", LogisticRegression()).fit(NUMBERS, PAIRS[:, 1])
    vote = VotingClassifier([("one", model)], voting="soft").fit(NUMBERS, PAIRS[:, 1])
    for each in (model, vote):
        for example in ((), (NUMBERS,)):
            result = run(tx.load(each, *example), NUMBERS)
            np.testing.assert_allclose(result["probabilities"], each.predict_proba(NUMBERS), atol=1e-6)


def test_a_class_without_columns_is_named_if_there_is_no_example():
    model = make_pipeline(Doubled()).fit(NUMBERS)
    with pytest.raises(tx.InvalidCall, match="Doubled without n_features_in_"):
        tx.load(model)
    with pytest.raises(tx.NotRepresentable, match="Doubled"):
        tx.load(model, NUMBERS)
    with pytest.raises(tx.InvalidCall, match="fitted"):
        tx.load(make_pipeline("passthrough", LogisticRegression()))
