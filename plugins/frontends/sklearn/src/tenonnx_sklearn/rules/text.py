"""Strings as counts of words or characters, and as hashes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_contrib_ms.hashing import murmur_hash3
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn.algebra import cast, columns, is_zero, like, one_less, total
from tenonnx_sklearn.conversion import Outputs, convert, converts, refusal
from tenonnx_sklearn.tables import Table
from tenonnx_sklearn.tokenize import (
    LETTERS,
    SPACES,
    Charset,
    distinct_letters,
    fold_of,
    letters,
    named,
    one_more,
    packed,
    pieces,
)

_WHOLE_WORDS = re.compile(r"(?:\(\?u\))?\\b((?:\\w)*)\\w\+\\b")


def _expression(model: Any) -> tuple[str, int]:
    """Regular expression of words in RE2's syntax, and the minimum length of words."""
    if model.tokenizer is not None:
        if model.tokenizer is str.split:
            return f"[^{SPACES}]+", 1
        raise refusal(model, "a tokenizer that is a function")
    pattern = model.token_pattern
    whole = _WHOLE_WORDS.fullmatch(pattern)
    if whole:
        least = len(whole[1]) // 2 + 1
        if model.strip_accents == "ascii":  # characters without an ASCII equivalent are removed before splitting
            return r"(?:[0-9A-Za-z_]|[^\x00-\x7f])+", least
        marks = r"\p{M}" if model.strip_accents else ""
        return (f"[{LETTERS}{marks}]{{{least},}}" if not marks else f"[{LETTERS}{marks}]+"), least
    if model.strip_accents or "(?<" in pattern or "(?=" in pattern or "(?!" in pattern or re.compile(pattern).groups:
        raise refusal(model, f"token_pattern={pattern}")
    plain = pattern.removeprefix("(?u)")
    if re.search(r"\\[bBWSD]", plain) or (re.search(r"\[[^\]]*\\w", plain) and "[^" in plain):
        raise refusal(model, f"token_pattern={pattern}, whose \\b, \\W, \\S or \\D means ASCII alone in ONNX")
    plain = re.sub(r"\[([^\]]*)\]", lambda m: "[" + _classes(m[1]) + "]", plain)
    plain = re.sub(r"\\([wds])(?![^\[]*\])", lambda m: f"[{_classes(m[0])}]", plain)
    return ("(?i)" if model.lowercase else "") + plain, 1


def _classes(inside: str) -> str:
    return inside.replace(r"\w", LETTERS).replace(r"\d", r"\p{Nd}").replace(r"\s", SPACES)


def _checked(model: Any) -> None:
    if callable(model.analyzer) or model.preprocessor is not None:
        raise refusal(model, "an analyzer or preprocessor that is a function")


def _texts(X: Table) -> Value:
    return one_more(X.column(0))


def _grams(model: Any) -> list[tuple[list[str], int]]:
    """Each n-gram of the vocabulary, as words or characters, with its column."""
    words = model.analyzer == "word"
    return [(key.split(" ") if words else list(key), int(place)) for key, place in model.vocabulary_.items()]


def _counts(codes: Value, grams: list[tuple[list[int], int]]) -> Value:
    """Number of occurrences of each n-gram of integers in a row."""
    grams = sorted(grams, key=lambda gram: (len(gram[0]), gram[1]))
    sizes = [len(gram) for gram, _ in grams]
    starts = [sum(size for size in sizes if size < n) for n in range(1, max(sizes) + 1)]
    return ops.tf_idf_vectorizer(
        codes,
        mode="TF",
        min_gram_length=min(sizes),
        max_gram_length=max(sizes),
        max_skip_count=0,
        ngram_counts=starts,
        ngram_indexes=[place for _, place in grams],
        pool_int64s=[each for gram, _ in grams for each in gram],
    )


@converts("sklearn.CountVectorizer", table=True)
def count_vectorizer(model: Any, X: Table) -> Outputs:
    _checked(model)
    texts, grams = _texts(X), _grams(model)
    if model.analyzer == "word":
        codes, names = _words(model, texts, grams)
        found = [([names[word] for word in gram], place) for gram, place in grams]
    else:
        charset = Charset.of(fold_of(model), [" ", *model.vocabulary_])
        codes = _characters(charset, texts) if model.analyzer == "char" else _padded_words(charset, texts)
        found = [(charset.code("".join(gram)), place) for gram, place in grams]
    counts = cast(one_less(_counts(codes, found)), X.dtype)
    return {"transform": cast(counts > 0.0, X.dtype) if model.binary else counts}


