"""Five SavedModels and five frozen graphs of TensorFlow 1, equal to TensorFlow at two batch sizes and at opset 13."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
from tenonnx_tensorflow.verification import array_of

L = keras.layers
v1 = tf.compat.v1


def _image_classifier() -> Any:
    inputs = keras.Input((12, 12, 3), name="image")
    x = L.Rescaling(1 / 255)(inputs)
    x = L.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(x)
    x = L.ReLU(6.0)(L.BatchNormalization()(x))
    x = L.DepthwiseConv2D(3, padding="same")(x) + x
    return keras.Model(inputs, L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(x)))


def _text_features() -> Any:
    word, age = keras.Input((1,), dtype="string", name="word"), keras.Input((1,), name="age")
    known = L.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")(word)
    scaled = L.Normalization(mean=30.0, variance=9.0)(age)
    parts = [known, scaled, L.Discretization([20.0, 40.0], output_mode="one_hot")(age)]
    return keras.Model({"word": word, "age": age}, L.Dense(1, "sigmoid")(L.Concatenate()(parts)))


def _sequence() -> Any:
    inputs = keras.Input((None,), dtype="int32", name="tokens")
    x = L.Bidirectional(L.LSTM(3, return_sequences=True))(L.Embedding(9, 4)(inputs))
    return keras.Model(inputs, {"scores": L.Dense(2)(L.GlobalMaxPooling1D()(x)), "rows": x})


def _transformer() -> Any:
    inputs = keras.Input((5, 8), name="rows")
    x = L.LayerNormalization()(inputs + L.MultiHeadAttention(2, 4)(inputs, inputs))
    return keras.Model(inputs, L.LayerNormalization()(x + L.Dense(8)(L.Dense(16, "gelu")(x))))


class _Loop(tf.Module):
    """Newton's method until convergence: a While with a data-dependent number of iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.start = tf.Variable([1.0, 2.0, 4.0], name="start")

    @tf.function(input_signature=[tf.TensorSpec([None], name="x"), tf.TensorSpec([None], tf.int32, name="which")])
    def serve(self, x: Any, which: Any) -> Any:
        guess, count, x = tf.gather(self.start, which), 0, tf.abs(x) + 1.0
        while tf.reduce_max(tf.abs(guess * guess - x)) > 1e-3 and count < 20:
            guess, count = (guess + x / guess) * 0.5, count + 1
        return {"root": guess, "largest": tf.reduce_max(guess)}


