"""Boosters of their own packages, and the files that these save, asked as estimators are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, InvalidModel, TenonnxError, limits
from tenonnx.extend.checks import CallFailed, NoAnswer, ProcessCrashed, worker_for
from tenonnx.tools import installing
from tenonnx_sklearn.booster_process import without_parameters
from tenonnx_sklearn.booster_structure import check_structure

#: What reads a file first, in a process of its own.
_READER = str(Path(__file__).with_name("booster_process.py"))

#: Bytes of address space for the process that reads files first.
_MEMORY = 16 << 30


class NativeBooster:
    """A booster without an estimator around it: it has ``predict`` alone, which gives what the objective is about."""

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
    """``lightgbm.Booster``, which predicts by the best of its iterations."""

    def __init__(self, booster: Any) -> None:
        super().__init__(booster, list(booster.feature_name()), r"Column_\d+")

    def predict(self, rows: Any) -> Any:
        return self.booster_.predict(rows)


class XGBoostBooster(NativeBooster):
    """``xgboost.Booster``, which predicts by all of its rounds, and takes NaN for missing."""

    missing = np.nan

    def __init__(self, booster: Any) -> None:
        names = booster.feature_names or [f"f{k}" for k in range(booster.num_features())]
        super().__init__(booster, list(names), r"f\d+")

    def predict(self, rows: Any) -> Any:
        matrix = import_module("xgboost").DMatrix
        known = {"feature_names": self.booster_.feature_names, "feature_types": self.booster_.feature_types}
        if hasattr(rows, "columns"):
            known = {}
        return self.booster_.predict(matrix(rows, enable_categorical=True, **known))


_NATIVE = {"lightgbm.Booster": LightGBMBooster, "xgboost.Booster": XGBoostBooster}


def as_estimator(source: Any) -> Any:
    """A booster of its own package as an estimator; anything else as it is."""
    kind = type(source)
    native = _NATIVE.get(f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}")
    return source if native is None else native(source)


# ----- files ----------------------------------------------------------------------------------------------------------


def held_by(path: str | os.PathLike[str], read: Callable[[], Any]) -> Any:
    """Result of ``read`` on a file. Raises ``InvalidCall`` where there is none, ``InvalidModel`` where it fails."""
    try:
        return read()
    except OSError as error:
        given = error.strerror or str(error)
        raise InvalidCall(f'cannot read "{os.fspath(path)}": {given}') from error
    except TenonnxError:
        raise
    except Exception as error:  # what a pickle may raise has no end
        raise InvalidModel(
            "the installed packages cannot read the file of an estimator",
            given=f'"{os.fspath(path)}": {type(error).__name__}: {error}',
            do="install the versions of its packages that wrote it, or fit and save the estimator again",
        ) from error


def saved_booster(path: str | os.PathLike[str]) -> Any:
    """The booster that a file holds, as an estimator."""
    return held_by(path, lambda: _saved(path))


def _saved(path: str | os.PathLike[str]) -> Any:
    contents = Path(path).read_bytes()
    if contents.startswith(b"CBM"):
        kind = "catboost"
    elif contents.startswith(b"tree"):
        kind = "lightgbm"
    elif b"learner" in contents[:4096]:
        kind = "xgboost"
    else:
        raise InvalidCall(
            f'"{os.fspath(path)}" is not a file of a booster, as LightGBM, XGBoost or CatBoost save it',
            do="save it by booster.save_model(path)",
        )
    package = _package(kind, path)
    check_structure(contents, os.fspath(path))
    _read_in_worker(kind, path)
    if kind == "catboost":
        return _of_catboost(path)
    if kind == "lightgbm":
        return LightGBMBooster(package.Booster(model_str=without_parameters(contents.decode())))
    named = Path(path).suffix in (".json", ".ubj")  # of other names XGBoost warns that it guesses the format
    return XGBoostBooster(package.Booster(model_file=os.fspath(path) if named else bytearray(contents)))


def _read_in_worker(kind: str, path: str | os.PathLike[str]) -> None:
    """Let another process read the file first, as the parser may end it. Raises ``InvalidModel`` where it does."""
    worker = worker_for(_READER, kind, memory=_MEMORY)
    try:
        worker.call(f"read_{kind}", str(Path(path).absolute()), seconds=limits.current().seconds)
    except (CallFailed, NoAnswer, ProcessCrashed) as error:
        do = "save the booster again, by the installed version of its package"
        raise InvalidModel(f"{kind} cannot read a file", given=f'"{os.fspath(path)}": {error}', do=do) from error


def _of_catboost(path: str | os.PathLike[str]) -> Any:
    """A classifier where the model has classes, else a regressor."""
    package = _package("catboost", path)
    model = package.CatBoost().load_model(os.fspath(path))
    kind = package.CatBoostClassifier if len(model.classes_) else package.CatBoostRegressor
    return kind().load_model(os.fspath(path))


def _package(name: str, path: str | os.PathLike[str]) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InvalidCall(
            f'cannot read "{os.fspath(path)}": {name} is not installed',
            do=installing(name),
        ) from None
