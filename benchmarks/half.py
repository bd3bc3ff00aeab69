"""Half precision at realistic sizes: error, file size, and whether onnxruntime accepts the file.

``python examples/exports/make.py FOLDER --hidden 512 --layers 4`` makes the models, ``python benchmarks/half.py
FOLDER`` converts them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from fusion import feeds, session

import tenonnx as tx
from tenonnx_optimize.half_budget import lower_within

BUDGET = 0.01


def main() -> None:
    print("| file | nodes, left in float32 | MiB before | after | largest difference, numpy | onnxruntime | clipped |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
            print(row(path, Path(folder) / path.name), flush=True)


def row(path: Path, target: Path) -> str:
    """The row of a model, whose inputs and outputs stay float32. Errors are relative to an output's largest element."""
    graph, given = tx.load(path), feeds(onnx.load(path))
    lowered = lower_within(graph, "float16", BUDGET, feeds=given)
    tx.export(lowered.graph, target)
    pairs = list(zip(session(path).run(None, given), session(target).run(None, given), strict=True))
    theirs = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    note = next(note for note in lowered.notes if note.startswith("output"))
    ours = note.split("differs by ")[1].split()[0] if "differs by" in note else "not finite"
    sizes = [file.stat().st_size / 2**20 for file in (path, target)]
    counts = f"{len(lowered.graph.nodes)}, {len(lowered.float32_nodes)}"
    clipped = ", ".join(lowered.clipped) or "-"
    return f"| {path.stem} | {counts} | {sizes[0]:.1f} | {sizes[1]:.1f} | {ours} | {theirs:.1e} | {clipped} |"


if __name__ == "__main__":
    main()
