"""User-defined lowerings for one call, by op type and by node name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
import tenonnx_standard as ops

sys.path.insert(0, str(Path(__file__).parent))

from cases.lite import converted

X = np.float32([[1.0, -2.0], [3.0, -4.0]])


def frozen(path: Path) -> Path:
    """A TensorFlow 1 graph with one unknown op and two known ones."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], "x")
        with tf.name_scope("body"):
            tf.nn.relu(tf.nn.relu(x, name="first") - 1.0, name="second")
    message = graph.as_graph_def()
    node = message.node.add(name="scaled", op="AcmeScale", input=["body/second"])
    node.attr["factor"].f = 2.0
    target = path / "model.pb"
    target.write_bytes(message.SerializeToString())
    return target


def scale(node: Any, x: Any) -> Any:
    return ops.mul(x, ops.constant(value_float=node["factor"]))


def test_forms_by_type_and_by_name(tmp_path: Path) -> None:
    path = frozen(tmp_path)
    with pytest.raises(tx.NotRepresentable, match=r"(?s)AcmeScale \(1 node\): scaled.*forms="):
        tx.load(path)
    graph = tx.load(path, forms={"AcmeScale": scale}, verify=False)
    assert np.array_equal(graph.run({"x": X})["scaled"], [[0.0, 0.0], [4.0, 0.0]])
    forms = {"AcmeScale": scale, "*/first": lambda node, x: ops.neg(x), "Relu": lambda node, x: None}
    graph = tx.load(path, forms=forms, verify=False)
    assert np.array_equal(graph.run({"x": X})["scaled"], [[0.0, 2.0], [0.0, 6.0]])


@pytest.mark.parametrize(("forms", "message"), [({"Rleu": scale}, '(?s)"Rleu".*Relu'), ({"Relu": 3}, "functions")])
def test_forms_for_nothing_are_refused(forms: dict[str, Any], message: str) -> None:
    with pytest.raises(tx.InvalidCall, match=message):
        tx.load(tf.function(lambda x: tf.nn.relu(x) + 1.0), X, forms=forms)


def test_wrong_results_of_a_form_are_found() -> None:
    with pytest.raises(tx.VerificationFailed):
        tx.load(tf.function(lambda x: tf.nn.relu(x) + 1.0), X, forms={"Relu": lambda node, x: ops.neg(x)})


def test_forms_of_operators_of_tflite() -> None:
    path = converted(lambda x: tf.nn.elu(x) + 1.0, [(2, 2)])
    graph = tx.load(path, forms={"ELU": lambda call: ops.elu(call.real(0))})
    assert [node.op_type for node in graph.nodes] == ["Elu", "Add"]
    with pytest.raises(tx.InvalidCall, match=r'(?s)"Elu".*ELU'):
        tx.load(path, forms={"Elu": lambda call: None})
