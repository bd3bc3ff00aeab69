"""Symbolic dimensions of tensor shapes.

A dimension is a known int, an :class:`Expr` of named symbols, or ``None`` when nothing is known. A symbol stands for a
non-negative int, and a divisor is taken never to be zero, so that ``(N*M)//N`` is ``M``.

Expressions are kept in a canonical form, an integer polynomial over atoms: symbols, and the floor divisions, modulos,
maxima and minima that do not simplify. Equality is equality of that form: equal expressions always have equal values,
and most, not all, expressions of equal values are equal.

The operators of ``Expr`` round as Python's do, and raise ``OverflowError`` on a result too large to be useful (over 64
symbols or integers of over 64 bits). The functions of ``Dim`` answer ``None`` instead, and when an operand is ``None``.
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
    from collections.abc import Callable, Iterable, Mapping, Sequence

_MAX_SIZE = 64
_MAX_BITS = 64
_MAX_TEXT = 200
_MAX_DEPTH = 20
_INFINITY = 1 << 20_000  # of bounds; arithmetic keeps the infinite ones above _FINITE and the finite ones below
_FINITE = 1 << 10_000


class _Atom(NamedTuple):
    """A symbol, or with operands a call of ``//``, ``%``, ``max`` or ``min``. The text is unique, and orders atoms."""

    text: str
    name: str
    operands: tuple[_Known, ...] = ()


def _operators(name: str) -> tuple[Callable[[Expr, _Known], _Known], Callable[[Expr, int], _Known]]:
    """The methods for ``self operator other`` and ``other operator self``; other may be any integer, as numpy's."""

    def operate(a: _Known, b: _Known) -> _Known:
        try:
            a, b = (x if isinstance(x, Expr) else operator.index(x) for x in (a, b))
        except TypeError:
            return NotImplemented  # type: ignore[no-any-return]
        return _OPERATIONS[name](a, b)

    return operate, lambda self, other: operate(other, self)


