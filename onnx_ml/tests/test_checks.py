"""Attributes that contradict each other are refused when a model is read, in words."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_onnx_ml.labels import label_encoder
from tenonnx_onnx_ml.scores import transformed_array
from tenonnx_onnx_ml.tree_ensemble import tree_ensemble_regressor

TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
VOTES = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
CLASSIFIER = TREE | VOTES | {"classlabels_int64s": [3, 4]}
TARGETS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}


def model(op, outputs, **attributes):
    """The model of one node of ai.onnx.ml version 3, on rows of two features."""
    node = onnx.helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    ends = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "one", [x], ends), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_values": [0.5, 0.0]}, "must be of one length"),
        ({"nodes_modes": ["BRANCH_LIKE", "LEAF", "LEAF"]}, "BRANCH_LIKE"),
        ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 must be there once"),
        ({"nodes_truenodeids": [7, 0, 0]}, "has a child 7, and the tree has no such node"),
        ({"nodes_truenodeids": [0, 0, 0]}, "must not lead back to it"),
        ({"nodes_featureids": [-1, 0, 0]}, "must not be negative"),
        ({"class_weights": [1.0]}, "the lists of weights must be of one length"),
        ({"class_nodeids": [1, 9]}, "a weight is for node 9 of tree 0, and there is no such node"),
        ({"class_ids": [0, 2]}, "class_ids must be from 0 to 1, and here is 2"),
        ({"classlabels_strings": ["a", "b"]}, "integers or strings"),
        ({"base_values": [0.0, 0.0, 0.0]}, "one base value for each of 2 scores"),
        ({"post_transform": "HARDMAX"}, "'HARDMAX'"),
    ],
)
def test_trees(change, message):
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(model("TreeEnsembleClassifier", ["label", "scores"], **(CLASSIFIER | change)))


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("TreeEnsembleRegressor", TREE | TARGETS, "n_targets must be given"),
        ("TreeEnsembleRegressor", TREE | TARGETS | {"n_targets": 1, "aggregate_function": "MEAN"}, "'MEAN'"),
        ("Scaler", {"offset": [0.0, 1.0], "scale": [1.0, 1.0, 1.0]}, "2 and 3 numbers"),
        ("Normalizer", {"norm": "L3"}, "'L3'"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1, 2]}, "as many values as keys"),
        ("LabelEncoder", {"keys_floats": [1.0]}, "one attribute values_\\* must be given"),
        ("LinearClassifier", {"coefficients": [1.0, 2.0, 3.0], "classlabels_ints": [1, 2]}, "3 for 2 scores"),
        ("ZipMap", {}, "class labels must be given"),
    ],
)
def test_others(op, attributes, message):
    outputs = ["label", "scores"] if op == "LinearClassifier" else ["y"]
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(model(op, outputs, **attributes))


def test_too_few_features():
    graph = tx.load(
        model("TreeEnsembleClassifier", ["label", "scores"], **(CLASSIFIER | {"nodes_featureids": [2, 0, 0]}))
    )
    with pytest.raises(tx.TenonnxError, match="the trees ask for 3 features"):
        graph.infer()


def test_children_may_be_shared():
    """LightGBM's sets become chains of comparisons that lead to one node."""
    nodes = {
        "nodes_treeids": [0] * 4,
        "nodes_nodeids": [0, 1, 2, 3],
        "nodes_featureids": [0] * 4,
        "nodes_values": [1.0, 3.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [2, 2, 0, 0],
        "nodes_falsenodeids": [1, 3, 0, 0],
    }
    votes = TARGETS | {"target_nodeids": [2, 3], "target_weights": [10.0, 20.0]}
    x = np.array([[1.0], [2.0], [3.0]], np.float32)
    np.testing.assert_array_equal(tree_ensemble_regressor(x, n_targets=1, **nodes, **votes), [[10], [20], [10]])


def test_last_of_repeated_keys_counts():
    x = np.array([1, 2, 3], np.int64)
    assert label_encoder(x, keys_int64s=[1, 2, 1], values_int64s=[10, 20, 30]).tolist() == [30, 20, -1]


def test_probit_is_the_normal_quantile():
    p = np.array([[0.025, 0.25, 0.5, 0.975]], np.float32)
    np.testing.assert_allclose(transformed_array(p, "PROBIT"), [[-1.96, -0.6745, 0, 1.96]], atol=0.01)
