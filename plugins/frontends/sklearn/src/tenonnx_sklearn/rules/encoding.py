"""Encoders of categories: a table with one row for each category, and one for unknown ones."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn.algebra import beside, cast, is_zero
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.tables import Table

#: Missing strings: empty, or runtimes' text of NaN, None and NA in object arrays.
MISSING_TEXTS = ("", "nan", "None", "<NA>")


def positions(x: Value, categories: Any) -> Value:
    """Indices of elements in the categories; the number of categories for unknown ones."""
    categories = np.asarray(categories)
    if x.dtype is DType.string:
        return _positions_of_text(x, categories)
    if any(isinstance(each, str) for each in categories.tolist()):
        raise NotRepresentable(
            "a column of numbers is encoded by categories that are strings",
            given=str(x.dtype),
            do="give tx.load an example of the rows that the estimator takes",
        )
    if x.dtype is DType.bool:
        x = ops.cast(x, to=DType.int64)
    missing = np.array([each is None or each != each for each in categories.tolist()], bool)
    numbers = categories if categories.dtype.kind in "iu" else np.where(missing, 0, categories).astype(np.float64)
    # fractions equal no integer category; floats are compared in the dtype of the rows
    whole = numbers == np.floor(numbers)
    fits = ~missing & (whole if not x.dtype.is_float else True)
    rows = ops.unsqueeze(x, np.array([1], np.int64))
    hits = ops.and_(ops.equal(rows, np.where(fits, numbers, 0).astype(x.dtype.numpy)[None]), fits[None])
    if missing.any() and x.dtype.is_float:
        hits = ops.or_(hits, ops.and_(ops.isnan(rows), missing[None]))
    found = ops.cast(hits, to=DType.int64)
    places = ops.reduce_max(found * np.arange(1, len(categories) + 1)[None], np.array([1], np.int64), keepdims=0)
    return ops.where(is_zero(places), np.int64(len(categories)), places - 1)


def _positions_of_text(x: Value, categories: Any) -> Value:
    places: dict[str, int] = {}
    gone: dict[str, int] = {}
    for k, each in enumerate(categories.tolist()):
        if each is None or each != each:
            gone |= dict.fromkeys(MISSING_TEXTS if not gone else ("nan", "<NA>"), k)
        else:
            places[str(each)] = k
    places = {**gone, **places}
    return label_encoder(
        x, keys_strings=list(places), values_int64s=list(places.values()), default_int64=len(categories)
    )


def encoded(x: Value, categories: Any, table: Any, dtype: DType) -> Value:
    """The row of ``table`` for each element: one for each category, and the last for unknown ones."""
    return ops.gather(np.asarray(table, dtype.numpy), positions(x, categories), axis=0)


def _groups(model: Any, k: int) -> Any:
    """The code of each category of a column, where infrequent ones share a code."""
    mapping = model._default_to_infrequent_mappings[k] if getattr(model, "_infrequent_enabled", False) else None
    return np.arange(len(model.categories_[k])) if mapping is None else np.asarray(mapping)


@converts("sklearn.OrdinalEncoder", table=True)
def ordinal_encoder(model: Any, X: Table) -> Outputs:
    parts = []
    for k, categories in enumerate(model.categories_):
        unknown = model.unknown_value if model.handle_unknown == "use_encoded_value" else np.nan
        codes = np.full(len(categories) + 1, np.nan if unknown is None else unknown, np.float64)
        known = _groups(model, k)  # excludes missing ones if others are infrequent
        codes[: len(known)] = known
        if k in model._missing_indices:
            codes[model._missing_indices[k]] = model.encoded_missing_value
        parts.append(encoded(X.column(k), categories, codes, X.dtype))
    return {"transform": beside(parts)}


@converts("sklearn.OneHotEncoder", table=True)
def one_hot_encoder(model: Any, X: Table) -> Outputs:
    parts = []
    for k, categories in enumerate(model.categories_):
        codes = _groups(model, k)
        width = int(codes.max()) + 1
        rows = np.eye(width)[codes]
        unknown = np.zeros(width)
        groups = getattr(model, "infrequent_categories_", [None] * (k + 1))[k] if model._infrequent_enabled else None
        if groups is not None and model.handle_unknown in ("infrequent_if_exist", "warn"):
            unknown[-1] = 1
        table = np.vstack([rows, unknown])
        dropped = None if model.drop_idx_ is None else model._drop_idx_after_grouping[k]
        if dropped is not None:
            table = np.delete(table, int(dropped), axis=1)
        if table.shape[1]:
            parts.append(encoded(X.column(k), categories, table, X.dtype))
    if not parts:
        raise refusal(model, "no columns left")
    return {"transform": beside(parts)}


@converts("sklearn.TargetEncoder", table=True)
def target_encoder(model: Any, X: Table) -> Outputs:
    means = np.ravel(model.target_mean_)
    parts = []
    for k, categories in enumerate(model.categories_):
        tables = model.encodings_[k * len(means) : (k + 1) * len(means)]
        rows = np.stack([np.append(table, mean) for table, mean in zip(tables, means, strict=True)], axis=1)
        parts.append(encoded(X.column(k), categories, rows, X.dtype))
    return {"transform": beside(parts)}


@converts("sklearn.LabelEncoder", table=True)
def label_positions(model: Any, X: Table) -> Outputs:
    return {"transform": positions(X.column(0), model.classes_)}


@converts("sklearn.LabelBinarizer", table=True)
def label_binarizer(model: Any, X: Table) -> Outputs:
    if model.y_type_ not in ("binary", "multiclass"):
        raise refusal(model, f"targets that are {model.y_type_}")
    rows = np.where(np.eye(len(model.classes_)) > 0, model.pos_label, model.neg_label)
    rows = np.vstack([rows, np.full(len(model.classes_), model.neg_label)])
    rows = rows[:, 1:] if len(model.classes_) == 2 else rows
    return {"transform": cast(encoded(X.column(0), model.classes_, rows, DType.float64), DType.int64)}


@converts("sklearn.MultiLabelBinarizer", table=True)
def multi_label_binarizer(model: Any, X: Table) -> Outputs:
    """One-hot of sets of labels; shorter rows are padded with labels that are not classes."""
    labels, classes = X.blocks[0], np.asarray(model.classes_)
    if labels.dtype is DType.string:
        labels, classes = _positions_of_text(labels, classes), np.arange(len(classes))
    hits = ops.equal(ops.unsqueeze(labels, np.array([2], np.int64)), classes.astype(labels.dtype.numpy))
    count = ops.reduce_sum(ops.cast(hits, to=DType.int64), np.array([1], np.int64), keepdims=0)
    return {"transform": ops.cast(count > np.int64(0), to=DType.int64)}


def coded(model: Any, X: Table, categories: dict[int, Any]) -> Value:
    """The rows of a booster with categories replaced by their indices, and unknown ones by missing."""
    if not categories:
        return X.matrix()
    parts = []
    for k in range(X.shape[1]):
        x = X.column(k)
        if k not in categories:
            parts.append(cast(x, X.dtype))
            continue
        if isinstance(categories[k][0], str) and x.dtype is not DType.string:
            raise refusal(model, f"column {k} holds text; give tx.load an example of the rows that the estimator takes")
        places = positions(x, categories[k])
        known = places < len(categories[k])
        parts.append(ops.where(known, cast(places, X.dtype), np.asarray(np.nan, X.dtype.numpy)))
    return beside(parts)
