"""Functions of the worker process for LightGBM, XGBoost and CatBoost, since these crash on some files.

It imports nothing of tenonnx; the package is already imported.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def opened(kind: str, path: str) -> tuple[str, Any]:
    """The kind of a file, and its model."""
    return kind, _READ[kind](path)


def describe(source: tuple[str, Any]) -> dict[str, Any]:
    """Facts about a model: its names, and its trees in the package's export format."""
    kind, model = source
    facts: dict[str, Any] = _DESCRIBED[kind](model)
    return facts


def predict(source: tuple[str, Any], method: str, rows: Any) -> Any:
    """Predictions of a method for rows from ``booster_files.sendable``."""
    kind, model = source
    given = table_of(rows)
    if kind != "xgboost":
        return np.asarray(getattr(model, method)(given))
    import xgboost

    known = {"feature_names": model.feature_names, "feature_types": model.feature_types}
    return model.predict(
        xgboost.DMatrix(given, enable_categorical=True, **({} if hasattr(given, "columns") else known))
    )


def table_of(rows: Any) -> Any:
    """Rows for the packages: an array, a sparse matrix or a pandas table."""
    if isinstance(rows, np.ndarray):
        return rows
    if "indptr" in rows:
        from scipy.sparse import csr_array

        return csr_array((rows["data"], rows["indices"], rows["indptr"]), shape=rows["shape"])
    if "objects" in rows:
        return _objects(rows["objects"], rows["shape"])
    import pandas

    return pandas.DataFrame(dict(zip(rows["columns"], map(_column, rows["contents"]), strict=True)))


def _column(contents: Any) -> Any:
    """A column: an array, mixed objects, or categories with the index for each row."""
    if isinstance(contents, np.ndarray):
        return contents
    if "objects" in contents:
        return _objects(contents["objects"], [len(contents["objects"])])
    import pandas

    return pandas.Categorical.from_codes(contents["codes"], _column(contents["categories"]), contents["ordered"])


def _objects(contents: list[Any], shape: list[int]) -> Any:
    array = np.empty(len(contents), object)
    array[:] = [each.item() if isinstance(each, np.ndarray) else each for each in contents]
    return array.reshape(shape)


# ----- packages -------------------------------------------------------------------------------------------------------


def _without_parameters(text: str) -> str:
    """A LightGBM file without the training parameters, on which its parser may corrupt memory."""
    head, found, rest = text.partition("\nparameters:\n")
    return head + rest.partition("\nend of parameters\n")[2] if found else text


def _read_lightgbm(path: str) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=_without_parameters(Path(path).read_text("utf-8")))


def _of_lightgbm(booster: Any) -> dict[str, Any]:
    text, dumped = booster.model_to_string(), json.dumps(booster.dump_model())
    return {"names": list(booster.feature_name()), "text": text, "dumped": dumped}


def _read_xgboost(path: str) -> Any:
    import xgboost

    named = path.endswith((".json", ".ubj"))  # XGBoost warns about other suffixes
    return xgboost.Booster(model_file=path if named else bytearray(Path(path).read_bytes()))


def _of_xgboost(booster: Any) -> dict[str, Any]:
    facts = {"names": booster.feature_names, "types": booster.feature_types, "count": booster.num_features()}
    return {**facts, "saved": bytes(booster.save_raw("json"))}


def _read_catboost(path: str) -> Any:
    """Read a model as a classifier if it has classes, else as a regressor."""
    import catboost

    model = catboost.CatBoost().load_model(path)
    kind = catboost.CatBoostClassifier if len(model.classes_) else catboost.CatBoostRegressor
    return kind().load_model(path)


def _of_catboost(model: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "model.json")
        model.save_model(str(saved), format="json")
        text = saved.read_text("utf-8")
    classes = list(getattr(model, "classes_", ()))
    facts: Mapping[str, Any] = model.get_all_params()
    return {
        "names": list(model.feature_names_),
        "classes": np.asarray(classes) if classes else None,
        "loss": str(facts["loss_function"]),
        "threshold": model.get_probability_threshold() if classes else None,
        "saved": text,
    }


_READ = {"lightgbm": _read_lightgbm, "xgboost": _read_xgboost, "catboost": _read_catboost}
_DESCRIBED = {"lightgbm": _of_lightgbm, "xgboost": _of_xgboost, "catboost": _of_catboost}
