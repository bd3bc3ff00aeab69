"""Models that the tests train."""

from pathlib import Path

import numpy as np

import tenonnx as tx
from tenonnx_standard.batch_norm import batch_normalization
from tenonnx_standard.regularization import dropout

EXAMPLES = Path(__file__).parents[3] / "examples"

X = np.float32([[1, 2], [3, 1], [0, 1], [2, 2]])
Y = np.float32([[1], [0], [2], [1]])


def linear(dtype="float32"):
    """``y = x @ w + b``."""
    graph = tx.Graph("linear", opsets={"ai.onnx": 21})
    w = graph.variable("w", np.asarray([[1.0], [2.0]], tx.DType.of(dtype).numpy))
    b = graph.variable("b", np.asarray([0.5], tx.DType.of(dtype).numpy))
    graph.output("y", graph.input("x", dtype, ("batch", 2)) @ w + b)
    return graph


def normalized():
    """``x`` normalized by running statistics, then scaled."""
    graph = tx.Graph("normalized", opsets={"ai.onnx": 21})
    start = {"scale": 1.0, "shift": 0.0, "mean": 0.5, "variance": 2.0}
    parameters = [graph.variable(name, np.full(2, value, np.float32)) for name, value in start.items()]
    graph.output("y", batch_normalization(graph.input("x", "float32", ("batch", 2)), *parameters, _outputs=1))
    return graph


def dropping(ratio=0.5):
    """``x @ w`` with dropout of a share in training."""
    graph = tx.Graph("dropping", opsets={"ai.onnx": 21})
    w = graph.variable("w", np.ones((2, 8), np.float32))
    y = graph.input("x", "float32", ("batch", 2)) @ w
    graph.output("y", dropout(y, graph.variable("ratio", np.float32(ratio)), _outputs=1))
    return graph


def digits():
    """The digits CNN, and its images and labels."""
    data = np.load(EXAMPLES / "digits_cnn" / "digits.npz")
    return tx.load(EXAMPLES / "digits_cnn" / "digits-cnn.onnx"), data["images"], data["labels"]


def contents(graph):
    return {v.name: v.data.array() for v in graph.variables}
