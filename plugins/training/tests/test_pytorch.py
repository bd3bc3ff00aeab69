"""Training against PyTorch with equal models, weights and batches: losses of every step, and final statistics."""

from pathlib import Path

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt

FOLDER = Path(__file__).parent / "pytorch"

OPTIMIZERS = {
    "sgd": tt.SGD(0.05, weight_decay=1e-3),
    "momentum": tt.Momentum(0.02),
    "nesterov": tt.Momentum(0.02, nesterov=True),
    "adagrad": tt.Adagrad(0.02),
    "adam": tt.Adam(3e-3, weight_decay=1e-3),
    "adamw": tt.AdamW(3e-3, weight_decay=1e-2),
}

#: Pattern of the trained variables: the exporter stores a constant of the transformer as a one-element tensor.
MODELS = {"mlp": None, "cnn": None, "lstm": None, "transformer": "!val_69"}


def trained(model, optimizer, backend):
    data = np.load(FOLDER / f"{model}.npz")
    graph = tx.load(FOLDER / f"{model}.onnx")
    options = {"trainable": MODELS[model], "backend": backend}
    step = tt.TrainingStep(graph, "softmax_cross_entropy", OPTIMIZERS[optimizer], **options)
    batches = zip(data["x"], data["labels"], strict=True)
    losses = [step({"x": x, "labels": labels})["loss"] for x, labels in batches]
    return step.write_back(), losses, data


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_losses_are_those_of_pytorch(model, optimizer, backend):
    graph, losses, data = trained(model, optimizer, backend)
    np.testing.assert_allclose(losses, data[optimizer], rtol=1e-5)
    if model == "cnn":
        check_statistics(graph, optimizer, data)


def check_statistics(graph, optimizer, data):
    """Compare with the statistics of PyTorch, whose exporter runs the model once.

    So the statistics in the file differ from the initial 0 and 1 of the model.
    """
    steps = len(data["x"])
    start = {v.name: v.data.array() for v in tx.load(FOLDER / "cnn.onnx").variables}
    by_name = {v.name: v.data.array() for v in graph.variables}
    left = 0.9**steps
    for layer in ("1", "5"):
        mean, variance = f"{layer}.running_mean", f"{layer}.running_var"
        expected = data[f"{optimizer}/{mean}"] + left * start[mean]
        np.testing.assert_allclose(by_name[mean], expected, rtol=1e-5, atol=1e-6)
        expected = data[f"{optimizer}/{variance}"] - left + left * start[variance]
        np.testing.assert_allclose(by_name[variance], expected, rtol=1e-5)
