"""Exports of each kind for all architectures: numbers of parameters, and losses of ten steps, as in PyTorch."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from modules.trained_architectures import ARCHITECTURES, BATCH, CLASSES, WORDS
from torch import nn
from torch.nn import functional

import tenonnx as tx
import tenonnx_training as tt

STEPS, RATE = 10, 0.05


#: Exporters slice or join these weights: equally many elements, in other variables.
RESHAPED = ("LSTM", "GRU", "two layers of RNN", "encoder and decoder")

#: The exporter folds normalizations, a class token or an initial state of these, unless optimize=False.
FOLDED = ("VGG", "ResNet", "MobileNet", "tables", "ViT", "two layers of RNN")

#: Parameters that TorchScript exports do not mark: a concatenated one, and an embedding shared with a head.
UNSEEN = {"ViT": {"trainable": ["*"]}}


def exported(module: nn.Module, example: torch.Tensor, path: Path, *, dynamo: bool, optimize: bool = True) -> tx.Graph:
    """The graph of PyTorch's own export, in training mode, since normalizations are folded otherwise."""
    options: dict[str, Any] = (
        {"optimize": optimize}
        if dynamo
        else {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(),
            (example,),
            path,
            input_names=["x"],
            dynamo=dynamo,
            external_data=False,
            verbose=False,
            **options,
        )
    return tx.load(path)


def graph_of(name: str, way: str, module: nn.Module, example: torch.Tensor, folder: Path) -> tx.Graph:
    if way in ("dynamo", "script"):
        return exported(module, example, folder / "model.onnx", dynamo=way == "dynamo", optimize=name not in FOLDED)
    graph = tx.load(module, example, verify=False)
    if way == "module":
        return graph
    tx.export(graph, folder / "model.onnx")
    return tx.load(folder / "model.onnx")


@pytest.mark.parametrize("way", ["dynamo", "script", "module", "our export"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_trained_as_by_pytorch(name: str, way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, example = ARCHITECTURES[name]()
    module.eval()
    theirs = copy.deepcopy(module).train()
    labels = torch.randint(0, WORDS if "GPT" in name else CLASSES, (BATCH,))
    graph = graph_of(name, way, module, example, tmp_path)
    options = UNSEEN.get(name, {}) if way == "script" else {}
    step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.SGD(RATE), backend="numpy", **options)
    (read,) = [value.name for value in graph.inputs]
    ours = [step({read: example.numpy(), "labels": labels.numpy()})["loss"] for _ in range(STEPS)]
    optimizer, losses = torch.optim.SGD(theirs.parameters(), lr=RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(theirs(example), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(ours, losses, rtol=1e-5, atol=1e-5)
    shapes = [step.source[name].shape for name in step._step_graph.parameters]
    assert sum(map(math.prod, shapes)) == sum(parameter.numel() for parameter in theirs.parameters())
    if name not in RESHAPED:
        assert len(shapes) == len(list(theirs.parameters()))


def test_a_normalization_that_the_exporter_folded_is_named(tmp_path: Path) -> None:
    module, example = ARCHITECTURES["VGG"]()
    graph = exported(module, example, tmp_path / "model.onnx", dynamo=True)
    notes = tt.TrainingStep(graph, "softmax_cross_entropy").notes
    assert any("folded 2 normalizations" in note and "optimize=False" in note for note in notes)
