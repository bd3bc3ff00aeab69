"""Cases: estimators with default and other settings, fitted on small suitable data."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tenonnx_sklearn.cases.boosters import BOOSTERS
from tenonnx_sklearn.cases.compositions import COMPOSITIONS
from tenonnx_sklearn.cases.configurations import CONFIGURATIONS
from tenonnx_sklearn.cases.data import rows_and_target

PACKAGES = ("lightgbm", "xgboost", "catboost")


@dataclass(frozen=True)
class Case:
    """An estimator, with a function that fits it and returns it with rows to predict."""

    name: str
    fitted: Callable[[], tuple[Any, Any]]
    options: dict[str, Any] = field(default_factory=dict)


def cases() -> Iterator[Case]:
    """All estimators with default settings, then other settings, and those of the installed boosters."""
    from tenonnx_sklearn.cases.estimators import defaults

    yield from (Case(name, fitted) for name, fitted in defaults())
    yield from configurations()


def configurations() -> Iterator[Case]:
    """A case for each setting and each kind of data in its heading."""
    for table in (CONFIGURATIONS, COMPOSITIONS, BOOSTERS):
        for heading, lines in table.items():
            for line in lines.strip().splitlines():
                expression, _, methods = line.partition(" -> ")
                if any(_of(package) in expression and not _is_installed(package) for package in PACKAGES):
                    continue
                options = {"outputs": [name.strip() for name in methods.split(",")]} if methods else {}
                for kind in _kinds(heading):
                    yield Case(f"{line} on {kind}", _fit(expression, kind), options)


def _kinds(heading: str) -> list[str]:
    """Split ``"binary three"`` into two kinds; other headings, such as ``"counts three"``, are one kind."""
    return heading.split() if heading == "binary three" else [heading]


def _of(package: str) -> str:
    return {"lightgbm": "LGBM", "xgboost": "XGB", "catboost": "CatBoost"}[package]


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _fit(expression: str, kind: str) -> Callable[[], tuple[Any, Any]]:
    def fitted() -> tuple[Any, Any]:
        X, y, X_test = rows_and_target(kind)
        model = eval(expression, names())  # noqa: S307  the expressions are those of this package
        if expression.startswith("IsotonicRegression"):
            X, X_test = X[:, :1], X_test[:, :1]
        options: dict[str, Any] = {"group": [len(X) // 4] * 4} if kind == "ranked" else {}
        if expression.startswith("CatBoostRanker"):
            options = {"group_id": np.arange(len(X)) // 30}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if expression.startswith("FrozenEstimator"):
                model.estimator.fit(X, y)
            return model.fit(X, y, **options), X_test

    return fitted


@cache
def names() -> dict[str, Any]:
    """Names for expressions: estimators, kernels, score functions, and installed boosters."""
    from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
    from sklearn.utils import all_estimators

    result: dict[str, Any] = {"np": np, **dict(all_estimators())}
    for module in (
        "sklearn.gaussian_process.kernels",
        "sklearn.feature_selection",
        "sklearn.pipeline",
        "sklearn.compose",
        "sklearn.metrics",
        *PACKAGES,
    ):
        try:
            result |= {name: each for name, each in vars(importlib.import_module(module)).items() if name[0] != "_"}
        except ImportError:
            continue
    return result
