"""Dims of JAX as dims of a graph, and as values computed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import jax
import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Dim, Expr, InvalidCall, TensorType, Value, constant, did_you_mean, listing
from tenonnx.extend import symbolic as symbols

#: A size: an int if it is static, an int64 scalar value if it is dynamic.
Size = int | Value


def walked(dim: Any, symbol: Callable[[str], Any], operations: Mapping[str, Callable[..., Any]]) -> Any:
    """Rebuild ``dim`` from other symbols and operations: ``add``, ``mul``, and JAX's named operations."""
    if isinstance(dim, int | np.integer):
        return int(dim)
    terms = []
    for term, coefficient in dim._sorted_terms:
        factors: list[Any] = [] if coefficient == 1 and term._factors else [int(coefficient)]
        for factor, exponent in term._factors:
            if factor.var is not None:
                value = symbol(factor.var)
            else:
                operands = [walked(operand, symbol, operations) for operand in factor.operands]
                value = operations[factor.operation](*operands)
            factors += [value] * int(exponent)
        terms.append(reduce(operations["mul"], factors))
    return reduce(operations["add"], terms)


_AS_DIMS: Mapping[str, Callable[..., Any]] = {
    "add": symbols.add,
    "mul": symbols.multiply,
    "floordiv": symbols.floor_div,
    "mod": symbols.modulo,
    "max": symbols.maximum,
    "min": symbols.minimum,
    "non_negative": lambda dim: symbols.maximum(dim, 0),
}


def as_dim(dim: Any) -> Dim:
    """Convert a dim of JAX to one of a graph."""
    result: Dim = walked(dim, symbols.symbol, _AS_DIMS)
    return result


def as_type(aval: Any) -> TensorType:
    """Type of a value, from its abstract value."""
    from tenonnx_jax.types import dtype_of

    return TensorType(dtype_of(aval), tuple(map(as_dim, aval.shape)))


def _floor_div(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    a, b = _value(a), _value(b)
    return ops.div(ops.sub(a, ops.mod(a, b)), b)  # the remainder has the sign of the divisor


def _mod(a: Size, b: Size) -> Size:
    return a % b if isinstance(a, int) and isinstance(b, int) else ops.mod(_value(a), _value(b))


def _extreme(known: Callable[..., int], op: Any) -> Callable[..., Size]:
    def found(*sizes: Size) -> Size:
        if all(isinstance(size, int) for size in sizes):
            return known(*sizes)
        return op(*map(_value, sizes))

    return found


largest, smallest = _extreme(max, ops.maximum), _extreme(min, ops.minimum)

_AS_SIZES: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": _floor_div,
    "mod": _mod,
    "max": largest,
    "min": smallest,
    "non_negative": lambda size: largest(size, 0),
}


def _value(size: Size) -> Value:
    return size if isinstance(size, Value) else constant(np.asarray(size, np.int64))


class Sizes:
    """Known sizes of a graph under construction, each computed once."""

    def __init__(self, symbols: Mapping[str, Value], outer: Sizes | None = None) -> None:
        self._symbols = symbols
        self._known_sizes: dict[str, Size] = dict(outer._known_sizes) if outer is not None else {}

    def nested(self) -> Sizes:
        """The sizes for a subgraph; what is computed there is unknown outside."""
        return Sizes(self._symbols, self)

    def size(self, dim: Any) -> Size:
        if isinstance(dim, int | np.integer):
            return int(dim)
        name = str(dim)
        if name not in self._known_sizes:
            self._known_sizes[name] = walked(dim, self._symbol, _AS_SIZES)
        return self._known_sizes[name]

    def _symbol(self, name: str) -> Value:
        if name not in self._symbols:
            do = did_you_mean(name, self._symbols)
            raise InvalidCall(f'no input has the dim "{name}"', available=listing(self._symbols), do=do)
        return self._symbols[name]

    def value(self, dim: Any) -> Value:
        """A dim as a scalar value."""
        return _value(self.size(dim))

    def vector(self, shape: Any) -> Any:
        """A shape as an argument of ops: a list of ints, or a value."""
        return self.sizes([self.size(dim) for dim in shape])

    @staticmethod
    def sizes(sizes: list[Size]) -> Any:
        if all(isinstance(size, int) for size in sizes):
            return constant(np.asarray(sizes, np.int64))
        parts: list[Any] = []
        known: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                known.append(size)
                continue
            if known:
                parts.append(constant(np.asarray(known, np.int64)))
                known = []
            parts.append(ops.unsqueeze(size, [0]))
        if known:
            parts.append(constant(np.asarray(known, np.int64)))
        return ops.concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def is_static(shape: Any) -> bool:
    return all(isinstance(dim, int | np.integer) for dim in shape)


def same(a: Any, b: Any) -> bool:
    """Whether two dims are known to be equal."""
    return bool(jax.core.definitely_equal(a, b)) if hasattr(jax.core, "definitely_equal") else str(a) == str(b)


__all__ = ["Expr", "Size", "Sizes", "as_dim", "as_type", "is_static", "largest", "same", "smallest", "walked"]
