"""Time per row beside scikit-learn and the file of skl2onnx on onnxruntime, and seconds per conversion.

``python speed.py``: medians of interleaved rounds on one thread; a loaded machine gives ratios alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import skl2onnx
from beside import register_boosters
from skl2onnx.common.data_types import FloatTensorType

import tenonnx as tx

ROUNDS, ROWS = 15, 1000


def models(X: Any, y: Any) -> dict[str, Any]:
    """A pipeline of scaled columns, a forest, and boosters."""
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler
    from xgboost import XGBClassifier

    found = {
        "scaler, polynomials, logistic": make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression()),
        "forest of 100 trees": RandomForestClassifier(100, n_jobs=1, random_state=0),
        "histogram boosting, 100 rounds": HistGradientBoostingClassifier(random_state=0),
        "LightGBM, 100 rounds": LGBMClassifier(n_jobs=1, verbose=-1),
        "XGBoost, 100 rounds": XGBClassifier(n_jobs=1),
    }
    return {name: model.fit(X, y) for name, model in found.items()}


def main() -> None:
    warnings.simplefilter("ignore")
    register_boosters()
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4000, 20)).astype(np.float32)
    y = (X[:, :4].sum(axis=1) + X[:, 4] * X[:, 5] > 0).astype(int)
    asked = X[:ROWS]
    heads = "model", "scikit-learn, us a row", "tenonnx / it", "skl2onnx / it", "seconds to convert, both"
    print(f"| {' | '.join(heads)} |")
    print("| --- | --- | --- | --- | --- |")
    for name, model in models(X, y).items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tx.export(tx.load(model, verify=False), Path(folder, "m.onnx"))
            ours = _session(Path(folder, "m.onnx").read_bytes())
        own = time.perf_counter() - began
        began = time.perf_counter()
        theirs = _converted(model, asked)
        other = time.perf_counter() - began
        calls: list[Callable[[], Any]] = [
            lambda m=model: (m.predict(asked), m.predict_proba(asked)),
            called(ours, asked),
        ]
        calls += [called(theirs, asked)] if theirs is not None else []
        base, *rest = _medians(calls)
        shown = [f"{each / base:.2f}" for each in rest] + ["fails"] * (2 - len(rest))
        print(f"| {name} | {base / ROWS * 1e6:.2f} | {' | '.join(shown)} | {own:.2f}, {other:.2f} |")


def estimated(model: Any, rows: Any) -> Callable[[], Any]:
    return lambda: (model.predict(rows), model.predict_proba(rows))


def called(session: Any, rows: Any) -> Callable[[], Any]:
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: rows})


def _session(data: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _converted(model: Any, rows: Any) -> Any:
    try:
        found = skl2onnx.convert_sklearn(
            model, initial_types=[("X", FloatTensorType([None, rows.shape[1]]))],
            options={id(model): {"zipmap": False}}, target_opset={"": 18, "ai.onnx.ml": 3},
        )  # fmt: skip
        return _session(found.SerializeToString())
    except Exception:
        return None


def _medians(calls: list[Callable[[], Any]]) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for each, call in zip(times, calls, strict=True):
            began = time.perf_counter()
            call()
            each.append(time.perf_counter() - began)
    return [statistics.median(each) for each in times]


if __name__ == "__main__":
    main()
