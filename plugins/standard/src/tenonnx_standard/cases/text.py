"""Cases of strings."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.text import (
    regex_full_match,
    string_concat,
    string_normalizer,
    string_split,
    tf_idf_vectorizer,
)
from tenonnx_testing import Gap, broadcastable, call, cases, tensors

TEXTS = ["", "a", "ab", "a,b", "a,,b", "x y", "one two  three", "Ab1", "user@example.org", "one two ", "\u00e4 \u00f6"]


def texts(draw, shape):
    size = int(np.prod(shape))
    array = np.empty(size, dtype=object)
    array[:] = draw(st.lists(st.sampled_from(TEXTS), min_size=size, max_size=size))
    return array.reshape(shape)


@cases(string_concat, gradient=False)
def string_concat_cases(draw):
    return call(*draw(broadcastable(2, "string")))


ASCII_CLASSES = Gap(
    "reference",
    "it uses Python's regular expressions, which have no classes like [:alpha:]",
    when=lambda call: "[:" in call.attributes["pattern"],
)


@cases(regex_full_match, gradient=False, gaps=[ASCII_CLASSES])
def regex_full_match_cases(draw):
    patterns = ["a|ab", "[a-z]+", r"\w+@\w+\.(com|org)", "[[:alpha:]]*[0-9]?", ".*,.*", r"(?i)AB\d", r"\Aa,b\z"]
    x = texts(draw, draw(st.sampled_from([(), (3,), (2, 2)])))
    return call(x, pattern=draw(st.sampled_from(patterns)))


def _has_tail(call):
    """Whether whitespace remains after the last split."""
    limit = call.attributes["maxsplit"]
    if call.attributes["delimiter"] or limit is None:
        return False
    return any(text.split(None, limit) != text.strip().split(None, limit) for text in call.inputs[0].reshape(-1))


def _is_empty(call):
    return bool(call.attributes["delimiter"]) and "" in call.inputs[0].reshape(-1)


SPLIT = [
    Gap("reference", "it keeps trailing white space after maxsplit splits", when=_has_tail),
    *(
        Gap(check, "it returns no piece for an empty string, even with a delimiter", when=_is_empty)
        for check in ("onnxruntime", "export")
    ),
]


@cases(string_split, gradient=False, gaps=SPLIT)
def string_split_cases(draw):
    delimiter = draw(st.sampled_from([None, "", ",", " ", "two"]))
    x = texts(draw, draw(st.sampled_from([(1,), (3,), (2, 2)])))
    return call(x, delimiter=delimiter, maxsplit=draw(st.sampled_from([None, None, 1, 2])))


CASES = Gap(
    "reference",
    "it compares stopwords case-sensitively unless it changes the case of the strings",
    when=lambda call: call.attributes["case_change_action"] == "NONE" and not call.attributes["is_case_sensitive"],
)


@cases(string_normalizer, gradient=False, gaps=[CASES])
def string_normalizer_cases(draw):
    words = ["monday", "Tuesday", "wednesday", "MONDAY"]
    count = draw(st.integers(1, 5))
    x = np.asarray(draw(st.lists(st.sampled_from(words), min_size=count, max_size=count)), dtype=object)
    return call(
        x if draw(st.booleans()) else x[None],
        case_change_action=draw(st.sampled_from(["NONE", "LOWER", "UPPER"])),
        is_case_sensitive=draw(st.integers(0, 1)),
        stopwords=draw(st.sampled_from([None, ["monday"], ["Monday", "tuesday"], words])),
    )


WEIGHED = Gap(
    "reference",
    "it indexes weights by coordinate instead of by n-gram",
    when=lambda call: call.attributes["weights"] is not None and call.attributes["mode"] != "TF",
)


@cases(tf_idf_vectorizer, gradient=False, gaps=[WEIGHED])
def tf_idf_vectorizer_cases(draw):
    """All words, and some pairs and triples of them, at coordinates in any order."""
    words = [2, 3, 5, 7]
    pairs = draw(st.permutations([(2, 3), (5, 7), (3, 3)]))
    triples = [(2, 3, 5), (7, 7, 7)]
    pool = [*words, *(word for gram in (*pairs, *triples) for word in gram)]
    grams = len(words) + len(pairs) + len(triples)
    weights = [0.5 + 0.25 * k for k in range(grams)] if draw(st.booleans()) else None
    shortest = draw(st.integers(1, 3))
    attributes = {
        "mode": draw(st.sampled_from(["TF", "IDF", "TFIDF"])),
        "min_gram_length": shortest,
        "max_gram_length": draw(st.integers(shortest, 3)),
        "max_skip_count": draw(st.integers(0, 2)),
        "ngram_counts": [0, len(words), len(words) + 2 * len(pairs)],
        "ngram_indexes": draw(st.permutations(range(grams))),
        "weights": weights,
    }
    sides = draw(st.sampled_from([(9,), (2, 7), (1, 1)]))
    x = draw(tensors(["int32", "int64"], shape=sides, min_value=2, max_value=7))
    if draw(st.booleans()):
        x = np.asarray([str(word) for word in x.reshape(-1)], dtype=object).reshape(sides)
        return call(x, pool_strings=[str(word) for word in pool], **attributes)
    return call(x, pool_int64s=pool, **attributes)
