"""Tree ensembles: the numpy backend and the lowering to plain operators compared with onnxruntime's kernel.

``python benchmarks/trees.py [--threads 1] [name ...]`` runs the forests whose names contain one of the words.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from lightgbm import LGBMRegressor
from measure import processes, python, rounds, table
from onnx.reference import ReferenceEvaluator
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
from operators import ONE_THREAD
from skl2onnx import to_onnx, update_registered_converter
from skl2onnx.common.shape_calculator import calculate_linear_regressor_output_shapes
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

if TYPE_CHECKING:
    import onnx

FEATURES = 20
ROWS = (1, 100, 10_000, 100_000)

CONTESTANTS = ("numpy", "plain operators", "scikit-learn", "onnx.reference")

#: Maximum number of rows for onnx.reference, which evaluates row by row.
PATIENCE = 100

random = np.random.default_rng(0)


def samples(count: int) -> Any:
    return random.standard_normal((count, FEATURES), dtype=np.float32)


def forests() -> dict[str, Any]:
    """Trained models: the forest of the performance goal, and other shapes."""
    x = samples(20_000)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + random.standard_normal(len(x)) / 2
    classes = (y > 0).astype(int) + (y > 1)
    return {
        "100 trees of depth 10": RandomForestRegressor(100, max_depth=10, max_features=5).fit(x, y),
        "100 boosted trees of depth 3": GradientBoostingRegressor(n_estimators=100).fit(x[:5000], y[:5000]),
        "20 full trees, 3 classes": RandomForestClassifier(20, min_samples_leaf=2).fit(x, classes),
        "100 unbalanced trees of LightGBM": LGBMRegressor(
            n_estimators=100, num_leaves=127, min_child_samples=5, n_jobs=1, verbose=-1
        ).fit(x, y),
    }


def converted(trained: Any) -> onnx.ModelProto:
    update_registered_converter(
        LGBMRegressor,
        "LGBMRegressor",
        calculate_linear_regressor_output_shapes,
        convert_lightgbm,
        options={"split": None},
    )
    options = {"zipmap": False} if hasattr(trained, "predict_proba") else None
    return to_onnx(trained, samples(1), target_opset={"": 17, "ai.onnx.ml": 3}, options=options)


def session(model: onnx.ModelProto, threads: int) -> Callable[[Any], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    created = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: created.run(None, {"X": x})[-1]


def repeated(call: Callable[[], Any], times: int) -> Callable[[], None]:
    """A function that makes ``times`` calls, since other implementations would evict the caches of a short call."""

    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def measured(trained: Any, threads: int) -> tuple[list[list[object]], onnx.ModelProto]:
    """Measure a model; returns a table row per batch size. Raises if the scores differ."""
    model = converted(trained)
    graph = tx.load(model)
    program, kernel = graph.compile("numpy", threads=threads), session(model, threads)
    plain = session(to_model(tx.retarget(graph, 17, domains=["ai.onnx"])), threads)
    reference, predict = ReferenceEvaluator(model), getattr(trained, "predict_proba", trained.predict)
    result: list[list[object]] = []
    for count in ROWS:
        x = samples(count)
        fast: dict[str, Callable[[], Any]] = {
            "onnxruntime": lambda x=x: kernel(x),
            "numpy": lambda x=x: list(program({"X": x}).values())[-1],
            "plain operators": lambda x=x: plain(x),
        }
        for name in ("numpy", "plain operators"):
            np.testing.assert_allclose(fast[name](), kernel(x), rtol=1e-4, atol=1e-5)
        times = max(1, 500 // count)
        seconds = rounds({name: repeated(call, times) for name, call in fast.items()}, count=7 if count < 1e5 else 3)
        seconds = {name: each / times for name, each in seconds.items()}
        slow: dict[str, Callable[[], Any]] = {"scikit-learn": lambda x=x: predict(x)}
        if count <= PATIENCE:
            slow["onnx.reference"] = lambda x=x: reference.run(None, {"X": x})
        seconds |= rounds(slow, count=3)
        runtime = seconds.pop("onnxruntime")
        result.append([count, runtime * 1e6, *[seconds.get(name, math.nan) / runtime for name in CONTESTANTS]])
    return result, model


def peak(model: onnx.ModelProto) -> float:
    """Peak memory in MiB of a process that evaluates 100,000 rows on numpy."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        Path(file.name).write_bytes(model.SerializeToString())
        code = (
            "import numpy as np, tenonnx as tx\n"
            f"x = np.random.default_rng(0).standard_normal(({ROWS[-1]}, {FEATURES}), dtype=np.float32)\n"
            f"tx.load({file.name!r}).compile('numpy')({{'X': x}})\n"
        )
        return processes({"run": python(code)}, count=3)["run"][1]


def main(names: Sequence[str] = (), threads: int = 1) -> None:
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        subprocess.run(
            [sys.executable, __file__, *names, "--threads", str(threads)], env={**os.environ, **ONE_THREAD}, check=True
        )
        return
    columns = ["rows", "onnxruntime, microseconds", *CONTESTANTS]
    for name, trained in forests().items():
        if names and not any(part in name for part in names):
            continue
        found, model = measured(trained, threads)
        title = f"{name}, times the kernel of onnxruntime, {threads} thread{'s' if threads > 1 else ''}"
        table(f"Forests: {title}", columns, found)
        print(f"\npeak memory of a process that leads {ROWS[-1]:,} rows by numpy: {peak(model):.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    main(chosen.names, chosen.threads)
