"""Maps: conversion from rows of numbers, and to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Graph,
    MapType,
    NotRepresentable,
    SequenceType,
    TensorType,
    TypeMismatch,
    Value,
    holds,
    limits,
    primitive,
)
from tenonnx.extend.transforms import Call, Rewriter, changing, inline_functions
from tenonnx_onnx_ml.scores import labels_problem

#: Reason why ops on maps have no body.
NO_TENSORS = "maps cannot be represented as tensors"


# ----- ZipMap ---------------------------------------------------------------------------------------------------------


@primitive("ZipMap", domain="ai.onnx.ml")
def zip_map(X, *, classlabels_int64s: list[int] | None = None, classlabels_strings: list[str] | None = None):
    """For each row, a map from the labels to the numbers of the row."""


@zip_map.type
def zip_map_type(X, *, classlabels_int64s, classlabels_strings):
    labels = classlabels_strings or classlabels_int64s
    if X.dtype is not DType.float32 or X.rank not in (None, 1, 2):
        raise TypeMismatch(f"{zip_map.title}: X is not a row or rows of float32", given=repr(X))
    if X.rank is not None and isinstance(X.shape[-1], int) and X.shape[-1] != len(labels):
        raise TypeMismatch(
            f"{zip_map.title}: X does not have one column for each of {len(labels)} labels", given=repr(X)
        )
    return SequenceType(MapType(DType.string if classlabels_strings else DType.int64, TensorType(X.dtype, ())))


@zip_map.lower()
def zip_map_lowering(X, *, classlabels_int64s, classlabels_strings):
    raise NotRepresentable(f"{NO_TENSORS}; without_zip_map(graph), or --no-zipmap, leaves the rows of numbers")


@zip_map.numpy
def zip_map_numpy(X, *, classlabels_int64s, classlabels_strings):
    labels = classlabels_strings or classlabels_int64s
    if X.shape[-1] != len(labels):
        raise TypeMismatch(
            f"{zip_map.title}: X does not have one column for each of {len(labels)} labels", given=str(X.shape)
        )
    limits.check_memory(X.size * 256 + X.size // len(labels) * limits.TEXT, f"the maps of {zip_map.title}")
    numbers, width = list(X.reshape(-1)), len(labels)
    return [dict(zip(labels, numbers[k : k + width], strict=True)) for k in range(0, len(numbers), width)]


def check_zip_map(*, classlabels_int64s: Any, classlabels_strings: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    if not classlabels_int64s and not classlabels_strings:
        return "class labels are missing: neither classlabels_int64s nor classlabels_strings is given"
    return labels_problem(classlabels_int64s, classlabels_strings, "classlabels_int64s and classlabels_strings")


zip_map.requires(holds(check_zip_map))


@changing("interface")
def without_zip_map(graph: Graph) -> Graph:
    """Remove ZipMap: the outputs keep their names and become tensors."""
    if graph.functions:  # functions may contain ZipMap
        graph = inline_functions(graph)
    return Rewriter(graph, _rows_of_zip_map).run()


def _rows_of_zip_map(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    return call.inputs if call.op is zip_map else None


# ----- CastMap --------------------------------------------------------------------------------------------------------

_KINDS = {"TO_FLOAT": DType.float32, "TO_INT64": DType.int64, "TO_STRING": DType.string}

#: Default elements of sparse maps. The string is that of onnxruntime; the specification defines none.
_FILLING = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}


@primitive("CastMap", domain="ai.onnx.ml")
def cast_map(X, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """The values of a map as one row: in the order of keys, or for SPARSE at the indices given by the keys.

    Numbers are formatted to strings with six decimals, and truncated to integers.
    """


@cast_map.type
def cast_map_type(X, *, cast_to, map_form, max_map):
    kind = X.type
    if not isinstance(kind, MapType) or kind.key is not DType.int64:
        raise TypeMismatch(f"{cast_map.title}: X is not a map with int64 keys", given=repr(X))
    if _value_dtype(kind) not in (None, DType.float32, DType.string):
        raise TypeMismatch(f"{cast_map.title}: values of X are neither strings nor float32", given=repr(X))
    return TensorType(_KINDS[cast_to], (1, max_map if map_form == "SPARSE" else None))


@cast_map.lower()
def cast_map_lowering(X, *, cast_to, map_form, max_map):
    raise NotRepresentable(NO_TENSORS)


@cast_map.numpy
def cast_map_numpy(X, *, cast_to, map_form, max_map):
    values = [_converted(value, cast_to) for _, value in sorted(X.items())]
    dtype = _KINDS[cast_to].numpy
    if map_form == "DENSE":
        return np.asarray(values, dtype).reshape(1, -1)
    keys = sorted(X)
    if keys and not 0 <= keys[0] <= keys[-1] < max_map:
        given = f"keys from {keys[0]} to {keys[-1]}"
        raise TypeMismatch(f"{cast_map.title}: a key of a sparse map lies outside 0 to {max_map - 1}", given=given)
    row = np.full(limits.sized((1, max_map), cast_map.title), _FILLING[cast_to], dtype)
    row[0, keys] = values
    return row


def _converted(value: Any, cast_to: str) -> Any:
    """A value of a map converted to the target type."""
    if cast_to == "TO_STRING":
        return value if isinstance(value, str) else f"{value:f}"
    number = float if cast_to == "TO_FLOAT" or not isinstance(value, str) else int
    try:
        return _KINDS[cast_to].numpy.type(number(value))
    except (ValueError, OverflowError) as error:
        raise TypeMismatch(f"{cast_map.title}: a value is not a number", given=repr(value)) from error


def check_cast_map(*, cast_to: str, map_form: str, max_map: int) -> str | None:
    """Return the first problem of the attributes, or None."""
    if cast_to not in _KINDS:
        return f"cast_to is not one of {', '.join(_KINDS)}: {cast_to!r}"
    if map_form not in ("DENSE", "SPARSE"):
        return f"map_form is neither DENSE nor SPARSE: {map_form!r}"
    if map_form == "SPARSE" and max_map < 1:
        return f"max_map is not positive: {max_map}"
    return None


cast_map.requires(holds(check_cast_map))


# ----- DictVectorizer -------------------------------------------------------------------------------------------------


@primitive("DictVectorizer", domain="ai.onnx.ml")
def dict_vectorizer(X, *, int64_vocabulary: list[int] | None = None, string_vocabulary: list[str] | None = None):
    """The values of a map as one row, ordered by the vocabulary; zero or "" for absent keys.

    Keys outside of the vocabulary are ignored, as in onnxruntime and scikit-learn.
    """


@dict_vectorizer.type
def dict_vectorizer_type(X, *, int64_vocabulary, string_vocabulary):
    kind, key = X.type, DType.string if string_vocabulary else DType.int64
    if not isinstance(kind, MapType) or kind.key is not key:
        raise TypeMismatch(f"{dict_vectorizer.title}: X is not a map with {key} keys", given=repr(X))
    dtype = _value_dtype(kind)
    return None if dtype is None else TensorType(dtype, (1, len(string_vocabulary or int64_vocabulary)))


@dict_vectorizer.lower()
def dict_vectorizer_lowering(X, *, int64_vocabulary, string_vocabulary):
    raise NotRepresentable(NO_TENSORS)


@dict_vectorizer.numpy
def dict_vectorizer_numpy(X, *, int64_vocabulary, string_vocabulary):
    if not X:
        what = f"{dict_vectorizer.title}: the map is empty, so the type of the row is unknown"
        raise TypeMismatch(what, do="give a word of the vocabulary the value 0")
    known = np.asarray(list(X.values()))
    filling, dtype = ("", object) if known.dtype.kind in "OU" else (0, known.dtype)
    return np.asarray([[X.get(key, filling) for key in string_vocabulary or int64_vocabulary]], dtype)


def check_dict_vectorizer(*, int64_vocabulary: Any, string_vocabulary: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    if not int64_vocabulary and not string_vocabulary:
        return "the vocabulary is missing: neither int64_vocabulary nor string_vocabulary is given"
    return labels_problem(int64_vocabulary, string_vocabulary, "int64_vocabulary and string_vocabulary")


dict_vectorizer.requires(holds(check_dict_vectorizer))


def _value_dtype(kind: MapType) -> DType | None:
    return kind.value.dtype if isinstance(kind.value, TensorType) else None
