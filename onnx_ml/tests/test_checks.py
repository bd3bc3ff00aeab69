"""Errors for contradictory attributes when a model is loaded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_onnx_ml.scores import transformed_array


def model(op, outputs, **attributes):
    """A single-node model of ai.onnx.ml version 3, for rows of two features."""
    node = onnx.helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    ends = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "one", [x], ends), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Scaler", {"offset": [0.0, 1.0], "scale": [1.0, 1.0, 1.0]}, "2 and 3 numbers"),
        ("Normalizer", {"norm": "L3"}, "'L3'"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1, 2]}, "differ in number from values"),
        ("LabelEncoder", {"keys_floats": [1.0]}, "one attribute values_\\* is given"),
        ("LinearClassifier", {"coefficients": [1.0, 2.0, 3.0], "classlabels_ints": [1, 2]}, "3 for 2 scores"),
        ("ZipMap", {}, "class labels are missing"),
    ],
)
def test_others(op, attributes, message):
    outputs = ["label", "scores"] if op == "LinearClassifier" else ["y"]
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(model(op, outputs, **attributes))


def test_last_of_repeated_keys_counts():
    x = np.array([1, 2, 3], np.int64)
    assert label_encoder(x, keys_int64s=[1, 2, 1], values_int64s=[10, 20, 30]).tolist() == [30, 20, -1]


def test_probit_is_the_normal_quantile():
    p = np.array([[0.025, 0.25, 0.5, 0.975]], np.float32)
    np.testing.assert_allclose(transformed_array(p, "PROBIT"), [[-1.96, -0.6745, 0, 1.96]], atol=0.01)
