"""Training steps with Adam: tenonnx on every backend compared with PyTorch, on equal numbers of threads.

Needs PyTorch and onnxscript in the environment; OpenVINO and JAX are optional. ``torch.onnx.export`` writes the models.
The losses of the first steps have to agree before anything is timed. JAX uses all processors of the process: for one
thread start it with ``taskset -c 0``.
``python benchmarks/training.py [--threads 2] [--quick] [--processor] [--way NAME ...] [model ...]``: ``--quick`` only
times our backends; ``--processor`` counts processor seconds, which are more reliable on a busy machine, with one
thread.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import io
import logging
import math
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

import tenonnx as tx
from tenonnx_training import Adam, TrainingStep

CLASSES, COMPARED = 10, 5

#: Available ways to run our step: backend and options. The fastest counts.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "onnxruntime": ("onnxruntime", {}),
    "openvino": ("openvino", {}),
    "jax": ("jax", {}),
    "torch, node by node": ("torch", {}),
    "torch, compiled": ("torch", {"compiled": True}),
}
BACKENDS = [way for way, (name, _) in WAYS.items() if importlib.util.find_spec(f"tenonnx_{name}")]

#: Pause between two turns in seconds, and steps per turn.
PAUSE, STEPS = 0.3, 8

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class Residual(nn.Module):
    """Ten convolutions: the first one, four residual blocks of two, and one with stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.ModuleList([self._block(32), self._block(32), self._block(64), self._block(64)])
        self.between = nn.Conv2d(32, 64, 3, padding=1, stride=2)
        self.head = nn.Linear(64, CLASSES)

    @staticmethod
    def _block(channels: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        for k, block in enumerate(self.blocks):
            if k == 2:
                x = torch.relu(self.between(x))
            x = torch.relu(x + block(x))
        return self.head(x.mean(dim=(2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, _ = self.lstm(x)
        return self.head(found[:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(dim=1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, CLASSES),
    )


#: Each model, with the shape of an input batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (128, 784)),
    "cnn": (cnn, (64, 1, 28, 28)),
    "residual net": (Residual, (32, 3, 32, 32)),
    "lstm": (Recurrent, (32, 32, 32)),
    "transformer": (Encoder, (16, 64, 128)),
}


def exported(model: nn.Module, shape: tuple[int, ...]) -> tx.Graph:
    """The model exported with a dynamic batch dim and loaded again."""
    message = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            copy.deepcopy(model).train(),
            (torch.zeros(shape),),
            message,
            dynamo=True,
            verbose=False,
            input_names=["x"],
            output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=2)},),
        )
    return tx.load(message.getvalue())


def way_of(way: str) -> dict[str, Any]:
    """Options of a training step for this way, with PyTorch's number of threads."""
    threads = torch.get_num_threads()
    backend, options = WAYS.get(way, (way, {}))
    options = {"strict": True, **options} if backend != "numpy" else {}
    options |= {
        "onnxruntime": {"session_options": {"intra_op_num_threads": threads}},
        "openvino": {"properties": {"INFERENCE_NUM_THREADS": threads}},
    }.get(backend, {})
    return {"backend": backend, **options}


def ours(graph: tx.Graph, trainable: list[str], way: str, batch: Arrays) -> Callable[[], float]:
    step = TrainingStep(graph, "softmax_cross_entropy", Adam(1e-3), trainable=trainable, **way_of(way))
    feeds = dict(zip(("x", "labels"), batch, strict=True))
    return lambda: step(feeds)["loss"]