class Expr:
    """An immutable expression of symbols; never a constant, as arithmetic gives constants back as plain ints.

    Made by :func:`symbol`, :func:`parse` and arithmetic. Neither truth nor ordering is defined: see
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
        """Python syntax, with quotes around the names that need them; :func:`parse` reads up to 200 characters back."""
        atom = _only_atom(self)
        return atom.name if atom and not atom.operands and parse(atom.name) == self else _text(self)

    __repr__ = __str__

    def __neg__(self) -> _Known:
        return _product(self, -1)

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __floordiv__, __rfloordiv__ = _operators("//")
    __mod__, __rmod__ = _operators("%")


Dim: TypeAlias = int | Expr | None
_Known: TypeAlias = int | Expr
_Monomial: TypeAlias = tuple[_Atom, ...]  # sorted; a power is a repetition


def symbol(name: str) -> Expr:
    """The symbol of that name, which may be any text but the empty one."""
    if not name:
        raise ValueError("a symbol needs a name")
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return _expression(_Atom(name if _NAME.fullmatch(name) else f"'{escaped}'", name))


# Polynomials


def _terms(value: _Known) -> tuple[tuple[_Monomial, int], ...]:
    return value._terms if isinstance(value, Expr) else (((), value),) if value else ()


def _constant(value: _Known) -> int:
    return dict(_terms(value)).get((), 0)


def _expression(atom: _Atom) -> Expr:
    integers = [operand for operand in atom.operands if isinstance(operand, int)]
    return Expr((((atom,), 1),), _checked_size([(atom,)], integers))


def _polynomial(terms: Iterable[tuple[_Monomial, int]]) -> _Known:
    sums: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    monomials = sorted((monomial for monomial, coefficient in sums.items() if coefficient), key=_order)
    if not any(monomials):
        return sums.get((), 0)
    return Expr(tuple((monomial, sums[monomial]) for monomial in monomials), _checked_size(monomials, sums.values()))


def _checked_size(monomials: Iterable[_Monomial], integers: Iterable[int]) -> int:
    size = sum(sum(map(_atom_size, monomial)) or 1 for monomial in monomials)
    if size > _MAX_SIZE or any(integer.bit_length() > _MAX_BITS for integer in integers):
        raise OverflowError("the expression of a symbolic dimension is too large")
    return size


def _atom_size(atom: _Atom) -> int:
    return sum(operand._size if isinstance(operand, Expr) else 1 for operand in atom.operands) or 1


def _order(monomial: _Monomial) -> tuple[int, _Monomial]:
    return -len(monomial), monomial  # graded lexicographic, which multiplication keeps, as polynomial division needs


def _sum(a: _Known, b: _Known) -> _Known:
    return _polynomial(_terms(a) + _terms(b))


def _difference(a: _Known, b: _Known) -> _Known:
    return _polynomial(_terms(a) + tuple((monomial, -coefficient) for monomial, coefficient in _terms(b)))


def _product(a: _Known, b: _Known) -> _Known:
    return _polynomial((tuple(sorted(m + n)), c * d) for m, c in _terms(a) for n, d in _terms(b))


def _only_atom(value: _Known) -> _Atom | None:
    match _terms(value):
        case (((atom,), 1),):
            return atom
    return None


def _operands(name: str, value: _Known) -> tuple[_Known, ...]:
    """The operands of a value that is a call by that name; none of any other."""
    atom = _only_atom(value)
    return atom.operands if atom and atom.name == name else ()


# Divisions


def _divide(a: _Known, b: _Known) -> tuple[_Known, _Known]:
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
    if len(_terms(b)) > 1 and not _at_least(rest, 0):
        whole, rest = 0, a  # splitting T*H//(T + 1) into H + (-H)//(T + 1) would hide that it is not negative
    offset, factor = _common_factor(rest, b)
    if factor != 1:
        quotient, remainder = _divide(_reduce(rest - offset, factor)[0], _reduce(b, factor)[0])
        return whole + quotient, remainder * factor + offset
    modulo = _call("%", rest, b)
    inner = _operands("//", rest - _constant(rest))
    if inner and _at_least(b, 0):
        return whole + _divide(inner[0] + inner[1] * _constant(rest), inner[1] * b)[0], modulo
    return whole + _call("//", rest, b), modulo


def _reduce(a: _Known, b: _Known) -> tuple[_Known, _Known]:
    """Some q and r with ``a == q*b + r``, where r is 0 if b divides a; b has a positive leading coefficient."""
    monomial, divisor = _terms(b)[0]
    leading = Counter(monomial)
    whole: _Known = 0
    rest = a
    for _ in range(_MAX_SIZE + 1):  # every step finds another term of the quotient
        steps = ((Counter(m) - leading, c // divisor) for m, c in _terms(rest) if leading <= Counter(m))
        step = next(((tuple(sorted(atoms.elements())), c) for atoms, c in steps if c), None)
        if step is None:
            return whole, rest
        whole += _polynomial([step])
        rest -= _polynomial([step]) * b
    return 0, a


def _common_factor(a: _Known, b: _Known) -> tuple[int, _Known]:
    """What to subtract from a, without changing ``a//b``, and the greatest single term that then divides a and b."""
    scale = math.gcd(*(c for m, c in _terms(a) if m), *(c for _, c in _terms(b)))
    if not _at_least(b, 0):
        scale = math.gcd(scale, _constant(a))
    offset = _constant(a) % scale
    shared = functools.reduce(operator.and_, (Counter(m) for m, _ in _terms(a - offset) + _terms(b)))
    return offset, _polynomial([(tuple(sorted(shared.elements())), scale)])


def _constant_quotient(a: _Known, b: _Known) -> int | None:
    low, high = _quotient_interval(a, b) if a != 0 else (0, 0)
    if low == high:
        return low
    if low >= 0 and _at_least(subtract(b, a), 1):
        return 0
    return -1 if high < 0 and _at_least(add(a, b), 0) else None


# Maxima and minima


def _extreme(name: str, a: _Known, b: _Known) -> _Known:
    def prevails(x: _Known, y: _Known) -> bool:
        return _at_least(subtract(x, y) if name == "max" else subtract(y, x), 0)

    kept = list(_operands(name, a) or (a,))
    for candidate in _operands(name, b) or (b,):
        if not any(prevails(other, candidate) for other in kept):
            kept = [other for other in kept if not prevails(candidate, other)] + [candidate]
    kept.sort(key=lambda operand: (isinstance(operand, int), _text(operand)))
    return kept[0] if len(kept) == 1 else _call(name, *kept)


