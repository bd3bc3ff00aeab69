"""Attributions by gradients, occlusion and attention, compared with their definitions in numpy."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import InvalidCall
from tenonnx_onnx_ml.maps import zip_map

RANDOM = np.random.default_rng(0)

W = RANDOM.standard_normal((6, 8)).astype(np.float32)
V = RANDOM.standard_normal((8, 3)).astype(np.float32)
ROWS = RANDOM.standard_normal((4, 6)).astype(np.float32)


def perceptron(rows):
    return np.tanh(rows @ W) @ V


def slopes(rows, classes):
    """Gradients of the output of one class per row."""
    hidden = np.tanh(rows @ W)
    return ((1 - hidden**2) * V.T[classes]) @ W.T


@pytest.fixture
def table():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("rows", 6))
    w, v = graph.variable("w", W), graph.variable("v", V)
    graph.output("y", ops.matmul(ops.tanh(ops.matmul(x, w)), v))
    return graph


@pytest.fixture
def image():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("batch", 2, 8, 8))
    kernel = graph.variable("kernel", RANDOM.standard_normal((4, 2, 3, 3)).astype(np.float32))
    dense = graph.variable("dense", RANDOM.standard_normal((4, 5)).astype(np.float32))
    features = ops.relu(ops.conv(x, kernel, pads=[1, 1, 1, 1]))
    graph.rename(features, "features")
    pooled = ops.reduce_mean(features * features, [2, 3], keepdims=0)
    graph.output("y", ops.matmul(pooled, dense))
    return graph


def run(graph, *, backend="onnxruntime", **feeds):
    return graph.run(feeds, backend=backend)


@pytest.mark.parametrize("target", [None, 2])
def test_gradient_times_input(table, target):
    results = run(tx.explain(table, "gradient-times-input", target=target), x=ROWS)["x/attribution"]
    classes = perceptron(ROWS).argmax(axis=1) if target is None else np.full(4, target)
    np.testing.assert_allclose(results, ROWS * slopes(ROWS, classes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [None, 7])
def test_baseline_and_steps_of_integrated_gradients_are_inputs(table, steps):
    explained = tx.explain(table)
    baseline = ROWS[1:2] * 0.5 if steps else np.zeros((1, 6), np.float32)
    feeds = {"x/baseline": baseline, "steps": np.array(steps)} if steps else {}
    results = run(explained, x=ROWS, **feeds)
    classes = perceptron(ROWS).argmax(axis=1)
    points = [baseline + (k + 0.5) / (steps or 50) * (ROWS - baseline) for k in range(steps or 50)]
    expected = (ROWS - baseline) * np.mean([slopes(each, classes) for each in points], axis=0)
    np.testing.assert_allclose(results["x/attribution"], expected, rtol=1e-4, atol=1e-5)
    change = (perceptron(ROWS) - perceptron(np.repeat(baseline, 4, axis=0)))[np.arange(4), classes]
    np.testing.assert_allclose(results["y/delta"], expected.sum(axis=1) - change, atol=1e-4)


def test_integrated_gradients_sum_to_the_difference_of_outputs(table):
    results = run(tx.explain(table, "integrated-gradients", steps=300), x=ROWS)
    np.testing.assert_allclose(results["y/delta"], 0, atol=1e-4)


def test_smoothgrad_is_the_mean_gradient_under_the_stored_noise(table):
    explained = tx.explain(table, "smoothgrad", samples=12, target=1)
    noise = explained["x/noise"].data.array()
    assert noise.shape == (12, 1, 6)
    for stdev in (0.1, 0.4):
        results = run(explained, x=ROWS, stdev=np.float32(stdev))["x/attribution"]
        expected = np.mean([slopes(ROWS + stdev * each, np.ones(4, int)) for each in noise], axis=0)
        np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(
        run(explained, x=ROWS)["x/attribution"], run(explained, x=ROWS, stdev=np.float32(0.1))["x/attribution"]
    )


def test_grad_cam_weights_a_feature_map_by_its_mean_gradients(image):
    x = RANDOM.standard_normal((2, 2, 8, 8)).astype(np.float32)
    features = image.extract(None, ["features"]).run({"x": x})["features"]
    results = run(tx.explain(image, "grad-cam", at="features", target=3), x=x)["features/attribution"]
    dense = image["dense"].data.array()
    weights = (2 * features * dense[:, 3].reshape(1, 4, 1, 1) / 64).mean(axis=(2, 3), keepdims=True)
    np.testing.assert_allclose(results, np.maximum((weights * features).sum(axis=1), 0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("window", "strides"), [(None, None), ([1, 3, 3], [1, 2, 3]), ([2, 5, 5], [2, 5, 5])])
def test_occlusion_averages_the_windows_that_cover_an_element(image, window, strides):
    x = RANDOM.standard_normal((2, 2, 8, 8)).astype(np.float32)
    base = np.full((1, 2, 8, 8), 0.25, np.float32)
    explained = tx.explain(image, "occlusion", window=window, strides=strides, target=0)
    results = run(explained, x=x, **{"x/baseline": base})["x/attribution"]
    sizes, steps = window or [2, 1, 1], strides or [2, 1, 1]
    total, count = np.zeros_like(x), np.zeros(x.shape[1:])
    original = image.run({"x": x})["y"][:, 0]
    starts = [range(0, dim - size + step, step) for dim, size, step in zip(x.shape[1:], sizes, steps, strict=True)]
    for corner in np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 3):
        place = tuple(slice(start, start + size) for start, size in zip(corner, sizes, strict=True))
        changed = x.copy()
        changed[:, *place] = base[:, *place]
        total[:, *place] += (original - image.run({"x": changed})["y"][:, 0]).reshape(-1, 1, 1, 1)
        count[place] += 1
    np.testing.assert_allclose(results, total / np.maximum(count, 1), rtol=1e-3, atol=1e-4)


def test_embeddings_of_tokens_get_attributions():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    tokens = graph.input("tokens", "int64", ("rows", "length"))
    table = graph.variable("table", RANDOM.standard_normal((9, 4)).astype(np.float32))
    words = ops.gather(table, tokens)
    graph.rename(words, "words")
    graph.output("y", ops.reduce_sum(words * words, [1, 2], keepdims=0))
    explained = tx.explain(graph, "gradient-times-input")
    numbers = np.array([[1, 5, 2]])
    chosen = table.data.array()[numbers]
    np.testing.assert_allclose(run(explained, tokens=numbers)["words/attribution"], 2 * chosen**2, rtol=1e-5)
    explained = tx.explain(graph, "integrated-gradients")
    np.testing.assert_allclose(run(explained, tokens=numbers)["words/attribution"], chosen**2, rtol=1e-4)
    base = np.ones((1, 1, 4), np.float32)
    results = run(explained, tokens=numbers, **{"words/baseline": base})
    np.testing.assert_allclose(results["words/attribution"], chosen**2 - 1, rtol=1e-3, atol=1e-5)


def test_the_probabilities_of_a_classifier_with_maps_are_explained():
    graph = tx.Graph(opsets={"ai.onnx": 18, "ai.onnx.ml": 3})
    x = graph.input("x", "float32", ("rows", 6))
    scores = ops.softmax(ops.matmul(x, graph.variable("w", W[:, :2])))
    graph.output("maps", zip_map(scores, classlabels_int64s=[0, 1]))
    explained = tx.explain(graph, "gradient-times-input", target=1)
    p = np.exp(ROWS @ W[:, :2])
    p = p[:, 1] / p.sum(axis=1)
    expected = ROWS * (p * (1 - p))[:, None] * (W[:, 1] - W[:, 0])
    np.testing.assert_allclose(run(explained, x=ROWS)["x/attribution"], expected, rtol=1e-3, atol=1e-5)


def test_attention_rollout_multiplies_the_layers():
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", "float32", ("batch", "tokens", 6))
    value = x
    for k in range(2):
        w = graph.variable(f"w{k}", RANDOM.standard_normal((6, 6)).astype(np.float32))
        heads = ops.transpose(ops.reshape(ops.matmul(value, w), np.array([0, 0, 2, 3])), perm=[0, 2, 1, 3])
        weights = ops.softmax(ops.matmul(heads, ops.transpose(heads, perm=[0, 1, 3, 2])), axis=-1)
        graph.rename(weights, f"weights{k}")
        mixed = ops.transpose(ops.matmul(weights, heads), perm=[0, 2, 1, 3])
        value = value + ops.reshape(mixed, np.array([0, 0, 6]))
    graph.output("y", value)
    rows = RANDOM.standard_normal((2, 5, 6)).astype(np.float32)
    layers = graph.extract(None, ["weights0", "weights1"]).run({"x": rows})
    first, second = (0.5 * layers[f"weights{k}"].mean(axis=1) + 0.5 * np.eye(5) for k in range(2))
    results = run(tx.explain(graph, "attention-rollout"), x=rows)["attention/rollout"]
    np.testing.assert_allclose(results, second @ first, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results.sum(axis=2), 1, rtol=1e-5)


def test_weights_are_stored_once(table):
    explained = tx.explain(table, "integrated-gradients")
    values = dict.fromkeys(value for graph in explained.nested() for value in graph.values() if value.outer is None)
    weights = [
        value
        for value in values
        if value.is_constant and value.data.nbytes >= V.nbytes and value in explained.variables
    ]
    assert len(weights) == 2


@pytest.mark.parametrize("version", [11, 13, 21])
def test_files_of_any_opset_compute_the_same(table, tmp_path, version):
    explained = tx.explain(table, "integrated-gradients")
    tx.export(explained, tmp_path / "m.onnx", opset_version=version, domains=["ai.onnx"])
    loaded = tx.load(tmp_path / "m.onnx")
    assert {node.domain for node in loaded.walk()} == {"ai.onnx"}
    expected = run(explained, x=ROWS)["x/attribution"]
    np.testing.assert_allclose(run(loaded, x=ROWS)["x/attribution"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gradients"}, "unknown method of attribution"),
        ({"method": "grad-cam"}, "no value was given for Grad-CAM"),
        ({"method": "grad-cam", "at": "x"}, "has no axes for batch, channels and positions"),
        ({"of": "z"}, 'no value "z"'),
        ({"wrt": ["z"]}, 'no value "z"'),
        ({"target": 3}, "has no class 3"),
        ({"of": "x", "wrt": "y"}, "does not depend on"),
        ({"method": "occlusion", "window": [1, 1]}, "window does not hold one positive size"),
        ({"method": "occlusion", "window": [2], "strides": [0]}, "strides does not hold one positive size"),
        ({"method": "attention-rollout"}, "no self-attention weights"),
        ({"method": "kernel-shap", "background": np.zeros((0, 6))}, "do not have the features"),
    ],
)
def test_invalid_arguments_are_refused(table, options, message):
    with pytest.raises(InvalidCall, match=message):
        tx.explain(table, **options)