def _words(model: Any, texts: Value, grams: list[tuple[list[str], int]]) -> tuple[Value, dict[str, int]]:
    expression, least = _expression(model)
    words = sorted({word for gram, _ in grams for word in gram})
    stopped = model.get_stop_words() or frozenset()
    longest = max(len(gram) for gram, _ in grams)
    names = {word: k for k, word in enumerate(words, 1)}
    dropped = dict.fromkeys((word for word in sorted(stopped) if word), 0)
    charset = Charset.of(fold_of(model), [*names, *dropped])
    shortest = least if model.strip_accents else 1
    codes = named(pieces(texts, expression), charset, {**names, **dropped}, shortest)
    return (packed(codes) if longest > 1 and (dropped or shortest > 1) else codes), names


_BLANKS = "".join(chr(number) for number in range(0x3001) if chr(number).isspace())


def _characters(charset: Charset, texts: Value) -> Value:
    """The characters of strings, with runs of whitespace collapsed to one space."""
    wide = Charset(charset.fold, tuple(dict.fromkeys([*charset.alphabet, *_BLANKS])))
    codes = wide.codes(letters(texts))
    blanks = np.array(wide.code(_BLANKS), np.int64)
    table = np.zeros(len(wide.alphabet) + 2, bool)
    table[blanks] = True
    blank = ops.gather(table, codes, axis=0)
    first = np.array([0], np.int64), np.array([-1], np.int64), np.array([1], np.int64)
    rest = np.array([1], np.int64), np.array([1 << 40], np.int64), np.array([1], np.int64)
    before = ops.pad(ops.slice_(ops.cast(blank, to=DType.int64), *first), np.array([0, 1, 0, 0], np.int64))
    behind = ops.pad(ops.slice_(ops.cast(blank, to=DType.int64), *rest), np.array([0, 0, 0, 1], np.int64))
    codes = ops.where(ops.and_(blank, behind > 0), np.int64(charset.code(" ")[0]), codes)
    return packed(ops.where(ops.and_(blank, before > 0), np.int64(0), codes))


def _padded_words(charset: Charset, texts: Value) -> Value:
    """The characters of words with a space on both sides, separated by at least one zero."""
    words = pieces(texts, f"[^{SPACES}]+")
    characters, places = distinct_letters(words)
    codes = charset.codes(characters)
    space = np.int64(charset.code(" ")[0])
    some = ops.reduce_max(codes, np.array([1], np.int64), keepdims=1) > 0
    codes = ops.pad(codes, np.array([0, 0, 0, 1], np.int64))
    length = ops.reduce_sum(ops.cast(codes > 0, to=DType.int64), np.array([1], np.int64), keepdims=1)
    width = ops.squeeze(ops.shape(codes, start=1, end=2), np.array([0], np.int64))
    behind = ops.and_(ops.equal(ops.range_(np.int64(0), width, np.int64(1)), length), some)
    codes = ops.where(behind, space, codes)
    front = ops.where(some, space, np.int64(0))
    framed = ops.pad(ops.concat(front, codes, axis=1), np.array([0, 0, 0, 1], np.int64))
    return ops.flatten(ops.gather(framed, places, axis=0), axis=1)


@converts("sklearn.TfidfTransformer")
def tfidf_transformer(model: Any, X: Value) -> Outputs:
    if model.sublinear_tf:
        some = X > 0.0
        X = ops.where(some, ops.log(ops.where(some, X, like(X, 1.0))) + 1.0, X)
    if model.use_idf:
        X = X * like(X, model.idf_)
    return {"transform": _scaled(model.norm, X)}


def _scaled(norm: str | None, X: Value) -> Value:
    if norm is None:
        return X
    length = total(ops.absolute(X), keepdims=True) if norm == "l1" else ops.sqrt(total(X * X, keepdims=True))
    return X / ops.where(is_zero(length), like(X, 1.0), length)


@converts("sklearn.TfidfVectorizer", table=True)
def tfidf_vectorizer(model: Any, X: Table) -> Outputs:
    return convert(model._tfidf, count_vectorizer(model, X)["transform"])


# ----- hashes ---------------------------------------------------------------------------------------------------------


