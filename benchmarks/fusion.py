"""Fusion and simplification of ``examples/exports`` compared with other tools: node counts, times, and outputs.

``python benchmarks/fusion.py [--rivals PYTHON]``, where PYTHON has the requirements of ``fusion_rivals.py``; ``--deep``
only times a graph of 10,625 nodes.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from fusion_rivals import SIZES
from measure import rounds

import tenonnx as tx
import tenonnx_standard as ops

FOLDER = Path(__file__).parents[1] / "examples" / "exports"

#: Families of fused ops, under the names of all tools.
FAMILIES = {
    "attention": {"Attention", "MultiHeadAttention", "GroupQueryAttention"},
    "norm": {
        "LayerNormalization",
        "SkipLayerNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "GroupNormalization",
        "GroupNorm",
        "EmbedLayerNormalization",
    },
    "skip": {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"},
    "gelu": {"Gelu", "BiasGelu", "FastGelu"},
    "rotary": {"RotaryEmbedding"},
}

#: Number of each family in an architecture, from its source code; ``skip`` are norms of a sum.
STAND = {
    "bert": (2, 5, 5, 2, 0),
    "gpt2": (2, 5, 5, 2, 0),
    "llama": (2, 5, 4, 0, 4),
    "t5": (6, 12, 10, 4, 0),
    "vit": (2, 5, 4, 2, 0),
    "whisper": (6, 12, 11, 6, 0),
    "resnet": (0, 0, 0, 0, 0),
    "diffusion": (2, 6, 2, 1, 0),
}


def families(model: onnx.ModelProto) -> tuple[int, ...]:
    ops = Counter(node.op_type for node in model.graph.node)
    return tuple(sum(ops[op] for op in chosen) for chosen in FAMILIES.values())


def fixed(graph: tx.Graph) -> tx.Graph:
    for value in graph.inputs:
        shape = value.type.shape
        value.type = value.type.with_shape(tuple(d if isinstance(d, int) else SIZES[str(d)] for d in shape))
    return graph


def fused(path: Path, output: Path) -> tuple[Path, Path]:
    """Fuse a file at its own opset with com.microsoft, and at opset 24 without it; returns both paths."""
    simple = tx.simplify(tx.load(path))
    targets = {"microsoft": (simple.opsets["ai.onnx"], ["ai.onnx", "com.microsoft"]), "standard": (24, ["ai.onnx"])}
    paths = []
    for name, (version, domains) in targets.items():
        paths.append(output / f"{path.stem}-{name}.onnx")
        tx.export(simple, paths[-1], opset_version=version, domains=domains, fuse=True)
    return paths[0], paths[1]


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    arrays = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or SIZES[dim.dim_param] for dim in kind.shape.dim]
        numbers = kind.elem_type == onnx.TensorProto.INT64
        ones = "mask" in value.name
        arrays[value.name] = (
            np.ones(shape, np.int64)
            if ones
            else random.integers(1, 30, shape)
            if numbers
            else random.normal(size=shape).astype(np.float32)
        )
    return arrays


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options)


def difference(reference: Path, path: Path, given: dict[str, Any]) -> float:
    pairs = zip(session(reference).run(None, given), session(path).run(None, given), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def deep(blocks: int) -> tx.Graph:
    """Blocks of a norm, a product and a Gelu, in 17 primitive nodes each."""
    random = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 20})

    def weight(*shape: int) -> tx.Value:
        return graph.variable(f"w{len(graph.variables)}", random.normal(size=shape).astype(np.float32))

    x = graph.input("x", "float32", ("batch", 16))
    for _ in range(blocks):
        difference = x - ops.reduce_mean(x, [-1])
        deviation = ops.sqrt(ops.reduce_mean(ops.pow_(difference, np.float32(2)), [-1]) + 1e-5)
        y = ops.matmul(difference / deviation * weight(16) + weight(16), weight(16, 16)) + weight(16)
        x = x + y * (ops.erf(y / 2**0.5) + 1.0) * 0.5
    graph.output("y", x)
    return graph


def time_deep() -> None:
    graph = deep(625)
    for transform in (tx.simplify, tx.fuse):
        transform(deep(20))
        start = time.process_time()
        after = transform(graph)
        taken = time.process_time() - start
        print(f"{transform.__name__}: {len(graph.nodes)} nodes to {len(after.nodes)} in {taken:.1f} s of the processor")


def count(row: dict[str, Any], name: str) -> onnx.ModelProto | None:
    return onnx.load(row[name]["path"]) if "path" in row.get(name, {}) else None


def nodes(model: onnx.ModelProto | None) -> str:
    """The number of nodes without Constant nodes, which some tools keep."""
    return "-" if model is None else str(sum(node.op_type != "Constant" for node in model.graph.node))


def line(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rivals", help="the python that has them")
    parser.add_argument("--rows", type=Path, help="what fusion_rivals.py printed before")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--deep", action="store_true")
    chosen = parser.parse_args()
    if chosen.deep:
        time_deep()
        return
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        printed = chosen.rows.read_text() if chosen.rows else ""
        if chosen.rivals:
            script = [chosen.rivals, Path(__file__).with_name("fusion_rivals.py"), chosen.folder, output]
            printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
        rows = {row["file"]: row for row in map(json.loads, printed.splitlines())}
        paths = sorted(chosen.folder.glob("*.onnx"))
        fusion(paths, rows, output)
        simplification(paths, rows)


def fusion(paths: list[Path], rows: dict[str, Any], output: Path) -> None:
    """Print the counts per family: ours at opset 24, ours with com.microsoft, the optimizer's, and onnxscript's."""
    line("file", *(f"{family}: stand; 24, ms; ort, script" for family in FAMILIES), "nodes", "ms", "difference")
    line(*["---"] * (len(FAMILIES) + 4))
    for path in paths:
        row = rows.get(path.stem, {})
        microsoft, standard = fused(path, output)
        before, found = onnx.load(path), [onnx.load(standard), onnx.load(microsoft)]
        others = [count(row, name) for name in ("optimizer", "onnxscript")]
        found_families = [None if model is None else families(model) for model in (*found, *others)]
        cells = []
        for place in range(len(FAMILIES)):
            stand = STAND[path.stem.split("-")[0]][place]
            ours, theirs = found_families[:2], found_families[2:]
            shown = [", ".join("-" if h is None else str(h[place]) for h in part) for part in (ours, theirs)]
            cells.append(f"{stand}; {'; '.join(shown)}" if stand else "")
        given = feeds(before)
        sessions = {p: session(p) for p in (path, standard, microsoft)}
        times = rounds({str(p): functools.partial(s.run, None, given) for p, s in sessions.items()}, 201, 20)
        worst = max(difference(path, p, given) for p in (standard, microsoft))
        counts = ", ".join(nodes(model) for model in (before, *found, *others))
        taken = ", ".join(f"{1e3 * times[str(p)]:.3f}" for p in (path, standard, microsoft))
        line(path.stem, *cells, counts, taken, f"{worst:.1e}")


def simplification(paths: list[Path], rows: dict[str, Any]) -> None:
    print()
    line("file", "nodes", "ours", "onnxslim", "onnxsim", "fixed: ours", "onnxslim", "onnxsim", "seconds")
    line(*["---"] * 9)
    for path in paths:
        row = rows.get(path.stem, {})
        start = time.perf_counter()
        ours = tx.simplify(tx.load(path))
        taken = time.perf_counter() - start
        still = tx.simplify(fixed(tx.load(path)))
        seconds = [row.get(name, {}).get("seconds") for name in ("onnxslim", "onnxsim")]
        shown = ", ".join("-" if s is None else f"{s:.1f}" for s in (taken, *seconds))
        counts = [nodes(count(row, name)) for name in ("onnxslim", "onnxsim", "onnxslim-fixed", "onnxsim-fixed")]
        line(path.stem, nodes(onnx.load(path)), len(ours.nodes), *counts[:2], len(still.nodes), *counts[2:], shown)


if __name__ == "__main__":
    main()
