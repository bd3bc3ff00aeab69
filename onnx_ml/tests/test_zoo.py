"""Fitted pipelines on numpy and in plain ``ai.onnx``, against onnxruntime and the fitted estimators."""

from __future__ import annotations

import functools
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_onnx_ml.maps import without_zip_map

for package in ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost"):
    pytest.importorskip(package)

from skl2onnx import to_onnx, update_registered_converter  # noqa: E402
from zoo import OPTIONS, ZOO  # noqa: E402


class Finding(NamedTuple):
    """A known failure of some entries of the zoo, with the reason.

    ``check`` is the affected test, ``error`` the expected failure. It is strict: if the failure does not occur, the
    test fails. The models of the entries reproduce it.
    """

    check: str
    names: tuple[str, ...]
    error: str
    reason: str


FINDINGS = (
    Finding(
        "convert",
        ("HistGradientBoostingClassifier", "HistGradientBoostingClassifier of two", "HistGradientBoostingRegressor"),
        "Unable to create node",
        "skl2onnx 1.20 writes bool in a list of integers, which protobuf 7 refuses; the zoo is converted with integers",
    ),
    Finding(
        "convert",
        ("LinearSVC", "text to LinearSVC"),
        "Option 'zipmap' not in",
        "skl2onnx 1.20 converts a pipeline that ends in LinearSVC only where some option of LinearSVC is given",
    ),
    Finding(
        "convert",
        ("GaussianMixture", "GaussianMixture with diagonals"),
        "'<' not supported",
        "skl2onnx 1.20 compares the opset with a number, so it must be given as a number and not by domain",
    ),
    Finding(
        "onnxruntime",
        ("DecisionTreeClassifier on doubles", "DecisionTreeRegressor on doubles"),
        "does not match expected type",
        "skl2onnx declares outputs in float64, and these ops have float32 only: onnxruntime does not load the file",
    ),
    Finding(
        "onnxruntime",
        ("RadiusNeighborsClassifier",),
        "Invalid Y argument: index is out of range",
        "skl2onnx looks up position -1 for neighbors beyond the radius: neither onnxruntime nor we have one there",
    ),
    Finding(
        "onnxruntime",
        ("GaussianProcessClassifier",),
        "Solve.* is not a registered",
        "skl2onnx writes the op com.microsoft::Solve, which onnxruntime 1.31 does not have",
    ),
    Finding(
        "lowered",
        (
            "CountVectorizer",
            "TfidfVectorizer",
            "TfidfVectorizer of pairs",
            "text to LogisticRegression",
            "text to LinearSVC",
        ),
        "ai.onnx has no op that splits strings by a regular expression",
        "texts are cut by com.microsoft::Tokenizer, and no op of ai.onnx takes a string apart by an expression",
    ),
    Finding(
        "scikit-learn",
        ("QuadraticDiscriminantAnalysis",),
        r"\(1,\) == ",
        "skl2onnx takes the labels along the wrong axis of a matrix and gives one for all samples",
    ),
    Finding(
        "scikit-learn",
        tuple(f"SVC {kernel} of two" for kernel in ("linear", "poly", "rbf", "sigmoid")),
        "Not equal to tolerance",
        "without probabilities the second score is the negative of the decision function, in onnxruntime as here",
    ),
    Finding(
        "scikit-learn",
        ("DecisionTreeClassifier with holes",),
        "assert",
        "skl2onnx drops which way NaN goes at each node (missing_go_to_left), and sends it right at all of them",
    ),
    Finding(
        "scikit-learn",
        ("KNeighborsClassifier by distance",),
        "assert",
        "skl2onnx changes the sign of distances before it bounds them from below: all neighbors weigh the same",
    ),
    Finding(
        "scikit-learn",
        ("ComplementNB",),
        "Not equal to tolerance",
        "logarithms sum up to 1500, of which float32 keeps four digits after the point, and the softmax shows them",
    ),
    Finding(
        "scikit-learn",
        ("columns to RandomForestClassifier",),
        "Not equal to tolerance",
        "scikit-learn scales in float64 and the model in float32, so a sample at a threshold goes the other way",
    ),
    Finding(
        "scikit-learn",
        ("TfidfVectorizer of pairs",),
        "Not equal to tolerance",
        "skl2onnx cuts words of one letter, too, which scikit-learn skips: 'and a dog' has no pair 'and dog'",
    ),
)


@contextmanager
def checked(check, name):
    """The test of an entry, which has to pass, or fail as a finding states."""
    finding = next((each for each in FINDINGS if each.check == check and name in each.names), None)
    if finding is None:
        yield
        return
    with pytest.raises(Exception, match=finding.error) as caught:
        yield
    assert not isinstance(caught.value, KeyError)


@functools.cache
def fitted(name):
    """The fitted estimator, its features, the types of the model's inputs, and the feeds."""
    register()
    estimator, data, _ = ZOO[name]
    features, target = data()
    with quiet():
        return estimator.fit(features, target), features, *inputs_of(features)


@functools.cache
def converted(name):
    """The model, with maps at the end of classifiers. Converter failures listed in findings are avoided."""
    from skl2onnx.common import _container

    estimator, _, types, _ = fitted(name)
    with quiet(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_container, "make_node", make_node)
        return to_onnx(estimator, initial_types=types, target_opset=ZOO[name].opsets, options=OPTIONS)


