"""Small models, with tables for them."""

import numpy as np
import pyarrow as pa
import pytest

import tenonnx as tx
import tenonnx_standard as ops

RANDOM = np.random.default_rng(0)


@pytest.fixture
def scale(tmp_path):
    """``y = 2 x + 1`` of one column, and ``w = [x, -x]``."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("rows",))
    graph.output("y", x * 2.0 + 1.0)
    one = ops.unsqueeze(x, np.array([1], np.int64))
    graph.output("w", ops.concat(one, -one, axis=1))
    return saved(graph, tmp_path / "scale.onnx")


@pytest.fixture
def matrix(tmp_path):
    """Rows of four numbers times a matrix, as probabilities and labels."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("rows", 4))
    weight = graph.variable("weight", np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32))
    p = ops.softmax(x @ weight, axis=-1)
    graph.output("p", p)
    graph.output("label", ops.argmax(p, axis=1, keepdims=0))
    return saved(graph, tmp_path / "matrix.onnx")


@pytest.fixture
def lengths(tmp_path):
    """The mean of a list of any length, and its cumulative sums."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("rows", "length"))
    graph.output("mean", ops.reduce_mean(x, [1], keepdims=0))
    graph.output("sums", ops.cumsum(x, np.int64(1)))
    return saved(graph, tmp_path / "lengths.onnx")


@pytest.fixture
def pictures(tmp_path):
    """The means of the channels of 8 by 6 images, channels first."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    image = graph.input("image", "float32", ("rows", 3, 8, 6))
    graph.output("mean", ops.reduce_mean(image, [2, 3], keepdims=0))
    return saved(graph, tmp_path / "pictures.onnx")


def saved(graph, path):
    tx.export(graph, path)
    return str(path)


@pytest.fixture
def table():
    """1,000 rows of four numbers, an id and a name."""
    rng = np.random.default_rng(2)
    columns = {name: rng.standard_normal(1000) for name in "abcd"}
    return pa.table({"id": np.arange(1000), **columns, "name": [f"n{k}" for k in range(1000)]})
