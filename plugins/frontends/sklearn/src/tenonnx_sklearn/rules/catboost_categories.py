"""Categorical features of CatBoost: hashes of strings, combinations, and counters.

Strings are taken from the example. If they do not explain all hashes of the model, it is rejected, since a missing
string would be treated as unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn.algebra import beside, cast, upright
from tenonnx_sklearn.city_hash import city_hash
from tenonnx_sklearn.conversion import refusal
from tenonnx_sklearn.ensembles import Array, Memberships
from tenonnx_sklearn.rules.encoding import positions
from tenonnx_sklearn.tables import Table, contents_of

#: Multiplier of hash combination: ``MIX * (joined + MIX * hash)`` modulo 2**64, thus a sum of products.
MIX = 0x4906BA494954CB65
#: Marker of empty slots in a hash table.
EMPTY = (1 << 64) - 1
#: Maximum number of combinations of categories to try for the hashes, and of rows in a dense table.
MOST, DENSE = 50_000_000, 1 << 16


@dataclass
class Codes:
    """The rows of a booster: numbers, and categories as indices of known ones; unknown ones have the next index."""

    model: Any
    info: dict[str, Any]
    parts: list[Value]
    hashes: dict[int, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, info: dict[str, Any], X: Table) -> Codes:
        result = cls(model, info, [])
        categories = {each["flat_feature_index"]: each for each in info.get("categorical_features", [])}
        for k in range(X.shape[1]):
            x = X.column(k)
            if k in categories:
                x = result._code(x, categories[k])
            result.parts.append(cast(x, X.dtype))
        return result

    def _code(self, x: Value, feature: dict[str, Any]) -> Value:
        texts = _texts(self.model, x, feature)
        hashes = np.asarray([_hash(text) for text in texts], np.uint64)
        self.hashes[feature["feature_index"]] = hashes
        wanted = np.asarray(feature.get("values", []), np.int64).astype(np.uint64)
        _refuse_unknown(self.model, len(np.setdiff1d(wanted, hashes)), feature["feature_id"])
        known: Any = texts if x.dtype is DType.string else [float(text) for text in texts]
        return positions(x, np.asarray(known, object if x.dtype is DType.string else np.float64))

    def flat(self, index: int) -> int:
        """Column of a category, by its index among categorical features."""
        return int(self.info["categorical_features"][index]["flat_feature_index"])

    def place(self, index: int, value: int) -> int:
        """Index of a category, by its hash."""
        return int(np.flatnonzero(self.hashes[index] == np.int64(value).astype(np.uint64))[0])

    def digit(self, element: dict[str, Any]) -> tuple[Value, Array]:
        """Element of a combination as an integer, with the hash of each; the last integer is for unknown ones."""
        kind = element["combination_element"]
        if kind == "float_feature":
            features = self.info["float_features"]
            own = next(each for each in features if each["feature_index"] == element["float_feature_index"])
            x = cast(self.parts[own["flat_feature_index"]], DType.float32)
            return cast(x > np.float32(element["border"]), DType.int64), np.arange(2, dtype=np.uint64)
        index = element["cat_feature_index"]
        code = cast(self.parts[self.flat(index)], DType.int64)
        if kind == "cat_feature_exact_value":
            hit = ops.equal(code, np.int64(self.place(index, element["value"])))
            return cast(hit, DType.int64), np.arange(2, dtype=np.uint64)
        return code, self.hashes[index]


def counted(codes: Codes, ctrs: list[dict[str, Any]], data: dict[str, Any], dtype: DType) -> list[Value]:
    """Mean target, or number of occurrences, of the categories of a row: one column for each counter."""
    known: dict[str, tuple[Value, Array]] = {}
    result = []
    for ctr in ctrs:
        table = data[ctr["identifier"]]
        stride = int(table["hash_stride"])
        hashes = np.asarray([int(each) for each in table["hash_map"][::stride]], np.uint64)
        counts = np.stack([np.asarray(table["hash_map"][k::stride], np.float32) for k in range(1, stride)], axis=1)
        hashes, counts = hashes[hashes != EMPTY], counts[hashes != EMPTY]
        joined = json.dumps(ctr["elements"], sort_keys=True)
        if joined not in known:
            known[joined] = _place(codes, ctr["elements"], hashes)
        place, order = known[joined]
        if len(hashes) != len(order) or (np.sort(hashes) != order).any():
            raise refusal(codes.model, "tables of one combination that know other categories")
        values = _values(codes.model, ctr, table, counts[np.argsort(hashes)])
        result.append(ops.gather(values.astype(dtype.numpy), place, axis=0))
    return result


def _place(codes: Codes, elements: list[dict[str, Any]], keys: Array) -> tuple[Value, Array]:
    """Index of each row's combination in the sorted hashes (their number for unknown ones), and the hashes."""
    keys = np.sort(keys)
    digits = [codes.digit(element) for element in elements]
    sizes = [len(hashes) for _, hashes in digits]
    if float(np.prod([float(size) for size in sizes])) > MOST:
        raise refusal(codes.model, "combinations of very many categories; train with a lower max_ctr_complexity")
    with np.errstate(over="ignore"):
        sums = np.zeros(1, np.uint64)
        for _, hashes in digits:
            joined = sums[:, None] + np.uint64(MIX) * hashes[None]
            sums = (np.uint64(MIX) * joined).ravel()
    where = np.searchsorted(keys, sums)
    hit = np.append(keys, np.uint64(EMPTY))[where] == sums
    _refuse_unknown(codes.model, len(keys) - len(np.unique(where[hit])), f"{len(elements)} columns together")
    digit, whole = None, np.full([size + 1 for size in sizes], len(keys), np.int64)
    whole[tuple(slice(size) for size in sizes)] = np.where(hit, where, len(keys)).reshape(sizes)
    for (code, _), size in zip(digits, sizes, strict=True):
        digit = code if digit is None else digit * np.int64(size + 1) + code
    assert digit is not None
    if whole.size <= DENSE:
        return ops.gather(whole.ravel(), digit, axis=0), keys
    places = np.flatnonzero(whole.ravel() < len(keys))
    found = label_encoder(
        digit,
        keys_int64s=places.tolist(),
        values_strings=[str(k) for k in whole.ravel()[places]],
        default_string=str(len(keys)),
    )
    return ops.cast(found, to=DType.int64), keys


