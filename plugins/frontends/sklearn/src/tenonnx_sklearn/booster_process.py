"""Reading of booster files in a worker process, as the parsers of LightGBM, XGBoost and CatBoost end it on some files.

A file that was read here, asked for its contents, and for predictions of a few rows is read again by the caller.
"""

from __future__ import annotations

import os

import numpy as np

#: Rows to predict: zeros, what is missing, and numbers that reach every branch.
_ROWS = 64


def _rows(count: int) -> np.ndarray:  # type: ignore[type-arg]
    random = np.random.default_rng(0)
    rows = random.normal(size=(_ROWS, count)) * 10.0 ** random.integers(-3, 6, (_ROWS, 1))
    rows[0], rows[1] = 0.0, np.nan
    rows[2::8, :] = np.where(random.random(rows[2::8, :].shape) < 0.5, np.nan, rows[2::8, :])
    return rows


def without_parameters(text: str) -> str:
    """A LightGBM file without the parameters of its training, on which its parser may corrupt memory."""
    head, found, rest = text.partition("\nparameters:\n")
    return head + rest.partition("\nend of parameters\n")[2] if found else text


def read_lightgbm(path: str) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import lightgbm

    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - the process imports little
        booster = lightgbm.Booster(model_str=without_parameters(file.read()))
    booster.dump_model()
    booster.model_to_string()
    booster.predict(_rows(booster.num_feature()), validate_features=False)
    return int(booster.num_feature())


def read_xgboost(path: str) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import xgboost

    booster = xgboost.Booster(model_file=path)
    booster.save_raw("json")
    known = {"feature_names": booster.feature_names, "feature_types": booster.feature_types}
    rows = (
        np.abs(_rows(booster.num_features())) % 4
        if "c" in (booster.feature_types or ())
        else _rows(booster.num_features())
    )
    booster.predict(xgboost.DMatrix(rows, enable_categorical=True, **known))
    return int(booster.num_features())


def read_catboost(path: str) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import catboost

    model = catboost.CatBoost().load_model(path)
    names = model.feature_names_
    if not model.get_cat_feature_indices() and not model.get_text_feature_indices():
        model.predict(_rows(len(names)))
    return len(names)
