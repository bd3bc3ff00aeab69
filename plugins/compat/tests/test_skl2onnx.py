"""skl2onnx: names, types and shapes of inputs and outputs, options, errors."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import RFE
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from tenonnx_compat import NotSupported, skl2onnx
from tenonnx_compat.skl2onnx import convert_sklearn, to_onnx
from tenonnx_compat.skl2onnx.common import data_types
from tenonnx_compat.skl2onnx.common.data_types import (
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from tenonnx_compat.skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator
from tenonnx_compat.skl2onnx.helpers.onnx_helper import (
    enumerate_model_node_outputs,
    load_onnx_model,
    save_onnx_model,
    select_model_inputs_outputs,
)
from tenonnx_compat.skl2onnx.sklapi import CastRegressor, CastTransformer, ReplaceTransformer

ROWS, Y = load_iris(return_X_y=True)
X = ROWS.astype(np.float32)


def run(model, feeds):
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))


def test_a_classifier_returns_labels_and_maps():
    model = RandomForestClassifier(5, random_state=0).fit(X, Y)
    onx = to_onnx(model, X[:1])
    assert onx.opset_import[0].version == skl2onnx.get_latest_tested_opset_version()
    results = run(onx, {"X": X})
    assert results["output_label"].tolist() == model.predict(X).tolist()
    assert [max(row, key=row.get) for row in results["output_probability"]] == model.predict(X).tolist()


@pytest.mark.parametrize("key", [id, type, lambda model: "zipmap"], ids=["id", "class", "name"])
def test_zipmap_can_be_disabled(key):
    model = LogisticRegression(max_iter=500).fit(X, Y)
    options = {"zipmap": False} if key(model) == "zipmap" else {key(model): {"zipmap": False}}
    results = run(to_onnx(model, X, options=options, target_opset={"": 15, "ai.onnx.ml": 2}), {"X": X})
    np.testing.assert_allclose(results["probabilities"], model.predict_proba(X), atol=1e-5)
    raw = run(to_onnx(model, X, options={"raw_scores": True, "zipmap": False}), {"X": X})
    np.testing.assert_allclose(raw["probabilities"], model.decision_function(X), rtol=1e-4, atol=1e-4)


NAMED = np.array(["a", "b", "c"])[Y]


def test_options_for_the_form_of_probabilities():
    model = LogisticRegression(max_iter=500).fit(X, NAMED)
    expected = model.predict_proba(X)
    results = run(to_onnx(model, X, options={"zipmap": "columns"}), {"X": X})
    assert list(results) == ["output_label", "sa", "sb", "sc"]
    np.testing.assert_allclose(results["sb"], expected[:, 1], atol=1e-5)
    results = run(to_onnx(model, X, options={"nocl": True}), {"X": X})
    assert results["output_label"].tolist() == np.searchsorted(model.classes_, model.predict(X)).tolist()
    assert [row[2] for row in results["output_probability"]] == pytest.approx(expected[:, 2], abs=1e-5)
    results = run(to_onnx(model, X, options={"zipmap": False, "output_class_labels": True}), {"X": X})
    assert results["class_labels"].tolist() == ["a", "b", "c"]
    with pytest.raises(RuntimeError, match="not compatible with option 'zipmap'"):
        to_onnx(model, X, options={"output_class_labels": True})


def test_scores_of_two_classes():
    for model in (LogisticRegression(max_iter=500).fit(X, Y > 0), BaggingClassifier(LinearSVC(), 3).fit(X, Y > 0)):
        results = run(to_onnx(model, X, options={"raw_scores": True, "zipmap": False}), {"X": X})["probabilities"]
        decision = model.decision_function(X)
        np.testing.assert_allclose(results, np.stack([-decision, decision], 1), rtol=1e-4, atol=1e-4)
    maps = run(to_onnx(SVC().fit(X, Y > 0), X), {"X": X})
    assert [max(row, key=row.get) for row in maps["output_probability"]] == maps["output_label"].tolist()
    plain = run(to_onnx(LinearSVC().fit(X, Y > 0), X), {"X": X})
    assert plain["probabilities"].shape == (len(X), 1)


@pytest.mark.parametrize("model", [DecisionTreeClassifier(max_depth=3), RandomForestRegressor(3, max_depth=3)])
def test_paths_and_leaves_of_trees(model):
    model.fit(X, Y)
    options = {"decision_path": True, "decision_leaf": True}
    if hasattr(model, "predict_proba"):
        options["zipmap"] = False
    results = run(to_onnx(model, X, options={id(model): options}), {"X": X})
    leaves = model.apply(X).reshape(len(X), -1)
    assert results["decision_leaf"].tolist() == leaves.tolist()
    for k, tree in enumerate(getattr(model, "estimators_", [model])):
        paths = ["".join("1" if each else "0" for each in row) for row in tree.decision_path(X).toarray()]
        assert results["decision_path"][:, k].tolist() == paths


def test_deviations_of_gaussian_processes():
    model = GaussianProcessRegressor(alpha=0.1, optimizer=None).fit(X, Y)
    results = run(to_onnx(model, X, options={"return_std": True}), {"X": X})
    np.testing.assert_allclose(results["GPcovstd"], model.predict(X, return_std=True)[1], atol=1e-3)


def test_names_by_a_prefix_or_a_function():
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y)
    for naming in ("P_", lambda name, taken: f"P_{name}_{len(taken)}"):
        onx = to_onnx(model, X, naming=naming)
        inner = [name for node in onx.graph.node for name in (*node.input, *node.output)]
        assert {name for name in inner if not name.startswith("P_")} == {"X", "variable"}
        np.testing.assert_allclose(run(onx, {"X": X})["variable"][:, 0], model.predict(X), atol=1e-4)


def test_final_types_name_and_cast_outputs():
    model = KMeans(2, n_init=1, random_state=0).fit(X)
    types = [("x", FloatTensorType([None, 4]))]
    onx = convert_sklearn(model, initial_types=types, final_types=[("which", None), ("far", DoubleTensorType())])
    results = run(onx, {"x": X})
    assert results["which"].tolist() == model.predict(X).tolist()
    assert results["far"].dtype == np.float64
    for names in (["a"], ["a", "a"]):
        with pytest.raises(RuntimeError, match="do not name every output once"):
            convert_sklearn(model, initial_types=types, final_types=[(name, None) for name in names])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (LinearRegression(), {"variable": (150, 1)}),
        (StandardScaler(), {"variable": (150, 4)}),
        (KMeans(2, n_init=1, random_state=0), {"label": (150,), "scores": (150, 2)}),
        (IsolationForest(n_estimators=3, random_state=0), {"label": (150, 1), "scores": (150, 1)}),
        (RFE(LinearRegression(), n_features_to_select=2), {"variable": (150, 2)}),
        (GaussianMixture(2, random_state=0), {"label": (150, 1), "probabilities": (150, 2)}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_names_and_shapes_of_outputs(model, expected):
    results = run(to_onnx(model.fit(X, Y), X[:1]), {"X": X})
    assert {name: array.shape for name, array in results.items()} == expected


def test_neighbors_are_indices_and_distances():
    rows = np.unique(X, axis=0)  # ties between equal rows have no defined order
    model = NearestNeighbors(n_neighbors=3).fit(rows[::2])
    results = run(to_onnx(model, rows[:1]), {"X": rows[1::2]})
    distances, places = model.kneighbors(rows[1::2])
    np.testing.assert_allclose(results["distance"], distances, atol=1e-4)
    assert list(results) == ["index", "distance"]
    assert results["index"].shape == places.shape


def test_probabilities_of_several_targets_are_a_sequence():
    targets = np.stack([Y, Y == 1], 1)
    model = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(X, targets)
    results = run(to_onnx(model, X[:1]), {"X": X})
    assert results["label"].tolist() == model.predict(X).tolist()
    for one, other in zip(results["probabilities"], model.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_types_of_inputs():
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(X, X[:, 0] * 2)
    wide = X.astype(np.float64)
    onx = convert_sklearn(model, "double", [("rows", DoubleTensorType([None, 4]))])
    assert onx.graph.name == "double"
    np.testing.assert_allclose(run(onx, {"rows": wide})["variable"][:, 0], model.predict(wide))
    onx = convert_sklearn(model, initial_types=[("a", FloatTensorType([None, 1])), ("b", Int64TensorType([None, 3]))])
    whole = np.arange(6).reshape(2, 3)
    results = run(onx, {"a": np.ones((2, 1), np.float32), "b": whole})["variable"][:, 0]
    np.testing.assert_allclose(results, model.predict(np.c_[np.ones(2), whole]), rtol=1e-4)
    final = convert_sklearn(
        model, initial_types=[("x", FloatTensorType([None, 4]))], final_types=[("z", FloatTensorType())]
    )
    assert list(run(final, {"x": X})) == ["z"]


def test_columns_of_several_types():
    rows = np.array([[1.0, "a"], [2.0, "b"], [3.0, "a"], [4.0, "c"]], object)
    encoder = ColumnTransformer([("n", StandardScaler(), [0]), ("t", OneHotEncoder(), [1])])
    model = make_pipeline(encoder, LogisticRegression()).fit(rows, [0, 1, 0, 1])
    types = [("age", FloatTensorType([None, 1])), ("town", StringTensorType([None, 1]))]
    onx = convert_sklearn(model, initial_types=types, options={"zipmap": False})
    feeds = {"age": rows[:, :1].astype(np.float32), "town": rows[:, 1:]}
    np.testing.assert_allclose(run(onx, feeds)["probabilities"], model.predict_proba(rows), atol=1e-5)


def test_texts_are_split_as_by_the_estimator():
    texts = np.array(["a bird", "two birds", "a bird sings"], object)
    model, options = TfidfVectorizer().fit(texts), {TfidfVectorizer: {"tokenexp": "", "separators": [" "]}}
    onx = convert_sklearn(model, initial_types=[("texts", StringTensorType([None, 1]))], options=options)
    results = run(onx, {"texts": texts[:, None]})["variable"]
    np.testing.assert_allclose(results, model.transform(texts).toarray(), atol=1e-5)


def test_casts_and_replaced_values():
    rows = np.where(X > 0, X, 0).astype(np.float32)
    steps = ReplaceTransformer(0, -3), CastTransformer(dtype=np.float64), CastRegressor(LinearRegression())
    model = make_pipeline(*steps).fit(rows, Y)
    results = run(to_onnx(model, rows), {"X": rows})["variable"]
    assert results.dtype == np.float32
    np.testing.assert_allclose(results[:, 0], model.predict(rows), atol=1e-5)
    with pytest.raises(ValueError, match="Unable to cast from"):
        CastTransformer().fit(np.array([["a"]], object))


def test_helpers(tmp_path):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, Y)
    onx = to_onnx(model, X[:1])
    save_onnx_model(onx, str(tmp_path / "m.onnx"))
    again = load_onnx_model(str(tmp_path / "m.onnx"))
    names = list(enumerate_model_node_outputs(again))
    part = select_model_inputs_outputs(again, names[0])
    assert [value.name for value in part.graph.output] == names[:1]
    with pytest.raises(ValueError, match="not found in model"):
        select_model_inputs_outputs(again, "nothing")
    assert {"LogisticRegression", "KMeans"} <= set(skl2onnx.supported_converters(from_sklearn=True))


def test_types_of_tables_and_arrays():
    assert data_types.guess_data_type(X) == [("input", FloatTensorType([150, 4]))]
    table = SimpleNamespace(columns=["a", "b"], dtypes=["int64", "object"])  # the attributes of a DataFrame
    assert data_types.guess_data_type(table) == [
        ("a", Int64TensorType([None, 1])),
        ("b", StringTensorType([None, 1])),
    ]
    assert data_types.guess_numpy_type(DoubleTensorType()) is np.float64
    assert FloatTensorType([None, 2]).to_onnx_type().tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert repr(FloatTensorType([None, 2])) == "FloatTensorType(shape=[None, 2])"
    with pytest.raises(TypeError, match="cannot be converted"):
        data_types.guess_data_type(1)


class Unknown(StandardScaler):
    """An estimator without a conversion rule."""


def test_unsupported_estimators_and_options_are_refused():
    with pytest.raises(MissingShapeCalculator, match="Unknown") as caught:
        to_onnx(Unknown().fit(X), X)
    assert isinstance(caught.value, MissingConverter)
    model = LogisticRegression(max_iter=500).fit(X, Y)
    with pytest.raises(ValueError, match="no initial_types"):
        to_onnx(model)
    for options in ({"options": {"gemm": True}}, {"white_op": ["Add"]}, {"naming": 3}):
        with pytest.raises(NotSupported, match="does not support"):
            to_onnx(model, X, **options)
    with pytest.raises(NotSupported, match="update_registered_converter"):
        skl2onnx.update_registered_converter(Unknown, "Unknown", None, None)


def test_outputs_of_a_gaussian_process_have_skl2onnx_names():
    model = GaussianProcessRegressor(alpha=0.1, optimizer=None).fit(X[:20], Y[:20])
    assert [each.name for each in to_onnx(model, X).graph.output] == ["GPmean"]
    assert to_onnx(StandardScaler().fit(X), X).doc_string == ""
