"""Strings: concatenation, splitting, matching, normalization and n-gram counts."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, broadcast_types, limits, primitive
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.regular_expressions import compiled

Array = np.ndarray[Any, Any]


def _check_strings(op: Op, *values: Value) -> None:
    for value in values:
        if value.dtype is not DType.string:
            raise TypeMismatch(f"{op.title}: an input is not of strings", given=repr(value))


def _strings(items: list[Any], shape: tuple[int, ...]) -> Array:
    """An array of strings with the given shape."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)


# ----- elementwise ops ------------------------------------------------------------------------------------------------


@primitive("StringConcat", since=20)
def string_concat(X, Y):
    """Each string of ``X`` followed by that of ``Y``; the shapes broadcast."""


string_concat.traits(grows_text=True)


@string_concat.type
def string_concat_type(X: Value, Y: Value) -> TensorType:
    _check_strings(string_concat, X, Y)
    return TensorType(DType.string, broadcast_types(string_concat, [X, Y]))


@numpy_rule(string_concat)
def string_concat_numpy(x: Array, y: Array) -> Array:
    shape = limits.sized(np.broadcast_shapes(x.shape, y.shape), string_concat.title)
    elements = int(np.prod(shape))
    sizes = [limits.text_bytes(each.reshape(-1).tolist()) * elements // max(each.size, 1) for each in (x, y)]
    limits.check_memory(2 * sum(sizes), f"the text of {string_concat.title}, with what it is made of,")
    return np.asarray(x.astype(object) + y.astype(object), dtype=object)


@primitive("RegexFullMatch", since=20)
def regex_full_match(X, *, pattern: str | None = None):
    """Whether each entire string matches the regular expression ``pattern``, in RE2 syntax."""


@regex_full_match.type
def regex_full_match_type(X: Value, *, pattern: str | None) -> TensorType:
    _check_strings(regex_full_match, X)
    compiled(regex_full_match.title, pattern)
    return X.tensor.with_dtype(DType.bool)


@numpy_rule(regex_full_match)
def regex_full_match_numpy(x: Array, *, pattern: str | None) -> Array:
    matches = compiled(regex_full_match.title, pattern).matches
    found = [matches(text) for text in x.reshape(-1).tolist()]
    return np.asarray(found, dtype=bool).reshape(x.shape)


@primitive("StringSplit", since=20)
def string_split(X, *, delimiter: str | None = None, maxsplit: int | None = None):
    """The pieces of each string along a new last axis, padded with empty strings, and their number.

    Without ``delimiter``, split at whitespace and strip it at the ends.
    """


@string_split.type
def string_split_type(X: Value, *, delimiter: str | None, maxsplit: int | None) -> tuple[TensorType, TensorType]:
    _check_strings(string_split, X)
    shape = X.tensor.shape
    pieces = X.tensor if shape is None else X.tensor.with_shape((*shape, None))
    return pieces, X.tensor.with_dtype(DType.int64)


@numpy_rule(string_split)
def string_split_numpy(x: Array, *, delimiter: str | None, maxsplit: int | None) -> tuple[Array, Array]:
    limit = -1 if maxsplit is None else maxsplit
    texts = x.reshape(-1).tolist()
    most = [(text.count(delimiter) if delimiter else len(text) // 2) + 1 for text in texts]
    most = [min(each, limit + 1) for each in most] if limit >= 0 else most
    limits.check_memory(sum(most) * limits.TEXT + limits.text_bytes(texts), f"the pieces of {string_split.title}")
    pieces = [text.split(delimiter, limit) if delimiter else text.strip().split(None, limit) for text in texts]
    counts = np.asarray([len(each) for each in pieces], dtype=np.int64).reshape(x.shape)
    longest = int(counts.max(initial=0))
    limits.check_elements((*x.shape, longest), string_split.title)
    padded = [piece for each in pieces for piece in (*each, *[""] * (longest - len(each)))]
    return _strings(padded, (*x.shape, longest)), counts


# ----- normalization --------------------------------------------------------------------------------------------------

_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
_ASCII_CASES: dict[str, Callable[[str], str]] = {
    "LOWER": lambda text: text.translate(_LOWER),
    "UPPER": lambda text: text.translate(_UPPER),
    "NONE": str,
}
_LOWER, _UPPER = (
    str.maketrans(*letters) for letters in ((ascii_uppercase, ascii_lowercase), (ascii_lowercase, ascii_uppercase))
)


@primitive("StringNormalizer", since=10)
def string_normalizer(
    X, *, case_change_action="NONE", is_case_sensitive=0, locale: str | None = None, stopwords: list[str] | None = None
):
    """The strings without ``stopwords``, optionally in lower or upper case; one empty string if none remains.

    Case conversion is ASCII for the ``locale`` "C" (or "POSIX"), else Unicode.
    """


@string_normalizer.type
def string_normalizer_type(X: Value, *, case_change_action: str, stopwords: list[str] | None, **_: Any) -> TensorType:
    op, shape = string_normalizer, X.tensor.shape
    _check_strings(op, X)
    if case_change_action not in _CASES:
        raise TypeMismatch(f"{op.title}: unknown action", given=repr(case_change_action), available=", ".join(_CASES))
    if shape is None:
        return X.tensor
    if len(shape) not in (1, 2) or (len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1):
        raise TypeMismatch(f"{op.title}: shape of X is neither [C] nor [1, C]", given=repr(X))
    left = shape[-1] if not stopwords and isinstance(shape[-1], int) and shape[-1] else None
    return X.tensor.with_shape((left,) if len(shape) == 1 else (1, left))


@numpy_rule(string_normalizer)
def string_normalizer_numpy(
    x: Array, *, case_change_action: str, is_case_sensitive: int, locale: Any, stopwords: list[str] | None
) -> Array:
    cases = _ASCII_CASES if locale in ("C", "POSIX") else _CASES
    same = cases["NONE" if is_case_sensitive else "LOWER"]
    dropped = {same(word) for word in stopwords or ()}
    change = cases[case_change_action]
    limits.check_memory(3 * limits.text_bytes(x.reshape(-1).tolist()), f"the text of {string_normalizer.title}")
    left = [change(text) for text in x.reshape(-1).tolist() if same(text) not in dropped] or [""]
    return _strings(left, (len(left),) if x.ndim == 1 else (1, len(left)))


# ----- n-grams --------------------------------------------------------------------------------------------------------

_MODES = ("TF", "IDF", "TFIDF")


@primitive("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    X,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
):
    """Counts of each n-gram of a pool in a row, with up to ``max_skip_count`` elements skipped in between.

    ``mode`` selects counts (TF), weights of the n-grams that occur (IDF), or their product (TFIDF).
    """


@tf_idf_vectorizer.type
def tf_idf_vectorizer_type(
    X: Value, *, mode: str, ngram_indexes: list[int], pool_int64s: Any, pool_strings: Any, **_: Any
) -> TensorType:
    op, shape = tf_idf_vectorizer, X.tensor.shape
    if mode not in _MODES:
        raise TypeMismatch(f"{op.title}: unknown mode", given=repr(mode), available=", ".join(_MODES))
    if (pool_int64s is None) == (pool_strings is None):
        raise TypeMismatch(f"{op.title}: not exactly one of pool_int64s and pool_strings is given")
    if (X.dtype is DType.string) != (pool_strings is not None):
        raise TypeMismatch(f"{op.title}: element type of X differs from that of the pool", given=repr(X))
    if not ngram_indexes or min(ngram_indexes) < 0:
        raise TypeMismatch(
            f"{op.title}: ngram_indexes is empty, or holds a negative position", given=repr(ngram_indexes)
        )
    if shape is None:
        return TensorType(DType.float32)
    if len(shape) not in (1, 2):
        raise TypeMismatch(f"{op.title}: X is neither a row nor rows", given=repr(X))
    return TensorType(DType.float32, (*shape[:-1], max(ngram_indexes) + 1))


@numpy_rule(tf_idf_vectorizer)
def tf_idf_vectorizer_numpy(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None,
    pool_strings: list[str] | None,
    weights: list[float] | None,
) -> Array:
    pool: list[Any] = pool_int64s if pool_strings is None else pool_strings  # type: ignore[assignment]
    words = {word: code for code, word in enumerate(dict.fromkeys(pool))}
    codes = np.asarray([words[word] for word in pool], dtype=np.int64)
    rows = np.asarray([words.get(word, -1) for word in x.reshape(-1).tolist()], dtype=np.int64)
    rows = rows.reshape(-1, x.shape[-1])
    counts = np.zeros((len(rows), len(ngram_indexes)), dtype=np.float32)
    first = 0
    for size, (start, end) in enumerate(zip(ngram_counts, [*ngram_counts[1:], len(pool)], strict=True), 1):
        grams = codes[start:end].reshape(-1, size)
        if min_gram_length <= size <= max_gram_length and len(grams):
            for step in range(1, 2 if size == 1 else min(max_skip_count, x.shape[-1]) + 2):
                _count(counts[:, first : first + len(grams)], rows, grams, step, len(words))
        first += len(grams)
    if mode == "IDF":
        counts = np.minimum(counts, np.float32(1))
    if mode != "TF" and weights is not None:
        counts *= np.asarray(weights, dtype=np.float32)
    result = np.zeros(limits.sized((len(rows), max(ngram_indexes) + 1), tf_idf_vectorizer.title), dtype=np.float32)
    np.add.at(result.T, np.asarray(ngram_indexes), counts.T)
    return result.reshape(*x.shape[:-1], -1)


def _count(counts: Array, rows: Array, grams: Array, step: int, words: int) -> None:
    """Add to ``counts`` the number of occurrences of each of ``grams`` in each row, with elements ``step`` apart.

    Word by word, equal prefixes get the same number, in the n-grams and at each position of the rows.
    """
    size = grams.shape[1]
    places = rows.shape[1] - (size - 1) * step
    if places <= 0:
        return
    wanted, found = grams[:, 0], rows[:, :places]
    for k in range(1, size):
        known, wanted = np.unique(wanted * words + grams[:, k], return_inverse=True)
        following = rows[:, k * step : k * step + places]
        keys = np.where((found < 0) | (following < 0), -1, found * words + following)
        nearest = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = np.where(known[nearest] == keys, nearest, -1)
    last = np.full(int(max(wanted.max(), found.max())) + 1, -1)
    last[wanted] = np.arange(len(grams))
    gram = np.where(found < 0, -1, last[found])
    row, place = np.nonzero(gram >= 0)
    np.add.at(counts, (row, gram[row, place]), 1)
