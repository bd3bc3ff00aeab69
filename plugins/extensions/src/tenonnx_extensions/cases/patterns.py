"""Cases of regular expressions."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.checks import strings
from tenonnx_extensions.regex import (
    string_ecma_regex_replace,
    string_ecma_regex_split_with_offsets,
    string_regex_replace,
    string_regex_split_with_offsets,
)
from tenonnx_testing import call, cases

TEXTS = ["", "abc", "a, b ,c", "def f():", "x1 y22", "  two  ", "\u00e4 \u00f6", "AbC", "a\tb"]


def texts(draw):
    return strings(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4)))


def one(draw, *choices):
    return strings([draw(st.sampled_from(choices))])


@cases(string_regex_replace, gradient=False, reference=kernel("StringRegexReplace"))
def string_regex_replace_cases(draw):
    pattern, rewrite = draw(
        st.sampled_from(
            [
                (r"\s+", "_"),
                (r"(\w)(\d)", r"\2\1"),
                ("[a-c]", r"<\0>"),
                ("(?i)b", r"\\"),
                (r"\pL", "L"),
                ("[ ,(]", ""),
                ("b", "aba"),
                (r"\C", "."),
                ("y?", "-"),
            ]
        )
    )
    is_global = 1 if pattern == r"\C" else draw(st.integers(0, 1))  # a single byte of a character is invalid UTF-8
    return call(texts(draw), strings([pattern]), strings([rewrite]), global_replace=is_global)


@cases(string_ecma_regex_replace, gradient=False, reference=kernel("StringECMARegexReplace"))
def string_ecma_regex_replace_cases(draw):
    pattern, rewrite = draw(st.sampled_from([(r"\s+", "_"), (r"([a-z])(\d)", "$2$1"), ("[a-c]", "<$&>"), ("b", "$$")]))
    return call(
        texts(draw),
        strings([pattern]),
        strings([rewrite]),
        global_replace=draw(st.integers(0, 1)),
        ignore_case=draw(st.integers(0, 1)),
    )


@cases(string_regex_split_with_offsets, gradient=False, reference=kernel("StringRegexSplitWithOffsets", 4))
def string_regex_split_with_offsets_cases(draw):
    return call(texts(draw), one(draw, r"(\s)", r"([, ]+)", r"\s"), one(draw, "", ",", r"\s"))


@cases(string_ecma_regex_split_with_offsets, gradient=False, reference=kernel("StringECMARegexSplitWithOffsets", 4))
def string_ecma_regex_split_with_offsets_cases(draw):
    return call(
        texts(draw), one(draw, r"(\s)", r"([, ]+)"), one(draw, "", ",", r"\s"), ignore_case=draw(st.integers(0, 1))
    )
