"""Cases of Tokenizer."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.text import tokenizer
from tenonnx_testing import Gap, call, cases

TEXTS = ["", "a", "the cat", " a bb  ccc", "one, two", "aXbXYc", "x1 y22", "\u00e4\u00f6 \u00c9a"]
SEPARATORS = [[" "], [""], ["  ", " ", "a+"], ["X", "XY"], ["XY", "X"], [r"\W+"], ["(a)|(b)b"]]
TOKENS = [".", "[a-c]+", "[a-z]*", r"\b\w\w+\b", "[[:alpha:]]+", r"\d"]


EMPTY = [
    Gap(check, "without strings there is no axis of tokens, and with a symbolic dim the number of strings is unknown")
    for check in ("types", "bad input")
]


@cases(tokenizer, gradient=False)
def tokenizer_cases(draw):
    return tokens(draw, draw(st.sampled_from([(3,), (1,), (2, 2)])))


@cases(tokenizer, gradient=False, gaps=EMPTY)
def tokenizer_cases_2(draw):
    return tokens(draw, draw(st.sampled_from([(0,), (2, 0)])))


def tokens(draw, shape):
    x = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        x[place] = draw(st.sampled_from(TEXTS))
    way = {"tokenexp": draw(st.sampled_from(TOKENS))}
    if draw(st.booleans()):
        way = {"separators": draw(st.sampled_from(SEPARATORS))}
    return call(x, mark=draw(st.integers(0, 1)), mincharnum=draw(st.integers(1, 3)), pad_value="#", **way)
