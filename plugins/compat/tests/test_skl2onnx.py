"""skl2onnx: names, types and shapes of inputs and outputs, options, errors."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tenonnx_compat import NotSupported, skl2onnx
from tenonnx_compat.skl2onnx import convert_sklearn, to_onnx
from tenonnx_compat.skl2onnx.common import data_types
from tenonnx_compat.skl2onnx.common.data_types import (
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from tenonnx_compat.skl2onnx.common.exceptions import MissingConverter
from tenonnx_compat.skl2onnx.helpers.onnx_helper import (
    enumerate_model_node_outputs,
    load_onnx_model,
    save_onnx_model,
    select_model_inputs_outputs,
)

ROWS, Y = load_iris(return_X_y=True)
X = ROWS.astype(np.float32)


def run(model, feeds):
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))


def test_a_classifier_gives_labels_and_maps():
    model = RandomForestClassifier(5, random_state=0).fit(X, Y)
    onx = to_onnx(model, X[:1])
    assert onx.opset_import[0].version == skl2onnx.get_latest_tested_opset_version()
    found = run(onx, {"X": X})
    assert found["output_label"].tolist() == model.predict(X).tolist()
    assert [max(row, key=row.get) for row in found["output_probability"]] == model.predict(X).tolist()


@pytest.mark.parametrize("key", [id, type, lambda model: "zipmap"], ids=["id", "class", "name"])
def test_zipmap_is_left_out_on_request(key):
    model = LogisticRegression(max_iter=500).fit(X, Y)
    options = {"zipmap": False} if key(model) == "zipmap" else {key(model): {"zipmap": False}}
    found = run(to_onnx(model, X, options=options, target_opset={"": 15, "ai.onnx.ml": 2}), {"X": X})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    raw = run(to_onnx(model, X, options={"raw_scores": True}), {"X": X})
    np.testing.assert_allclose(raw["probabilities"], model.decision_function(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (LinearRegression(), {"variable": (150, 1)}),
        (StandardScaler(), {"variable": (150, 4)}),
        (KMeans(2, n_init=1, random_state=0), {"label": (150,), "scores": (150, 2)}),
        (IsolationForest(n_estimators=3, random_state=0), {"label": (150, 1), "scores": (150, 1)}),
        (GaussianMixture(2, random_state=0), {"label": (150, 1), "probabilities": (150, 2)}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_names_and_shapes_of_outputs(model, expected):
    found = run(to_onnx(model.fit(X, Y), X[:1]), {"X": X})
    assert {name: array.shape for name, array in found.items()} == expected


def test_probabilities_of_several_targets_are_a_sequence():
    targets = np.stack([Y, Y == 1], 1)
    model = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(X, targets)
    found = run(to_onnx(model, X[:1]), {"X": X})
    assert found["label"].tolist() == model.predict(X).tolist()
    for one, other in zip(found["probabilities"], model.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_types_of_inputs():
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(X, X[:, 0] * 2)
    wide = X.astype(np.float64)
    onx = convert_sklearn(model, "double", [("rows", DoubleTensorType([None, 4]))])
    assert onx.graph.name == "double"
    np.testing.assert_allclose(run(onx, {"rows": wide})["variable"][:, 0], model.predict(wide))
    onx = convert_sklearn(model, initial_types=[("a", FloatTensorType([None, 1])), ("b", Int64TensorType([None, 3]))])
    whole = np.arange(6).reshape(2, 3)
    found = run(onx, {"a": np.ones((2, 1), np.float32), "b": whole})["variable"][:, 0]
    np.testing.assert_allclose(found, model.predict(np.c_[np.ones(2), whole]), rtol=1e-4)
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


def test_texts():
    texts = np.array(["a bird", "two birds", "a bird sings"], object)
    model = TfidfVectorizer().fit(texts)
    onx = convert_sklearn(model, initial_types=[("texts", StringTensorType([None, 1]))])
    found = run(onx, {"texts": texts[:, None]})["variable"]
    np.testing.assert_allclose(found, model.transform(texts).toarray(), atol=1e-5)


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
    table = SimpleNamespace(columns=["a", "b"], dtypes=["int64", "object"])  # what pandas has
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
    """An estimator without a rule."""


def test_what_has_no_form_and_what_is_refused():
    with pytest.raises(MissingConverter, match="Unknown"):
        to_onnx(Unknown().fit(X), X)
    model = LogisticRegression(max_iter=500).fit(X, Y)
    with pytest.raises(ValueError, match="no initial_types"):
        to_onnx(model)
    for options in ({"options": {"zipmap": "columns"}}, {"options": {"output_class_labels": True}}, {"naming": "a"}):
        with pytest.raises(NotSupported, match="does not support"):
            to_onnx(model, X, **options)
    with pytest.raises(NotSupported, match="update_registered_converter"):
        skl2onnx.update_registered_converter(Unknown, "Unknown", None, None)