# Bounds


def known_lower_bound(dim: Dim) -> int | None:
    """An int that the dimension is never below, not always the greatest; None if none is known."""
    if not isinstance(dim, Expr):
        return dim
    low, _ = _interval(dim)
    return low if low > -_FINITE else None


def is_known_positive(dim: Dim) -> bool:
    """Whether the dimension is at least 1 whatever its symbols are; False also means that this is not known."""
    return _at_least(dim, 1)


def _at_least(dim: Dim, bound: int) -> bool:
    low = known_lower_bound(dim)
    return low is not None and low >= bound


def _interval(value: _Known) -> tuple[int, int]:
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


def _quotient_interval(a: _Known, b: _Known) -> tuple[int, int]:
    (low, high), (least, greatest) = _interval(a), _interval(b)
    if least < 0:
        return -_INFINITY, _INFINITY
    least = max(least, 1)
    return low // (greatest if low >= 0 else least), high // (least if high >= 0 else greatest)


# Functions of dimensions


def _apply(name: str, a: Dim, b: Dim) -> Dim:
    try:
        return None if a is None or b is None else _OPERATIONS[name](a, b)
    except (OverflowError, ZeroDivisionError):
        return None


def add(a: Dim, b: Dim) -> Dim:
    return _apply("+", a, b)


def subtract(a: Dim, b: Dim) -> Dim:
    return _apply("-", a, b)


def multiply(a: Dim, b: Dim) -> Dim:
    """The product, which is 0 if either is 0, even if the other is unknown."""
    return 0 if a == 0 or b == 0 else _apply("*", a, b)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all: 1 of none, 0 if any is 0."""
    result: Dim = 1
    for dim in dims:
        result = multiply(result, dim)
    return result


def floor_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded down. This and the other divisions are None for a division by 0."""
    return _apply("//", a, b)


def modulo(a: Dim, b: Dim) -> Dim:
    """The remainder of :func:`floor_div`, which has the sign of b."""
    return _apply("%", a, b)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    if modulo(a, b) == 0:
        return floor_div(a, b)
    if _at_least(b, 0):
        return floor_div(add(a, subtract(b, 1)), b)
    return multiply(floor_div(multiply(a, -1), b), -1)


