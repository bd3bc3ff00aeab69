"""Keras models on JAX or PyTorch: read there, equal to Keras, and named by paths of layers.

Keras has one backend per process, so these tests run in the environments of tenonnx-jax and tenonnx-torch.
"""

from __future__ import annotations

import io
from typing import Any

import keras
import numpy as np
import pytest

import tenonnx as tx
from tenonnx_frontends import UnverifiedWarning
from tenonnx_tensorflow.original import RUNTIMES, Original

L = keras.layers


def convolutional() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3), name="image"),
            L.Conv2D(4, 3, padding="same", name="conv"),
            L.BatchNormalization(),
            L.ReLU(),
            L.Dropout(0.5),
            L.MaxPooling2D(),
            L.Flatten(),
            L.Dense(3, activation="softmax", name="scores"),
        ]
    )


def attending() -> Any:
    x = inputs = keras.Input((5, 6), name="rows")
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 3)(x, x))
    return keras.Model(inputs, L.Dense(6)(L.Dense(8, "gelu")(x)))


def recurrent() -> Any:
    return keras.Sequential([keras.Input((5, 6), name="rows"), L.LSTM(4, return_sequences=True), L.GRU(3), L.Dense(2)])


def branched() -> Any:
    words, numbers = keras.Input((4,), name="words", dtype="int32"), keras.Input((3,), name="numbers")
    joined = L.Concatenate()([L.Flatten()(L.Embedding(7, 3)(words)), L.Normalization(mean=1.0, variance=4.0)(numbers)])
    results = {"y": L.Dense(3)(joined), "size": L.Dense(1)(joined)}
    return keras.Model({"words": words, "numbers": numbers}, results)


@pytest.mark.parametrize("make", [convolutional, attending, recurrent, branched])
def test_model(make: Any) -> None:
    keras.utils.set_random_seed(0)
    model = make()
    graph = tx.load(model)
    assert all("[batch, " in str(value.type) for value in (*graph.inputs, *graph.outputs))
    paths = {variable.path for variable in model.variables}
    named = {value.name for value in graph.variables} & paths
    assert len(named) >= 2
    assert f"{model.layers[-1].name}/kernel" in {"/".join(name.split("/")[-2:]) for name in named}
    random = np.random.default_rng(0)
    feeds = {
        value.name: random.integers(0, 7, (3, 4)).astype(np.int32)
        if value.name == "words"
        else random.normal(size=(3, *value.type.shape[1:])).astype(np.float32)
        for value in graph.inputs
    }
    expected = model(feeds if len(feeds) > 1 else next(iter(feeds.values())))
    wanted = keras.tree.flatten(keras.tree.map_structure(keras.ops.convert_to_numpy, expected))
    file = io.BytesIO()
    tx.export(graph, file, opset_version=17)
    result = tx.load(file.getvalue()).run(feeds)
    for array in wanted:
        assert any(a.shape == array.shape and np.allclose(a, array, rtol=1e-3, atol=1e-5) for a in result.values())


def test_layouts_are_pushed_inside() -> None:
    graph = tx.load(convolutional())
    kinds = [node.op_type for node in graph.nodes]
    assert kinds.count("Transpose") <= 2
    assert "BatchNormalization" not in kinds


def test_a_file_and_names(tmp_path: Any) -> None:
    model = convolutional()
    model.save(tmp_path / "net.keras")
    graph = tx.load(tmp_path / "net.keras", dims={"image": {0: "n"}}, input_names=["x"], output_names=["y"])
    assert [str(v.type) for v in (*graph.inputs, *graph.outputs)] == ["float32[n, 8, 8, 3]", "float32[n, 3]"]
    assert [v.name for v in (*graph.inputs, *graph.outputs)] == ["x", "y"]


def test_a_file_is_verified_in_a_worker_process_within_the_limits(tmp_path: Any, monkeypatch: Any) -> None:
    path = tmp_path / "net.keras"
    keras.Sequential([keras.Input((3,), name="x"), L.Dense(2)]).save(path)
    late = lambda original, feeds: original._process.worker.call("leave", seconds=0)  # noqa: E731
    monkeypatch.setattr(Original, "__call__", late)
    with pytest.warns(UnverifiedWarning) as caught:
        tx.load(path)
    name = RUNTIMES[keras.backend.backend()]
    assert str(caught[0].message).startswith(f"not verified against {name}: {name} did not answer within 0 s")


def test_several_results_of_a_file_are_compared_by_name(tmp_path: Any) -> None:
    path = tmp_path / "net.keras"
    branched().save(path)
    graph = tx.load(path)
    assert {value.name: str(value.type) for value in graph.outputs} == {
        "y": "float32[batch, 3]",
        "size": "float32[batch, 1]",
    }
    example = {"words": np.ones((3, 4), np.int32), "numbers": np.ones((3, 3), np.float32)}
    tx.load(path, example, dynamic_batch=True)


def test_unreadable_models() -> None:
    with pytest.raises(tx.InvalidCall, match=r"the inputs of .* are unknown"):
        tx.load(keras.Sequential([L.Dense(2)]))
    with pytest.raises(tx.InvalidCall, match="image"):
        tx.load(convolutional(), dims={"imag": {0: "n"}})
    if keras.backend.backend() == "torch":
        with pytest.raises(tx.NotRepresentable, match="in training mode"):
            tx.load(convolutional(), training=True)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="on PyTorch a model is read in inference mode")
def test_training_leaves_statistics() -> None:
    model = keras.Sequential([keras.Input((4,)), L.BatchNormalization(name="norm")])
    graph = tx.load(model, training=True)
    assert any(value.name.endswith("norm/moving_mean_next") for value in graph.outputs)
