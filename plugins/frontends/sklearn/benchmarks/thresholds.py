"""Rows at and next to thresholds of every tree model: numbers of differing labels and results, of 2,000 rows each.

``python thresholds.py`` tests float32, and float64 (``dtype="float64"``) with a tolerance of 1e-9.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import is_regressor

import tenonnx as tx
from tenonnx_sklearn.cases import configurations
from tenonnx_sklearn.cases.data import rows_and_target

ROWS = 2000
KINDS = ("binary", "three", "words", "missing binary", "missing three")
TREES = ("Tree", "Forest", "Boost", "LGBM", "XGB", "Bagging", "IsolationForest")


def main() -> None:
    warnings.simplefilter("ignore")
    differing = {"float32": 0, "float64": 0}
    count = 0
    for case in configurations():
        kind = case.name.rpartition(" on ")[2]
        if case.options or not case.name.startswith(tuple(known())) or kind not in KINDS:
            continue
        model, _ = case.fitted()
        if is_regressor(model) or callable(getattr(model, "objective", None)):  # these have no labels
            continue
        X = rows_and_target(kind)[0]
        rows = near_thresholds(X)
        count += 1
        for dtype in differing:
            given = rows.astype(dtype)
            try:
                found = tx.load(model, verify=False, dtype=dtype).run({"X": given})["label"]
            except tx.TenonnxError as error:
                print(f"{case.name}: {dtype}: refused: {' '.join(str(error).split())[:100]}")
                continue
            wrong = int((np.ravel(found) != np.ravel(model.predict(given))).sum())
            differing[dtype] += wrong
            if wrong:
                print(f"{case.name}: {dtype}: {wrong} of {ROWS} labels")
    print(f"{count} models, labels that differ of {ROWS} rows each: {differing}")


def known() -> list[str]:
    """Names of estimators with trees."""
    from tenonnx_sklearn.cases import names

    return [name for name in names() if any(part in name for part in TREES)]


def near_thresholds(X: Any) -> Any:
    """Midpoints between fitted numbers, where trees have their thresholds, and the adjacent floats."""
    draw = np.random.default_rng(0)
    columns = []
    for column in X.T:
        seen = np.sort(column[np.isfinite(column)])
        halves = (seen[:-1] + seen[1:]) / 2
        chosen = draw.choice(np.concatenate([seen, halves]), ROWS).astype(np.float32)
        side = np.where(draw.random(ROWS) < 0.5, np.inf, -np.inf).astype(np.float32)
        columns.append(np.where(draw.random(ROWS) < 0.5, chosen, np.nextafter(chosen, side)))
    return np.stack(columns, axis=1)


if __name__ == "__main__":
    main()
