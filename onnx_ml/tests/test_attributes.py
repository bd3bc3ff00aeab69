"""Errors for inconsistent attributes and inputs, at load or run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_onnx_ml.encoders import label_encoder, one_hot_encoder
from tenonnx_onnx_ml.features import array_feature_extractor, feature_vectorizer
from tenonnx_onnx_ml.linear import linear_classifier
from tenonnx_onnx_ml.maps import cast_map, zip_map
from tenonnx_onnx_ml.preprocessing import binarizer, imputer, scaler
from tenonnx_onnx_ml.svm import svm_regressor

MACHINE = {
    "classlabels_ints": [3, 4, 5],
    "vectors_per_class": [1, 1, 1],
    "support_vectors": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "rho": [0.1, 0.2, 0.3],
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 0.0],
}
REGRESSOR = {
    "n_supports": 2,
    "support_vectors": [0.0, 1.0, 2.0, 3.0],
    "coefficients": [1.0, 2.0],
    "rho": [0.1],
}

LINES = {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "intercepts": [0.0, 0.0, 0.0], "classlabels_ints": [7, 8, 9]}


def model(op, attributes):
    """A single-node model for rows of two features."""
    outputs = ["label", "scores"] if op.endswith("Classifier") else ["y"]
    node = onnx.helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    ends = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "one", [x], ends), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Binarizer", {"threshold": float("nan")}, "threshold is NaN"),
        ("CastMap", {"cast_to": "TO_DOUBLE"}, "'TO_DOUBLE'"),
        ("CastMap", {"map_form": "FLAT"}, "'FLAT'"),
        ("CastMap", {"map_form": "SPARSE", "max_map": 0}, "max_map is not positive: 0"),
        ("CategoryMapper", {"cats_strings": ["a", "b"], "cats_int64s": [1]}, "1 integers for 2 strings"),
        ("CategoryMapper", {}, "categories are missing"),
        ("DictVectorizer", {}, "the vocabulary is missing"),
        ("DictVectorizer", {"int64_vocabulary": [1], "string_vocabulary": ["a"]}, "both integers and strings"),
        ("FeatureVectorizer", {"inputdimensions": [-1]}, "inputdimensions holds a negative number"),
        ("Imputer", {}, "given, but none"),
        ("Imputer", {"imputed_value_floats": [1.0], "imputed_value_int64s": [1]}, "given, but both"),
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [1]}, "keys are missing"),
        (
            "LabelEncoder",
            {"keys_int64s": [1], "keys_floats": [1.0], "values_int64s": [1]},
            "keys_floats and keys_int64s",
        ),
        ("LinearClassifier", {"coefficients": [1.0], "classlabels_ints": [1], "classlabels_strings": ["a"]}, "both"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "row for each target: 3 for 2"),
        (
            "LinearRegressor",
            {"coefficients": [1.0, 2.0], "intercepts": [1.0, 2.0]},
            "number of intercepts differs from that of targets: 2 and 1",
        ),
        ("LinearRegressor", {"coefficients": [1.0, 2.0], "targets": 0}, "targets is not positive"),
        ("LinearRegressor", {"coefficients": "many"}, '"coefficients" is not a list of numbers'),
        ("OneHotEncoder", {}, "categories are missing"),
        ("OneHotEncoder", {"cats_int64s": [1], "cats_strings": ["a"]}, "both integers and strings"),
        (
            "SVMClassifier",
            MACHINE | {"rho": [0.1]},
            "rho does not have one number for each of 3 pairs of classes: 1",
        ),
        ("SVMClassifier", MACHINE | {"coefficients": [1.0]}, "coefficients are not 2 rows of 3: 1"),
        ("SVMClassifier", MACHINE | {"vectors_per_class": [2, 1]}, "one number for each of 3 classes"),
        ("SVMClassifier", MACHINE | {"prob_a": [1.0]}, "differ in length: 1 and 0"),
        (
            "SVMClassifier",
            MACHINE | {"prob_a": [1.0], "prob_b": [1.0]},
            "prob_a does not have one number for each of 3 pairs",
        ),
        ("SVMClassifier", MACHINE | {"kernel_type": "COSINE"}, "'COSINE'"),
        ("SVMClassifier", MACHINE | {"kernel_params": [0.5]}, "does not hold gamma, coef0 and degree"),
        (
            "SVMClassifier",
            MACHINE | {"support_vectors": [1.0, 2.0]},
            "support_vectors does not hold 3 rows of features",
        ),
        ("SVMClassifier", {k: v for k, v in MACHINE.items() if k != "classlabels_ints"}, "class labels are missing"),
        ("SVMRegressor", REGRESSOR | {"coefficients": [1.0]}, "number of coefficients is not one for 2"),
        ("SVMRegressor", {k: v for k, v in REGRESSOR.items() if k != "rho"}, "rho is missing"),
        ("SVMRegressor", REGRESSOR | {"post_transform": "EXP"}, "'EXP'"),
    ],
)
def test_refused_when_read(op, attributes, message):
    with pytest.raises(tx.InvalidModel, match=message):
        tx.load(model(op, attributes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: array_feature_extractor(np.zeros((2, 3), np.float32), np.array([3])), "outside 0 to 2"),
        (lambda: array_feature_extractor(np.zeros((2, 3), np.float32), np.array([-1])), "outside 0 to 2"),
        (lambda: cast_map({0: np.float32(1), 7: np.float32(2)}, map_form="SPARSE", max_map=7), "outside 0 to 6"),
        (lambda: cast_map({-1: np.float32(1)}, map_form="SPARSE", max_map=7), "outside 0 to 6"),
        (lambda: cast_map({0: "seven"}), "a value is not a number"),
        (lambda: cast_map({"a": np.float32(1)}), "int64 keys"),
        (lambda: cast_map({0: np.float32("nan")}, cast_to="TO_INT64"), "a value is not a number"),
        (lambda: cast_map({0: np.float32(1e30)}, cast_to="TO_INT64"), "a value is not a number"),
        (lambda: feature_vectorizer(np.zeros((2, 1)), np.zeros((3, 1))), "differ in their number of rows"),
        (lambda: feature_vectorizer(np.zeros((2, 1)), inputdimensions=[1, 2]), "one size for each input"),
        (lambda: imputer(np.zeros((2, 3)), imputed_value_int64s=[1]), "imputed_value_floats is missing for float64"),
        (lambda: imputer(np.zeros((2, 3)), imputed_value_floats=[1.0, 2.0]), "features of X is not 2"),
        (lambda: imputer(np.zeros(2, np.int32), imputed_value_int64s=[2**40]), "do not fit into int32"),
        (lambda: linear_classifier(np.zeros((2, 3), np.float32), **LINES), "features of X is not 2"),
        (
            lambda: linear_classifier(np.zeros((2, 2)), **LINES | {"classlabels_ints": [1, 2]}),
            "labels differs from that of scores: 2 and 3",
        ),
        (lambda: zip_map(np.zeros((2, 3), np.float32), classlabels_int64s=[1, 2]), "one column for each of 2 labels"),
        (lambda: label_encoder(np.array([1]), keys_floats=[1.0], values_floats=[1.0]), "that of the keys"),
        (lambda: one_hot_encoder(np.array([1, 9]), cats_int64s=[1, 2], zeros=0), "an element has no category"),
        (lambda: one_hot_encoder(np.array([1]), cats_strings=["a"]), "X does not hold strings"),
        (lambda: svm_regressor(np.zeros((1, 3), np.float32), **REGRESSOR), "features of X is not 2"),
    ],
)
def test_refused_when_called(call, message):
    with pytest.raises(tx.TypeMismatch, match=message):
        call()


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (scaler, {"offset": [1.0, 2.0, 3.0]}),
        (imputer, {"imputed_value_floats": [1.0, 2.0, 3.0]}),
        (svm_regressor, REGRESSOR),
    ],
)
def test_features_are_counted_at_run_time(op, attributes):
    """Errors for wrong lengths, including those that numpy would broadcast."""
    graph = tx.Graph()
    graph.output("y", op(graph.input("x", "float32", ("n", None)), **attributes))
    with pytest.raises(tx.TypeMismatch, match=op.name):
        graph.run({"x": np.zeros((2, 1), np.float32)}, backend="numpy")


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("ZipMap", {"classlabels_int64s": [1, 2, 3]}, "one column for each of 3 labels"),
        ("SVMRegressor", REGRESSOR | {"support_vectors": [0.0] * 6}, "features of X is not 3"),
        ("LinearClassifier", {"coefficients": [1.0] * 6, "classlabels_ints": [1, 2]}, "features of X is not 3"),
    ],
)
def test_features_are_counted_when_checked(op, attributes, message):
    """Errors without an input, if the model declares the number of features."""
    with pytest.raises(tx.InvalidModel, match=message):
        tx.infer(tx.load(model(op, attributes)))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_other_than_integers_have_no_category(number, backend):
    graph = tx.load(model("OneHotEncoder", {"cats_int64s": [0, 1]}))
    result = graph.run({"x": np.array([[number, 1]], np.float32)}, backend=backend)["y"]
    assert result.tolist() == [[[0, 0], [0, 1]]]


@pytest.mark.parametrize("op", ["LinearClassifier", "SVMClassifier", "LinearRegressor", "SVMRegressor", "Scaler"])
def test_nan_only_affects_its_own_row(op):
    attributes = {
        "LinearClassifier": LINES,
        "SVMClassifier": MACHINE,
        "LinearRegressor": {"coefficients": [1.0, 2.0]},
        "SVMRegressor": REGRESSOR | {"kernel_params": [0.5, 0.0, 0.0]},
        "Scaler": {"offset": [1.0], "scale": [2.0]},
    }[op]
    graph = tx.load(model(op, attributes))
    for backend in ("numpy", "onnxruntime"):
        result = graph.run({"x": np.float32([[np.nan, np.nan], [1, 2]])}, backend=backend)
        rows = list(result.values())[-1]
        assert np.isnan(rows[0]).all()
        assert np.isfinite(rows[1]).all()


def test_unknown_category_fails_in_plain_ops_too():
    """Without ``zeros``, the lowered model fails in any runtime instead of returning a wrong row."""
    graph = tx.Graph(opsets={"ai.onnx.ml": 3, "ai.onnx": 17})
    graph.output("y", one_hot_encoder(graph.input("x", "int64", ("n",)), cats_int64s=[4, 5], zeros=0))
    plain = tx.retarget(graph, 17, domains=["ai.onnx"])
    assert plain.run({"x": np.array([5, 4])})["y"].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(tx.TenonnxError):
        plain.run({"x": np.array([5, 6])}, backend="numpy")


@pytest.mark.parametrize(("threshold", "expected"), [(-1e30, [1, 1]), (1e30, [0, 0]), (0.5, [0, 1]), (-1.5, [1, 1])])
def test_thresholds_beyond_integers(threshold, expected):
    assert binarizer(np.array([0, 2**62]), threshold=threshold).tolist() == expected
