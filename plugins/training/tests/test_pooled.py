"""Relu after MaxPool in training graphs."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_standard.activation import relu
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.max_pooling import max_pool
from tenonnx_standard.reduction import reduce_mean
from tenonnx_training import modes
from tenonnx_training.modes import training_form

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.standard_normal((4, 3, 6, 6)).astype(np.float32)


def model(**window):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("n", 3, 6, 6))
    scale = graph.variable("scale", np.float32([1, -1, 0.5]).reshape(3, 1, 1))
    pooled = max_pool(relu(x * scale), **window, _outputs=1)
    graph.output("y", matmul(reduce_mean(pooled, [2, 3], keepdims=0), graph.variable("w", np.eye(3, dtype=np.float32))))
    return graph


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"kernel_shape": [2, 2], "strides": [2, 2]}, ["MaxPool", "Relu"]),
        ({"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]}, ["Relu", "MaxPool"]),
    ],
)
def test_a_model_is_trained_by_the_same_numbers(window, words, monkeypatch):
    graph = model(**window)
    assert [node.op_type for node in training_form(graph).graph.nodes][1:3] == words
    losses = trained(graph)
    monkeypatch.setattr(modes, "pooled_first", lambda graph: graph)
    np.testing.assert_allclose(losses, trained(graph), rtol=1e-6)


def trained(graph):
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), backend="numpy")
    feeds = {"x": IMAGES, "labels": np.ones((4, 3), np.float32)}
    return [step(feeds)["loss"] for _ in range(3)]
