"""Encoding of labels and categories as other labels, indices or one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Constant, DType, TypeMismatch, Value, constant, dtypes, holds, limits, op
from tenonnx_onnx_ml.cache import remembered
from tenonnx_onnx_ml.scores import labels_problem
from tenonnx_standard.casting import cast
from tenonnx_standard.float_classes import isnan
from tenonnx_standard.logic import equal, less_or_equal, or_, where
from tenonnx_standard.reduction import reduce_min
from tenonnx_standard.shapes import unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

_DTYPES = {"strings": DType.string, "int64s": DType.int64, "floats": DType.float32}

#: More numeric keys than this are searched by bisection; fewer, and strings, by comparison with each.
COMPARED = 64


# ----- key lookup -----------------------------------------------------------------------------------------------------


def _positions(X: Value, keys: Array) -> Value:
    """Index of each element of ``X`` in the keys: the last one of a repeated key, ``len(keys)`` if not found.

    NaN equals NaN.
    """
    if keys.dtype == object or len(keys) <= COMPARED:
        return _positions_by_comparison(X, keys)
    return _positions_by_bisection(X, keys)


def _positions_by_comparison(X: Value, keys: Array) -> Value:
    column = unsqueeze(X, [-1])
    matches = equal(column, constant(keys, X.dtype))
    if X.dtype.is_float and np.isnan(keys).any():
        matches = or_(matches, isnan(column) & constant(np.isnan(keys)))
    places = np.where(_is_last(keys), np.arange(len(keys)), len(keys))
    last = -1 if X.rank is None else X.rank  # for empty inputs, onnxruntime does not reduce over negative axes
    return reduce_min(where(matches, constant(places), len(keys)), [last], keepdims=0)


def _positions_by_bisection(X: Value, keys: Array) -> Value:
    found, places = _sorted(keys)
    nan = len(keys) if found[-1] == found[-1] else int(places[-1])
    if nan < len(keys):
        found, places = found[:-1], places[:-1]
    steps = max(len(found) - 1, 0).bit_length()
    padding = (0, 2**steps - len(found))
    table = constant(np.pad(found, padding, mode="edge"), X.dtype)
    rank = constant(np.int64(0))
    for step in reversed(range(steps)):
        further = rank + 2**step
        rank = where(less_or_equal(gather(table, further), X), further, rank)
    position = gather(constant(np.pad(places, padding, mode="edge")), rank)
    position = where(equal(gather(table, rank), X), position, len(keys))
    return where(isnan(X), nan, position) if X.dtype.is_float else position


def _is_last(keys: Array) -> Array:
    """For each key, whether no later one equals it."""
    last = {"nan" if key != key else key: place for place, key in enumerate(keys.tolist())}
    return np.isin(np.arange(len(keys)), list(last.values()))


@remembered
def _sorted(keys: Array) -> tuple[Array, Array]:
    """The distinct keys in ascending order, NaN last, and their indices."""
    places = np.flatnonzero(_is_last(keys))
    places = places[np.argsort(keys[places])]
    return keys[places], places


@remembered
def _places(keys: Array) -> dict[str, int]:
    return {key: place for place, key in enumerate(keys.tolist())}


def _positions_of_array(X: Array, keys: Array) -> Array:
    """``_positions`` for an array."""
    if keys.dtype == object:
        places, missing = _places(keys), len(keys)
        found = [places.get(text, missing) for text in X.reshape(-1).tolist()]
        return np.asarray(found, dtype=np.intp).reshape(X.shape)
    ordered, places = _sorted(keys)
    ranks = np.minimum(np.searchsorted(ordered, X), len(ordered) - 1)
    found = ordered[ranks]
    hits = found == X
    if X.dtype.kind == "f":
        hits |= np.isnan(found) & np.isnan(X)
    return np.where(hits, places[ranks], len(keys))


# ----- LabelEncoder ---------------------------------------------------------------------------------------------------

_LISTS = ("floats", "int64s", "strings", "tensor")


@op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    default_tensor: Constant | None = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Constant | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Constant | None = None,
):
    """The value of each key, or the default. NaN equals NaN, and of a repeated key the last value is used."""
    keys, values = _table(
        keys_floats,
        keys_int64s,
        keys_strings,
        keys_tensor,
        values_floats,
        values_int64s,
        values_strings,
        values_tensor,
        default_float,
        default_int64,
        default_string,
        default_tensor,
    )
    return gather(constant(values), _positions(X, keys))


def _in_order(attributes: dict[str, Any]) -> list[Any]:
    """The arguments of ``_table``: the keys, the values, and the defaults by kind."""
    names = [f"{name}_{kind}" for name in ("keys", "values") for kind in _LISTS]
    return [attributes[name] for name in (*names, *(f"default_{kind.removesuffix('s')}" for kind in _LISTS))]


@remembered
def _table(*given: Any) -> tuple[Array, Array]:
    """The keys, and their values followed by the default."""
    keys, values = _only(given[:4]), _only(given[4:8])
    default = next(d for d, choice in zip(given[8:], given[4:8], strict=True) if choice is not None)
    if given[7] is not None:
        unused = "_Unused" if values.dtype == object else -0.0 if values.dtype.kind == "f" else -1
        default = unused if default is None else default.array().item()
    return keys, np.append(values, np.asarray(default, values.dtype))


def _only(choices: Sequence[Any]) -> Array:
    """The only list or tensor that is given."""
    kind, given = next((kind, given) for kind, given in zip(_LISTS, choices, strict=True) if given is not None)
    return given.array().reshape(-1) if kind == "tensor" else np.asarray(given, dtype=_DTYPES[kind].numpy)


def _table_problem(*given: Any) -> str | None:
    """Return the first problem of keys, values and default, or None."""
    for name, choices in (("keys", given[:4]), ("values", given[4:8])):
        found = [f"{name}_{kind}" for kind, choice in zip(_LISTS, choices, strict=True) if choice is not None]
        if len(found) != 1:
            return f"not exactly one attribute {name}_* is given, but {' and '.join(found) or 'none'}"
    keys, values = _only(given[:4]), _only(given[4:8])
    if len(keys) != len(values) or not len(keys):
        return f"keys are missing, or differ in number from values: {len(values)} for {len(keys)}"
    default, wanted = given[11], DType.of(values.dtype)
    if None in (default, given[7]) or (default.type.dtype, default.array().size) == (wanted, 1):
        return None
    return f"default_tensor is not one {wanted}: {default.type}"


def check_label_encoder(**attributes: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    return _table_problem(*_in_order(attributes))


def _keys_fit(X: Value, **attributes: Any) -> str | None:
    wanted = DType.of(_table(*_in_order(attributes))[0].dtype)
    return None if X.type is None or X.dtype is wanted else f"type of X differs from that of the keys, {wanted}"


label_encoder.requires(holds(check_label_encoder), holds(_keys_fit))
label_encoder.until(4, lacks=["keys_tensor", "values_tensor", "default_tensor"])


@label_encoder.numpy
def label_encoder_numpy(X, **attributes):
    keys, values = _table(*_in_order(attributes))
    return np.asarray(values[_positions_of_array(X, keys)], values.dtype)


# ----- strings and integers -------------------------------------------------------------------------------------------


@label_encoder.until(2)
def label_encoder_by_classes(
    X, *, classes_strings: list[str] | None = None, default_int64=-1, default_string="_Unused"
):
    """The index of each string in the classes (the last one if repeated), or the class at each index."""
    strings, places = list(classes_strings), list(range(len(classes_strings)))
    known = {"default_int64": default_int64, "default_string": default_string}
    if X.dtype is DType.string:
        return label_encoder(X, keys_strings=strings, values_int64s=places, **known)
    return label_encoder(X, keys_int64s=places, values_strings=strings, **known)


def check_classes(*, classes_strings: Any, **_: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    return None if classes_strings else "classes_strings is missing"


label_encoder_by_classes.requires(holds(check_classes), dtypes(X="string int64"))


@op("CategoryMapper", domain="ai.onnx.ml")
def category_mapper(
    X,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    default_int64=-1,
    default_string="_Unused",
):
    """The integer paired with each string, or vice versa; of a repeated category the last pair is used."""
    known = {"default_int64": default_int64, "default_string": default_string}
    if X.dtype is DType.string:
        return label_encoder(X, keys_strings=cats_strings, values_int64s=cats_int64s, **known)
    return label_encoder(X, keys_int64s=cats_int64s, values_strings=cats_strings, **known)


def check_categories(*, cats_int64s: Any, cats_strings: Any, **_: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    counts = len(cats_strings or ()), len(cats_int64s or ())
    if counts[0] == counts[1] > 0:
        return None
    given = f"{counts[1]} integers for {counts[0]} strings"
    return f"cats_int64s and cats_strings: categories are missing, or differ in number: {given}"


category_mapper.requires(holds(check_categories), dtypes(X="string int64"))


# ----- OneHotEncoder --------------------------------------------------------------------------------------------------


@op("OneHotEncoder", domain="ai.onnx.ml")
def one_hot_encoder(X, *, cats_int64s: list[int] | None = None, cats_strings: list[str] | None = None, zeros=1):
    """A one-hot vector of each element's category. Unknown ones are zeros, or without ``zeros`` an error.

    Numbers are cast to int64. Of a repeated category, the last index is used.
    """
    x = X if X.dtype in (DType.string, DType.int64) else cast(X, to=DType.int64)
    categories = _categories(cats_int64s, cats_strings)
    rows = np.eye(
        *limits.sized((len(categories) + bool(zeros), len(categories)), one_hot_encoder.title), dtype=np.float32
    )
    return gather(constant(rows), _positions(x, categories))  # without zeros, unknown categories index a missing row


@remembered
def _categories(integers: Any, strings: Any) -> Array:
    return np.asarray(strings, dtype=object) if strings else np.asarray(integers, dtype=np.int64)


def check_one_hot(*, cats_int64s: Any, cats_strings: Any, **_: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    if not cats_int64s and not cats_strings:
        return "categories are missing: neither cats_int64s nor cats_strings is given"
    return labels_problem(cats_int64s, cats_strings, "cats_int64s and cats_strings")


def _is_alike(X: Value, cats_strings: Any) -> str | None:
    kind = "strings" if cats_strings else "numbers"
    return None if (X.dtype is DType.string) == bool(cats_strings) else f"X does not hold {kind} like the categories"


one_hot_encoder.requires(holds(check_one_hot), dtypes(X="string number"), holds(_is_alike))


@one_hot_encoder.numpy
def one_hot_encoder_numpy(X, *, cats_int64s, cats_strings, zeros):
    x = X if X.dtype == object else X.astype(np.int64, copy=False)
    categories = _categories(cats_int64s, cats_strings)
    places = _positions_of_array(x, categories)
    unknown = places == len(categories)
    if not zeros and unknown.any():
        raise TypeMismatch(
            f"{one_hot_encoder.title}: an element has no category, and zeros is 0",
            given=", ".join(map(repr, X[unknown][:5].tolist())),
            available=", ".join(map(repr, categories[:50].tolist())),
            do='give known categories, or set zeros to 1, which handle_unknown="ignore" does in scikit-learn',
        )
    y = np.zeros(limits.sized((*places.shape, len(categories) + 1), one_hot_encoder.title), np.float32)
    np.put_along_axis(y, places[..., None], 1, -1)
    return y[..., :-1]
