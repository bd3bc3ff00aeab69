"""Methods of post-training quantization, compared with the definitions in their papers and with round-to-nearest."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.tuning.config import QuantizeConfig
from tenonnx_quantized.tuning.methods.gptq import _upper_factor_of_inverse
from tenonnx_quantized.tuning.methods.layer import Layer, grid
from tenonnx_quantized.tuning.methods.registry import RESCALING, ROUNDING
from tenonnx_quantized.tuning.methods.rescale import Rescaling
from tenonnx_quantized.tuning.modes import METHODS
from tenonnx_quantized.tuning.statistics import InputStatistics, Moments, inputs_of, layer_input

#: Methods that need the inputs of layers.
BY_INPUT = ("gptq", "quantease", "ada-round", "auto-round")


def correlated(rows, count, seed=0):
    """Draw samples of correlated features, a few of which are much larger than the others."""
    random = np.random.default_rng(seed)
    samples = random.standard_normal((count, rows)) @ random.standard_normal((rows, rows)) / np.sqrt(rows)
    samples[:, ::7] *= 8
    return samples.astype(np.float32)


def layer_of(rows=48, columns=24, bits=4, block_size=16, symmetric=False):
    weights = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    x = correlated(rows, 512).astype(np.float64)
    dtype = {2: tx.DType.uint2, 4: tx.DType.uint4, 8: tx.DType.uint8}[bits]
    result = grid(weights, dtype, block_size, symmetric=symmetric)
    return Layer(weights, result.scale, result.zero_point.astype(np.float32), dtype, block_size, x.T @ x / len(x)), x


@pytest.mark.parametrize("name", BY_INPUT)
@pytest.mark.parametrize(("bits", "block_size"), [(2, 16), (4, 16), (4, 48), (4, 32), (8, 16)])
def test_layer_outputs_are_more_accurate_than_with_round_to_nearest(name, bits, block_size):
    layer, x = layer_of(bits=bits, block_size=block_size)
    expected = x @ layer.weights
    nearest = x @ layer.numbers(layer.nearest())
    quantized = ROUNDING[name](layer)
    np.testing.assert_array_equal(quantized, np.rint(quantized))
    assert layer.dtype.bounds[0] <= quantized.min()
    assert quantized.max() <= layer.dtype.bounds[1]
    lost = np.square(x @ layer.numbers(quantized) - expected).mean()
    most = 0.9 if name == "ada-round" else 0.8
    assert lost < most * np.square(nearest - expected).mean()


def test_the_error_of_a_layer_is_measured_on_its_outputs():
    layer, x = layer_of()
    quantized = layer.nearest()
    expected = np.square(x @ (layer.numbers(quantized) - layer.weights)).mean(0)
    np.testing.assert_allclose(layer.errors(quantized), expected, rtol=1e-5)


def test_gptq_follows_its_definition():
    """Compare with Optimal Brain Quantization: row by row, with the inverse of the remaining second moment."""
    layer, _ = layer_of(rows=12, columns=5, block_size=12)
    order = np.argsort(-np.diagonal(layer.moment), kind="stable")
    moment, weights = layer.damped(), layer.weights.astype(np.float64)
    scale, zero = layer.spread(layer.scale).astype(np.float64), layer.spread(layer.zero_point)
    expected = np.empty_like(weights)
    for k, row in enumerate(order):
        left = order[k:]
        inverse = np.linalg.inv(moment[np.ix_(left, left)])
        expected[row] = np.clip(np.rint(weights[row] / scale[row]) + zero[row], 0, 15)
        off = (weights[row] - (expected[row] - zero[row]) * scale[row]) / inverse[0, 0]
        weights[left] -= inverse[:, :1] * off
    best = np.where(layer.errors(expected) <= layer.errors(layer.nearest()), expected, layer.nearest())
    np.testing.assert_array_equal(ROUNDING["gptq"](layer), best)


def test_coordinate_descent_ends_where_no_single_change_helps():
    layer, _ = layer_of(rows=10, columns=3, block_size=10)
    quantized = ROUNDING["quantease"](layer)
    least = layer.errors(quantized)
    for row, step in itertools.product(range(10), (-1, 1)):
        moved = quantized.copy()
        moved[row] = np.clip(moved[row] + step, *layer.dtype.bounds)
        assert (layer.errors(moved) >= least * (1 - 1e-9)).all()


def test_a_feature_that_is_always_zero_is_rounded_to_nearest():
    layer, _ = layer_of()
    layer.moment[5] = layer.moment[:, 5] = 0
    for name in BY_INPUT:
        assert np.isfinite(ROUNDING[name](layer)).all()
    layer.moment[:] = 0
    for name in BY_INPUT:
        np.testing.assert_array_equal(ROUNDING[name](layer), layer.nearest())


# ----- statistics -----------------------------------------------------------------------------------------------------


def conv_graph(group, **attributes):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    w = np.random.default_rng(0).standard_normal((8, 4 // group, 3, 2)).astype(np.float32)
    x = graph.input("x", "float32", ("n", 4, 7, 6))
    graph.output("y", ops.conv(x, graph.variable("w", w), group=group, **attributes))
    return graph, w


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, {"dilations": [2, 1]}],
)
def test_the_moments_of_a_convolution_give_its_outputs(group, attributes):
    graph, w = conv_graph(group, **attributes)
    key = layer_input(graph.nodes[0])
    x = np.random.default_rng(1).standard_normal((3, 4, 7, 6)).astype(np.float32)
    statistics = InputStatistics.of(key)
    statistics.add(key, x[:2])
    statistics.add(key, x[2:])
    y = graph.run({"x": x}, backend="numpy")["y"]
    matrix = w.reshape(group, -1, key.rows)
    squares = np.einsum("gcr,grs,gcs->gc", matrix, statistics.moment, matrix).reshape(-1)
    np.testing.assert_allclose(squares, np.square(y).mean((0, 2, 3)), rtol=1e-4)
    means = np.einsum("gcr,gr->gc", matrix, statistics.mean).reshape(-1)
    np.testing.assert_allclose(means, y.mean((0, 2, 3)), atol=1e-5)


def test_moments_beyond_the_memory_limit_are_collected_in_several_passes(monkeypatch):
    graph, batches = perceptron(), [{"x": correlated(32, 20, seed)} for seed in range(4)]
    layers = list(inputs_of(graph.nodes).values())
    expected = Moments(graph, layers, "numpy", batches)
    monkeypatch.setattr("tenonnx_quantized.tuning.statistics.MOMENT_BYTES", 1)
    result = Moments(graph, layers, "numpy", batches)
    for key in layers:
        np.testing.assert_allclose(result.of(key).moment, expected.of(key).moment)
        assert len(result.statistics) == 1


# ----- models ---------------------------------------------------------------------------------------------------------


def perceptron():
    """Return a layer normalization and two linear layers with a Relu in between."""
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})

    def weight(name, *shape, middle=0.0):
        drawn = middle + random.standard_normal(shape) / np.sqrt(shape[0])
        return graph.variable(name, drawn.astype(np.float32))

    x = graph.input("x", "float32", ("n", 32))
    x = ops.layer_normalization(x, weight("gamma", 32, middle=1.0), weight("beta", 32))[0]
    hidden = ops.relu(x @ weight("first", 32, 48) + weight("bias", 48))
    graph.output("y", hidden @ weight("second", 48, 16) + weight("last", 16))
    return graph


FEEDS = [{"x": correlated(32, 40, seed)} for seed in range(3)]


def error(graph, made, feeds):
    expected, result = (g.run(feeds, backend="numpy")["y"] for g in (graph, made))
    return float(np.square(expected - result).mean() / np.square(expected).mean())


@pytest.mark.parametrize("method", ["gptq", "quantease", "auto-round", "awq", "awq,gptq"])
def test_a_method_lowers_the_error_on_held_out_data(method):
    graph, held_out = perceptron(), {"x": correlated(32, 200, 9)}
    nearest, _ = tx.quantize(graph, FEEDS, mode="weights", bits=4, backend="numpy")
    made, report = tx.quantize(graph, FEEDS, mode="weights", bits=4, method=method, backend="numpy")
    assert len(report.quantized) == 2
    assert error(graph, made, held_out) < 0.9 * error(graph, nearest, held_out)


class Drawn:
    """A graph under construction, with random weights."""

    def __init__(self, *shape):
        self.random, self.graph = np.random.default_rng(5), tx.Graph(opsets={"ai.onnx": 21})
        self.feeds = [{"x": self.random.standard_normal((6, *shape)).astype(np.float32)} for _ in range(2)]
        self.x = self.graph.input("x", "float32", ("n", *shape))

    def weight(self, *shape):
        drawn = self.random.standard_normal(shape) / np.sqrt(shape[0])
        return self.graph.variable(f"w{len(self.graph.variables)}", drawn.astype(np.float32))

    def positive(self, *shape):
        drawn = self.random.uniform(0.5, 2, shape)
        return self.graph.variable(f"w{len(self.graph.variables)}", drawn.astype(np.float32))


def attention(m):
    def apart(y):
        return ops.transpose(ops.reshape(y, [0, -1, 4, 8]), perm=[0, 2, 1, 3])

    q, k, v = (apart(m.x @ m.weight(16, 32) + m.weight(32)) for _ in range(3))
    mixed = ops.softmax(q @ ops.transpose(k, perm=[0, 1, 3, 2])) @ v
    return ops.reshape(ops.transpose(mixed, perm=[0, 2, 1, 3]), [0, -1, 32]) @ m.weight(32, 16)


def gated(m):
    x = ops.rms_normalization(m.x, m.positive(16))
    return (ops.sigmoid(x @ m.weight(16, 24)) * (x @ m.weight(16, 24))) @ m.weight(24, 16)


def written_out(m):
    """Return a model with the scale and shift of a normalization as separate nodes."""
    return (m.x * m.positive(16) + m.weight(16)) @ m.weight(16, 8)


def convolutions(m):
    x = ops.relu(ops.batch_normalization(m.x, m.positive(4), m.weight(4), m.weight(4), m.positive(4)))
    x = ops.max_pool(ops.relu(ops.conv(x, m.weight(8, 4, 3, 3), m.weight(8))), kernel_shape=[2, 2])
    x = ops.leaky_relu(ops.conv(x, m.weight(8, 1, 2, 2), group=8) + m.weight(8, 1, 1))
    return ops.conv(x, m.weight(6, 4, 1, 1), group=2)


#: Models with the shape of a sample, the number of groups that can be rescaled, and the number that follow a layer.
RESCALED = {
    "attention": (attention, (5, 16), 1, 1),
    "gated": (gated, (5, 16), 2, 1),
    "written out": (written_out, (16,), 1, 0),
    "convolutions": (convolutions, (4, 9, 8), 3, 2),
}


@pytest.mark.parametrize("method", ["equalize", "smooth-quant", "awq"])
@pytest.mark.parametrize("name", RESCALED)
def test_rescaling_keeps_the_outputs_of_the_model(method, name):
    build, shape, count, behind = RESCALED[name]
    m = Drawn(*shape)
    m.graph.output("y", build(m))
    graph = m.graph
    graph.infer()
    expected = graph.run(m.feeds[0], backend="numpy")["y"]
    layers = inputs_of(n for n in graph.nodes if len(n.inputs) > 1 and n.inputs[1].is_constant)
    moments = Moments(graph.copy(), list(layers.values()), "numpy", m.feeds)
    before = {value.name: value.data.array().copy() for value in graph.variables}
    rescaling = Rescaling(graph, layers, moments)
    assert len(rescaling.groups()) == count
    assert sum(group.before is not None for group in rescaling.groups()) == behind
    RESCALING[method](rescaling, QuantizeConfig(mode="weights", method=method))
    rescaling.finish()
    changed = sum(not np.array_equal(v.data.array(), before[v.name]) for v in graph.variables)
    assert changed >= 2 * (behind if method == "equalize" else count)
    np.testing.assert_allclose(graph.run(m.feeds[0], backend="numpy")["y"], expected, rtol=1e-3, atol=1e-4)
    for key in layers.values():  # statistics of the rescaled model
        fresh = Moments(graph, [key], "numpy", m.feeds).of(key)
        largest = np.abs(fresh.moment).max()
        np.testing.assert_allclose(moments.of(key).moment, fresh.moment, rtol=1e-3, atol=1e-4 * largest)


def test_a_value_with_other_consumers_is_not_rescaled():
    m = Drawn(16)
    x = ops.relu(m.x @ m.weight(16, 24))
    m.graph.output("y", x @ m.weight(24, 8))
    m.graph.output("z", ops.reduce_sum(x))
    assert Rescaling(m.graph, inputs_of(m.graph.nodes)).groups() == []
    m = Drawn(16)
    shared = m.weight(16, 16)
    m.graph.output("y", ops.relu(m.x @ shared) @ shared)
    assert Rescaling(m.graph, inputs_of(m.graph.nodes)).groups() == []


@pytest.mark.parametrize("group", [1, 4])
def test_equalization_balances_the_channels_of_convolutions(group):
    random = np.random.default_rng(0)
    sizes = np.array([1, 100, 0.01, 5], np.float32)
    first = random.standard_normal((4, 3, 3, 3)).astype(np.float32) * sizes.reshape(4, 1, 1, 1)
    second = random.standard_normal((8, 4, 3, 3)).astype(np.float32) / sizes.reshape(1, 4, 1, 1)
    second = second[:, :1] / sizes.repeat(2).reshape(8, 1, 1, 1) if group == 4 else second
    graph = tx.Graph(opsets={"ai.onnx": 17})
    hidden = ops.conv(graph.input("x", "float32", ("n", 3, 8, 8)), graph.variable("w", first))
    graph.output("y", ops.conv(ops.relu(hidden), graph.variable("v", second), group=group))
    feeds = [{"x": random.standard_normal((8, 3, 8, 8)).astype(np.float32)}]
    settings = {"mode": "static", "per_channel": False, "backend": "numpy"}
    _, nearest = tx.quantize(graph, feeds, **settings)
    _, report = tx.quantize(graph, feeds, **settings, method="equalize")
    assert report.sqnr["y"] > nearest.sqnr["y"] + 3


def test_bias_correction_removes_the_mean_error():
    graph = perceptron()
    feeds = [{"x": np.abs(correlated(32, 300)) + 1}]
    expected = graph.run(feeds[0], backend="numpy")["y"].mean(0)
    off = {}
    for method in ("rtn", "rtn,bias-correction"):
        made, _ = tx.quantize(graph, feeds, mode="weights", bits=2, method=method, search="rtn", backend="numpy")
        off[method] = np.abs(made.run(feeds[0], backend="numpy")["y"].mean(0) - expected).max()
    assert off["rtn,bias-correction"] < 0.5 * off["rtn"]


@pytest.mark.parametrize("granularity", ["tensor", "channel", "block"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("mode", ["weights", "static"])
def test_files_of_every_granularity_are_right_in_onnxruntime(granularity, bits, mode, tmp_path):
    settings = {"mode": mode, "bits": bits, "granularity": granularity, "method": "gptq", "backend": "numpy"}
    made, report = tx.quantize(perceptron(), FEEDS, **settings)
    tx.export(made, tmp_path / "m.onnx")
    assert {t.dtype.lstrip("u") for t in report.tensors if t.kind == "weight"} == {f"int{bits}"}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    expected = made.run(FEEDS[0], backend="numpy")["y"]
    np.testing.assert_allclose(
        session.run(None, dict(FEEDS[0]))[0], expected, rtol=1e-3, atol=0.05 * np.abs(expected).max()
    )


@pytest.mark.parametrize("dtype", ["float8e4m3fn", "float8e5m2"])
@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize("mode", ["weights", "static"])
def test_float8(dtype, granularity, mode):
    more = {"activation_type": dtype} if mode == "static" else {}
    graph = perceptron()
    made, report = tx.quantize(
        graph, FEEDS, mode=mode, weight_type=dtype, granularity=granularity, backend="numpy", **more
    )
    assert {t.dtype for t in report.tensors} == {dtype}
    assert report.sqnr["y"] > (25 if dtype == "float8e4m3fn" else 19)
    assert made.opsets["ai.onnx"] >= 19


def test_data_is_read_once():
    passes = []

    def batches():
        passes.append(1)
        yield from FEEDS

    tx.quantize(perceptron(), batches(), mode="static", method="smooth-quant,gptq", calibration="mse", backend="numpy")
    assert passes == [1]


def test_batches_are_kept_in_bounded_memory(monkeypatch):
    monkeypatch.setattr("tenonnx_quantized.tuning.calibrate.BATCH_BYTES", 20_000)
    held = []

    def batches():
        for seed in range(40):
            held.append(seed)
            yield {"x": correlated(32, 20, seed)}

    reports = [
        tx.quantize(perceptron(), batches(), mode="static", calibration="entropy", backend="numpy")[1].to_dict()
        for _ in range(2)
    ]
    assert len(held) == 80
    assert reports[0] == reports[1]


@pytest.mark.parametrize("method", sorted({*METHODS} - {"rotate"}))  # see test_rotation.py
def test_every_method_works_on_every_mode(method):
    for mode in ("weights", "static", "dynamic"):
        _, report = tx.quantize(perceptron(), FEEDS, mode=mode, method=method, backend="numpy")
        assert report.sqnr["y"] > 15


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "gptqq"}, 'unknown method "gptqq"'),
        ({"method": ["gptq", "auto-round"]}, "several methods round"),
        ({"mode": "weights", "method": "awq", "batches": None}, "method awq got no calibration data"),
        ({"granularity": "row"}, "unsupported granularity"),
        ({"layers": [{"bits": 4}]}, "lack a pattern"),
        ({"layers": [{"pattern": "*", "bit": 4}]}, "unknown key"),
        ({"layers": [{"pattern": "*", "bits": 5}]}, "unsupported bits"),
        ({"budget": "many"}, "neither an error, a size nor a time"),
        ({"budget": "0.5bits"}, "do not fit into the budget"),
    ],
)
def test_wrong_settings(given, message):
    batches = given.pop("batches", FEEDS)
    with pytest.raises(tx.InvalidCall, match=message):
        tx.quantize(perceptron(), batches, **{"mode": "static", "backend": "numpy", **given})


BAD = {
    "NaN": (np.nan, "NaN or infinite"),
    "infinity": (np.inf, "NaN or infinite"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("settings", [{"mode": "static"}, {"mode": "weights", "method": "gptq"}])
def test_non_finite_data_is_rejected(kind, settings):
    number, message = BAD[kind]
    batch = {"x": correlated(32, 8)}
    batch["x"][3, 4] = number
    with pytest.raises(tx.InvalidCall, match=message) as caught:
        tx.quantize(perceptron(), [FEEDS[0], batch], backend="numpy", **settings)
    assert '1 of 256 numbers of "x" in batch 1' in str(caught.value)


def test_a_value_that_becomes_nan():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", ops.sqrt(x) @ graph.variable("w", np.ones((4, 4), np.float32)))
    with pytest.raises(tx.InvalidCall, match="is NaN on the calibration data"):
        tx.quantize(graph, [{"x": -np.ones((2, 4), np.float32)}], mode="static", backend="numpy")


def test_one_sample_and_constant_inputs_are_noted():
    _, report = tx.quantize(perceptron(), [{"x": np.zeros((1, 32), np.float32)}], mode="static", backend="numpy")
    assert report.notes[0].startswith("calibrated on one sample")
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", x @ graph.variable("w", np.ones((4, 4), np.float32)))
    made, report = tx.quantize(graph, [{"x": np.zeros((3, 4), np.float32)}], mode="static", backend="numpy")
    assert report.notes == ['"x" is 0 on all calibration data: its scale is 1']
    assert all(v.data.array().all() for v in made.variables if v.name.endswith("/scale"))


def test_a_value_that_is_infinite_stays_in_floating_point():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    y = x @ graph.variable("w", w)
    graph.output("y", y)
    graph.output("z", ops.log(ops.relu(x)) @ graph.variable("v", np.abs(w)))
    _, report = tx.quantize(graph, FEEDS_OF_FOUR, mode="static", backend="numpy")
    assert len(report.quantized) == 1
    assert len(report.notes) == 1
    assert "infinite" in report.notes[0]


FEEDS_OF_FOUR = [{"x": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}]


@pytest.mark.parametrize("size", [1, 5, 64, 65, 300])
def test_the_factor_of_gptq_is_the_cholesky_factor_of_the_inverse(size):
    x = np.random.default_rng(size).standard_normal((size, 2 * size + 1))
    moment = x @ x.T / size + 0.1 * np.eye(size)
    factor = _upper_factor_of_inverse(moment)
    np.testing.assert_array_equal(factor, np.triu(factor))
    np.testing.assert_allclose(factor.T @ factor @ moment, np.eye(size), atol=1e-8)
