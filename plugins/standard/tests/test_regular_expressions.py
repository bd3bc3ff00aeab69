"""RE2 regular expressions, by the package and by our automaton."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenonnx as tx
from tenonnx_standard.regular_expressions import compiled
from tenonnx_standard.text import regex_full_match


@pytest.fixture(params=["package", "automaton"])
def engine(request, monkeypatch):
    compiled.cache_clear()
    if request.param == "package":
        pytest.importorskip("re2")
    else:
        monkeypatch.setitem(sys.modules, "re2", None)
    yield request.param
    compiled.cache_clear()


FULL = [
    ("(a+)+$", "aaaa", True),
    ("(a+)+$", "aaab", False),
    ("a|ab", "ab", True),
    ("", "", True),
    ("", "a", False),
    ("a{2,3}", "aa", True),
    ("a{2,3}", "aaaa", False),
    ("a{0}", "", True),
    ("(a|b)*?c", "abbac", True),
    ("[[:alpha:]]+[0-9]?", "abc1", True),
    (r"\Qa+b\E+", "a+bb", True),
    (r"\d+\.\d*", "3.", True),
    ("(?i)AbC", "aBc", True),
    ("(?i:a)b", "Ab", True),
    ("(?i:a)b", "AB", False),
    (".", "\n", False),
    ("(?s).", "\n", True),
    (r"\bfoo\b", "foo", True),
    ("a$", "a\n", False),
    (r"a\z", "a", True),
    ("^a^b", "ab", False),
    ("[^a-c]", "d", True),
    ("[^a-c]", "b", False),
    (r"(?P<n>x)y", "xy", True),
    (r"(?<n>x)y", "xy", True),
    ("(a*)*", "aaa", True),
    ("(|a)*b", "aab", True),
    ("\u00e4.", "\u00e4\u20ac", True),
    ("(?m)a$\nb", "a\nb", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), FULL, ids=repr)
def test_full_matches(engine, pattern, text, expected):
    assert regex_full_match(np.array([text], object), pattern=pattern).tolist() == [expected]


SPANS = [
    ("a|ab", "ab", [(0, 1)]),
    ("ab|a", "ab", [(0, 2)]),
    ("a+?", "aaa", [(0, 1), (1, 2), (2, 3)]),
    ("a+", "baab", [(1, 3)]),
    ("(a|b)+?c", "ab abc", [(3, 6)]),
    ("x", "", []),
    (r"\w+", "one, two", [(0, 3), (5, 8)]),
    ("(?:(?:a)*?)*b?", "ab", [(0, 0), (1, 2), (2, 2)]),
    ("a(.*b)?", "a a", [(0, 1), (2, 3)]),
    ("(foo|foobar)(bar)?", "foobar", [(0, 6)]),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), SPANS, ids=repr)
def test_places_of_matches(engine, pattern, text, expected):
    assert list(compiled("op", pattern).spans(text)) == expected


@given(
    pattern=st.recursive(
        st.sampled_from(["a", "b", "[ab]", ".", "^", "$", r"\b", ""]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=6,
    ),
    text=st.text("ab ", max_size=8),
)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_the_automaton_agrees_with_the_package(pattern, text):
    pytest.importorskip("re2")
    theirs = compiled.__wrapped__("op", pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "re2", None)
        ours = compiled.__wrapped__("op", pattern)
    assert ours.matches(text) == theirs.matches(text)
    assert [span for span in ours.spans(text) if span[0] < span[1]] == [
        span for span in theirs.spans(text) if span[0] < span[1]
    ]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a*)*b", "(.*)*x", "a*a*a*a*a*a*b", "((a{1,9}){1,9}){1,5}b"])
def test_matching_takes_linear_time(engine, pattern):
    """Python's ``re`` would take longer than the age of the universe."""
    expression = compiled("op", pattern)
    assert not expression.matches("a" * 2000 + "!")
    list(expression.spans("a" * 100 + "!"))
    short, long = (calls_in(lambda text="a" * n + "!": list(expression.spans(text))) for n in (50, 100))
    assert long <= 4 * short + 100


def calls_in(function):
    """Number of Python function calls, as a machine-independent measure of work."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "(?>a)", "a++", "(", "a{2000}", "[z-a]", "*"], ids=repr
)
def test_patterns_that_re2_lacks_are_refused(engine, pattern):
    with pytest.raises(tx.TypeMismatch, match=r"pattern|RE2"):
        compiled("op", pattern)


def test_a_pattern_that_is_too_long_is_refused(engine):
    with pytest.raises(tx.LimitExceeded, match='"pattern"'):
        compiled("op", "a" * 20_000)


def test_an_automaton_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(tx.LimitExceeded, match='"pattern"'):
        compiled.__wrapped__("op", "((a{1000}){1000}){1000}")
