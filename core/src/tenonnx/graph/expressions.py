"""Symbolic dimensions of tensor shapes.

A dimension is an int, an :class:`Expr` of symbols, or ``None`` if unknown. A symbol is a non-negative int, and divisors
are assumed not to be zero, so that ``(N*M)//N`` is ``M``.

Expressions are kept in a canonical form: an integer polynomial over atoms, which are symbols and irreducible floor
divisions, modulos, maxima and minima. Equality compares canonical forms: equal expressions always have equal values,
but not all expressions with equal values are equal.

The operators of ``Expr`` round as Python's do, and raise ``OverflowError`` if the result is too large (over 64 symbols
or integers of over 64 bits). The functions of ``Dim`` return ``None`` instead, and if an operand is ``None``.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_SIZE = 64
_MAX_BITS = 64
NAME = re.compile(r"[^\W\d]\w*")
_INFINITY = 1 << 20_000  # for bounds: infinite results stay above _FINITE, finite ones below
_FINITE = 1 << 10_000


_MAX_TEXT = 200
_MAX_DEPTH = 20
_TOKEN = re.compile(
    # A hyphen between two words is part of a name, not a minus: batch-size, axis-1.
    r"\s*([0-9]+(?!\w)|[^\W\d]\w*|'(?:[^'\\]|\\.)+'|\*\*|//|[+*%(),]|(?<!\w)-|-(?!\w))",
    re.DOTALL,
)
_PRECEDENCE = ("+", "-"), ("*", "//", "%")


class _Atom(NamedTuple):
    """A symbol, or a call of ``//``, ``%``, ``max`` or ``min`` with operands. The text is unique and the sort key."""

    text: str
    name: str
    operands: tuple[Size, ...] = ()


def _operators(name: str) -> tuple[Callable[[Expr, Size], Size], Callable[[Expr, int], Size]]:
    """The methods for ``self operator other`` and ``other operator self``; other may also be a numpy integer."""

    def operate(a: Size, b: Size) -> Size:
        try:
            a, b = (x if isinstance(x, Expr) else operator.index(x) for x in (a, b))
        except TypeError:
            return NotImplemented  # type: ignore[no-any-return]
        return OPERATIONS[name](a, b)

    return operate, lambda self, other: operate(other, self)


class Expr:
    """An immutable, non-constant expression of symbols; arithmetic returns constants as plain ints.

    Created by :func:`symbol`, :func:`parse` and arithmetic. Truth value and ordering are undefined: see
    :func:`known_lower_bound`.
    """

    __slots__ = ("_hash", "_size", "_terms")
    _terms: tuple[tuple[_Monomial, int], ...]  # leading term first, constant last
    _size: int
    _hash: int

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...], size: int) -> None:
        for name, value in (("_terms", terms), ("_size", size), ("_hash", hash(terms))):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an expression is immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return Expr, (self._terms, self._size)

    def __eq__(self, other: object) -> bool:
        return self._terms == other._terms if isinstance(other, Expr) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the value of a symbolic dimension is not known: {self}")

    def __str__(self) -> str:
        """Python syntax, with unusual names in quotes; :func:`parse` inverts it for up to 200 characters."""
        atom = _only_atom(self)
        return atom.name if atom and not atom.operands and parse(atom.name) == self else _text(self)

    __repr__ = __str__

    def __neg__(self) -> Size:
        return product_of(self, -1)

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __floordiv__, __rfloordiv__ = _operators("//")
    __mod__, __rmod__ = _operators("%")


Dim: TypeAlias = int | Expr | None
Size: TypeAlias = int | Expr
_Monomial: TypeAlias = tuple[_Atom, ...]  # sorted; a power is a repetition


def symbol(name: str) -> Expr:
    """The symbol of that name, any non-empty text."""
    if not name:
        raise ValueError("a symbol needs a name")
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return _expression(_Atom(name if NAME.fullmatch(name) else f"'{escaped}'", name))


# Polynomials


def _terms(value: Size) -> tuple[tuple[_Monomial, int], ...]:
    return value._terms if isinstance(value, Expr) else (((), value),) if value else ()


