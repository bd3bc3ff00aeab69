"""Booster files, read and evaluated by their own packages in a worker process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, InvalidModel, Registry
from tenonnx.extend.checks import CallFailed, SourceProcess, WorkerEnded, size_of
from tenonnx.tools import installing
from tenonnx_frontends import one_line
from tenonnx_sklearn import frontend
from tenonnx_sklearn.booster_structure import check_structure
from tenonnx_sklearn.boosters import LightGBMBooster, NativeBooster, XGBoostBooster, held_by

#: Module of the functions that the worker process runs.
_FUNCTIONS = Path(__file__).with_name("booster_process.py")

_NAMES = {"lightgbm": "LightGBM", "xgboost": "XGBoost", "catboost": "CatBoost"}


def read(path: str | os.PathLike[str], *examples: Any, registry: Registry | None = None, **options: Any) -> Graph:
    """Read a booster file as a graph: ``.txt`` of LightGBM, ``.ubj`` or ``.json`` of XGBoost, ``.cbm`` of CatBoost.

    Such files contain no code. The package of the booster, which must be installed, reads the file and predicts in a
    worker process. Options are those of ``frontend.read``. Raises ``InvalidCall`` for another file, and if the package
    is not installed; ``InvalidModel`` if it cannot read the file.
    """
    return frontend.read(saved_booster(path), *examples, registry=registry, **options)


def verifier(path: str | os.PathLike[str], *examples: Any, **options: Any) -> Any:
    """A function that verifies a graph against the booster in a file."""
    return frontend.verifier(saved_booster(path), *examples, **options)


def saved_booster(path: str | os.PathLike[str]) -> Any:
    """The booster in a file, as an estimator."""
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
    if find_spec(kind) is None:
        raise InvalidCall(f'cannot read "{os.fspath(path)}": {kind} is not installed', do=installing(kind))
    check_structure(contents, os.fspath(path))
    return _ESTIMATORS[kind](BoosterFile(kind, Path(path)))


class BoosterFile:
    """A file in the worker process of its package; ``facts`` are the description by ``booster_process``.

    It has the methods of ``lightgbm.Booster`` and ``xgboost.Booster`` that rules use.
    """

    def __init__(self, kind: str, path: Path) -> None:
        opening = kind, str(path.absolute())
        self._process = SourceProcess(_FUNCTIONS, _NAMES[kind], size_of(path), opening, [kind])
        try:
            self.facts = self._process("describe")
        except (CallFailed, WorkerEnded) as error:
            do = "save the booster again, by the installed version of its package"
            raise InvalidModel(f"{kind} cannot read a file", given=f'"{path}": {one_line(error)}', do=do) from error
        self.feature_names, self.feature_types = self.facts["names"], self.facts.get("types")

    def predict(self, rows: Any, method: str = "predict") -> Any:
        """Predictions for rows. Raises ``CallFailed`` for errors of the package, ``WorkerEnded`` after a crash."""
        return self._process("predict", method, sendable(rows))

    def feature_name(self) -> list[str]:
        return list(self.feature_names)

    def num_features(self) -> int:
        return int(self.facts["count"])

    def dump_model(self) -> Any:
        return json.loads(self.facts["dumped"])

    def model_to_string(self) -> str:
        return str(self.facts["text"])

    def save_raw(self, raw_format: str) -> bytes:
        """The model as ``"json"``."""
        return bytes(self.facts["saved"])


class CatBoostRegressor(NativeBooster):
    """A CatBoost file without classes, with the interface of ``catboost.CatBoostRegressor``."""

    def __init__(self, booster: BoosterFile) -> None:
        super().__init__(booster, booster.feature_name(), r"\d+")

    def predict(self, rows: Any) -> Any:
        return self.booster_.predict(rows)

    def saved_json(self) -> str:
        """The model in CatBoost's JSON format."""
        return str(self.booster_.facts["saved"])

    def get_all_params(self) -> dict[str, Any]:
        return {"loss_function": self.booster_.facts["loss"]}

    def get_probability_threshold(self) -> Any:
        return self.booster_.facts["threshold"]


class CatBoostClassifier(CatBoostRegressor):
    """A CatBoost file with classes, with the interface of ``catboost.CatBoostClassifier``."""

    _estimator_type = "classifier"

    def __init__(self, booster: BoosterFile) -> None:
        super().__init__(booster)
        self.classes_ = booster.facts["classes"]

    def predict_proba(self, rows: Any) -> Any:
        return self.booster_.predict(rows, "predict_proba")


def _catboost(booster: BoosterFile) -> Any:
    return (CatBoostRegressor if booster.facts["classes"] is None else CatBoostClassifier)(booster)


_ESTIMATORS: dict[str, Callable[[BoosterFile], Any]] = {
    "lightgbm": LightGBMBooster,
    "xgboost": XGBoostBooster,
    "catboost": _catboost,
}


# ----- rows -----------------------------------------------------------------------------------------------------------


def sendable(rows: Any) -> Any:
    """Rows in a form that can be sent to a process, where ``booster_process.table_of`` restores them.

    Raises ``TypeError`` for columns of types other than numbers, strings and categories of these.
    """
    if not hasattr(rows, "iloc") and hasattr(rows, "to_pandas"):
        rows = rows.to_pandas()
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):
        return {"columns": list(map(str, rows.columns)), "contents": [_column(rows[name]) for name in rows.columns]}
    if hasattr(rows, "tocsr"):
        matrix = rows.tocsr()
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        return {**parts, "shape": list(matrix.shape)}
    array = np.asarray(rows)
    return {"objects": list(array.flat), "shape": list(array.shape)} if array.dtype.kind in "OUS" else array


def _column(column: Any) -> Any:
    if hasattr(column, "cat"):
        categories = {"categories": _column(column.cat.categories), "ordered": bool(column.cat.ordered)}
        return {"codes": np.asarray(column.cat.codes), **categories}
    array = np.asarray(column)
    return array if array.dtype.kind in "biufc" else {"objects": array.tolist()}
