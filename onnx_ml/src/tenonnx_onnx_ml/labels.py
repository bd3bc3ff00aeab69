"""Labels: their encoding, and maps from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, MapType, SequenceType, TensorType, TypeMismatch, constant, op, primitive
from tenonnx_onnx_ml.scores import labels_problem
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal, or_, where
from tenonnx_standard.math import isnan
from tenonnx_standard.reduction import reduce_max
from tenonnx_standard.selection import argmax
from tenonnx_standard.shape import unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

_DTYPES = {"strings": DType.string, "int64s": DType.int64, "floats": DType.float32}


# ----- LabelEncoder ---------------------------------------------------------------------------------------------------


@op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(
    X, *,
    default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None,
    keys_floats=None, keys_int64s=None, keys_strings=None, keys_tensor=None,
    values_floats=None, values_int64s=None, values_strings=None, values_tensor=None,
):  # fmt: skip
    """The value of each key, the default for what is no key. NaN is one key, and a repeated key has its last value."""
    keys, values = _table(
        {"floats": keys_floats, "int64s": keys_int64s, "strings": keys_strings, "tensor": keys_tensor},
        {"floats": values_floats, "int64s": values_int64s, "strings": values_strings, "tensor": values_tensor},
        {"floats": default_float, "int64s": default_int64, "strings": default_string, "tensor": default_tensor},
    )
    column = unsqueeze(X, [-1])
    matches = equal(column, constant(keys, X.dtype))
    if X.dtype.is_float and np.isnan(keys).any():
        matches = or_(matches, isnan(column) & constant(np.isnan(keys)))
    hits = cast(matches, to=DType.int32)
    position = where(reduce_max(hits, [-1], keepdims=0) > 0, argmax(hits, axis=-1, keepdims=0), len(keys))
    return gather(constant(values), position)


def _table(keys: Any, values: Any, defaults: Any) -> tuple[Array, Array]:
    """The keys, each once, and their values, with the default behind."""
    problem = _table_problem(keys, values)
    if problem:
        raise TypeMismatch(f"{label_encoder.title}: {problem}")
    (_, key_array), (kind, value_array) = (_only(each) for each in (keys, values))
    default = _default(kind, value_array, defaults)
    texts = ["nan" if key != key else key for key in key_array.tolist()]
    last = {text: position for position, text in enumerate(texts)}
    chosen = list(last.values())
    return key_array[chosen], np.concatenate([value_array[chosen], default.reshape(1)])


def _only(choices: dict[str, Any]) -> tuple[str, Array]:
    """The one list or tensor that is given."""
    kind = next(kind for kind, given in choices.items() if given is not None)
    if kind == "tensor":
        return kind, choices[kind].array().reshape(-1)
    return kind, np.asarray(choices[kind], dtype=_DTYPES[kind].numpy)


def _default(kind: str, values: Array, defaults: dict[str, Any]) -> Array:
    if kind == "tensor":
        tensor = defaults["tensor"]
        if tensor is not None:
            return tensor.array()
        kind = "strings" if values.dtype == object else "floats" if values.dtype.kind == "f" else "int64s"
        defaults = {"strings": "_Unused", "floats": -0.0, "int64s": -1}
    return np.asarray(defaults[kind], dtype=values.dtype)


def _table_problem(keys: dict[str, Any], values: dict[str, Any]) -> str | None:
    counts = []
    for name, choices in (("keys", keys), ("values", values)):
        given = [kind for kind, numbers in choices.items() if numbers is not None]
        if len(given) != 1:
            listed = " and ".join(f"{name}_{kind}" for kind in given) or "none"
            return f"one attribute {name}_* must be given, and here is {listed}"
        counts.append(len(_only(choices)[1]))
    if counts[0] != counts[1]:
        return f"there must be as many values as keys, and here are {counts[1]} for {counts[0]}"
    return None


def check_label_encoder(**attributes: Any) -> str | None:
    """What the attributes contradict; asked at import."""
    keys, values, _ = _grouped(attributes)
    return _table_problem(keys, values)


_KINDS = ("floats", "int64s", "strings", "tensor")


def _grouped(attributes: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Keys, values and defaults by kind."""
    keys, values = ({kind: attributes[f"{name}_{kind}"] for kind in _KINDS} for name in ("keys", "values"))
    defaults = {kind: attributes[f"default_{kind.removesuffix('s')}"] for kind in _KINDS}
    return keys, values, defaults


