"""Conversion rules for skrub: each column of a table is cleaned and encoded by its own steps."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn import Outputs, Table, converts
from tenonnx_sklearn.conversion import output
from tenonnx_sklearn.tables import as_matrix, as_table, joined

#: Strings of white space that count as missing.
SPACES = [" " * count for count in range(9)] + ["\t", "\n"]


@converts("skrub.TableVectorizer", "skrub.Cleaner", table=True)
def vectorizer(model: Any, X: Table) -> Outputs:
    parts = [apply_steps(model.all_processing_steps_[name], X.take([k])) for k, name in enumerate(names(model, X))]
    return {"transform": joined([part for part in parts if part is not None], X.dtype)}


def names(model: Any, X: Table) -> list[str]:
    """Names of the columns that a transformer was fitted on. Raises ``NotRepresentable`` if it did not keep them."""
    result = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if len(result) != X.shape[1]:
        raise NotRepresentable(
            f"{type(model).__name__} does not know the names of its columns", given=f"{len(result)} for {X.shape[1]}"
        )
    return result


def apply_steps(steps: list[Any], column: Value | Table) -> Value | Table | None:
    """Apply the steps of a column; returns None if they drop it."""
    for step in steps:
        if isinstance(step, dict) or type(step).__name__ == "ShortReprDict":  # casts of columns that are float already
            continue
        if getattr(step, "drop_", False):
            return None
        column = output(step, column, "transform")
    return column


@converts("skrub.ApplyToCols", "skrub.ApplyToEachCol", table=True)
def apply_to_cols(model: Any, X: Table) -> Outputs:
    if not hasattr(model, "transformers_") or getattr(model, "keep_original", False):
        raise NotRepresentable(
            "ApplyToCols does not apply to each column by itself, or keeps columns", given=repr(model)[:200]
        )
    parts = []
    for k, name in enumerate(names(model, X)):
        steps = [model.transformers_[name]] if name in model.transformers_ else []
        parts.append(apply_steps(steps, X.take([k])))
    return {"transform": joined([part for part in parts if part is not None], X.dtype)}


@converts("skrub.CleanNullStrings", table=True)
def null_strings(model: Any, X: Table) -> Outputs:
    x = text(model, X)
    gone = dict.fromkeys([*model.null_strings_, *SPACES])
    found = label_encoder(x, keys_strings=list(gone), values_int64s=[1] * len(gone), default_int64=0)
    return {"transform": ops.where(ops.equal(found, np.int64(1)), np.asarray("", object), x)}


@converts(
    "skrub.ToStr",
    "skrub.ToCategorical",
    "skrub.CleanCategories",
    "skrub.PassThrough",
    "skrub.DropUninformative",
    table=True,
)
def kept(model: Any, X: Table) -> Outputs:
    if type(model).__name__ in ("ToStr", "ToCategorical"):
        text(model, X)
    return {"transform": X}


@converts("skrub.ToFloat", table=True)
def to_float(model: Any, X: Table) -> Outputs:
    """Convert to numbers. Strings are not supported, since ONNX would have to parse them."""
    return {"transform": X.matrix()}


def text(model: Any, X: Table) -> Value:
    """The only column of a table, of strings."""
    if X.blocks[0].dtype is not DType.string:
        raise NotRepresentable(
            f"{type(model).__name__} gets something other than text",
            given=str(X.blocks[0].dtype),
            do="give tx.load an example of the rows that the pipeline takes",
        )
    return X.blocks[0]


@converts("skrub.StringEncoder", table=True)
def string_encoder(model: Any, X: Table) -> Outputs:
    found = as_matrix(output(model.vectorizer_, Table((text(model, X),), X.dtype), "transform"))
    if hasattr(model, "tsvd_"):
        found = as_matrix(output(model.tsvd_, found, "transform"))
    else:
        found = ops.gather(found, np.arange(min(model.n_components, int(found.shape[1]))), axis=1)
    return {"transform": found / float(model.scaling_factor_)}


@converts("skrub.SquashingScaler")
def squashing_scaler(model: Any, X: Value) -> Outputs:
    """Scale and squash numbers to a limit. Infinities become plus or minus the limit, and constant columns 0."""
    features, limit = int(X.shape[1]), float(model.max_absolute_value)
    center, factor = np.zeros(features), np.zeros(features)
    if model.robust_cols_.any():
        center[model.robust_cols_], factor[model.robust_cols_] = (
            model.robust_scaler_.center_,
            1 / model.robust_scaler_.scale_,
        )
    if model.minmax_cols_.any():
        center[model.minmax_cols_], factor[model.minmax_cols_] = (
            model.minmax_scaler_.median_,
            model.minmax_scaler_.scale_,
        )
    rows = ops.cast(X, to=DType.float64)
    infinite = ops.isinf(rows)
    scaled = (ops.where(infinite, np.float64(0), rows) - center) * factor
    bent = scaled / ops.sqrt(scaled * scaled / limit**2 + 1.0)
    found = ops.where(infinite, ops.where(rows > 0.0, np.float64(limit), np.float64(-limit)), bent)
    return {"transform": ops.cast(found, to=X.dtype)}


@converts("skrub.SelectCols", "skrub.DropCols", table=True)
def selected(model: Any, X: Table) -> Outputs:
    kept = [str(name) for name in getattr(model, "columns_", getattr(model, "kept_cols_", []))]
    if not hasattr(model, "feature_names_in_"):
        raise NotRepresentable(
            f"{type(model).__name__} does not know the columns that it gets",
            given="names of what it keeps alone",
            do="leave it out of the pipeline, and give the columns that it keeps",
        )
    places = {str(name): k for k, name in enumerate(model.feature_names_in_)}
    return {"transform": as_table(X).take([places[name] for name in kept])}
