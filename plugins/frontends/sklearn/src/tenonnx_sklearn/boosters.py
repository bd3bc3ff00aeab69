"""LightGBM, XGBoost and CatBoost boosters with the interface of estimators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, InvalidModel, TenonnxError


class NativeBooster:
    """A booster without an estimator: it only has ``predict``, with results in the units of its objective."""

    _estimator_type = "regressor"

    def __init__(self, booster: Any, names: list[str], generic: str) -> None:
        self.booster_ = booster
        self.n_features_in_ = len(names)
        if not all(re.fullmatch(generic, name) for name in names):
            self.feature_names_in_ = np.asarray(names, object)

    def get_booster(self) -> Any:
        return self.booster_

    def get_params(self) -> dict[str, Any]:
        return {}


class LightGBMBooster(NativeBooster):
    """``lightgbm.Booster``, which predicts with its best iteration."""

    def __init__(self, booster: Any) -> None:
        super().__init__(booster, list(booster.feature_name()), r"Column_\d+")

    def predict(self, rows: Any) -> Any:
        return self.booster_.predict(rows)


class XGBoostBooster(NativeBooster):
    """``xgboost.Booster``, which predicts with all rounds, and treats NaN as missing."""

    missing = np.nan

    def __init__(self, booster: Any) -> None:
        names = booster.feature_names or [f"f{k}" for k in range(booster.num_features())]
        super().__init__(booster, list(names), r"f\d+")

    def predict(self, rows: Any) -> Any:
        if type(self.booster_).__module__.partition(".")[0] != "xgboost":  # a file, which predicts in a worker process
            return self.booster_.predict(rows)
        matrix = import_module("xgboost").DMatrix
        known = {"feature_names": self.booster_.feature_names, "feature_types": self.booster_.feature_types}
        if hasattr(rows, "columns"):
            known = {}
        return self.booster_.predict(matrix(rows, enable_categorical=True, **known))


_NATIVE = {"lightgbm.Booster": LightGBMBooster, "xgboost.Booster": XGBoostBooster}


def as_estimator(source: Any) -> Any:
    """Wrap a booster of LightGBM or XGBoost as an estimator; other objects are unchanged."""
    kind = type(source)
    native = _NATIVE.get(f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}")
    return source if native is None else native(source)


# ----- files ----------------------------------------------------------------------------------------------------------


def held_by(path: str | os.PathLike[str], read: Callable[[], Any]) -> Any:
    """Result of ``read`` on a file. Raises ``InvalidCall`` for a missing file, ``InvalidModel`` if reading fails."""
    try:
        return read()
    except OSError as error:
        given = error.strerror or str(error)
        raise InvalidCall(f'cannot read "{os.fspath(path)}": {given}') from error
    except TenonnxError:
        raise
    except Exception as error:  # pickles may raise anything
        raise InvalidModel(
            "the installed packages cannot read the file of an estimator",
            given=f'"{os.fspath(path)}": {type(error).__name__}: {error}',
            do="install the versions of its packages that wrote it, or fit and save the estimator again",
        ) from error
