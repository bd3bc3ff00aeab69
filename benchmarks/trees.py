"""Forests: the numpy backend and the form in plain operators against the kernel of onnxruntime, on one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure import processes, python, rounds, table
from onnx.reference import ReferenceEvaluator
from operators import ONE_THREAD
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

FEATURES = 20
ROWS = (1, 100, 10_000, 100_000)

#: onnx.reference leads row after row, so it is asked for so many at most.
PATIENCE = 100

random = np.random.default_rng(0)


def samples(count: int) -> Any:
    return random.standard_normal((count, FEATURES), dtype=np.float32)


def forests() -> dict[str, Any]:
    """Trained models: the forest that the aims are about, and other shapes."""
    x = samples(20_000)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + random.standard_normal(len(x)) / 2
    classes = (y > 0).astype(int) + (y > 1)
    return {
        "100 trees of depth 10": RandomForestRegressor(100, max_depth=10, max_features=5).fit(x, y),
        "100 boosted trees of depth 3": GradientBoostingRegressor(n_estimators=100).fit(x[:5000], y[:5000]),
        "20 full trees, 3 classes": RandomForestClassifier(20, min_samples_leaf=2).fit(x, classes),
    }


def session(model: onnx.ModelProto) -> Callable[[Any], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: made.run(None, {"X": x})[-1]


def measured(trained: Any) -> tuple[list[list[object]], onnx.ModelProto]:
    """A row of the table for each number of rows; the scores must agree."""
    classes = hasattr(trained, "predict_proba")
    model = to_onnx(
        trained, samples(1), target_opset={"": 17, "ai.onnx.ml": 3}, options={"zipmap": False} if classes else None
    )
    graph = tx.load(model)
    program, kernel = graph.compile("numpy"), session(model)
    plain = session(to_model(tx.retarget(graph, 17, domains=["ai.onnx"])))
    reference, theirs = ReferenceEvaluator(model), trained.predict_proba if classes else trained.predict
    found: list[list[object]] = []
    for count in ROWS:
        x = samples(count)
        contestants: dict[str, Callable[[], Any]] = {
            "onnxruntime": lambda x=x: kernel(x),
            "numpy": lambda x=x: list(program({"X": x}).values())[-1],
            "plain": lambda x=x: plain(x),
            "scikit-learn": lambda x=x: theirs(x),
        }
        for name in ("numpy", "plain"):
            np.testing.assert_allclose(contestants[name](), kernel(x), rtol=1e-4, atol=1e-5)
        if count <= PATIENCE:
            contestants["reference"] = lambda x=x: reference.run(None, {"X": x})
        times = rounds(contestants, count=max(3, min(30, 100_000 // count)))
        best = times["onnxruntime"]
        ratios = [times[name] / best if name in times else float("nan")
                  for name in ("numpy", "plain", "scikit-learn", "reference")]  # fmt: skip
        found.append([count, best * 1e6, *ratios])
    return found, model


def peak(model: onnx.ModelProto) -> list[object]:
    """What 100,000 rows add to the peak memory of a process, in MiB."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        Path(file.name).write_bytes(model.SerializeToString())
        ready = (
            "import numpy as np, tenonnx as tx\n"
            f"x = np.zeros(({ROWS[-1]}, {FEATURES}), np.float32) + 1\n"
            f"program = tx.load({file.name!r}).compile('numpy')\n"
        )
        found = processes({"ready": python(ready), "run": python(ready + "program({'X': x})")}, count=3)
    return [found["run"][1], found["run"][1] - found["ready"][1]]


def main() -> None:
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        subprocess.run([sys.executable, __file__], env={**os.environ, **ONE_THREAD}, check=True)
        return
    columns = ["rows", "onnxruntime, microseconds", "numpy", "plain operators", "scikit-learn", "onnx.reference"]
    memory = []
    for name, trained in forests().items():
        found, model = measured(trained)
        table(f"{name}: times the kernel of onnxruntime", columns, found)
        memory.append([name, *peak(model)])
    table("Memory for 100,000 rows, MiB", ["forest", "peak of the process", "of it for the rows"], memory)


if __name__ == "__main__":
    main()