def _constant(value: Size) -> int:
    return dict(_terms(value)).get((), 0)


def _expression(atom: _Atom) -> Expr:
    integers = [operand for operand in atom.operands if isinstance(operand, int)]
    return Expr((((atom,), 1),), checked_size([(atom,)], integers))


def _polynomial(terms: Iterable[tuple[_Monomial, int]]) -> Size:
    sums: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    monomials = sorted((monomial for monomial, coefficient in sums.items() if coefficient), key=_order)
    if not any(monomials):
        return sums.get((), 0)
    return Expr(tuple((monomial, sums[monomial]) for monomial in monomials), checked_size(monomials, sums.values()))


def checked_size(monomials: Iterable[_Monomial], integers: Iterable[int]) -> int:
    size = sum(sum(map(_atom_size, monomial)) or 1 for monomial in monomials)
    if size > MAX_SIZE or any(integer.bit_length() > _MAX_BITS for integer in integers):
        raise OverflowError("the expression of a symbolic dimension is too large")
    return size


def _atom_size(atom: _Atom) -> int:
    return sum(operand._size if isinstance(operand, Expr) else 1 for operand in atom.operands) or 1


def _order(monomial: _Monomial) -> tuple[int, _Monomial]:
    # graded lexicographic order, which is compatible with multiplication, as polynomial division needs
    return -len(monomial), monomial


def _sum(a: Size, b: Size) -> Size:
    return _polynomial(_terms(a) + _terms(b))


def _difference(a: Size, b: Size) -> Size:
    return _polynomial(_terms(a) + tuple((monomial, -coefficient) for monomial, coefficient in _terms(b)))


def product_of(a: Size, b: Size) -> Size:
    return _polynomial((tuple(sorted(m + n)), c * d) for m, c in _terms(a) for n, d in _terms(b))


def _only_atom(value: Size) -> _Atom | None:
    match _terms(value):
        case (((atom,), 1),):
            return atom
    return None


def operands_of(name: str, value: Size) -> tuple[Size, ...]:
    """The operands of an expression that is a call of ``name``; empty for others."""
    atom = _only_atom(value)
    return atom.operands if atom and atom.name == name else ()


# Divisions


def _divide(a: Size, b: Size) -> tuple[Size, Size]:
    """``a//b`` and ``a % b``."""
    if isinstance(a, int) and isinstance(b, int):
        return divmod(a, b)
    if b == 0:
        raise ZeroDivisionError(f"division of {a} by zero")
    if _terms(b)[0][1] < 0:
        quotient, remainder = _divide(-a, -b)
        return quotient, -remainder
    whole, rest = _reduce(a, b)
    constant = _constant_quotient(rest, b)
    if constant is not None:
        return whole + constant, rest - constant * b
    if len(_terms(b)) > 1 and not at_least(rest, 0):
        whole, rest = 0, a  # splitting T*H//(T + 1) into H + (-H)//(T + 1) would hide that it is non-negative
    offset, factor = _common_factor(rest, b)
    if factor != 1:
        quotient, remainder = _divide(_reduce(rest - offset, factor)[0], _reduce(b, factor)[0])
        return whole + quotient, remainder * factor + offset
    modulo = _call("%", rest, b)
    inner = operands_of("//", rest - _constant(rest))
    if inner and at_least(b, 0):
        return whole + _divide(inner[0] + inner[1] * _constant(rest), inner[1] * b)[0], modulo
    return whole + _call("//", rest, b), modulo


