"""Time per row, compared with scikit-learn and with skl2onnx on onnxruntime, and seconds per conversion.

``python speed.py``: medians of interleaved rounds on one thread; on a busy machine only ratios are meaningful.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas
import skl2onnx
from beside import register_boosters
from skl2onnx.common.data_types import FloatTensorType, StringTensorType

import tenonnx as tx
from tenonnx_sklearn import feeds

ROUNDS, ROWS = 15, 1000


def models(X: Any, y: Any) -> dict[str, Any]:
    """A pipeline with scaling, a forest, and boosters, each on one matrix."""
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
    table = pandas.DataFrame({f"n{k}": X[:, k] for k in range(8)})
    for k in range(4):
        table[f"c{k}"] = draw.choice(np.asarray([f"word {n}" for n in range(12)], object), len(X))
    heads = (
        "model",
        "scikit-learn, µs per row",
        "tenonnx / scikit-learn",
        "skl2onnx / scikit-learn",
        "seconds to convert: tenonnx, skl2onnx",
    )
    print(f"| {' | '.join(heads)} |")
    print("| --- | --- | --- | --- | --- |")
    given = dict.fromkeys(models(X, y), X)
    fitted = {**models(X, y), "mixed table, logistic": mixed().fit(table, y)}
    for name, model in fitted.items():
        rows = given.get(name, table)
        sample = rows[:ROWS]
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            graph = tx.load(model, verify=False)
            tx.export(graph, Path(folder, "m.onnx"))
            ours = _session(Path(folder, "m.onnx").read_bytes())
        own = time.perf_counter() - began
        began = time.perf_counter()
        theirs = _converted(model, sample)
        other = time.perf_counter() - began
        calls: list[Callable[[], Any]] = [
            estimated(model, sample),
            partial(ours.run, None, feeds(graph, sample)),
        ]
        calls += [called(theirs, sample)] if theirs is not None else []
        base, *rest = _medians(calls)
        shown = [f"{each / base:.2f}" for each in rest] + ["fails"] * (2 - len(rest))
        print(f"| {name} | {base / ROWS * 1e6:.2f} | {' | '.join(shown)} | {own:.2f}, {other:.2f} |")


def estimated(model: Any, rows: Any) -> Callable[[], Any]:
    return lambda: (model.predict(rows), model.predict_proba(rows))


def mixed() -> Any:
    """A pipeline of numbers with missing values, and of words."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(), StandardScaler()), [f"n{k}" for k in range(8)]
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False), [f"c{k}" for k in range(4)]
    return make_pipeline(make_column_transformer(numbers, words), LogisticRegression())


def called(session: Any, rows: Any) -> Callable[[], Any]:
    if hasattr(rows, "columns"):
        fed = {name: rows[name].to_numpy()[:, None] for name in rows.columns}
        return lambda: session.run(None, fed)
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: rows})


def _session(data: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _converted(model: Any, rows: Any) -> Any:
    try:
        kinds = [("X", FloatTensorType([None, rows.shape[1]]))]
        if hasattr(rows, "columns"):
            kinds = [(c, (StringTensorType if c[0] == "c" else FloatTensorType)([None, 1])) for c in rows.columns]
        found = skl2onnx.convert_sklearn(
            model,
            initial_types=kinds,
            options={id(model): {"zipmap": False}},
            target_opset={"": 18, "ai.onnx.ml": 3},
        )
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