def _hashed(model: Any, texts: Value, counted: Value, X: Table) -> Value:
    """Sum the weights of strings by their hash: ``string[rows, most]``, with weight 0 for padding."""
    size = int(model.n_features)
    code = ops.cast(murmur_hash3(texts, positive=0, seed=0), to=DType.int64)
    place = ops.where(ops.equal(code, np.int64(-(1 << 31))), np.int64((2**31 - size) % size), ops.absolute(code) % size)
    if model.alternate_sign:
        counted = ops.where(code < 0, -counted, counted)
    rows = ops.concat(ops.shape(texts, start=0, end=1), np.array([size], np.int64), axis=0)
    zeros = ops.expand(like(X, [[0.0]]), rows)
    return ops.scatter_elements(zeros, place, counted, axis=1, reduction="add")


@converts("sklearn.HashingVectorizer", table=True)
def hashing_vectorizer(model: Any, X: Table) -> Outputs:
    _checked(model)
    if model.analyzer != "word" or model.strip_accents or model.stop_words:
        raise refusal(model, f"analyzer={model.analyzer}, strip_accents={model.strip_accents}, or stop words")
    texts = _texts(X)
    if model.lowercase:
        texts = ops.string_normalizer(texts, case_change_action="LOWER", locale="C.UTF-8")
    words = pieces(texts, _expression(model)[0].removeprefix("(?i)"))
    lowest, highest = model.ngram_range
    some = ops.cast(_is_some(words), to=X.dtype)
    grams, counted = [], []
    gram, whole = words, some
    for n in range(1, highest + 1):
        if n > 1:
            gram = ops.string_concat(ops.string_concat(gram, np.asarray(" ", object)), _shifted(words, n - 1))
            whole = whole * _shifted_numbers(some, n - 1)
        if n >= lowest:
            grams.append(gram)
            counted.append(whole)
    texts = grams[0] if len(grams) == 1 else ops.concat(*grams, axis=1)
    weights = counted[0] if len(counted) == 1 else ops.concat(*counted, axis=1)
    sums = _hashed(model, texts, weights, X)
    if model.binary:
        unsigned = type(model)(n_features=model.n_features, alternate_sign=False)
        sums = cast(_hashed(unsigned, texts, weights, X) > 0.0, X.dtype)
    return {"transform": one_less(_scaled(model.norm, sums))}


def _is_some(words: Value) -> Value:
    return label_encoder(words, keys_strings=[""], values_int64s=[0], default_int64=1)


def _shifted(words: Value, n: int) -> Value:
    """Shift words left by ``n`` positions, padding with empty strings."""
    blank = ops.where(ops.cast(_is_some(words), to=DType.bool), np.asarray("", object), words)
    limits = np.array([n], np.int64), np.array([1 << 40], np.int64), np.array([1], np.int64)
    wide = ops.concat(words, *[_first(blank)] * n, axis=1)
    return ops.slice_(wide, *limits)


def _first(blank: Value) -> Value:
    return ops.slice_(blank, np.array([0], np.int64), np.array([1], np.int64), np.array([1], np.int64))


def _shifted_numbers(X: Value, n: int) -> Value:
    limits = np.array([n], np.int64), np.array([1 << 40], np.int64), np.array([1], np.int64)
    return ops.slice_(ops.pad(X, np.array([0, 0, 0, n], np.int64)), *limits)


@converts("sklearn.FeatureHasher", table=True)
def feature_hasher(model: Any, X: Table) -> Outputs:
    if model.input_type != "string":
        names, numbers = X.blocks
        return {"transform": _hashed(model, names, cast(numbers, X.dtype), X)}
    texts = X.blocks[0] if len(X.blocks) == 1 else ops.concat(*X.blocks, axis=1)
    if not isinstance(texts.shape[1], int):  # of dynamic length: empty strings are padding
        return {"transform": _hashed(model, texts, ops.cast(_is_some(texts), to=X.dtype), X)}
    return {"transform": _hashed(model, texts, ops.cast(ops.expand(like(X, [[1.0]]), ops.shape(texts)), to=X.dtype), X)}


@converts("sklearn.DictVectorizer", table=True)
def dict_vectorizer(model: Any, X: Table) -> Outputs:
    """Numbers by name in their columns; unknown names share an extra column, which is dropped."""
    names, numbers = X.blocks
    size = len(model.vocabulary_)
    known = [str(name) for name in model.vocabulary_]
    place = label_encoder(names, keys_strings=known, values_int64s=list(model.vocabulary_.values()), default_int64=size)
    rows = ops.concat(ops.shape(names, start=0, end=1), np.array([size + 1], np.int64), axis=0)
    counted = ops.scatter_elements(
        ops.expand(like(X, [[0.0]]), rows), place, cast(numbers, X.dtype), axis=1, reduction="add"
    )
    return {"transform": columns(counted, range(size))}
