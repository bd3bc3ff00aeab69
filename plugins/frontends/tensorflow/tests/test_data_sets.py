"""``tf.data`` data sets for training, evaluation, quantization and scoring."""

import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
import tenonnx_training as tt

RANDOM = np.random.default_rng(0)
X, LABELS = RANDOM.standard_normal((40, 6)).astype(np.float32), RANDOM.integers(0, 3, 40)
WEIGHT = RANDOM.standard_normal((6, 3)).astype(np.float32)


def linear():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("scores", graph.input("x", "float32", ("n", 6)) @ graph.variable("w", WEIGHT))
    return graph


def pairs():
    return tf.data.Dataset.from_tensor_slices((X, LABELS))


def generated():
    signature = (tf.TensorSpec((6,)), tf.TensorSpec((), tf.int64))
    return tf.data.Dataset.from_generator(lambda: zip(X, LABELS, strict=True), output_signature=signature)


DATA = {
    "batches": lambda: pairs().batch(8),
    "samples": pairs,
    "mappings": lambda: tf.data.Dataset.from_tensor_slices({"x": X, "label": LABELS}).batch(8),
    "samples as mappings": lambda: tf.data.Dataset.from_tensor_slices({"x": X, "label": LABELS}),
    "inputs as a mapping": lambda: tf.data.Dataset.from_tensor_slices(({"x": X}, LABELS)).batch(8),
    "unknown size": lambda: pairs().filter(lambda x, label: label >= 0).batch(8).prefetch(2),
    "generator": lambda: generated().batch(8),
}
HOW = {"loss": "softmax_cross_entropy", "optimizer": tt.SGD(0.1), "batch_size": 8, "backend": "numpy"}


@pytest.mark.parametrize("name", DATA)
def test_training_and_evaluation_are_those_of_arrays(name):
    graph, other = linear(), linear()
    result = tt.fit(graph, DATA[name](), validation=DATA[name](), epochs=2, **HOW)
    expected = tt.fit(other, (X, LABELS), validation=(X, LABELS), epochs=2, shuffle=False, **HOW)
    assert result.losses == expected.losses
    assert result.epochs == expected.epochs
    assert tt.evaluate(graph, DATA[name](), ["accuracy"]) == tt.evaluate(other, (X, LABELS), ["accuracy"])


@pytest.mark.parametrize("name", ["batches", "samples", "mappings"])
def test_quantization_measures_ranges_on_a_data_set(name):
    result, _ = tx.quantize(linear(), DATA[name](), batch_size=8, backend="numpy")
    expected, _ = tx.quantize(linear(), {"x": X}, batch_size=8, backend="numpy")
    feeds = {"x": X[:5]}
    np.testing.assert_array_equal(result.run(feeds, "numpy")["scores"], expected.run(feeds, "numpy")["scores"])


def test_text_labels_are_refused():
    data = tf.data.Dataset.from_tensor_slices((X, [str(label) for label in LABELS])).batch(8)
    with pytest.raises(tx.InvalidFeed, match="labels") as caught:
        tt.fit(linear(), data, **HOW)
    assert "np.unique" in caught.value.do
    with pytest.raises(tx.InvalidFeed, match="the labels are not numbers") as caught:
        tt.evaluate(linear(), data, ["accuracy"])
    assert "np.unique" in caught.value.do


def test_scoring_only_reads_files(tmp_path):
    score = pytest.importorskip("tenonnx_score", reason="tenonnx-score is another package").score
    with pytest.raises(tx.InvalidCall, match="neither a path nor a list of paths"):
        score(linear(), pairs().batch(8), tmp_path / "scores")