def _export(make: Callable[[], Any], path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = make()
    if isinstance(model, tf.Module) and not isinstance(model, keras.Model):
        tf.saved_model.save(model, str(path), signatures={"serving_default": model.serve})
    else:
        model.export(path, verbose=False)


def _drawn(name: str, kind: Any, count: int) -> Any:
    random = np.random.default_rng(count)
    shape = tuple(n if n is not None else count + 2 * k for k, n in enumerate(kind.shape))
    if kind.dtype == tf.string:
        return random.choice(np.asarray(["red", "green", "blue"], object), shape)
    if kind.dtype.is_integer:
        return random.integers(0, 3, shape).astype(kind.dtype.as_numpy_dtype)
    return random.uniform(0.5, 60.0 if name == "age" else 9.0, shape).astype(np.float32)


@pytest.mark.parametrize("make", [_image_classifier, _text_features, _sequence, _transformer, _Loop])
def test_saved_model(make: Callable[[], Any], tmp_path: Path) -> None:
    _export(make, tmp_path / "model")
    graph = _at_opset(tx.load(tmp_path / "model"), 13)
    function = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    specs = function.structured_input_signature[1]
    for count in (1, 3):
        feeds = {name: _drawn(name, spec, count) for name, spec in specs.items()}
        expected = function(**{name: tf.constant(array) for name, array in feeds.items()})
        _same(graph.run(feeds), {name: each.numpy() for name, each in expected.items()})


def _weights(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(list(shape)).normal(size=shape).astype(np.float32) * 0.3)


def _old_convolutions(x: Any) -> Any:
    x = v1.nn.conv2d(x, _weights(3, 3, 2, 4), [1, 2, 2, 1], "SAME")
    statistics = [1.0] * 4, [0.1] * 4, [0.0] * 4, [0.9] * 4
    x = tf.nn.relu6(v1.nn.fused_batch_norm(x, *statistics, is_training=False)[0])
    x = v1.nn.depthwise_conv2d_native(x, _weights(3, 3, 4, 1), [1, 1, 1, 1], "SAME")
    x = v1.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    return tf.nn.softmax(v1.nn.xw_plus_b(tf.reshape(x, [-1, 16]), _weights(16, 3), [0.1, 0.2, 0.3]))


def _old_recurrence(x: Any) -> Any:
    """A manual recurrent cell in a loop with TensorArrays."""
    rows = tf.TensorArray(tf.float32, 4).unstack(tf.transpose(x[:, :, 0, :], [1, 0, 2])[:4])
    written = tf.TensorArray(tf.float32, 4)

    def step(k: Any, state: Any, out: Any) -> Any:
        state = tf.tanh(tf.matmul(rows.read(k), _weights(2, 3)) + tf.matmul(state, _weights(3, 3)))
        return k + 1, state, out.write(k, state)

    _, last, written = v1.while_loop(lambda k, *_: k < 4, step, [0, tf.zeros([tf.shape(x)[0], 3]), written])
    return tf.concat([tf.reshape(tf.transpose(written.stack(), [1, 0, 2]), [-1, 12]), last], 1)


def _old_branches(x: Any) -> Any:
    small = v1.cond(tf.reduce_max(x) > 8, lambda: x - 1.0, lambda: -x)
    large = v1.cond(tf.reduce_mean(x) > 4.5, lambda: x * 2.0, lambda: small)
    return v1.case([(tf.shape(x)[0] > 2, lambda: large + 1.0)], default=lambda: large)


def _old_crops(x: Any) -> Any:
    boxes = tf.constant([[0.0, 0.0, 0.5, 1.0], [0.25, 0.1, 0.9, 0.8]])
    cropped = v1.image.crop_and_resize(x[:1], boxes, [0, 0], [3, 3])
    kept = tf.image.non_max_suppression(boxes * 8.0, tf.constant([0.3, 0.9]), 2, 0.5)
    return tf.gather(cropped, kept) + v1.image.resize_bilinear(x[:1], [3, 3], align_corners=True)


def _old_ranking(x: Any) -> Any:
    flat = tf.reshape(x, [tf.shape(x)[0], -1])
    scores, places = tf.nn.top_k(flat, 5)
    one = tf.one_hot(tf.argmax(flat, 1), 128, on_value=2.0, off_value=-1.0)
    return tf.concat([scores, tf.cast(places, tf.float32), one[:, :4], tf.cumsum(flat[:, :3], 1, reverse=True)], 1)


@pytest.mark.parametrize("build", [_old_convolutions, _old_recurrence, _old_branches, _old_crops, _old_ranking])
def test_frozen_graph_of_tensorflow_1(build: Callable[[Any], Any], tmp_path: Path) -> None:
    with tf.Graph().as_default() as held:
        v1.disable_control_flow_v2()
        try:
            tf.identity(build(v1.placeholder(tf.float32, [None, 8, 8, 2], name="x")), name="y")
        finally:
            v1.enable_control_flow_v2()
    path = tmp_path / "old.pb"
    path.write_bytes(held.as_graph_def().SerializeToString())
    graph = _at_opset(tx.load(path), 13)  # without any options
    assert [v.name for v in graph.inputs] == ["x"]
    for count in (1, 3):
        x = np.random.default_rng(count).uniform(0, 9, (count, 8, 8, 2)).astype(np.float32)
        with v1.Session(graph=held) as session:
            expected = session.run("y:0", {"x:0": x})
        result = graph.run({"x": x})
        _same({"y": result["y"]}, {"y": expected})


def _at_opset(graph: tx.Graph, opset: int) -> tx.Graph:
    file = io.BytesIO()
    tx.export(graph, file, opset_version=opset)
    return tx.load(file.getvalue())


def _same(found: Any, expected: Any) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array_of(array), rtol=1e-4, atol=1e-4, err_msg=name)
