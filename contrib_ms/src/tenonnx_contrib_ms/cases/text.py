"""Cases of tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.text import tokenizer
from tenonnx_testing import Gap, call, cases

TEXTS = ["", "a", "the cat", " a bb  ccc", "one, two", "aXbXYc", "x1 y22", "\u00e4\u00f6 \u00c9a"]
SEPARATORS = [[" "], [""], ["  ", " ", "a+"], ["X", "XY"], ["XY", "X"], [r"\W+"], ["(a)|(b)b"]]
TOKENS = [".", "[a-c]+", "[a-z]*", r"\b\w\w+\b", "[[:alpha:]]+", r"\d"]


EMPTY = Gap(
    "types",
    "no strings give no axis of tokens, and with a symbolic dim it is not known whether there are some",
    when=lambda call: not call.inputs[0].size,
)


@cases(tokenizer, gradient=False, gaps=[EMPTY])
def _(draw):
    shape = draw(st.sampled_from([(3,), (1,), (0,), (2, 2), (2, 0)]))
    x = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        x[place] = draw(st.sampled_from(TEXTS))
    way = {"tokenexp": draw(st.sampled_from(TOKENS))}
    if draw(st.booleans()):
        way = {"separators": draw(st.sampled_from(SEPARATORS))}
    return call(x, mark=draw(st.integers(0, 1)), mincharnum=draw(st.integers(1, 3)), pad_value="#", **way)
