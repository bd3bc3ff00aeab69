"""Dynamic dims: kept in the graph or rejected, independently of example sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
from tenonnx_tensorflow import frontend

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def average(x: Any) -> Any:
    return tf.reduce_sum(x, 0) / tf.cast(tf.shape(x)[0], tf.float32)


def pairs(x: Any) -> Any:
    return tf.reshape(x, [tf.shape(x)[0], -1])


def halves(x: Any) -> Any:
    return tf.concat([x, tf.zeros([tf.shape(x)[0], 1, 4])], 1) / float(x.shape[2])


class Module(tf.Module):
    @tf.function
    def __call__(self, x: Any) -> Any:
        return average(x)


class Net(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(5)

    def call(self, features: Any) -> Any:
        return self.dense(features)


def fixed_by_keras() -> Any:
    given = keras.Input((3, 4), batch_size=2)
    return keras.Model(given, keras.layers.Dense(5)(given))


SOURCES = {
    "reshape": lambda: tf.function(pairs),
    "tf_function": lambda: tf.function(average),
    "static_size": lambda: tf.function(halves),
    "module": Module,
    "subclass": Net,
    "functional_batch_size": fixed_by_keras,
    "layer": lambda: keras.layers.LayerNormalization(),
}
OPTIONS = {
    "dynamic_batch": lambda name: {"dynamic_batch": True},
    "dims": lambda name: {"dims": {name: {0: "rows"}}},
    "shapes": lambda name: {"shapes": {name: ["rows", 3, 4]}},
}


@pytest.mark.parametrize("ask", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_the_size_of_an_example_is_not_in_the_graph(make: Any, ask: Any) -> None:
    source = make()
    name = tx.load(source, X, verify=False).inputs[0].name
    graph = tx.load(source, X, **ask(name))
    assert not isinstance(graph.inputs[0].type.shape[0], int)
    for rows in (1, 2, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 3, 4)).astype(np.float32)
        (result,) = graph.run({name: x}).values()
        np.testing.assert_allclose(result, np.asarray(source(tf.constant(x))), rtol=1e-5, atol=1e-5)


def test_another_size_in_place_of_that_of_an_example() -> None:
    graph = tx.load(tf.function(average), X, shapes={"x": [7, 3, 4]})
    assert graph.inputs[0].type.shape == (7, 3, 4)
    (result,) = graph.run({"x": np.ones((7, 3, 4), np.float32)}).values()
    np.testing.assert_allclose(result, np.ones((3, 4)), rtol=1e-6)


def test_a_concrete_function_keeps_its_sizes() -> None:
    concrete = tf.function(average).get_concrete_function(tf.TensorSpec([2, 3, 4]))
    assert tx.load(concrete).inputs[0].type.shape == (2, 3, 4)
    with pytest.raises(tx.InvalidCall, match='axis 0 of input "x" is fixed at 2'):
        tx.load(concrete, dynamic_batch=True)
    free = tf.function(average).get_concrete_function(tf.TensorSpec([None, 3, 4]))
    assert tx.load(free, dims={"x": {0: "n"}}).inputs[0].type.shape[1:] == (3, 4)


def test_a_declared_signature_keeps_its_sizes() -> None:
    fixed = tf.function(average, input_signature=[tf.TensorSpec([2, 3, 4], name="x")])
    with pytest.raises(tx.InvalidCall, match="cannot trace for other sizes"):
        tx.load(fixed, dynamic_batch=True)


def test_a_saved_model_keeps_its_sizes(tmp_path: Path) -> None:
    module = Module()
    module(tf.constant(X))
    signature = module.__call__.get_concrete_function(tf.TensorSpec([2, 3, 4], name="x"))
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    assert tx.load(tmp_path).inputs[0].type.shape == (2, 3, 4)
    for options in ({"dynamic_batch": True}, {"dims": {"x": {0: "n"}}}, {"shapes": {"x": [None, 3, 4]}}):
        with pytest.raises(tx.InvalidCall, match='axis 0 of input "x" is fixed at 2'):
            tx.load(tmp_path, **options)
    with pytest.raises(tx.InvalidCall, match="fixed at 2"):
        tx.load(tf.saved_model.load(str(tmp_path)), dynamic_batch=True, signature="serving_default")


def test_a_size_in_python_is_refused() -> None:
    with pytest.raises(tx.InvalidCall, match='axis 0 of input "x" is fixed at 2'):
        tx.load(tf.function(lambda x: tf.reshape(x, [x.shape[0] * 3, 4])), X, dynamic_batch=True)


def test_a_source_of_one_size_is_refused() -> None:
    with pytest.raises(tx.VerificationFailed, match='"batch" cannot vary: TensorFlow takes 2 alone; at 1: '):
        tx.load(tf.function(lambda x: tf.reshape(x, [6, 4])), X, dynamic_batch=True)


def test_sizes_that_only_the_source_accepts_are_a_failure() -> None:
    @tf.function
    def by_size(x: Any) -> Any:
        return x + 1 if x.shape[0] == 2 else x

    with pytest.raises(tx.VerificationFailed):
        tx.load(by_size, X, dynamic_batch=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.Sequential([keras.Input((None, 4)), keras.layers.Conv1D(3, 6)]),
        lambda: keras.Sequential([keras.Input((None, 4)), keras.layers.MaxPooling1D(7)]),
        lambda: keras.Sequential([keras.Input((None, None, 2)), keras.layers.Conv2D(3, 7, strides=2)]),
    ],
    ids=["convolution", "pooling", "image"],
)
def test_sizes_that_the_source_refuses_are_replaced(make: Any) -> None:
    model = make()
    graph = tx.load(model)
    result = frontend.verifier(model)(graph)
    assert result.equal
    assert result.outputs
    assert any("TensorFlow does not take that" in note for note in result.notes)


@pytest.mark.parametrize("call", ["array", "input", "build"])
@pytest.mark.parametrize("kind", [Net, lambda: keras.Sequential([keras.layers.Dense(5)])], ids=["subclass", "row"])
def test_the_batch_of_a_model_that_was_called_varies(kind: Any, call: str) -> None:
    model = kind()
    if call == "array":
        model(X)
    elif call == "input":
        model(keras.Input((3, 4)))
    else:
        model(keras.Input((3, 4)))
        model.build((None, 3, 4))
    graph = tx.load(model)
    assert str(graph.inputs[0].type) == "float32[batch, 3, 4]"
    assert not graph.inputs[0].name.startswith("arguments")


def test_inputs_have_the_names_of_parameters() -> None:
    class Two(keras.Model):
        def call(self, left: Any, right: Any, training: bool = False) -> Any:
            return left @ right

    graph = tx.load(Two(), X, np.swapaxes(X, 1, 2), dims={"left": {0: "n"}, "right": {0: "n"}})
    assert [(v.name, str(v.type.shape[0])) for v in graph.inputs] == [("left", "n"), ("right", "n")]


def test_a_model_that_was_never_called_needs_examples() -> None:
    with pytest.raises(tx.InvalidCall, match="give an example of each input"):
        tx.load(Net())


@pytest.mark.parametrize("pool", [tf.nn.max_pool2d, tf.nn.avg_pool2d])
def test_pooling_is_not_tried_below_its_window(pool: Any) -> None:
    """TensorFlow divides by zero there, which crashes its process."""
    source = tf.function(lambda x: pool(x, 2, 1, "VALID"))
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)
    dims = {"x": {0: "n", 1: "h", 2: "w"}}
    result = frontend.verifier(source, x, dims=dims)(tx.load(source, x, dims=dims))
    assert result.equal
    assert any("h=1" in note for note in result.notes)


IMAGE = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype(np.float32)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "area", "lanczos3", "gaussian", "mitchellcubic"])
def test_images_of_any_size_are_resized(method: str) -> None:
    source = tf.function(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2 // 3 + 1, method, antialias=True))
    graph = tx.load(source, IMAGE, dims={"x": {0: "n", 1: "h", 2: "w"}})
    other = np.random.default_rng(1).normal(size=(1, 11, 4, 3)).astype(np.float32)
    (result,) = graph.run({"x": other}).values()
    np.testing.assert_allclose(result, source(tf.constant(other)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("rows", [1, 4])
def test_crops(method: str, rows: int) -> None:
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.9, 0.8], [0.5, 0.5, 1.2, 1.3]], np.float32)
    source = tf.function(
        lambda x, b: tf.image.crop_and_resize(x, b, [0, 1, 1], [rows, 5], method, extrapolation_value=2.0)
    )
    graph = tx.load(source, IMAGE, boxes)
    (result,) = graph.run({"x": IMAGE, "b": boxes}).values()
    np.testing.assert_allclose(result, source(IMAGE, boxes), rtol=1e-4, atol=1e-4)


BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 0.4, 1, 1.4], [2, 2, 3, 3], [0.5, 0, 0.5, 1]], np.float32)
SCORES = np.array([0.9, 0.8, 0.7, 0.4, 0.3], np.float32)


@pytest.mark.parametrize(("overlap", "least"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.35)])
def test_soft_suppression(overlap: float, least: float) -> None:
    source = tf.function(
        lambda b, s: tf.image.non_max_suppression_with_scores(b, s, 4, overlap, least, soft_nms_sigma=0.5)
    )
    graph = tx.load(source, BOXES, SCORES)
    for one, other in zip(graph.run({"b": BOXES, "s": SCORES}).values(), source(BOXES, SCORES), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_combined_suppression_of_boxes_by_class() -> None:
    boxes = np.stack([BOXES, BOXES[::-1]], 1)[None] / 3
    scores = np.stack([SCORES, SCORES[::-1] * 0.9], 1)[None]
    source = tf.function(lambda b, s: tf.image.combined_non_max_suppression(b, s, 3, 5, 0.5, 0.2))
    graph = tx.load(source, boxes, scores)
    for one, other in zip(graph.run({"b": boxes, "s": scores}).values(), source(boxes, scores), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"range_given": True},
        {"range_given": True, "signed_input": False},
        {"range_given": True, "narrow_range": True, "num_bits": 4},
        {"range_given": True, "round_mode": "HALF_UP"},
        {"axis": 3},
    ],
)
def test_quantized_and_back(options: Any) -> None:
    low, high = ([-2.0] * 3, [1.5] * 3) if "axis" in options else (-2.0, 1.5)
    low = 0.0 if options.get("signed_input") is False else low
    source = tf.function(lambda x: tf.quantization.quantize_and_dequantize_v2(x, low, high, **options))
    (result,) = tx.load(source, IMAGE).run({"x": IMAGE}).values()
    np.testing.assert_allclose(result, source(IMAGE), rtol=1e-5, atol=1e-6)