def _reduce(a: Size, b: Size) -> tuple[Size, Size]:
    """Some q and r with ``a == q*b + r``, where r is 0 if b divides a; b has a positive leading coefficient."""
    monomial, divisor = _terms(b)[0]
    leading = Counter(monomial)
    whole: Size = 0
    rest = a
    for _ in range(MAX_SIZE + 1):  # each step yields another term of the quotient
        steps = ((Counter(m) - leading, c // divisor) for m, c in _terms(rest) if leading <= Counter(m))
        step = next(((tuple(sorted(atoms.elements())), c) for atoms, c in steps if c), None)
        if step is None:
            return whole, rest
        whole += _polynomial([step])
        rest -= _polynomial([step]) * b
    return 0, a


def _common_factor(a: Size, b: Size) -> tuple[int, Size]:
    """A part of a to subtract, which leaves ``a//b`` unchanged, and the greatest common term of the rest and b."""
    scale = math.gcd(*(c for m, c in _terms(a) if m), *(c for _, c in _terms(b)))
    if not at_least(b, 0):
        scale = math.gcd(scale, _constant(a))
    offset = _constant(a) % scale
    shared = functools.reduce(operator.and_, (Counter(m) for m, _ in _terms(a - offset) + _terms(b)))
    return offset, _polynomial([(tuple(sorted(shared.elements())), scale)])


def _constant_quotient(a: Size, b: Size) -> int | None:
    low, high = _quotient_interval(a, b) if a != 0 else (0, 0)
    if low == high:
        return low
    if low >= 0 and at_least(subtract(b, a), 1):
        return 0
    return -1 if high < 0 and at_least(add(a, b), 0) else None


# Maxima and minima


def _extreme(name: str, a: Size, b: Size) -> Size:
    def prevails(x: Size, y: Size) -> bool:
        return at_least(subtract(x, y) if name == "max" else subtract(y, x), 0)

    kept = list(operands_of(name, a) or (a,))
    for candidate in operands_of(name, b) or (b,):
        if not any(prevails(other, candidate) for other in kept):
            kept = [other for other in kept if not prevails(candidate, other)] + [candidate]
    kept.sort(key=lambda operand: (isinstance(operand, int), _text(operand)))
    return kept[0] if len(kept) == 1 else _call(name, *kept)


# Bounds


def apply(name: str, a: Dim, b: Dim) -> Dim:
    try:
        return None if a is None or b is None else OPERATIONS[name](a, b)
    except (OverflowError, ZeroDivisionError):
        return None


def add(a: Dim, b: Dim) -> Dim:
    return apply("+", a, b)


def subtract(a: Dim, b: Dim) -> Dim:
    return apply("-", a, b)


def known_lower_bound(dim: Dim) -> int | None:
    """A lower bound of the dimension, not always the greatest; None if none is known."""
    if not isinstance(dim, Expr):
        return dim
    low, _ = _interval(dim)
    return low if low > -_FINITE else None


def is_known_positive(dim: Dim) -> bool:
    """Whether the dimension is at least 1 for all values of its symbols; False if this is unknown."""
    return at_least(dim, 1)


def at_least(dim: Dim, bound: int) -> bool:
    low = known_lower_bound(dim)
    return low is not None and low >= bound


def _interval(value: Size) -> tuple[int, int]:
    low = high = 0
    for monomial, coefficient in _terms(value):
        least = greatest = coefficient
        for atom in monomial:
            ends = [x * y for x in _atom_interval(atom) for y in (least, greatest)]
            least, greatest = max(min(ends), -_INFINITY), min(max(ends), _INFINITY)
        low, high = low + least, high + greatest
    return low, high


def _atom_interval(atom: _Atom) -> tuple[int, int]:
    if not atom.operands:
        return 0, _INFINITY
    if atom.name == "//":
        return _quotient_interval(*atom.operands)
    lows, highs = zip(*map(_interval, atom.operands), strict=True)
    if atom.name == "%":
        remainder = 0, min(highs[1] - 1, highs[0] if lows[0] >= 0 else _INFINITY)
        return remainder if lows[1] >= 0 else (-_INFINITY, _INFINITY)
    return (max(lows), max(highs)) if atom.name == "max" else (min(lows), min(highs))


def _quotient_interval(a: Size, b: Size) -> tuple[int, int]:
    (low, high), (least, greatest) = _interval(a), _interval(b)
    if least < 0:
        return -_INFINITY, _INFINITY
    least = max(least, 1)
    return low // (greatest if low >= 0 else least), high // (least if high >= 0 else greatest)


def _call(name: str, *operands: Size) -> Expr:
    if name in ("max", "min"):
        text = f"{name}({', '.join(map(_text, operands))})"
    else:
        text = (" % " if name == "%" else name).join(map(_primary_text, operands))
    return _expression(_Atom(text, name, operands))


def _primary_text(value: Size) -> str:
    """The text of an operand of a product or division, in parentheses if necessary."""
    is_primary = value >= 0 if isinstance(value, int) else _only_atom(value) is not None
    compound = not is_primary or operands_of("//", value) or operands_of("%", value)
    return f"({_text(value)})" if compound else _text(value)


def _text(value: Size) -> str:
    text = ""
    for monomial, coefficient in _terms(value):
        sign = ("-" if coefficient < 0 else "") if not text else " - " if coefficient < 0 else " + "
        if len(monomial) == 1 and (coefficient == 1 or (coefficient == -1 and text)):
            text += sign + monomial[0].text
            continue
        factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
        for atom, repeated in itertools.groupby(monomial):
            power = len(list(repeated))
            factors.append(_primary_text(_expression(atom)) + (f"**{power}" if power > 1 else ""))
        text += sign + "*".join(factors)
    return text or "0"


OPERATIONS: dict[str, Callable[[Size, Size], Size]] = {
    "+": _sum,
    "-": _difference,
    "*": product_of,
    "//": lambda a, b: _divide(a, b)[0],
    "%": lambda a, b: _divide(a, b)[1],
    "max": functools.partial(_extreme, "max"),
    "min": functools.partial(_extreme, "min"),
}


# ----- text -----------------------------------------------------------------------------------------------------------


def parse(text: str) -> Dim:
    """Parse a dimension, such as a ``dim_param``; the inverse of ``str``.

    Text that is not an expression becomes one symbol of that name, and so does text over 200 characters, nested too
    deeply, or with a too large result. Empty text is None.
    """
    try:
        if len(text) <= _MAX_TEXT and not _TOKEN.sub("", text.strip()):
            tokens = ["", *reversed(_TOKEN.findall(text))]
            value = _parse_operation(tokens, 0)
            if tokens == [""]:
                return value
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    return symbol(text) if text else None


def _parse_operation(tokens: list[str], depth: int, precedence: int = 0) -> Size:
    """Parse and consume the longest expression at the start of the tokens, which are in reverse order."""
    if precedence == len(_PRECEDENCE):
        return _parse_operand(tokens, depth)
    value = _parse_operation(tokens, depth, precedence + 1)
    while tokens[-1] in _PRECEDENCE[precedence]:
        value = OPERATIONS[tokens.pop()](value, _parse_operation(tokens, depth, precedence + 1))
    return value


def _parse_operand(tokens: list[str], depth: int) -> Size:
    value: Size
    word = tokens.pop()
    if not word or depth > _MAX_DEPTH:
        raise ValueError("no operand, or one nested too deeply")
    if word == "-":
        return -_parse_operand(tokens, depth + 1)
    extreme = OPERATIONS[word] if word in ("max", "min") and tokens[-1] == "(" else None
    if extreme:
        word = tokens.pop()
    if word == "(":
        value = _parse_operation(tokens, depth + 1)
        while extreme and tokens[-1] == ",":
            tokens.pop()
            value = extreme(value, _parse_operation(tokens, depth + 1))
        if tokens.pop() != ")":
            raise ValueError("an unclosed parenthesis")
    elif word.isdecimal():
        value = int(word)
    elif word[0] == "'":
        value = symbol(re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL))
    elif NAME.fullmatch(word):
        value = symbol(word)
    else:
        raise ValueError("an operator instead of an operand")
    if tokens[-1] == "**":
        tokens.pop()
        exponent = int(tokens.pop())
        if not 0 < exponent <= MAX_SIZE:
            raise ValueError("too large a power")
        value = functools.reduce(product_of, [value] * exponent)
        checked_size((), [value] if isinstance(value, int) else [])
    return value