def _values(model: Any, ctr: dict[str, Any], table: dict[str, Any], counts: Array) -> Array:
    """``(good + prior) / (total + 1)`` in float32 for each combination, and for unknown ones."""
    kind, target = ctr["ctr_type"], int(ctr["target_border_idx"])
    counts = np.vstack([counts, np.zeros((1, counts.shape[1]), np.float32)])
    if kind in ("Counter", "FeatureFreq"):
        good, whole = counts[:, 0], np.float32(table["counter_denominator"])
    elif kind in ("BinarizedTargetMeanValue", "FloatTargetMeanValue"):
        good, whole = counts[:, 0], counts[:, 1]
    elif kind == "Buckets":
        good, whole = counts[:, target], counts.sum(axis=1)
    elif kind == "Borders":
        good, whole = counts[:, target + 1 :].sum(axis=1), counts.sum(axis=1)
    else:
        raise refusal(model, f"counts of the kind {kind}")
    prior, denominator, shift, scale = (
        np.float32(ctr[name]) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
    )
    return np.asarray(((good + prior) / (whole + denominator) + shift) * scale, np.float32)


def columns_of(codes: Codes, values: list[Value], memberships: Memberships, dtype: DType) -> Value:
    """Numbers, category indices and counters, followed by the tests of single categories."""
    return memberships.append(beside([cast(upright(each), dtype) for each in (*codes.parts, *values)]))


def _texts(model: Any, x: Value, feature: dict[str, Any]) -> list[str]:
    """The strings of a column in the example; integers in CatBoost's format."""
    seen = contents_of(x)
    if seen is None:
        raise refusal(
            model,
            f'categories in "{feature["feature_id"]}", whose texts the model holds as hashes alone; give tx.load an '
            "example of rows in which each category occurs",
        )
    found = dict.fromkeys(seen.ravel().tolist())
    return list(dict.fromkeys(each if isinstance(each, str) else _written(each) for each in found if each == each))


def _written(number: Any) -> str:
    """Format numbers like CatBoost: booleans as 0 and 1."""
    return str(int(number)) if number == int(number) else str(number)


def _hash(text: str) -> int:
    """The low 32 bits of a string's hash, sign-extended."""
    low = city_hash(text.encode()) & 0xFFFFFFFF
    return low - (1 << 32) & EMPTY if low >> 31 else low


def _refuse_unknown(model: Any, count: int, where: str) -> None:
    if count:
        raise refusal(
            model,
            f"{count} categories of {where} that do not occur in the example; give tx.load rows in which each occurs",
        )
