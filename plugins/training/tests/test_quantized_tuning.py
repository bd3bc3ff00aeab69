"""Tuning a QDQ model, including its scales; it stays quantized."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from trained_models import contents, digits

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear
from tenonnx_quantized.tuning.quantize import quantize
from tenonnx_training.scales import biases_of, scales_of

BITS = 3  # so few that there is accuracy to recover


def quantized():
    """The digits network with weights rounded to a few quantized values by QuantizeLinear and DequantizeLinear."""
    graph, images, labels = digits()
    for node in list(graph.nodes):
        weight = node.inputs[1] if node.op_type in ("Conv", "Gemm") else None
        if weight is None or weight.data is None:
            continue
        largest = float(np.abs(weight.data.array()).max())
        scale = graph.variable(f"{weight.name}_scale", np.float32(largest / (2 ** (BITS - 1) - 1)))
        zero = graph.variable(f"{weight.name}_zero", np.int8(0))
        start = len(graph.nodes)
        bound = ops.clip(weight, -scale * 4.0, scale * 3.0)
        rounded = dequantize_linear(quantize_linear(bound, scale, zero), scale, zero)
        fresh, position = graph.nodes[start:], graph.nodes.index(node)
        graph.nodes[start:] = []
        for made in fresh:  # adapters would change the graph
            made.version = graph.opsets["ai.onnx"]
        graph.nodes[position:position] = fresh
        node.inputs = (node.inputs[0], rounded, *node.inputs[2:])
        node.origin = None
    return graph, images, labels


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_tuning_wins_back_what_rounding_lost(backend):
    plain, images, labels = digits()
    graph, _, _ = quantized()
    held, test = (images[:320], labels[:320]), (images[320:640], labels[320:640])
    before = contents(graph)
    measured = [tt.evaluate(g, test, ["accuracy"], backend=backend)["accuracy"] for g in (plain, graph)]
    history = tt.fit(
        graph,
        held,
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(2e-3),
        epochs=3,
        frozen_statistics=True,
        trainable=["*.weight", "*_scale"],
        backend=backend,
    )
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
    tuned = tt.evaluate(graph, test, ["accuracy"], backend=backend)["accuracy"]
    assert measured[1] < measured[0]
    assert tuned > measured[1]
    after = contents(graph)
    assert any(name.endswith("_scale") and after[name] != before[name] for name in before)
    stream = io.BytesIO()
    tx.export(graph, stream)
    result = [node.op_type for node in onnx.load_model_from_string(stream.getvalue()).graph.node]
    assert result.count("QuantizeLinear") == result.count("DequantizeLinear") > 1
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"images": test[0]})[0]
    assert np.mean(scores.argmax(axis=1) == test[1]) == pytest.approx(tuned, abs=0.01)


class _Dark(CalibrationDataReader):
    """Images that are too dark for calibration: other images exceed the resulting ranges of activations."""

    def __init__(self, images):
        self.batches = iter([{"images": images[:8] * np.float32(0.3)}])

    def get_next(self):
        return next(self.batches, None)


def coded_file(maker, path):
    """The digits network from the quantizer ``maker``, its images and labels."""
    plain, images, labels = digits()
    if maker.startswith("tenonnx"):
        form = maker.rpartition(" ")[2]
        coded, _ = quantize(plain, [{"images": images[:8] * 0.3}], mode="static", per_channel=False, form=form)
        tx.export(coded, path)
        return plain, images, labels
    source = path.with_name("float.onnx")
    tx.export(plain, source)
    if maker == "onnxruntime dynamic":
        quantize_dynamic(source, path, weight_type=QuantType.QUInt8)
        return plain, images, labels
    form = QuantFormat.QOperator if maker == "onnxruntime qoperator" else QuantFormat.QDQ
    quantize_static(source, path, _Dark(images), quant_format=form, per_channel=maker.endswith("by channel"))
    return plain, images, labels


STATIC = ["onnxruntime qdq", "onnxruntime qdq by channel", "onnxruntime qoperator", "tenonnx qdq", "tenonnx qoperator"]


def recipe(images, labels, **changes):
    """The options in the README."""
    how = {"loss": "softmax_cross_entropy", "optimizer": tt.Adam(2e-2), "trainable": "*scale*", "epochs": 4}
    return {"data": (images[:600], labels[:600]), "frozen_statistics": True, "backend": "numpy", **how, **changes}


def scales_by_name(graph):
    return {v.name: v.data.array() for v in graph.variables if v.name in scales_of(graph)}


@pytest.mark.parametrize("maker", [*STATIC, "onnxruntime dynamic"])
def test_a_file_of_quantized_values_is_tuned_by_its_scales(maker, tmp_path):
    """Calibration on dark images clips activations of others: accuracy is lost, and recovered by tuning."""
    plain, images, labels = coded_file(maker, tmp_path / "int8.onnx")
    coded, test = tx.load(tmp_path / "int8.onnx"), (images[600:], labels[600:])
    accuracies = [tt.evaluate(graph, test, ["accuracy"])["accuracy"] for graph in (plain, coded)]
    tt.fit(coded, **recipe(images, labels))
    accuracies.append(tt.evaluate(coded, test, ["accuracy"], backend="numpy")["accuracy"])
    assert accuracies[0] > 0.95
    assert accuracies[1] < 0.5 or maker not in STATIC
    assert accuracies[2] > 0.9
    assert all((scale > 0).all() for scale in scales_by_name(coded).values())
    tx.export(coded, tmp_path / "tuned.onnx")
    before, after = (onnx.load(tmp_path / name) for name in ("int8.onnx", "tuned.onnx"))
    assert before.graph.node == after.graph.node
    kinds = onnx.TensorProto.INT8, onnx.TensorProto.UINT8
    quantized = [{t.name: t for t in m.graph.initializer if t.data_type in kinds} for m in (before, after)]
    assert quantized[0]
    assert quantized[0] == quantized[1]
    options = onnxruntime.SessionOptions()
    if maker != "onnxruntime qoperator":  # QGemm has no kernel for exact products
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx", options)
    result = session.run(None, {"images": test[0]})[0]
    assert np.mean(result.argmax(axis=1) == test[1]) == pytest.approx(accuracies[2], abs=0.01)
    (scores,) = coded.run({"images": test[0]}, backend="numpy").values()
    assert np.abs(result - scores).max() < 0.02 * np.abs(scores).max()  # one or two quantization steps


def products(graph):
    """Relative difference between the scales of quantized biases and the product of input and weight scales."""
    values = {v.name: v.data.array() for v in graph.variables}
    pairs = [(bias, values[bias.factors[0]] * values[bias.factors[1]]) for bias in biases_of(graph)]
    return [float(np.abs(values[bias.scale] / product - 1).max()) for bias, product in pairs]


@pytest.mark.parametrize("maker", STATIC[:2])
def test_biases_in_quantized_values_follow_the_scales(maker, tmp_path):
    _, images, labels = coded_file(maker, tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    biases = biases_of(coded)
    assert len(biases) == 3
    numbers = {bias.quantized: bias.numbers for bias in biases}
    history = tt.fit(coded, **recipe(images, labels, epochs=1, average=0.9), checkpoint=tmp_path / "state.safetensors")
    assert any("scales of biases" in note and biases[0].scale in note for note in history.notes)
    for graph in (coded, tt.averaged(coded), tx.load(tmp_path / "state.safetensors")):
        assert len(result := products(graph)) == 3
        assert max(result) < 1e-6
        for bias in biases_of(graph):
            step = float(np.max(graph[bias.scale].data.array()))
            assert np.abs(bias.numbers - numbers[bias.quantized]).max() <= step
    resumed = tx.load(tmp_path / "state.safetensors")
    tt.fit(resumed, **recipe(images, labels, epochs=1, trainable=None, average=None, optimizer=None))
    assert max(products(resumed)) < 1e-6


def test_a_step_measures_what_it_would_write(tmp_path):
    _, images, labels = coded_file(STATIC[0], tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    how = {k: v for k, v in recipe(images, labels).items() if k not in ("data", "epochs")}
    step = tt.TrainingStep(coded, metrics=["accuracy"], **how)
    batch = {"images": images[:64], "labels": labels[:64]}
    for _ in range(10):
        step(batch)
    measured = step.evaluate(batch)["accuracy"]
    result = tt.evaluate(step.write_back(), (images[:64], labels[:64]), ["accuracy"], backend="numpy")["accuracy"]
    assert measured == pytest.approx(result)
    with pytest.raises(tx.TenonnxError, match="cannot requantize biases"):
        step.export(tmp_path / "step.onnx")


@pytest.mark.parametrize("optimizer", [tt.Adam(5.0), tt.SGD(100.0), tt.AdamW(1.0, weight_decay=0.9)], ids=str)
def test_scales_stay_positive_at_any_rate(optimizer, tmp_path):
    _, images, labels = coded_file("tenonnx qdq", tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    step = tt.TrainingStep(
        coded, "softmax_cross_entropy", optimizer, trainable="*/scale", frozen_statistics=True, backend="numpy"
    )
    for start in range(0, 96, 32):
        step({"images": images[start : start + 32], "labels": labels[start : start + 32]})
    after = scales_by_name(step.write_back())
    assert after
    assert all((scale > 0).all() and np.isfinite(scale).all() for scale in after.values())


def test_a_scale_that_gradients_do_not_reach_stays_to_the_bit():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 2))
    scale = graph.variable("scale", np.array([0.1, 0.0], np.float32))
    numbers = dequantize_linear(quantize_linear(x, scale, axis=1), scale, axis=1)
    graph.output("y", numbers * graph.variable("factor", np.array([2.0, 0.0], np.float32)))
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), trainable="*", backend="numpy")
    with np.errstate(all="ignore"):
        step({"x": np.array([[0.13, 1.0]], np.float32), "labels": np.zeros((1, 2), np.float32)})
    after = step.write_back()["scale"].data.array()
    assert 0 < after[0] != np.float32(0.1)
    assert after[1] == 0


def test_the_scale_of_a_bias_is_not_trained_independently(tmp_path):
    _, _, _ = coded_file(STATIC[0], tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    with pytest.raises(tx.TenonnxError, match="matches no variable that gradients can change"):
        tt.TrainingStep(coded, "softmax_cross_entropy", trainable="*.bias_quantized_scale")
    trained = tt.TrainingStep(
        coded, "softmax_cross_entropy", backend="numpy"
    )._step_graph.parameters  # the default selection
    assert {"images_scale", "classifier.weight_scale"} <= {*trained}
    assert not {bias.scale for bias in biases_of(coded)} & {*trained}


def test_scales_are_only_trained_by_name(tmp_path):
    """Per-channel scales: the step size of Adam has to match the size of the scales."""
    plain, images, _ = digits()
    coded, _ = quantize(plain, [{"images": images[:8]}], mode="static", per_channel=True)
    tx.export(coded, tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    scales = [v.name for v in coded.variables if v.name.endswith("/scale") and v.tensor.shape]
    assert scales
    by_default = tt.TrainingStep(coded, "softmax_cross_entropy")._step_graph.parameters
    assert by_default
    assert not {*scales} & {*by_default}
    assert tt.TrainingStep(coded, "softmax_cross_entropy", trainable=["*/scale"])._step_graph.parameters
