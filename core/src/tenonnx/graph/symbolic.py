"""Arithmetic on dimensions: ints, expressions of symbols, and ``None`` for unknown ones.

The functions return ``None`` where the operators of ``Expr`` raise, and if an operand is ``None``.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenonnx.graph.expressions import (
    Dim,
    Expr,
    _Atom,
    _expression,
    add,
    apply,
    at_least,
    is_known_positive,
    known_lower_bound,
    operands_of,
    parse,
    subtract,
    symbol,
)

__all__ = [
    "Dim",
    "Expr",
    "add",
    "broadcast",
    "broadcast_shapes",
    "ceil_div",
    "evaluate",
    "floor_div",
    "is_known_positive",
    "join",
    "known_lower_bound",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "parse",
    "product",
    "substitute",
    "subtract",
    "symbol",
    "symbols_of",
    "truncate_div",
    "unify",
]


def dims_given(dims: Iterable[Any]) -> tuple[Dim, ...]:
    """Parse dims of a caller: sizes, names, expressions as text, and None.

    Raises ``TypeError`` for anything else, ``ValueError`` for a negative size.
    """
    if isinstance(dims, str):
        raise TypeError("expected a sequence of dims, got a string")
    return tuple(map(_dim_given, dims))


def _dim_given(dim: Any) -> Dim:
    if dim is None or isinstance(dim, Expr):
        return dim
    result = parse(dim) if isinstance(dim, str) else int(operator.index(dim))
    if isinstance(result, int) and result < 0:
        raise ValueError("a size is negative")
    return result


def multiply(a: Dim, b: Dim) -> Dim:
    """The product, which is 0 if either is 0, even if the other is unknown."""
    return 0 if a == 0 or b == 0 else apply("*", a, b)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all dims: 1 if there are none, 0 if any is 0."""
    result: Dim = 1
    for dim in dims:
        result = multiply(result, dim)
    return result


def floor_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded down. This and the other divisions are None for a division by 0."""
    return apply("//", a, b)


def modulo(a: Dim, b: Dim) -> Dim:
    """The remainder of :func:`floor_div`, which has the sign of b."""
    return apply("%", a, b)


def ceil_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded up."""
    if modulo(a, b) == 0:
        return floor_div(a, b)
    if at_least(b, 0):
        return floor_div(add(a, subtract(b, 1)), b)
    return multiply(floor_div(multiply(a, -1), b), -1)


def truncate_div(a: Dim, b: Dim) -> Dim:
    """The quotient rounded towards 0, as in C. None unless both are ints, or both are known to be non-negative."""
    if isinstance(a, int) and isinstance(b, int):
        return floor_div(a, b) if (a < 0) == (b < 0) else ceil_div(a, b)
    return floor_div(a, b) if at_least(a, 0) and at_least(b, 0) else None


def maximum(a: Dim, b: Dim) -> Dim:
    return apply("max", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    return apply("min", a, b)


def differ(a: Dim, b: Dim) -> bool:
    """Whether two dims are known to differ: both are ints, since a symbol may have any value."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def broadcast(a: Dim, b: Dim) -> Dim:
    """The dimension after broadcasting. Raises ``ValueError`` for incompatible ints.

    It is often unknown, as any dimension not known to be at least 2 could be 1.
    """
    if a == 1 or (a == b and a is not None):
        return b
    if b == 1:
        return a
    if _is_capped(b, a):
        return a
    if _is_capped(a, b):
        return b
    ints = [dim for dim in (a, b) if isinstance(dim, int)]
    if len(ints) == 2:
        raise ValueError(f"dimensions {a} and {b} do not broadcast")
    certain = [*ints, *(dim for dim in (a, b) if at_least(dim, 2))]
    return certain[0] if certain else None


def _is_capped(dim: Dim, other: Dim) -> bool:
    """Whether ``dim`` is the minimum of ``other`` and a positive number; if they broadcast, they are equal."""
    parts = itertools.permutations(operands_of("min", dim) if isinstance(dim, Expr) else (), 2)
    return any(a == other and isinstance(b, int) and b > 0 for a, b in parts)


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape after broadcasting shapes of any ranks, aligned at their last axes."""
    columns = itertools.zip_longest(*(tuple(reversed(shape)) for shape in shapes), fillvalue=1)
    return tuple(functools.reduce(broadcast, column) for column in columns)[::-1]


def unify(a: Dim, b: Dim) -> Dim:
    """The more precise of two facts about the same dimension: an int, else the first expression.

    Raises ``ValueError`` for two different ints.
    """
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ValueError(f"a dimension cannot be both {a} and {b}")
    return b if a is None or isinstance(b, int) else a


def join(a: Dim, b: Dim) -> Dim:
    """The dim if both alternatives agree, else None."""
    return a if a == b else None


def symbols_of(dim: Dim) -> set[str]:
    """The names of a dimension's symbols."""
    if not isinstance(dim, Expr):
        return set()
    atoms = {atom for monomial, _ in dim._terms for atom in monomial}
    return {a.name for a in atoms if not a.operands}.union(*(symbols_of(x) for a in atoms for x in a.operands))


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with some symbols replaced by other dimensions."""

    def replaced(atom: _Atom) -> Dim:
        if not atom.operands:
            return values.get(atom.name, _expression(atom))
        operands = (substitute(operand, values) for operand in atom.operands)
        return functools.reduce(functools.partial(apply, atom.name), operands)

    if not isinstance(dim, Expr):
        return dim
    return functools.reduce(add, [product([coefficient, *map(replaced, m)]) for m, coefficient in dim._terms])


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of a dimension for values of its symbols. Raises ``ValueError`` if one is missing."""
    value = substitute(dim, values)
    if isinstance(value, int):
        return value
    raise ValueError(f"dimension {dim} has no value for {dict(values)}")
