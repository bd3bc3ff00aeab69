"""Whole epochs of fine-tuning: ours on onnxruntime against PyTorch with a DataLoader, from the same weights.

Needs PyTorch and torchvision beside the workspace; weights are drawn. The last block and the head of a ResNet-18 learn
on images of 64 by 64, the rest being frozen and going by its running statistics; all of a BERT of four layers learns on
sequences of 64 tokens. ``python benchmarks/fine_tuning.py [--threads 2] [--rounds 3] [model ...]``
"""

from __future__ import annotations

import argparse
import copy
import io
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measure import geometric, table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenonnx as tx
import tenonnx_training as tt

CLASSES, BATCH = 10, 16
RESNET, BERT = "ResNet-18, last block", "BERT, 4 layers"


class Bert(nn.Module):
    """An encoder of four layers, 256 features and 4 heads behind embeddings of tokens and places."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(4096, 256), nn.Embedding(64, 256)
        self.norm = nn.LayerNorm(256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.tokens(ids) + self.places(torch.arange(64)))
        return self.head(self.encoder(found)[:, 0])


def resnet() -> tuple[nn.Module, torch.Tensor, list[str]]:
    """The model, its inputs, and what is trained of it."""
    from torchvision.models import resnet18

    model = resnet18(weights=None, num_classes=CLASSES)
    x = torch.randn(160, 3, 64, 64)
    model.train()
    with torch.no_grad():  # running statistics as of a model that was trained
        for k in range(0, 160, 32):
            model(x[k : k + 32])
    return model, x, ["layer4.1.", "fc."]


def bert() -> tuple[nn.Module, torch.Tensor, list[str]]:
    return Bert(), torch.randint(0, 4096, (160, 64)), [""]


def exported(model: nn.Module, sample: torch.Tensor) -> tx.Graph:
    """The model as a file gives it, its batch of any size, nothing folded into its weights."""
    message = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            copy.deepcopy(model).eval(), (sample,), message, dynamo=False, opset_version=17, input_names=["x"],
            output_names=["scores"], dynamic_axes={"x": {0: "batch"}}, do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    return tx.load(message.getvalue())


def eager(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, trained: list[str]) -> Callable[[], float]:
    """Epochs of PyTorch as its users write them, frozen layers in evaluation mode; each gives its mean loss."""
    model = copy.deepcopy(model).eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith(tuple(trained))
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train(name.startswith(tuple(trained)))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    loader = DataLoader(TensorDataset(x, labels), batch_size=BATCH, shuffle=True)

    def epoch() -> float:
        losses = []
        for batch, target in loader:
            loss = nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return statistics.fmean(losses)

    return epoch


def ours(graph: tx.Graph, x: torch.Tensor, labels: torch.Tensor, trained: list[str]) -> Callable[[], float]:
    """Epochs of the loop that ``fit`` goes through, compiled once."""
    from tenonnx_training.data import Batches

    options: dict[str, Any] = {"session_options": {"intra_op_num_threads": torch.get_num_threads()}, "strict": True}
    options |= {
        "trainable": [f"{start}*" for start in trained if start] or None,
        "untie": True,
        "backend": "onnxruntime",
    }
    step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.Adam(1e-4), **options)
    batches = Batches((x.numpy(), labels.numpy()), ["x"], "labels", batch_size=BATCH, shuffle=True, seed=0)
    numbers = iter(range(10**6))

    def epoch() -> float:
        return statistics.fmean(step(batch)["loss"] for batch in batches.epoch(next(numbers)))

    return epoch


MODELS = {"resnet": (RESNET, resnet), "bert": (BERT, bert)}


def main(names: list[str], threads: int, rounds: int) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    rows, ratios = [], []
    for name, build in (MODELS[key] for key in names or MODELS):
        torch.manual_seed(0)
        model, x, trained = build()
        labels = torch.randint(0, CLASSES, (len(x),))
        contestants = {
            "torch": eager(model, x, labels, trained),
            "ours": ours(exported(model, x[:2]), x, labels, trained),
        }
        first = {key: epoch() for key, epoch in contestants.items()}
        np.testing.assert_allclose(first["ours"], first["torch"], rtol=0.05, err_msg=f"{name}: other losses")
        seconds: dict[str, list[float]] = {key: [] for key in contestants}
        for _ in range(rounds):
            for key, epoch in contestants.items():
                time.sleep(0.3)
                start = time.perf_counter()
                epoch()
                seconds[key].append(time.perf_counter() - start)
        found = {key: statistics.median(each) for key, each in seconds.items()}
        ratios.append(found["ours"] / found["torch"])
        rows.append([name, found["torch"], found["ours"], ratios[-1]])
    columns = ["model", "PyTorch, seconds", "ours, seconds", "ours, times PyTorch"]
    table(f"Epochs of fine-tuning, {threads} threads", columns, rows)
    print(f"\ngeometric mean {geometric(ratios):.3f}; load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    main(chosen.models, chosen.threads, chosen.rounds)
