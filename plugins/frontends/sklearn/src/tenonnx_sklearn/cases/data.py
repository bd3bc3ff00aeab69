"""Small data sets of each kind for configurations: rows and targets to fit, and rows to predict."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = 120


def rows_and_target(kind: str) -> tuple[Any, Any, Any]:
    """Rows and target to fit, and rows to predict. ``kind`` names the content of rows, then the target."""
    draw = np.random.default_rng(0)
    X: Any = draw.normal(size=(ROWS, 4))
    score = X @ [1.0, -2.0, 0.5, 1.0] + draw.normal(size=ROWS) * 0.3
    words = kind.split()
    if "counts" in words:
        X = np.floor(np.abs(X) * 2)
        score = X[:, 0] % 3 + X[:, 2] % 2 + X[:, 1] * 0.3
    if "positive" in words:
        X = np.abs(X)
    X_test = np.concatenate([X, draw.permuted(X, axis=0)]).astype(np.float32)
    if "missing" in words:  # not the fitted rows, whose distances are rounding errors
        X_test = draw.normal(size=(2 * ROWS, 4)).astype(np.float32)
        X, X_test = (np.where(draw.random(each.shape) < 0.15, np.nan, each) for each in (X, X_test))
    if "texts" in words:
        X, X_test = _texts(draw, score > 0), [*_texts(draw, score > 0), "", "Ünknown WORDS, good?"]
    if "table" in words:
        X, X_test = _table(draw, X), _table(draw, X)
    return X, _target(words, X, score), X_test


def _target(words: list[str], X: Any, score: Any) -> Any:
    both = np.stack([score, score**2 / 3 + np.arange(ROWS) % 2], axis=1)
    targets = {
        "binary": lambda: (score > np.median(score)).astype(np.int64),
        "three": lambda: np.digitize(score, np.quantile(score, [0.33, 0.66])),
        "words": lambda: np.asarray(["a", "b", "c"])[np.digitize(score, np.quantile(score, [0.33, 0.66]))],
        "above": lambda: np.exp(score / 3),
        "unit": lambda: 1 / (1 + np.exp(-score)),
        "numbers": lambda: both,
        "labels": lambda: (both > both.mean(axis=0)).astype(np.int64),
        "ranked": lambda: np.digitize(score, np.quantile(score, [0.33, 0.66])),
        "number": lambda: score,
    }
    return next((make() for name, make in targets.items() if name in words), score)


def _texts(draw: Any, good: Any) -> list[str]:
    words = np.array(["x", "the", "Good", "bad", "slow", "AND", "Çafé", "naïve", "item2", "over-priced,", "nice!"])
    return [" ".join([*draw.choice(words, 5), "great" if each else "poor"]) for each in good]


def _table(draw: Any, X: Any) -> Any:
    names = np.array(["Oslo", "Rome", "Łódź"], object)[draw.integers(0, 3, len(X))]
    numbers = X[:, :2].astype(np.float32).astype(object)
    return np.concatenate([names[:, None], numbers], axis=1)