label_encoder.rule("check", check_label_encoder)
label_encoder.until(4, lacks=["keys_tensor", "values_tensor", "default_tensor"])


@label_encoder.type
def _(X, **attributes):
    keys, values = _table(*_grouped(attributes))
    if DType.of(keys.dtype) is not X.dtype:
        raise TypeMismatch(
            f"{label_encoder.title}: X must have the type of the keys", given=f"{X!r}, {keys.dtype} keys"
        )
    return X.tensor.with_dtype(DType.of(values.dtype))


@label_encoder.numpy
def _(X, **attributes):
    keys, values = _table(*_grouped(attributes))
    if keys.dtype == object:
        places = {key: place for place, key in enumerate(keys.tolist())}
        positions = np.asarray([places.get(text, len(keys)) for text in X.reshape(-1).tolist()], dtype=np.intp)
        return values[positions].reshape(X.shape)
    order = np.argsort(keys)  # NaN comes last
    ranks = np.minimum(np.searchsorted(keys, X, sorter=order), len(keys) - 1)
    positions = order[ranks]
    found = keys[positions]
    hit = found == X
    if X.dtype.kind == "f":
        hit |= np.isnan(found) & np.isnan(X)
    return values[np.where(hit, positions, len(keys)).reshape(-1)].reshape(X.shape)


@label_encoder.until(2)
def label_encoder_by_classes(X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    """The position of each string among the classes, or the class at each position."""
    known = {"default_int64": default_int64, "default_string": default_string}
    strings, positions = list(classes_strings or ()), list(range(len(classes_strings or ())))
    if X.dtype is DType.string:
        first = dict(reversed(list(zip(strings, positions, strict=True))))
        return label_encoder(X, keys_strings=list(first), values_int64s=list(first.values()), **known)
    return label_encoder(X, keys_int64s=positions, values_strings=strings, **known)


@label_encoder_by_classes.type
def _(X, *, classes_strings, default_int64, default_string):
    if not classes_strings:
        raise TypeMismatch(f"{label_encoder_by_classes.title} needs classes_strings")
    if X.dtype not in (DType.string, DType.int64):
        raise TypeMismatch(f"{label_encoder_by_classes.title}: X must hold strings or int64", given=repr(X))
    return X.tensor.with_dtype(DType.int64 if X.dtype is DType.string else DType.string)


# ----- ZipMap ---------------------------------------------------------------------------------------------------------


@primitive("ZipMap", domain="ai.onnx.ml")
def zip_map(X, *, classlabels_int64s=None, classlabels_strings=None):
    """For each row a map from the labels to the numbers of the row."""


@zip_map.type
def _(X, *, classlabels_int64s, classlabels_strings):
    labels = classlabels_strings or classlabels_int64s
    problem = check_zip_map(classlabels_int64s=classlabels_int64s, classlabels_strings=classlabels_strings)
    if problem:
        raise TypeMismatch(f"{zip_map.title}: {problem}")
    if X.dtype is not DType.float32 or X.rank not in (None, 1, 2):
        raise TypeMismatch(f"{zip_map.title}: X must be a row or rows of float32", given=repr(X))
    if X.rank is not None and isinstance(X.shape[-1], int) and X.shape[-1] != len(labels):
        raise TypeMismatch(f"{zip_map.title}: there must be a column for each of {len(labels)} labels", given=repr(X))
    return SequenceType(MapType(DType.string if classlabels_strings else DType.int64, TensorType(X.dtype, ())))


@zip_map.numpy
def _(X, *, classlabels_int64s, classlabels_strings):
    labels = classlabels_strings or classlabels_int64s
    if X.shape[-1] != len(labels):
        raise TypeMismatch(
            f"{zip_map.title}: there must be a column for each of {len(labels)} labels", given=str(X.shape)
        )
    return [dict(zip(labels, row, strict=True)) for row in np.atleast_2d(X)]


def check_zip_map(*, classlabels_int64s: Any, classlabels_strings: Any) -> str | None:
    """What the attributes contradict; asked at import."""
    if not classlabels_int64s and not classlabels_strings:
        return "class labels must be given"
    return labels_problem(classlabels_int64s, classlabels_strings, "class labels")


zip_map.rule("check", check_zip_map)
