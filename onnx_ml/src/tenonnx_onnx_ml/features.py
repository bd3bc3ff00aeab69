"""Selection and concatenation of features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import DType, Index, TensorType, TypeMismatch, Value, dims, dtypes, elements, holds, limits, op
from tenonnx.extend.symbolic import product
from tenonnx_onnx_ml.rows import to_float32
from tenonnx_onnx_ml.scores import check_numbers
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.joining import concat
from tenonnx_standard.padding import pad
from tenonnx_standard.shapes import flatten, reshape, unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]


# ----- ArrayFeatureExtractor ------------------------------------------------------------------------------------------


@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(X, Y: Index):
    """The features of ``X``, its last axis, at the positions ``Y`` in whatever shape; a vector gives one row."""
    return gather(reshape(X, [1, -1]) if X.ndim == 1 else X, reshape(Y, [-1]), axis=-1)


def _positions_fit(X: Value, Y: Value) -> str | None:
    chosen, features = elements(Y), X.shape[-1] if X.rank else None
    if X.rank == 0:
        return "X is a scalar"
    if chosen is not None and isinstance(features, int):
        _check_positions([place for place in chosen if isinstance(place, int)], features)
    return None


def _check_positions(places: Any, features: int) -> None:
    if len(places) and not 0 <= min(places) <= max(places) < features:
        what = f"{array_feature_extractor.title}: a position lies outside 0 to {features - 1}"
        raise TypeMismatch(what, given=f"positions from {min(places)} to {max(places)}")


array_feature_extractor.requires(dtypes(Y="int64"), holds(_positions_fit))


@array_feature_extractor.numpy
def array_feature_extractor_numpy(X, Y):
    places = Y.reshape(-1)
    _check_positions(places, X.shape[-1])
    return np.take(np.atleast_2d(X), places, axis=-1)


# ----- FeatureVectorizer ----------------------------------------------------------------------------------------------


@op("FeatureVectorizer", domain="ai.onnx.ml")
def feature_vectorizer(*X, inputdimensions: list[int] | None = None):
    """Concatenate the features of all inputs in float32. A vector is one row; further axes are flattened to features.

    ``inputdimensions`` has the number of features of each input: more are cropped, fewer are padded with zeros.
    """
    return concat(*(_features(x, size) for x, size in zip(X, _sizes(X, inputdimensions), strict=True)), axis=1)


def _sizes(X: Any, inputdimensions: Any) -> Any:
    return inputdimensions or [None] * len(X)


def _features(x: Value, size: int | None) -> Value:
    x = to_float32(unsqueeze(x, [0]) if x.ndim == 1 else x if x.ndim == 2 else flatten(x))
    return x if size is None or x.shape[1] == size else pad(x, [0, 0, 0, size - dims(x)[1]])  # a negative pad crops


@feature_vectorizer.type
def feature_vectorizer_type(*X, inputdimensions):
    sizes = _sizes(X, inputdimensions)
    if not X:
        raise TypeMismatch(f"{feature_vectorizer.title} has no inputs")
    if len(sizes) != len(X):
        raise TypeMismatch(
            f"{feature_vectorizer.title}: inputdimensions does not have one size for each input",
            given=f"{len(sizes)} sizes for {len(X)} inputs",
        )
    rows, columns = set(), []
    for x, size in zip(X, sizes, strict=True):
        check_numbers(feature_vectorizer.title, "X", x)
        if x.dtype is not X[0].dtype:
            given = ", ".join(map(repr, X))
            raise TypeMismatch(f"{feature_vectorizer.title}: the inputs have different types", given=given)
        if x.rank == 0:
            raise TypeMismatch(f"{feature_vectorizer.title}: the input is a scalar", given=repr(x))
        if x.rank is not None:
            rows.add(x.shape[0] if x.ndim > 1 else 1)
        columns.append(size if size is not None or x.rank is None else product(x.shape[1:] if x.ndim > 1 else x.shape))
    known = [row for row in rows if isinstance(row, int)]
    if len(known) > 1:
        given = ", ".join(map(repr, X))
        raise TypeMismatch(f"{feature_vectorizer.title}: the inputs differ in their number of rows", given=given)
    count = known[0] if known else next(iter(rows - {None}), None)
    return TensorType(DType.float32, (count, None if None in columns else sum(columns[1:], columns[0])))


@numpy_rule(feature_vectorizer)
def feature_vectorizer_numpy(*X, inputdimensions):
    rows = [x.reshape((1, len(x)) if x.ndim == 1 else (len(x), math.prod(x.shape[1:]))) for x in X]
    sizes = [row.shape[1] if size is None else size for row, size in zip(rows, _sizes(X, inputdimensions), strict=True)]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("the inputs differ in their number of rows")
    result = np.zeros(limits.sized((len(rows[0]), sum(sizes)), feature_vectorizer.title), np.float32)
    start = 0
    for row, size in zip(rows, sizes, strict=True):
        result[:, start : start + min(size, row.shape[1])] = row[:, :size]
        start += size
    return result


def check_feature_vectorizer(*, inputdimensions: Any) -> str | None:
    """Return the problem of the attribute, or None."""
    if inputdimensions and min(inputdimensions) < 0:
        return f"inputdimensions holds a negative number: {inputdimensions}"
    return None


feature_vectorizer.requires(holds(check_feature_vectorizer))
