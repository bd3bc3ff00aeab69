"""Ranges of activations and weights: given ranges, averages, reduced range, and dedicated QDQ pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.standard_normal((4, 8)).astype(np.float32)
BATCHES = [{"x": RANDOM.uniform(-k, 2 * k, (5, 4)).astype(np.float32)} for k in (1, 2, 3)]


def model():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.output("y", ops.matmul(x, graph.variable("w", WEIGHTS)))
    graph.output("z", ops.matmul(x, graph.variable("u", WEIGHTS[:, :3])))
    return graph


def quantized(**settings):
    made, report = tx.quantize(model(), BATCHES, mode="static", **settings)
    return made, report


def scale_of(graph, name):
    node = next(n for n in graph.nodes if n.op_type == "QuantizeLinear" and n.inputs[0].name == name)
    return float(np.asarray(node.inputs[1].data))


def ends():
    every = np.concatenate([batch["x"] for batch in BATCHES])
    return float(every.min()), float(every.max())


def test_ranges_are_reported_and_can_be_given_without_data():
    made, report = quantized()
    assert_allclose(report.ranges["x"], ends(), rtol=1e-6)
    again, _ = tx.quantize(model(), mode="static", ranges=report.ranges)
    assert scale_of(again, "x") == scale_of(made, "x")


def test_given_ranges_replace_those_on_data():
    assert_allclose(scale_of(quantized(ranges={"x": (-2.0, 8.2)})[0], "x"), 0.04, rtol=1e-6)
    wider, _ = quantized(ranges=lambda found: {name: (2 * low, 2 * high) for name, (low, high) in found.items()})
    assert_allclose(scale_of(wider, "x"), 2 * (ends()[1] - ends()[0]) / 255, rtol=1e-5)


def test_a_missing_range_is_reported():
    with pytest.raises(tx.InvalidCall, match="neither calibration data nor the range of every activation"):
        tx.quantize(model(), mode="static", ranges={"other": (0.0, 1.0)})


def test_the_average_of_extremes():
    low = np.mean([batch["x"].min() for batch in BATCHES])
    high = np.mean([batch["x"].max() for batch in BATCHES])
    assert_allclose(quantized(calibration="average")[1].ranges["x"], (low, high), rtol=1e-5)


def test_a_percentile():
    inner = quantized(calibration="percentile", percentile=50.0)[1].ranges["x"]
    assert ends()[0] < inner[0] < inner[1] < ends()[1]


@pytest.mark.parametrize(("dtype", "most"), [("int8", 64), ("uint8", 127)])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_reduced_range_of_weights(mode, dtype, most):
    batches = BATCHES if mode == "static" else None
    made, _ = tx.quantize(model(), batches, mode=mode, weight_type=dtype, reduce_range=True, per_channel=False)
    (held,) = [n.inputs for n in made.nodes if n.op_type == "DequantizeLinear" and "w/" in n.inputs[0].name]
    numbers = np.asarray(held[0].data).astype(int)
    assert numbers.max() <= most
    assert numbers.min() >= (-64 if dtype == "int8" else 0)
    zero = int(np.asarray(held[2].data))
    assert_allclose((numbers - zero) * np.asarray(held[1].data), WEIGHTS, atol=np.abs(WEIGHTS).max() / 60)


def test_asymmetric_weights():
    made, _ = quantized(symmetric_weights=False, per_channel=False)
    zero = next(n.inputs[2] for n in made.nodes if n.op_type == "DequantizeLinear" and "w/" in n.inputs[0].name)
    assert int(np.asarray(zero.data)) != 0
    assert_allclose(made.run(BATCHES[0])["y"], BATCHES[0]["x"] @ WEIGHTS, atol=0.3)


def test_dedicated_pairs():
    made, plain = quantized(dedicated_pairs=True)[0], quantized()[0].run(BATCHES[0])
    assert sum(node.op_type == "QuantizeLinear" for node in made.nodes) == 2
    for name, values in made.run(BATCHES[0]).items():
        assert_allclose(values, plain[name], rtol=1e-5, atol=1e-5)


def test_outputs_that_stay_floats():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    image = graph.input("image", "float32", (1, 2, 4, 4))
    graph.output("y", ops.conv(image, graph.variable("w", np.ones((2, 2, 3, 3), np.float32))))
    batches = [{"image": RANDOM.random((1, 2, 4, 4), np.float32)}]
    counts = []
    for types in ((), ("Conv",)):
        made, _ = tx.quantize(graph, batches, mode="static", float_outputs=types)
        counts.append(sum(node.op_type == "QuantizeLinear" for node in made.nodes))
    assert counts == [2, 1]


def test_the_strength_of_smoothing():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    scaled = graph.input("x", "float32", ("n", 4)) * graph.variable("s", np.float32([1, 10, 1, 1]))
    graph.output("y", ops.matmul(scaled, graph.variable("w", WEIGHTS)))
    scales = set()
    for strength in (0.0, 1.0):
        made, _ = tx.quantize(graph, BATCHES, mode="static", method="smooth-quant", smoothing=strength)
        scales.add(max(float(np.asarray(n.inputs[1].data)) for n in made.nodes if n.op_type == "QuantizeLinear"))
    assert len(scales) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"percentile": 20.0}, "percentile is out of bounds"),
        ({"smoothing": 2.0}, "smoothing is out of bounds"),
        ({"form": "qoperator", "dedicated_pairs": True}, "form qoperator has no pairs"),
        ({"reduce_range": True, "method": "hqq"}, "reduce_range does not work with this mode or method"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(tx.InvalidCall, match=words):
        quantized(**settings)


def test_the_command(tmp_path):
    model().save(tmp_path / "m.onnx")
    assert main(["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx"), "--reduce-range"]) == 0
    made = tx.load(tmp_path / "q.onnx")
    held = [n.inputs[0] for n in made.nodes if n.op_type == "DequantizeLinear" and "quantized" in n.inputs[0].name]
    assert all(np.abs(np.asarray(value.data).astype(int)).max() <= 64 for value in held if value.dtype.name == "int8")


@pytest.mark.parametrize("mode", ["static", "dynamic", "weights"])
def test_measuring_errors_does_not_change_the_model(mode):
    batches = BATCHES if mode == "static" else None
    plain, measured = tx.quantize(model(), batches, mode=mode)
    made, report = tx.quantize(model(), batches, mode=mode, measure=False)
    assert measured.outputs
    assert not report.outputs
    assert not report.tensors
    assert "not measured" in report.notes[-1]
    assert made.to_proto() == plain.to_proto()
