"""Overhead of a checkpoint after every batch of training: ``python benchmarks/checkpoints.py``.

Training with and without checkpoints alternate, and the median step counts. On a busy machine go by the processor
seconds, which are those of all threads. The models have many or few parameters for the work of a step.
``python benchmarks/checkpoints.py [--rounds 5] [--folder PATH]``
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import table

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt

CLASSES, STEPS = 10, 30

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
#: Wall-clock seconds and processor seconds.
Times = tuple[float, float]


def drawn(graph: tx.Graph, name: str, *shape: int) -> Any:
    """A random weight, scaled to preserve the variance of activations."""
    random = np.random.default_rng(len(graph.variables))
    fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return graph.variable(name, (random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))


def perceptron(width: int) -> tx.Graph:
    """A perceptron of three layers."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 784))
    for k, (size, to) in enumerate(((784, width), (width, width))):
        x = ops.relu(x @ drawn(graph, f"w{k}", size, to))
    graph.output("scores", x @ drawn(graph, "head", width, CLASSES))
    return graph


def convolutions() -> tx.Graph:
    """Six convolutions of 32 channels on images of 32 x 32 pixels."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 3, 32, 32))
    for k in range(6):
        x = ops.relu(ops.conv(x, drawn(graph, f"w{k}", 32, 3 if k == 0 else 32, 3, 3), pads=[1, 1, 1, 1]))
    graph.output("scores", ops.reduce_mean(x, [2, 3], keepdims=0) @ drawn(graph, "head", 32, CLASSES))
    return graph


#: Each model, with the shape of an input batch.
MODELS: dict[str, tuple[Callable[[], tx.Graph], tuple[int, ...]]] = {
    "MLP, 512 wide, batch 128": (lambda: perceptron(512), (128, 784)),
    "MLP, 512 wide, batch 1024": (lambda: perceptron(512), (1024, 784)),
    "six convolutions, batch 32": (convolutions, (32, 3, 32, 32)),
}


class Clock(tt.Callback):
    """Records wall-clock and processor seconds between steps."""

    def __init__(self) -> None:
        self.times: list[Times] = []

    def on_step(self, training: tt.Training) -> None:
        self.times.append((time.perf_counter(), time.process_time()))

    def steps(self) -> list[Times]:
        """Times of all steps but the first."""
        return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(self.times[1:], self.times[2:], strict=False)]


def trained(make: Callable[[], tx.Graph], data: Arrays, size: int, checkpoint: Path | None) -> list[Times]:
    """Train for one epoch; returns the times of its steps."""
    clock = Clock()
    config = tt.TrainingConfig(
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(1e-3),
        batch_size=size,
        callbacks=[clock],
        checkpoint=checkpoint,
        checkpoint_every=None if checkpoint is None else 1,
    )
    tt.fit(make(), data, config=config)
    return clock.steps()


def main(rounds: int, folder: str | None) -> None:
    rows = []
    for name, (make, shape) in MODELS.items():
        random = np.random.default_rng(0)
        data = (
            random.standard_normal((STEPS * shape[0], *shape[1:])).astype(np.float32),
            random.integers(0, CLASSES, STEPS * shape[0]),
        )
        found: dict[bool, list[Times]] = {False: [], True: []}
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place, "c.safetensors")
            for _ in range(rounds):
                for every in (False, True):
                    found[every] += trained(make, data, shape[0], path if every else None)
            size = path.stat().st_size / 2**20
        wall, processor = ({e: statistics.median(each[k] for each in found[e]) for e in found} for k in (0, 1))
        rows.append([name, size, wall[False] * 1e3, wall[True] / wall[False], processor[True] / processor[False]])
    columns = ["model", "MiB", "step ms", "every batch", "of the processor"]
    table("Training with a checkpoint after every batch, times training without", columns, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the checkpoints are written")
    chosen = parser.parse_args()
    main(chosen.rounds, chosen.folder)
