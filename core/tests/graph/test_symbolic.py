"""Symbolic dimensions: arithmetic agrees with Python's, and simplification, text and shape rules hold."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import sys
from types import FrameType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenonnx.graph import symbolic
from tenonnx.graph.symbolic import Dim, Expr, parse, symbol

N, M, K = map(symbol, "NMK")
NAMES = ["N", "M", "K", "batch size", "it's", "2"]
OPERATORS = {
    "+": (operator.add, symbolic.add),
    "-": (operator.sub, symbolic.subtract),
    "*": (operator.mul, symbolic.multiply),
    "//": (operator.floordiv, symbolic.floor_div),
    "%": (operator.mod, symbolic.modulo),
    "max": (max, symbolic.maximum),
    "min": (min, symbolic.minimum),
}

assignments = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})
atoms = st.integers(-6, 6) | st.sampled_from(NAMES).map(symbol)


def combine(parts: tuple[str, Dim, Dim]) -> Dim:
    name, a, b = parts
    return OPERATORS[name][1](a, b)


def combined(children: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    return st.tuples(st.sampled_from(list(OPERATORS)), children, children).map(combine)


known_dims = st.recursive(atoms, combined, max_leaves=8).filter(lambda dim: dim is not None)
any_dims = known_dims | st.none()
sizes = st.integers(0, 4) | st.sampled_from(NAMES).map(symbol) | st.none()


def value_of(dim: Dim, values: dict[str, int]) -> int:
    """The value; examples that divide by zero are discarded."""
    try:
        return symbolic.evaluate(dim, values)
    except ValueError:
        assume(False)
        raise


# Arithmetic


@given(st.sampled_from(list(OPERATORS)), known_dims, known_dims, assignments)
def test_arithmetic_is_that_of_python(name: str, a: Dim, b: Dim, values: dict[str, int]) -> None:
    exact, function = OPERATORS[name]
    x, y = value_of(a, values), value_of(b, values)
    assume(y or name not in ("//", "%"))
    result = function(a, b)
    if result is not None:
        assert value_of(result, values) == exact(x, y)
        assert not isinstance(result, Expr) or symbolic.symbols_of(result)


@given(known_dims, known_dims, st.dictionaries(st.sampled_from(NAMES), st.just(0)), assignments)
def test_arithmetic_of_zeros(a: Dim, b: Dim, zeros: dict[str, int], values: dict[str, int]) -> None:
    values |= zeros
    x, y = value_of(a, values), value_of(b, values)
    for name in ("+", "-", "*", "max", "min"):
        exact, function = OPERATORS[name]
        result = function(a, b)
        if result is not None:
            assert value_of(result, values) == exact(x, y)


@given(known_dims, known_dims, known_dims)
def test_equal_polynomials_are_equal(a: Dim, b: Dim, c: Dim) -> None:
    def check(left: Dim, right: Dim) -> None:
        assert left is None or right is None or (left == right and hash(left) == hash(right))

    check(symbolic.add(a, b), symbolic.add(b, a))
    check(symbolic.multiply(a, b), symbolic.multiply(b, a))
    check(symbolic.add(symbolic.add(a, b), c), symbolic.add(a, symbolic.add(b, c)))
    check(symbolic.multiply(symbolic.add(a, b), c), symbolic.add(symbolic.multiply(a, c), symbolic.multiply(b, c)))
    check(symbolic.subtract(symbolic.add(a, b), b), a)
    check(symbolic.maximum(a, a), a)


@given(known_dims, known_dims, st.integers(1, 6), st.integers(1, 6))
def test_equal_divisions_are_equal(a: Dim, b: Dim, m: int, n: int) -> None:
    shifted = symbolic.add(a, symbolic.multiply(b, m))
    for divide in (symbolic.floor_div, symbolic.ceil_div):
        expected = symbolic.add(divide(a, m), b)
        assert None in (shifted, expected) or divide(shifted, m) == expected
    assert None in (shifted, a) or symbolic.modulo(shifted, m) == symbolic.modulo(a, m)
    if b != 0 and symbolic.multiply(a, b) is not None:
        assert symbolic.floor_div(symbolic.multiply(a, b), b) == a
        assert symbolic.ceil_div(symbolic.multiply(a, b), b) in (a, None)
        assert symbolic.modulo(symbolic.multiply(a, b), b) == 0
    assert symbolic.floor_div(symbolic.multiply(a, n), m * n) == symbolic.floor_div(a, m)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ((N + 1) * 2 - 2, 2 * N),
        (N - N, 0),
        (0 * N, 0),
        (3 - N + N, 3),
        (N // 1, N),
        (N % 1, 0),
        ((4 * N) // 2, 2 * N),
        ((4 * N) % 2, 0),
        ((2 * N + 3) // 2, N + 1),
        ((2 * N + 3) % 2, 1),
        ((2 * N + 1) // 4, N // 2),
        ((N * M) // N, M),
        ((N * M * K) // (2 * N * K), M // 2),
        ((N * M + N + M + 1) // (N + 1), M + 1),
        ((N * M) // -N, -M),
        ((N // 2) // 3, N // 6),
        (((N + 1) // 2 + 1) // 2, (N + 3) // 4),
        ((N % 3) // 3, 0),
        ((N % 3) % 5, N % 3),
        (symbolic.ceil_div(N * M, N), M),
        (symbolic.ceil_div(N * M, -N), -M),
        (symbolic.ceil_div(M * (N + 1), N + 1), M),
        (symbolic.ceil_div(N, 2), (N + 1) // 2),
        (symbolic.truncate_div(N, 2), N // 2),
        (symbolic.truncate_div(-7, 2), -3),
        (symbolic.truncate_div(7, -2), -3),
        (symbolic.truncate_div(-7, -2), 3),
        (symbolic.truncate_div(-N, 2), None),
        (symbolic.maximum(N, N), N),
        (symbolic.maximum(N + 1, 1), N + 1),
        (symbolic.maximum(N, -1), N),
        (symbolic.minimum(N, 0), 0),
        (symbolic.minimum(N, N + M), N),
        (symbolic.maximum(symbolic.maximum(N, 1), symbolic.maximum(2, N)), symbolic.maximum(2, N)),
        (symbolic.minimum(symbolic.minimum(N, 5), 3), symbolic.minimum(3, N)),
        (symbolic.minimum(N % 4, 3), N % 4),
    ],
)
def test_simplification(expression: Dim, expected: Dim) -> None:
    assert expression == expected
    assert type(expression) is type(expected)


def test_expressions_are_not_ints() -> None:
    assert N != 1
    assert N != M
    assert (N + 1 == 1) is False
    for operation in (bool, int, operator.index, len, float):
        with pytest.raises(TypeError):
            operation(N)
    with pytest.raises(TypeError, match="the value of a symbolic dimension is not known: N"):
        assert N
    with pytest.raises(TypeError):
        assert N < 3
    for other in (1.0, "1", None, [1]):
        for operation in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
            with pytest.raises(TypeError):
                operation(N, other)
            with pytest.raises(TypeError):
                operation(other, N)


def test_expressions_are_immutable_values() -> None:
    expression = (N * M + 3) // K + symbolic.maximum(N, 2)
    for same in (copy.copy(expression), copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert same == expression
        assert hash(same) == hash(expression)
    with pytest.raises(AttributeError):
        expression._terms = ()
    with pytest.raises(AttributeError):
        expression.name = "N"


def test_numpy_operands() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.array([N, 2], dtype=object)
    assert list(array * 2 + M) == [2 * N + M, M + 4]
    assert list(M + array) == [N + M, M + 2]
    assert list(numpy.array([6, N], dtype=object) // numpy.array([3, 1], dtype=object)) == [2, N]
    assert numpy.prod(array) == 2 * N
    assert N + numpy.int64(1) == numpy.int64(1) + N == N + 1
    assert list(array == N) == [True, False]


def test_zero_divisors() -> None:
    for operation in (operator.floordiv, operator.mod):
        with pytest.raises(ZeroDivisionError):
            operation(N, 0)
    for divide in (symbolic.floor_div, symbolic.ceil_div, symbolic.truncate_div, symbolic.modulo):
        assert divide(N, 0) is None
        assert divide(3, 0) is None


def test_size_is_bounded() -> None:
    large = sum(symbol(f"s{i}") for i in range(64))
    with pytest.raises(OverflowError):
        large + N
    with pytest.raises(OverflowError):
        N * 2**64
    assert symbolic.add(large, N) is None
    assert symbolic.multiply(large, large) is None
    assert symbolic.maximum(large, N) is None
    assert symbolic.maximum(N, 2**64) is None
    assert symbolic.product([large, large, 0]) == 0
    nested: Dim = N
    while nested is not None:
        previous, nested = nested, symbolic.floor_div(symbolic.add(symbolic.multiply(nested, M), 1), K)
    assert symbolic.known_lower_bound(previous) == 0


def test_unknown_operands() -> None:
    for _, function in OPERATORS.values():
        assert function(N, None) is function(None, 3) is None
    assert symbolic.ceil_div(None, 2) is symbolic.ceil_div(N, None) is symbolic.truncate_div(None, N) is None
    assert symbolic.multiply(0, None) == symbolic.multiply(None, 0) == symbolic.product([None, 0, N]) == 0
    assert symbolic.product([]) == 1
    assert symbolic.product([2, N, 3]) == 6 * N
    assert symbolic.product([N, None]) is None


# Bounds


@given(known_dims, assignments)
def test_lower_bounds(dim: Dim, values: dict[str, int]) -> None:
    bound = symbolic.known_lower_bound(dim)
    assert bound is None or bound <= value_of(dim, values)
    assert symbolic.is_known_positive(dim) == (bound is not None and bound > 0)


@pytest.mark.parametrize(
    ("dim", "bound"),
    [
        (5, 5),
        (None, None),
        (N, 0),
        (2 * N * M + 3, 3),
        (N - M, None),
        (5 - N % 4, 2),
        (N // 2 + 1, 1),
        (-N // M, None),
        (symbolic.maximum(N - M, 4), 4),
        (symbolic.minimum(N, 4), 0),
        (2 - symbolic.minimum(N, 4), -2),
        (symbolic.product([symbolic.maximum(N, 2**63), symbolic.maximum(M, 2**63)]), 2**126),
        (parse("N**32 - 3"), -3),
    ],
)
def test_lower_bound_examples(dim: Dim, bound: int | None) -> None:
    assert symbolic.known_lower_bound(dim) == bound


# Shapes


@given(sizes, sizes, assignments)
def test_broadcast_is_sound(a: Dim, b: Dim, values: dict[str, int]) -> None:
    try:
        result = symbolic.broadcast(a, b)
    except ValueError:
        assert isinstance(a, int)
        assert isinstance(b, int)
        assert a != b
        assert 1 not in (a, b)
        return
    assert symbolic.broadcast(b, a) == result
    if a is not None and b is not None and result is not None:
        x, y = symbolic.evaluate(a, values), symbolic.evaluate(b, values)
        if x == y or 1 in (x, y):
            assert symbolic.evaluate(result, values) == (y if x == 1 else x)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1, 1),
        (1, 7, 7),
        (0, 1, 0),
        (3, 3, 3),
        (1, N, N),
        (1, None, None),
        (N, N, N),
        (4, N, 4),
        (0, N, 0),
        (4, None, 4),
        (N, M, None),
        (N, N + 1, None),
        (N, None, None),
        (None, None, None),
        (N + 2, M, N + 2),
        (N + 2, None, N + 2),
        (N + 2, 5, 5),
    ],
)
def test_broadcast(a: Dim, b: Dim, expected: Dim) -> None:
    assert symbolic.broadcast(a, b) == symbolic.broadcast(b, a) == expected


def test_broadcast_shapes() -> None:
    assert symbolic.broadcast_shapes() == ()
    assert symbolic.broadcast_shapes((), (N,)) == (N,)
    assert symbolic.broadcast_shapes((N, 1, 3), (4, 1), [3]) == (N, 4, 3)
    assert symbolic.broadcast_shapes((N,), (M,), (2,)) == (2,)
    for shapes in [((2,), (3,)), ((2, 1), (1, 3), (3, 1)), ((0,), (2,))]:
        with pytest.raises(ValueError, match="do not broadcast"):
            symbolic.broadcast_shapes(*shapes)


@given(any_dims, any_dims)
def test_unify_and_join(a: Dim, b: Dim) -> None:
    assert symbolic.unify(a, a) == symbolic.join(a, a) == a
    assert symbolic.unify(a, None) == symbolic.unify(None, a) == a
    assert symbolic.join(a, b) == symbolic.join(b, a) == (a if a == b else None)
    if isinstance(a, int) and isinstance(b, int) and a != b:
        with pytest.raises(ValueError, match="cannot be both"):
            symbolic.unify(a, b)
    elif isinstance(a, int) or b is None:
        assert symbolic.unify(a, b) == symbolic.unify(b, a) == a
    elif a is not None and not isinstance(b, int):
        assert symbolic.unify(a, b) == a


# Symbols


def test_symbols_of() -> None:
    assert symbolic.symbols_of(None) == symbolic.symbols_of(3) == set()
    assert symbolic.symbols_of((N * M + 1) // K + symbolic.maximum(symbol("a b"), 2)) == {"N", "M", "K", "a b"}
    with pytest.raises(ValueError, match="name"):
        symbol("")


@given(known_dims, st.dictionaries(st.sampled_from(NAMES), known_dims), assignments)
def test_substitute(dim: Dim, replacements: dict[str, Dim], values: dict[str, int]) -> None:
    replaced = {name: value_of(replacement, values) for name, replacement in replacements.items()}
    assume(all(value > 0 for value in replaced.values()))  # symbols are positive, as divisors have to be
    result = symbolic.substitute(dim, replacements)
    if result is not None:
        assert value_of(result, values) == value_of(dim, values | replaced)


def test_substitute_examples() -> None:
    dim = 2 * N + M // 2
    assert symbolic.substitute(dim, {}) == dim
    assert symbolic.substitute(dim, {"N": M, "M": 4}) == 2 * M + 2
    assert symbolic.substitute(dim, {"M": None}) is None
    assert symbolic.substitute(N * M, {"M": None, "N": 0}) == 0
    assert symbolic.substitute(None, {"N": 1}) is None
    assert symbolic.substitute(4 // N, {"N": 0}) is None


def test_evaluate() -> None:
    assert symbolic.evaluate(3, {}) == 3
    assert symbolic.evaluate(N * N - M // 2, {"N": 3, "M": 5}) == 7
    for dim, values in [(None, {}), (N + M, {"N": 1}), (3 // N, {"N": 0})]:
        with pytest.raises(ValueError, match="has no value"):
            symbolic.evaluate(dim, values)


# Text


@given(known_dims)
def test_text_is_parsed_back(dim: Dim) -> None:
    if len(str(dim)) <= 200:
        assert parse(str(dim)) == dim


@given(known_dims, assignments)
def test_text_is_python(dim: Dim, values: dict[str, int]) -> None:
    assume(symbolic.symbols_of(dim) <= {"N", "M", "K"})
    value = value_of(dim, values)
    assert eval(str(dim), {"max": max, "min": min, **values}) == value


@given(st.text(min_size=1) | st.text("NM1 +-*/%(),'\\max", min_size=1))
def test_symbols_of_any_name(name: str) -> None:
    for dim in (symbol(name), 2 * symbol(name) + 1, symbolic.maximum(symbol(name), N // 2)):
        assert len(str(dim)) > 200 or parse(str(dim)) == dim


@given(st.text() | st.text("NM019 +-*/%(),'\\max", max_size=40))
def test_parse_accepts_any_text(text: str) -> None:
    dim = parse(text)
    assert (dim is None) == (not text)
    if isinstance(dim, Expr) and len(str(dim)) <= 200:
        assert parse(str(dim)) == dim


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * symbol("batch") + 1, "2*batch + 1"),
        (N // 2, "N//2"),
        (-N, "-N"),
        (1 - N, "-N + 1"),
        (M - N // 2, "M - N//2"),
        (-(N // 2), "-(N//2)"),
        (2 * (N // 2) - 3 * (N % 5), "-3*(N % 5) + 2*(N//2)"),
        ((N + M) // (3 * K), "(M + N)//(3*K)"),
        (N * M * N, "M*N**2"),
        (symbolic.maximum(1, N), "max(N, 1)"),
        (symbolic.minimum(symbolic.maximum(N, 1), M // 2), "min(M//2, max(N, 1))"),
        (symbol("batch-size"), "batch-size"),
        (symbol("batch-size") + 1, "'batch-size' + 1"),
        (symbol("N//2"), "'N//2'"),
        (symbol("3"), "'3'"),
        (symbol("it's") * 2, r"2*'it\'s'"),
        (symbol("max"), "max"),
    ],
)
def test_text(dim: Dim, text: str) -> None:
    assert str(dim) == repr(dim) == text
    assert parse(text) == dim


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("batch", symbol("batch")),
        ("past + sequence", symbol("past") + symbol("sequence")),
        ("past_length+1", symbol("past_length") + 1),
        (" ( N-( 1 ) )* 2 ", 2 * N - 2),
        ("N + -2*-(M)", N + 2 * M),
        ("-N**2//2", -(N * N) // 2),
        ("2*N//3%4", ((2 * N) // 3) % 4),
        ("N - M - 1", N - M - 1),
        (
            "max(N, M, 1, min(N + 2, 7))",
            functools.reduce(symbolic.maximum, [N, M, 1, symbolic.minimum(N + 2, 7)]),
        ),
        ("128", 128),
        ("-1", -1),
        ("", None),
    ],
)
def test_parse(text: str, dim: Dim) -> None:
    assert parse(text) == dim


#: Names of dims that are not expressions, separated by bars.
UNPARSED = (
    "?|unk__1 23|batch-size|batch-size!|axis-1|N/2|floor(N/2)|2N|N.1|N M|N,M|(N|N)|()|max()|max(N,)"
    "|N +|* N|N//0|N % 0|N**M|N**-1|N**2**2|N**65|'N|''|1e5|a::b| |²|9**99999999"
    "|((((9**64)**64)**64)**64)"
)


@pytest.mark.parametrize(
    "text",
    [
        *UNPARSED.split("|"),
        "N" * 300,
        "N + " * 60 + "N",
        "(" * 90 + "N" + ")" * 90,
        "-" * 150 + "N",
        "+".join(f"s{i}" for i in range(65)),
        "(a+b+c+d+e+f+g)**64",
    ],
)
def test_other_text_is_one_symbol(text: str) -> None:
    assert parse(text) == symbol(text)
    assert str(symbol(text)) == text


def test_hostile_text_is_parsed_in_bounded_work() -> None:
    hostile = [
        "(N**60)//(" + " + ".join("abcdefghij") + ")",
        "*".join(f"({a}+N)" for a in "abcdefghijklmnopqrstuvwxyz"),
        "max(" * 18 + "N" + ",M)//3" * 18,
        "((N**7//M)**2//K)**2//(a+b)",
        "".join(f"max({a},N)**2*" for a in "abcdefgh") + "N",
        "max(" + ",".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") + ")",
        "(" * 15 + "N" + "//M+1)*K" * 15,
    ]
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        parsed = [parse(text) for text in hostile]
    finally:
        sys.setprofile(None)
    assert all(isinstance(each, Expr) for each in parsed)
    assert calls < 1_000_000