@contextmanager
def quiet():
    """Without the warnings of scikit-learn and the converters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_node(*arguments, **attributes):
    """The node, with booleans as 0 and 1, since protobuf does not accept them any more."""
    flags = attributes.get("nodes_missing_value_tracks_true")
    if flags is not None:
        attributes["nodes_missing_value_tracks_true"] = [int(flag) for flag in flags]
    return onnx.helper.make_node(*arguments, **attributes)


@functools.cache
def register():
    """Register the LightGBM and XGBoost converters with skl2onnx."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx.common import shape_calculator as shapes
    from xgboost import XGBClassifier, XGBRegressor

    of_classifier = shapes.calculate_linear_classifier_output_shapes, {"zipmap": [True], "nocl": [False]}
    of_regressor = shapes.calculate_linear_regressor_output_shapes, {"split": None}
    for kind, convert, (shape, options) in (
        (LGBMClassifier, convert_lightgbm, of_classifier),
        (LGBMRegressor, convert_lightgbm, of_regressor),
        (XGBClassifier, convert_xgboost, of_classifier),
        (XGBRegressor, convert_xgboost, of_regressor),
    ):
        update_registered_converter(kind, kind.__name__, shape, convert, options=options)


def inputs_of(features):
    """The types of inputs for the converter, and the feeds: one matrix, or columns where these differ."""
    from skl2onnx.common import data_types

    kinds = {str: data_types.StringTensorType, float: data_types.FloatTensorType, int: data_types.Int64TensorType}
    if features.dtype != object:
        return [("x", data_types.guess_data_type(features)[0][1].__class__([None, features.shape[1]]))], {"x": features}
    rows = features.reshape(len(features), -1)
    columns = [np.array(rows[:, [k]].tolist()) for k in range(rows.shape[1])]
    if all(column.dtype.kind == "U" for column in columns):
        return [("x", data_types.StringTensorType([None, rows.shape[1]]))], {"x": rows}
    types = [(f"c{k}", kinds[type(rows[0, k])]([None, 1])) for k in range(len(columns))]
    feeds = {f"c{k}": c.astype(object if c.dtype.kind == "U" else np.float32) for k, c in enumerate(columns)}
    return types, feeds


def by_onnxruntime(proto, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def rows(output):
    """Tensors unchanged, maps as the rows of their numbers."""
    return output if isinstance(output, np.ndarray) else np.array([list(row.values()) for row in output], np.float32)


#: Relative tolerance for probabilities from sums of logarithms near 300 in float32, by their last bit.
LOGARITHMS = {"ComplementNB": 3e-4}


def agree(actual, expected, rtol=1e-5):
    assert list(actual) == list(expected)
    for name in expected:
        compare(rows(actual[name]), rows(expected[name]), rtol)


def compare(actual, expected, rtol):
    assert actual.shape == expected.shape
    if expected.dtype.kind in "OUSib":
        assert actual.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-5)


def names_of(*checks):
    """The entries affected by a finding in one of the checks."""
    return [name for finding in FINDINGS if finding.check in checks for name in finding.names]


@pytest.mark.parametrize("name", names_of("convert"))
def test_convert(name):
    estimator, _, types, _ = fitted(name)
    with quiet(), checked("convert", name):
        to_onnx(estimator, initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3})


@pytest.mark.parametrize("name", ZOO)
def test_onnxruntime(name):
    proto, (*_, feeds) = converted(name), fitted(name)
    with checked("onnxruntime", name):
        expected = by_onnxruntime(proto, feeds)
        agree(tx.load(proto).run(feeds, backend="numpy"), expected, LOGARITHMS.get(name, 1e-5))


@pytest.mark.parametrize("name", [name for name in ZOO if name not in names_of("onnxruntime")])
def test_lowered(name):
    proto, (*_, feeds) = converted(name), fitted(name)
    expected = by_onnxruntime(proto, feeds)
    for opset in (13, 17):
        with checked("lowered", name):
            plain = tx.retarget(without_zip_map(tx.load(proto)), opset, domains=["ai.onnx"])
            assert {node.domain for node in plain.nodes} <= {"ai.onnx"}
            agree(by_onnxruntime(to_model(plain), feeds), expected)


NOWHERE = {"RadiusNeighborsClassifier": "positions from -1", "GaussianProcessClassifier": "com.microsoft::Solve"}


@pytest.mark.parametrize("name", NOWHERE)
def test_models_that_run_nowhere_are_refused(name):
    proto, (*_, feeds) = converted(name), fitted(name)
    with pytest.raises(tx.TenonnxError, match=NOWHERE[name]):
        tx.load(proto).run(feeds, backend="numpy")


@pytest.mark.parametrize("name", [name for name in ZOO if name not in NOWHERE])
def test_scikit_learn(name):
    proto, (estimator, features, _, feeds) = converted(name), fitted(name)
    result = list(tx.load(proto).run(feeds, backend="numpy").values())
    with quiet():
        expected = predicted(estimator, features)
    with checked("scikit-learn", name):
        for actual, wanted in zip(map(rows, result), expected, strict=False):
            if wanted.ndim == 1 and actual.ndim == 2:
                actual = actual[:, -1]  # the score of the second class, or the only column
            compare(actual, wanted, rtol=1e-4)


def predicted(estimator, features):
    """Predictions of the estimator itself, in the order of the outputs of its model."""
    for names in (
        ("predict", "predict_proba"),
        ("predict", "decision_function"),
        ("predict", "transform"),
        ("predict",),
        ("transform",),
    ):
        if all(hasattr(estimator, name) for name in names):
            results = (getattr(estimator, name)(features) for name in names)
            return [np.asarray(r.toarray() if hasattr(r, "toarray") else r) for r in results]
    raise AssertionError("the estimator predicts nothing")


def test_findings_are_documented():
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    assert [each.reason for each in FINDINGS if each.reason not in " ".join(readme.split())] == []
