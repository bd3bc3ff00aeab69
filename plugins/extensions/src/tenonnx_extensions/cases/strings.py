"""Cases of strings."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.checks import strings
from tenonnx_extensions.strings import (
    string_concat,
    string_equal,
    string_join,
    string_length,
    string_lower,
    string_split,
    string_strip,
    string_upper,
)
from tenonnx_testing import Gap, call, cases

TEXTS = [
    "",
    "a",
    "aB",
    "a,b",
    ",a,,b,",
    " x y\t",
    "Stra\u00dfe",
    "\u00c4\u00f6",
    "\u4f60\u597d",
    "e\u0301",
    "\U0001f600!",
]


def texts(draw, shape):
    size = int(np.prod(shape))
    return strings(draw(st.lists(st.sampled_from(TEXTS), min_size=size, max_size=size)), shape)


def shape(draw):
    return draw(st.sampled_from([(1,), (3,), (2, 2), (2, 1, 3)]))


@cases(string_upper, gradient=False, reference=kernel("StringUpper"))
def string_upper_cases(draw):
    return call(texts(draw, shape(draw)))


LATIN = Gap(
    "expected",
    "the library also lowercases some letters of other scripts, and some Greek ones wrongly",
    when=lambda call: not all(text.isascii() for text in call.inputs[0].reshape(-1)),
)


@cases(string_lower, gradient=False, gaps=[LATIN], reference=kernel("StringLower"))
def string_lower_cases(draw):
    return call(texts(draw, shape(draw)))


WHITE = Gap(
    "expected",
    "the library does not strip a string that is only white space",
    when=lambda call: any(text and not text.strip(" \t\n\v\f\r") for text in call.inputs[0].reshape(-1)),
)
BYTES = Gap(
    "expected",
    "the library splits non-ASCII characters into bytes",
    when=lambda call: not all(text.isascii() for each in call.inputs[:2] for text in each.reshape(-1)),
)


@cases(string_strip, gradient=False, gaps=[WHITE], reference=kernel("StringStrip"))
def string_strip_cases(draw):
    return call(texts(draw, shape(draw)))


@cases(string_length, gradient=False, reference=kernel("StringLength"))
def string_length_cases(draw):
    return call(texts(draw, shape(draw)))


@cases(string_concat, gradient=False, reference=kernel("StringConcat"))
def string_concat_cases(draw):
    size = shape(draw)
    return call(texts(draw, size), texts(draw, size))


@cases(string_equal, gradient=False, reference=kernel("StringEqual"))
def string_equal_cases(draw):
    size = shape(draw)
    return call(texts(draw, size), texts(draw, size))


CHAIN = Gap(
    "export",
    "in a session without optimizations, the second StringConcat of onnxruntime leaves out strings after the first",
    when=lambda call: call.inputs[0].ndim > 1,
)


@cases(string_join, gradient=False, gaps=[CHAIN], reference=kernel("StringJoin"))
def string_join_cases(draw):
    x = texts(draw, shape(draw))
    axis = draw(st.integers(0, x.ndim - 1))
    return call(x, strings([draw(st.sampled_from(["", "-", ", "]))]), np.asarray([axis], np.int64))


@cases(string_split, gradient=False, gaps=[BYTES], reference=kernel("StringSplit", 3))
def string_split_cases(draw):
    x = strings(draw(st.lists(st.sampled_from(["", "a", "a,b", ",a,,b,", "x y", "no"]), min_size=1, max_size=4)))
    separator = strings([draw(st.sampled_from([",", " ", "a,", ""]))])
    return call(x, separator, np.asarray([draw(st.booleans())]))
