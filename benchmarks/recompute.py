"""Peak memory and time of a training step, with and without recomputation (``recompute=``).

``python benchmarks/recompute.py`` starts a process for each figure: the growth of its peak over three steps of a
transformer with eight layers, 128 features and 4 heads, on 32 samples of 128 positions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import PEAK, table

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 8, 128, 4, 128, 32


def transformer() -> Any:
    """A graph of encoder layers with node names ``/layer.0/...`` and so on."""
    import tenonnx as tx
    import tenonnx_standard as ops

    graph, random = tx.Graph("transformer", opsets={"ai.onnx": 21}), np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        return graph.variable(name, random.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32))

    def normed(x: Any, name: str) -> Any:
        return ops.layer_normalization(x, graph.variable(f"{name}.scale", np.ones(WIDTH, np.float32)))[0]

    def heads(x: Any, name: str) -> Any:
        split = ops.reshape(x @ weight(name, WIDTH, WIDTH), [0, LENGTH, HEADS, WIDTH // HEADS])
        return ops.transpose(split, perm=[0, 2, 1, 3])

    x = graph.input("x", "float32", ("batch", LENGTH, WIDTH))
    for k in range(LAYERS):
        with graph.building(prefix=f"/layer.{k}"):
            h = normed(x, f"{k}.first")
            query, key, value = (heads(h, f"{k}.{name}") for name in ("query", "key", "value"))
            scores = query @ ops.transpose(key, perm=[0, 1, 3, 2]) * (WIDTH // HEADS) ** -0.5
            mixed = ops.transpose(ops.softmax(scores) @ value, perm=[0, 2, 1, 3])
            x = x + ops.reshape(mixed, [0, LENGTH, WIDTH]) @ weight(f"{k}.out", WIDTH, WIDTH)
            h = ops.gelu(normed(x, f"{k}.second") @ weight(f"{k}.up", WIDTH, 4 * WIDTH))
            x = x + h @ weight(f"{k}.down", 4 * WIDTH, WIDTH)
    graph.output("y", x)
    return graph


def steps(backend: str, *, again: bool) -> None:
    """Print the growth of this process's peak over three steps in KiB, and the seconds of a step."""
    import tenonnx_training as tt

    patterns = [f"/layer.{k}*" for k in range(LAYERS)] if again else []
    step = tt.TrainingStep(transformer(), "mean_squared_error", tt.SGD(1e-3), backend=backend, recompute=patterns)
    x = np.random.default_rng(1).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)
    batch = {"x": x, "labels": np.zeros_like(x)}
    step({name: array[:1] for name, array in batch.items()})
    before, start = peak(), time.perf_counter()
    for _ in range(3):
        step(batch)
    print(peak() - before, (time.perf_counter() - start) / 3)


def peak() -> int:
    """Peak memory of this process in KiB."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith(PEAK))


def main() -> None:
    rows = []
    for backend in ("numpy", "onnxruntime"):
        found = []
        for how in ([], ["--again"]):
            command = [sys.executable, __file__, "--backend", backend, *how]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append([float(number) for number in done.stdout.split()])
        (kept, fast), (again, slow) = found
        rows.append([backend, kept / 1024, again / 1024, again / kept, slow / fast])
    table("Recomputation", ["backend", "kept, MiB", "computed again, MiB", "memory", "time"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend")
    parser.add_argument("--again", action="store_true")
    chosen = parser.parse_args()
    if chosen.backend:
        steps(chosen.backend, again=chosen.again)
    else:
        main()