def eager(model: nn.Module, batch: Arrays, *, fused: bool = False, compiled: bool = False) -> Callable[[], float]:
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    forward = torch.compile(model) if compiled else model
    x, labels = map(torch.from_numpy, batch)

    def step() -> float:
        loss = nn.functional.cross_entropy(forward(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def agree(implementations: dict[str, Callable[[], float]]) -> None:
    """Take the same steps with all implementations. Raises if their losses differ."""
    losses = {name: [step() for _ in range(COMPARED)] for name, step in implementations.items()}
    for name, found in losses.items():
        np.testing.assert_allclose(found, losses["torch"], rtol=2e-3, err_msg=f"{name} is not torch")


def implementations(name: str, *, everything: bool) -> dict[str, Callable[[], float]]:
    build, shape = MODELS[name]
    random = np.random.default_rng(0)
    batch = random.standard_normal(shape).astype(np.float32), random.integers(0, CLASSES, shape[0])
    torch.manual_seed(0)
    model = build()
    for parameter in model.parameters():  # the exporter would merge equal parameters into one initializer
        parameter.data += 0.01 * torch.randn_like(parameter)
    graph = exported(model, shape)
    parameters = sum(p.numel() for p in model.parameters())
    trained = [v.name for v in graph.variables if v.tensor.dtype.is_float and math.prod(v.shape) > 1]
    assert sum(math.prod(v.shape) for v in graph.variables if v.name in trained) == parameters, trained
    result = {"torch": eager(model, batch)}
    for way in BACKENDS:
        try:
            result[way] = ours(graph, trained, way, batch)
            result[way]()
        except tx.UnsupportedOp as error:
            print(f"{name} on {way}: {error}")
            result.pop(way, None)
            continue
        result[way] = ours(graph, trained, way, batch)
    if everything:
        result["torch fused"] = eager(model, batch, fused=True)
        result["numpy"] = ours(graph, trained, "numpy", batch)
        if (compiled := _compiled(model, batch)) is not None:
            result["torch.compile"] = compiled
    agree(result)
    return result


def _compiled(model: nn.Module, batch: Arrays) -> Callable[[], float] | None:
    """A compiled step, or None if PyTorch finds no C++ compiler."""
    try:
        eager(model, batch, compiled=True)()
    except Exception as error:
        print(f"torch.compile does not work here: {type(error).__name__}")
        return None
    return eager(model, batch, compiled=True)


def turns(implementations: dict[str, Callable[[], float]], count: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of a step; a turn has several steps.

    The pause between turns lets the threads of a library stop spinning, which would slow down the next contestant.
    """
    seconds: dict[str, list[float]] = {name: [] for name in implementations}
    for _ in range(count):
        for name, step in implementations.items():
            time.sleep(PAUSE)
            step()
            start = clock()
            for _ in range(STEPS):
                step()
            seconds[name].append((clock() - start) / STEPS)
    return {name: statistics.median(found) for name, found in seconds.items()}


def main(
    names: list[str] | None = None,
    *,
    threads: int = 2,
    everything: bool = True,
    count: int = 9,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    logging.disable(logging.WARNING)  # warnings of the exporter about missing packages
    torch.set_num_threads(threads)
    rows, ratios = [], []
    for name in names or MODELS:
        found = turns(implementations(name, everything=everything), count, clock)
        base = found["torch"]
        best = min(found[way] for way in BACKENDS if way in found)
        ratios.append(best / base)
        others = [found.get(key, math.nan) / base for key in (*BACKENDS, "numpy", "torch fused", "torch.compile")]
        rows.append([name, base * 1e3, best * 1e3, ratios[-1], *others])
    columns = ["model", "PyTorch ms", "ours ms", "ours", *BACKENDS, "numpy", "fused Adam", "torch.compile"]
    table(f"Training steps, times PyTorch, {threads} thread{'s' if threads > 1 else ''}", columns, rows)
    print(f"\nour best backend against PyTorch, geometric mean {geometric(ratios):.3f}")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--way", action="append", choices=BACKENDS)
    chosen = parser.parse_args()
    BACKENDS[:] = chosen.way or BACKENDS
    main(
        chosen.models,
        threads=chosen.threads,
        everything=not chosen.quick,
        clock=time.process_time if chosen.processor else time.perf_counter,
    )
