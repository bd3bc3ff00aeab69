"""Keras data sets as training data."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import tenonnx as tx

tt = pytest.importorskip("tenonnx_training")

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(24, 6)).astype(np.float32), np.arange(24) % 3


class Rows(keras.utils.PyDataset):
    """Batches of eight rows, in a new order in each epoch."""

    def __init__(self, *, nested: bool = False) -> None:
        super().__init__()
        self.nested, self.ended = nested, 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> object:
        rows = slice(8 * k, 8 * k + 8)
        x = X[rows] + self.ended
        return ({"x": x}, LABELS[rows]) if self.nested else (x, LABELS[rows])

    def on_epoch_end(self) -> None:
        self.ended += 1


def trained(data: object) -> np.ndarray:
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weight = graph.variable("w", np.zeros((6, 3), np.float32))
    graph.output("y", graph.input("x", "float32", ("n", 6)) @ weight)
    tt.fit(graph, data, loss="softmax_cross_entropy", optimizer=tt.SGD(0.1), backend="numpy", epochs=2)
    return graph["w"].data.array()


@pytest.mark.parametrize("nested", [False, True], ids=["tuples", "mappings"])
def test_batches_of_keras_train_as_their_arrays(nested: bool) -> None:
    epochs = iter([[(X[k : k + 8] + n, LABELS[k : k + 8]) for k in (0, 8, 16)] for n in (0, 1)])
    rows = Rows(nested=nested)
    np.testing.assert_array_equal(trained(rows), trained(lambda: next(epochs)))
    assert rows.ended == 2
