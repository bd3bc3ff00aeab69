"""Fitted pipelines on numpy and in plain ``ai.onnx``, held against onnxruntime and against what was fitted."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_onnx_ml.maps import without_zip_map

for package in ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost"):
    pytest.importorskip(package)

from zoo import OPTIONS, ZOO


@functools.cache
def converted(name):
    """The fitted estimator, its features, its model with maps at the end of classifiers, and the feeds of it."""
    from skl2onnx import to_onnx
    from skl2onnx.common import _container

    estimator, data, opsets = ZOO[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of scikit-learn and the converters
        register()
        features, target = data()
        estimator = estimator.fit(features, target)
        types, feeds = inputs_of(features)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_container, "make_node", make_node)
            proto = to_onnx(estimator, initial_types=types, target_opset=opsets, options=OPTIONS)
        return estimator, features, proto, feeds


def make_node(*arguments, **attributes):
    """The node, with 0 and 1 for the truths that protobuf takes no longer."""
    flags = attributes.get("nodes_missing_value_tracks_true")
    if flags is not None:
        attributes["nodes_missing_value_tracks_true"] = [int(flag) for flag in flags]
    return onnx.helper.make_node(*arguments, **attributes)


def register():
    """Teach skl2onnx the estimators of LightGBM and XGBoost."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator as shapes
    from xgboost import XGBClassifier, XGBRegressor

    for kind, convert in ((LGBMClassifier, convert_lightgbm), (XGBClassifier, convert_xgboost)):
        shape, options = shapes.calculate_linear_classifier_output_shapes, {"zipmap": [True, False], "nocl": [True, False]}
        update_registered_converter(kind, kind.__name__, shape, convert, options=options)
    for kind, convert in ((LGBMRegressor, convert_lightgbm), (XGBRegressor, convert_xgboost)):
        shape, options = shapes.calculate_linear_regressor_output_shapes, {"split": None}
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
    """Tensors as they are, maps as the rows of their numbers."""
    return output if isinstance(output, np.ndarray) else np.array([list(row.values()) for row in output], np.float32)


def agree(actual, expected):
    assert list(actual) == list(expected)
    for name in expected:
        compare(rows(actual[name]), rows(expected[name]), rtol=1e-5)


def compare(actual, expected, rtol):
    assert actual.shape == expected.shape
    if expected.dtype.kind in "OUSib":
        assert actual.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", ZOO)
def test_onnxruntime(name):
    _, _, proto, feeds = converted(name)
    agree(tx.load(proto).run(feeds, backend="numpy"), by_onnxruntime(proto, feeds))


@pytest.mark.parametrize("name", ZOO)
def test_lowered(name):
    _, _, proto, feeds = converted(name)
    expected = by_onnxruntime(proto, feeds)
    for opset in (13, 17):
        plain = tx.retarget(without_zip_map(tx.load(proto)), opset, domains=["ai.onnx"])
        assert {node.domain for node in plain.nodes} <= {"ai.onnx"}
        agree(by_onnxruntime(to_model(plain), feeds), expected)


@pytest.mark.parametrize("name", ZOO)
def test_scikit_learn(name):
    estimator, features, proto, feeds = converted(name)
    found = list(tx.load(proto).run(feeds, backend="numpy").values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = predicted(estimator, features)
    for actual, wanted in zip(map(rows, found), expected, strict=False):
        if wanted.ndim == 1 and actual.ndim == 2:
            actual = actual[:, -1]  # the score of the second class
        compare(actual, wanted, rtol=1e-4)


def predicted(estimator, features):
    """What the estimator itself gives, in the order of the outputs of its model."""
    for names in (
        ("predict", "predict_proba"), ("predict", "decision_function"), ("predict", "transform"), ("predict",),
        ("transform",),
    ):  # fmt: skip
        if all(hasattr(estimator, name) for name in names):
            results = (getattr(estimator, name)(features) for name in names)
            return [np.asarray(r.toarray() if hasattr(r, "toarray") else r) for r in results]
    raise AssertionError("the estimator predicts nothing")
