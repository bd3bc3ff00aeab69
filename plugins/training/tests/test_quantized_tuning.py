"""A file that quantises and dequantises is tuned, its scales too, and stays one."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from trained_models import contents, digits

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear
from tenonnx_quantized.tuning.quantize import quantize

BITS = 3  # few codes, so that there is something to win back


def quantised():
    """The digits network, its weights rounded to a few codes by QuantizeLinear and DequantizeLinear."""
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
        for made in fresh:  # as the file has them: nothing is respelled, and folded for that
            made.version = graph.opsets["ai.onnx"]
        graph.nodes[position:position] = fresh
        node.inputs = (node.inputs[0], rounded, *node.inputs[2:])
        node.origin = None
    return graph, images, labels


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_tuning_wins_back_what_rounding_lost(backend):
    plain, images, labels = digits()
    graph, _, _ = quantised()
    held, test = (images[:320], labels[:320]), (images[320:640], labels[320:640])
    before = contents(graph)
    measured = [tt.evaluate(g, test, ["accuracy"], backend=backend)["accuracy"] for g in (plain, graph)]
    history = tt.fit(
        graph, held, loss="softmax_cross_entropy", optimizer=tt.Adam(2e-3), epochs=3, frozen_statistics=True,
        trainable=["*.weight", "*_scale"], backend=backend,
    )  # fmt: skip
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
    tuned = tt.evaluate(graph, test, ["accuracy"], backend=backend)["accuracy"]
    assert measured[1] < measured[0]
    assert tuned > measured[1]
    after = contents(graph)
    assert any(name.endswith("_scale") and after[name] != before[name] for name in before)
    stream = io.BytesIO()
    tx.export(graph, stream)
    found = [node.op_type for node in onnx.load_model_from_string(stream.getvalue()).graph.node]
    assert found.count("QuantizeLinear") == found.count("DequantizeLinear") > 1
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"images": test[0]})[0]
    assert np.mean(scores.argmax(axis=1) == test[1]) == pytest.approx(tuned, abs=0.01)


def test_a_file_of_codes_is_tuned_by_its_scales(tmp_path):
    """Ranges of activations that were found on dark images clip others: accuracy is lost, and won back."""
    plain, images, labels = digits()
    coded, _ = quantize(plain, [{"images": images[:8] * 0.3}], mode="static", per_channel=False)
    tx.export(coded, tmp_path / "int8.onnx")
    coded, test = tx.load(tmp_path / "int8.onnx"), (images[600:], labels[600:])
    accuracies = [tt.evaluate(graph, test, ["accuracy"])["accuracy"] for graph in (plain, coded)]
    tt.fit(
        coded, (images[:600], labels[:600]), loss="softmax_cross_entropy", optimizer=tt.Adam(2e-3), epochs=4,
        trainable=["*scale*", "*.bias", "*.shift"], frozen_statistics=True,
    )  # fmt: skip
    accuracies.append(tt.evaluate(coded, test, ["accuracy"])["accuracy"])
    assert accuracies[0] > 0.95
    assert accuracies[1] < 0.5
    assert accuracies[2] > 0.9
    tx.export(coded, tmp_path / "tuned.onnx")
    before, after = (onnx.load(tmp_path / name) for name in ("int8.onnx", "tuned.onnx"))
    assert before.graph.node == after.graph.node
    codes = [{t.name: t for t in m.graph.initializer if t.data_type == onnx.TensorProto.INT8} for m in (before, after)]
    assert codes[0]
    assert codes[0] == codes[1]
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    found = session.run(None, {"images": test[0]})[0]
    assert np.mean(found.argmax(axis=1) == test[1]) == pytest.approx(accuracies[2], abs=0.01)


def test_scales_are_trained_by_name_alone(tmp_path):
    """A weight of each channel by its scale: Adam's steps are as large as the scales are."""
    plain, images, _ = digits()
    coded, _ = quantize(plain, [{"images": images[:8]}], mode="static", per_channel=True)
    tx.export(coded, tmp_path / "int8.onnx")
    coded = tx.load(tmp_path / "int8.onnx")
    scales = [v.name for v in coded.variables if v.name.endswith("/scale") and v.tensor.shape]
    assert scales
    by_default = tt.TrainingStep(coded, "softmax_cross_entropy")._made.parameters
    assert by_default
    assert not {*scales} & {*by_default}
    assert tt.TrainingStep(coded, "softmax_cross_entropy", trainable=["*/scale"])._made.parameters