def truncate_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded towards 0, as in C. None unless both are ints, or both are known not to be negative."""
    if isinstance(a, int) and isinstance(b, int):
        return floor_div(a, b) if (a < 0) == (b < 0) else ceil_div(a, b)
    return floor_div(a, b) if _at_least(a, 0) and _at_least(b, 0) else None


def maximum(a: Dim, b: Dim) -> Dim:
    return _apply("max", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    return _apply("min", a, b)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The dimension that broadcasting gives; ``ValueError`` for ints that do not match.

    It is often unknown, as every dimension not known to be at least 2 may turn out to be 1.
    """
    if a == 1 or (a == b and a is not None):
        return b
    if b == 1:
        return a
    ints = [dim for dim in (a, b) if isinstance(dim, int)]
    if len(ints) == 2:
        raise ValueError(f"dimensions {a} and {b} do not broadcast")
    certain = [*ints, *(dim for dim in (a, b) if _at_least(dim, 2))]
    return certain[0] if certain else None


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that broadcasting gives of shapes of any ranks, aligned at their last dimensions."""
    columns = itertools.zip_longest(*(tuple(reversed(shape)) for shape in shapes), fillvalue=1)
    return tuple(functools.reduce(broadcast, column) for column in columns)[::-1]


def unify(a: Dim, b: Dim) -> Dim:
    """The more telling of two facts about one dimension: an int, or else the first expression.

    ``ValueError`` for two different ints.
    """
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ValueError(f"a dimension cannot be both {a} and {b}")
    return b if a is None or isinstance(b, int) else a


def join(a: Dim, b: Dim) -> Dim:
    """What is known of a dimension that is either of two."""
    return a if a == b else None


def symbols_of(dim: Dim) -> set[str]:
    """The names of the symbols of a dimension."""
    if not isinstance(dim, Expr):
        return set()
    atoms = {atom for monomial, _ in dim._terms for atom in monomial}
    return {a.name for a in atoms if not a.operands}.union(*(symbols_of(x) for a in atoms for x in a.operands))


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with other dimensions in the place of some symbols."""

    def replaced(atom: _Atom) -> Dim:
        if not atom.operands:
            return values.get(atom.name, _expression(atom))
        operands = (substitute(operand, values) for operand in atom.operands)
        return functools.reduce(functools.partial(_apply, atom.name), operands)

    if not isinstance(dim, Expr):
        return dim
    return functools.reduce(add, [product([coefficient, *map(replaced, m)]) for m, coefficient in dim._terms])


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of a dimension for the values of its symbols; ``ValueError`` if one is missing or there is none."""
    value = substitute(dim, values)
    if isinstance(value, int):
        return value
    raise ValueError(f"dimension {dim} has no value for {dict(values)}")


# Text

_NAME = re.compile(r"[^\W\d]\w*")
_TOKEN = re.compile(
    # A hyphen between two words is no minus: batch-size and axis-1 are names.
    r"\s*([0-9]+(?!\w)|[^\W\d]\w*|'(?:[^'\\]|\\.)+'|\*\*|//|[+*%(),]|(?<!\w)-|-(?!\w))",
    re.DOTALL,
)


def _call(name: str, *operands: _Known) -> Expr:
    if name in ("max", "min"):
        text = f"{name}({', '.join(map(_text, operands))})"
    else:
        text = (" % " if name == "%" else name).join(map(_primary_text, operands))
    return _expression(_Atom(text, name, operands))


def _primary_text(value: _Known) -> str:
    """The text of an operand of a product or division."""
    is_primary = value >= 0 if isinstance(value, int) else _only_atom(value) is not None
    compound = not is_primary or _operands("//", value) or _operands("%", value)
    return f"({_text(value)})" if compound else _text(value)


def _text(value: _Known) -> str:
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


def parse(text: str) -> Dim:
    """The dimension that a text, such as a ``dim_param``, stands for: the inverse of ``str``.

    Text that is no expression is one symbol of that very name, as is text over 200 characters long, nested deeply, or
    whose expression would be too large. Empty text is None.
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


def _parse_operation(tokens: list[str], depth: int, precedence: int = 0) -> _Known:
    """The value of the longest expression that the tokens, which are in reverse and get consumed, begin with."""
    if precedence == len(_PRECEDENCE):
        return _parse_operand(tokens, depth)
    value = _parse_operation(tokens, depth, precedence + 1)
    while tokens[-1] in _PRECEDENCE[precedence]:
        value = _OPERATIONS[tokens.pop()](value, _parse_operation(tokens, depth, precedence + 1))
    return value


def _parse_operand(tokens: list[str], depth: int) -> _Known:
    value: _Known
    word = tokens.pop()
    if not word or depth > _MAX_DEPTH:
        raise ValueError("no operand, or one nested too deeply")
    if word == "-":
        return -_parse_operand(tokens, depth + 1)
    extreme = _OPERATIONS[word] if word in ("max", "min") and tokens[-1] == "(" else None
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
    elif _NAME.fullmatch(word):
        value = symbol(word)
    else:
        raise ValueError("an operator instead of an operand")
    if tokens[-1] == "**":
        tokens.pop()
        exponent = int(tokens.pop())
        if not 0 < exponent <= _MAX_SIZE:
            raise ValueError("too large a power")
        value = functools.reduce(_product, [value] * exponent)
        _checked_size((), [value] if isinstance(value, int) else [])
    return value


_PRECEDENCE = ("+", "-"), ("*", "//", "%")
_OPERATIONS: dict[str, Callable[[_Known, _Known], _Known]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "//": lambda a, b: _divide(a, b)[0],
    "%": lambda a, b: _divide(a, b)[1],
    "max": functools.partial(_extreme, "max"),
    "min": functools.partial(_extreme, "min"),
}
