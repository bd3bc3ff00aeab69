"""Running models: the numpy backend against onnx.reference, the onnxruntime backend against onnxruntime itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
from measure import geometric, rounds, table
from onnx.reference import ReferenceEvaluator

import tenonnx as tx
from tenonnx.checks.generate import generate_feeds

EXAMPLES = Path(__file__).parent.parent / "examples"
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"


def models() -> dict[str, tuple[Path, dict[str, Any]]]:
    """The examples with their samples, and the light image models of the onnx package with generated input."""
    found = {}
    for name, sample in (("digits/digits", "samples"), ("digits/digits-int8", "samples"), ("iris/iris", "samples"),
                         ("iris/tree", "samples-tree"), ("decoder/decoder", "samples")):  # fmt: skip
        path = EXAMPLES / f"{name}.onnx"
        arrays = dict(np.load(path.parent / f"{sample}.npz"))
        arrays.pop("labels", None)
        found[name] = (path, arrays)
    for path in sorted(LIGHT.glob("*.onnx")):
        found[path.stem] = (path, generate_feeds(tx.load(path), seed=0))
    return found


def main() -> None:
    rows, gains, costs = [], [], []
    for name, (path, feeds) in models().items():
        graph = tx.load(path)
        ours, fast = graph.compile("numpy"), graph.compile("onnxruntime")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        contestants = {
            "numpy": lambda ours=ours, feeds=feeds: ours(feeds),
            "onnxruntime backend": lambda fast=fast, feeds=feeds: fast(feeds),
            "onnxruntime": lambda session=session, feeds=feeds: session.run(None, feeds),
        }
        reference = _reference(path, feeds)
        if reference is not None:
            contestants["reference"] = reference
        large = path.parent == LIGHT
        found = rounds(contestants, count=5 if large else 50)
        times = {key: seconds * 1e3 for key, seconds in found.items()}
        gain = found.get("reference", math.nan) / found["numpy"]
        cost = found["onnxruntime backend"] / found["onnxruntime"]
        if not math.isnan(gain):
            gains.append(gain)
        if found["onnxruntime"] > 1e-3:
            costs.append(cost)
        rows.append([name, times["numpy"], times.get("reference", math.nan), times["onnxruntime"], gain, cost])
    columns = ["model", "numpy ms", "onnx.reference ms", "onnxruntime ms", "reference / numpy", "our onnxruntime / its"]
    table("Inference", columns, rows)
    print(f"\nnumpy against onnx.reference, geometric mean {geometric(gains):.1f}")
    print(f"onnxruntime backend against onnxruntime, models over 1 ms, geometric mean {geometric(costs):.3f}")


def _reference(path: Path, feeds: dict[str, Any]) -> Any:
    """A call of onnx.reference, or None for a model whose ops it lacks."""
    try:
        evaluator = ReferenceEvaluator(str(path))
        evaluator.run(None, feeds)
    except Exception as error:
        print(f"onnx.reference does not run {path.name}: {type(error).__name__}")
        return None
    return lambda: evaluator.run(None, feeds)


if __name__ == "__main__":
    main()
