"""Inference of whole models: our numpy and onnxruntime backends compared with onnx.reference and onnxruntime.

``python benchmarks/inference.py lstm vit`` runs the models whose names contain one of the words.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
from measure import geometric, rounds, table
from onnx.reference import ReferenceEvaluator
from small_models import small_models

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_convert.verifying.generate import generate_feeds

EXAMPLES = Path(__file__).parent.parent / "examples"
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"

#: Number of turns of each contestant, and the pause in seconds before a turn, in which spinning threads stop.
TURNS, PAUSE = 5, 0.05

Feeds = dict[str, Any]


def examples() -> dict[str, tuple[onnx.ModelProto, Feeds]]:
    """The example models with their sample inputs."""
    result = {}
    for name, sample in (
        ("digits/digits", "samples"),
        ("digits/digits-int8", "samples"),
        ("iris/iris", "samples"),
        ("iris/tree", "samples-tree"),
        ("decoder/decoder", "samples"),
    ):
        path = EXAMPLES / f"{name}.onnx"
        arrays = dict(np.load(path.parent / f"{sample}.npz"))
        arrays.pop("labels", None)
        result[name] = (onnx.load(path), arrays)
    return result


def light() -> dict[str, tuple[onnx.ModelProto, Feeds]]:
    """The image models of the onnx package, with random inputs."""
    return {
        path.stem: (onnx.load(path), generate_feeds(tx.load(path), seed=0)) for path in sorted(LIGHT.glob("*.onnx"))
    }


def small() -> dict[str, tuple[onnx.ModelProto, Feeds]]:
    return {name: (to_model(graph), feeds) for name, (graph, feeds) in small_models().items()}


def measured(model: onnx.ModelProto, feeds: Feeds) -> dict[str, float]:
    """Minimum seconds of each contestant. Raises if outputs differ."""
    graph = tx.load(model)
    ours, fast = graph.compile("numpy"), graph.compile("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    implementations: dict[str, Callable[[], Any]] = {
        "numpy": lambda: ours(feeds),
        "our onnxruntime": lambda: fast(feeds),
        "onnxruntime": lambda: session.run(None, feeds),
    }
    for _ in range(3):  # the second call prepares kernels, which later calls use
        for result, wanted in zip(ours(feeds).values(), session.run(None, feeds), strict=True):
            _check(_rows(result), _rows(wanted))
    once = sum(rounds(implementations, count=1).values())
    result = _by_turns(implementations, max(1, min(60, int(0.2 / once))))
    reference = _reference(model, feeds)
    if reference is not None:
        result |= rounds({"onnx.reference": reference}, count=max(1, min(30, int(0.5 / once))), summary=min)
    return result


def _by_turns(implementations: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Minimum seconds per contestant over five turns of ``count`` calls, with a pause before each turn."""
    result = dict.fromkeys(implementations, math.inf)
    for _ in range(TURNS):
        for name, call in implementations.items():
            time.sleep(PAUSE)
            result[name] = min(result[name], rounds({name: call}, count=count, summary=min)[name])
    return result


def _rows(found: Any) -> Any:
    """An output as an array; each map of a ZipMap becomes a row."""
    return np.asarray([list(each.values()) for each in found] if isinstance(found, list) else found)


def _check(found: Any, wanted: Any) -> None:
    """Raise unless numbers are close and labels are equal."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=5e-3, atol=5e-3)
    else:
        np.testing.assert_array_equal(found, wanted)


def main(*wanted: str) -> None:
    gains, ratios, costs = [], [], []
    for title, models in (("examples", examples()), ("light models", light()), ("small models", small())):
        rows = []
        for name, (model, feeds) in models.items():
            if wanted and not any(word in name for word in wanted):
                continue
            found = measured(model, feeds)
            times = [found.get(key, math.nan) * 1e3 for key in ("numpy", "onnx.reference", "onnxruntime")]
            gain, ratio, cost = times[1] / times[0], times[0] / times[2], found["our onnxruntime"] * 1e3 / times[2]
            gains += [] if math.isnan(gain) else [gain]
            ratios.append(ratio)
            costs += [cost] if times[2] > 1 else []
            rows.append([name, *times, gain, ratio, cost])
        columns = [
            "model",
            "numpy ms",
            "onnx.reference ms",
            "onnxruntime ms",
            "reference / numpy",
            "numpy / onnxruntime",
            "our onnxruntime / its",
        ]
        if rows:
            table(f"Inference: {title}", columns, rows)
    print(f"\nonnx.reference against numpy, geometric mean {geometric(gains):.1f} over {len(gains)} models")
    print(f"numpy against onnxruntime, geometric mean {geometric(ratios):.2f}, worst {max(ratios):.1f}")
    if costs:
        print(f"onnxruntime backend against onnxruntime, models over 1 ms, geometric mean {geometric(costs):.3f}")


def _reference(model: onnx.ModelProto, feeds: Feeds) -> Callable[[], object] | None:
    """A call of onnx.reference, or None if it lacks an op of the model."""
    try:
        evaluator = ReferenceEvaluator(model)
        evaluator.run(None, feeds)
    except Exception as error:
        print(f"onnx.reference does not run {model.graph.name}: {type(error).__name__}")
        return None
    return lambda: evaluator.run(None, feeds)


if __name__ == "__main__":
    main(*sys.argv[1:])
