"""Epochs of fine-tuning: tenonnx on each backend compared with PyTorch and a DataLoader, from the same weights.

Needs PyTorch in the environment; weights are random. Of a ResNet-18 on images of 64 x 64 pixels, the last block and
the head are trained; the rest is frozen and uses its running statistics. A BERT of four layers is trained completely,
on sequences of 64 tokens. The ratio is the median over the rounds. On a busy machine go by the ratio of processor
seconds with one thread.
``python benchmarks/fine_tuning.py [--threads 2] [--rounds 3] [--samples 160] [--way NAME ...] [model ...]``
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
from collections.abc import Callable, Sequence

import numpy as np
import torch
from measure import geometric, table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import BACKENDS, way_of

import tenonnx as tx
import tenonnx_training as tt

CLASSES, BATCH = 10, 16
#: Wall-clock seconds and processor seconds.
Times = tuple[float, float]
RESNET, BERT = "ResNet-18, last block", "BERT, 4 layers"


class Bert(nn.Module):
    """Token and position embeddings, and an encoder of four layers with 256 features and 4 heads."""

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


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        same = stride == 1 and channels == width
        short = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.downsample = nn.Identity() if same else short

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(found + self.downsample(x))


class ResNet18(nn.Module):
    """ResNet-18 (He et al. 2015), with the parameter names of torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def resnet(samples: int) -> tuple[nn.Module, torch.Tensor, list[str]]:
    """The model, its inputs, and the names of its trainable parameters."""
    model = ResNet18()
    x = torch.randn(samples, 3, 64, 64)
    model.train()
    with torch.no_grad():  # running statistics like those of a trained model
        for batch in x.split(32):
            model(batch)
    return model, x, ["layer4.1.", "fc."]


def bert(samples: int) -> tuple[nn.Module, torch.Tensor, list[str]]:
    return Bert(), torch.randint(0, 4096, (samples, 64)), [""]


def exported(model: nn.Module, sample: torch.Tensor) -> tx.Graph:
    """The model exported with a dynamic batch dim and without constant folding, and loaded again."""
    message = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            copy.deepcopy(model).eval(),
            (sample,),
            message,
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "batch"}},
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )
    return tx.load(message.getvalue())


def eager(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, trained: list[str]) -> Callable[[], float]:
    """A function that trains for an epoch in plain PyTorch, frozen layers in eval mode; it returns the mean loss."""
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


def ours(graph: tx.Graph, x: torch.Tensor, labels: torch.Tensor, trained: list[str], way: str) -> Callable[[], float]:
    """A function that trains for an epoch with the loop of ``fit``, compiled once."""
    from tenonnx_training.data import Batches

    options = way_of(way) | {"trainable": [f"{start}*" for start in trained if start] or None, "untie": True}
    step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.Adam(1e-4), **options)
    batches = Batches((x.numpy(), labels.numpy()), ["x"], "labels", batch_size=BATCH, shuffle=True, seed=0)
    numbers = iter(range(10**6))

    def epoch() -> float:
        return statistics.fmean(step(batch)["loss"] for batch in batches.epoch(next(numbers)))

    return epoch


def _ratio(ours: Sequence[Times], theirs: Sequence[Times], clock: int) -> float:
    return statistics.median(a[clock] / b[clock] for a, b in zip(ours, theirs, strict=True))


MODELS = {"resnet": (RESNET, resnet), "bert": (BERT, bert)}


def main(names: list[str], threads: int, rounds: int, samples: int, ways: list[str]) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    rows, ratios = [], []
    for name, build in (MODELS[key] for key in names or MODELS):
        torch.manual_seed(0)
        model, x, trained = build(samples)
        labels = torch.randint(0, CLASSES, (len(x),))
        implementations = {"torch": eager(model, x, labels, trained)}
        implementations |= {way: ours(exported(model, x[:2]), x, labels, trained, way) for way in ways}
        first = {key: epoch() for key, epoch in implementations.items()}
        for way in ways:
            np.testing.assert_allclose(first[way], first["torch"], rtol=0.05, err_msg=f"{name} on {way}: other losses")
        taken: dict[str, list[Times]] = {key: [] for key in implementations}
        for _ in range(rounds):
            for key, epoch in implementations.items():
                time.sleep(0.3)
                start = time.perf_counter(), time.process_time()
                epoch()
                taken[key].append((time.perf_counter() - start[0], time.process_time() - start[1]))
        seconds = {key: statistics.median(wall for wall, _ in each) for key, each in taken.items()}
        found = {way: [_ratio(taken[way], taken["torch"], clock) for clock in (0, 1)] for way in ways}
        best = min(ways, key=lambda way: found[way][0])
        ratios.append(found[best][0])
        rows.append([name, seconds["torch"], seconds[best], *found[best], *(found[way][0] for way in ways)])
    columns = [
        "model",
        "PyTorch, seconds",
        "ours, seconds",
        "ours, times PyTorch",
        "in seconds of the processor",
        *ways,
    ]
    table(f"Epochs of fine-tuning, {threads} threads", columns, rows)
    print(f"\ngeometric mean {geometric(ratios):.3f}; load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--way", action="append", choices=BACKENDS)
    chosen = parser.parse_args()
    main(chosen.models, chosen.threads, chosen.rounds, chosen.samples, chosen.way or BACKENDS)
