"""Expressions of sizes, such as ``Mul(Integer(2), Symbol('s0', integer=True))``: parsed without ``eval``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import sympy
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import IntInfinity, NegativeIntInfinity

from tenonnx.extend import InvalidModel

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+)|'(?P<text>[^'\\]*)'|(?P<mark>[(),=]))")

#: Names of symbols of sizes.
SYMBOL = re.compile(r"[a-zA-Z_]\w{0,99}")

_ASSUMPTIONS = frozenset({"integer", "positive", "nonnegative", "negative", "real", "rational", "finite", "nonzero"})

_LONGEST = 4096
_DEEPEST = 32
_WIDEST = 64
_LARGEST = 1 << 128
_HIGHEST_POWER = 8

#: Functions of expressions, by their names in ``sympy.srepr``.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in ("Add", "Mul", "Max", "Min", "And", "Or", "Not", "Abs", "Piecewise")},
    **{name: getattr(sympy, name) for name in ("Equality", "Unequality", "GreaterThan", "LessThan")},
    **{name: getattr(sympy, name) for name in ("StrictGreaterThan", "StrictLessThan", "ITE")},
    **{
        name: getattr(functions, name)
        for name in (
            *("CeilDiv", "CeilToInt", "CleanDiv", "FloatTrueDiv", "FloorDiv", "FloorToInt", "Identity", "IntTrueDiv"),
            *("Mod", "ModularIndexing", "PythonMod", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt", "Where"),
        )
        if hasattr(functions, name)
    },
}

_CONSTANTS: Mapping[str, Any] = {"true": sympy.true, "false": sympy.false, "oo": sympy.oo}

_NUMBERS: Mapping[str, Callable[[], Any]] = {
    "IntInfinity": IntInfinity,
    "NegativeIntInfinity": NegativeIntInfinity,
    "Zero": lambda: sympy.S.Zero,
    "One": lambda: sympy.S.One,
    "NegativeOne": lambda: sympy.S.NegativeOne,
}


def parsed(text: Any) -> sympy.Basic:
    """Parse an expression that ``sympy.srepr`` wrote. Raises ``InvalidModel`` for anything else.

    Numbers, powers and the length are bounded, so that evaluation is fast.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise _invalid(text)
    try:
        result = _Parser(text).whole()
    except InvalidModel:
        raise
    except Exception as error:  # sympy raises many kinds
        raise _invalid(text) from error
    return result


def _invalid(text: Any) -> InvalidModel:
    return InvalidModel("cannot read an expression of sizes", given=repr(text)[:200])


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise _invalid(text)
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self._at = 0

    def whole(self) -> sympy.Basic:
        result = self._expression(0)
        if self._at != len(self._tokens) or not isinstance(result, sympy.Basic):
            raise _invalid(self._text)
        return result

    def _next(self, kind: str, value: str | None = None) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] != kind:
            raise _invalid(self._text)
        result = self._tokens[self._at][1]
        if value is not None and result != value:
            raise _invalid(self._text)
        self._at += 1
        return result

    def _is(self, kind: str, value: str | None = None, ahead: int = 0) -> bool:
        place = self._at + ahead
        return (
            place < len(self._tokens)
            and self._tokens[place][0] == kind
            and (value is None or self._tokens[place][1] == value)
        )

    def _expression(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _invalid(self._text)
        if self._is("number"):
            return int(self._next("number"))
        if self._is("text"):
            return self._next("text")
        name = self._next("name")
        if not self._is("mark", "("):
            if name not in _CONSTANTS:
                raise _invalid(self._text)
            return _CONSTANTS[name]
        arguments, options = self._arguments(depth)
        return _bounded(self._call(name, arguments, options), self._text)

    def _arguments(self, depth: int) -> tuple[list[Any], dict[str, Any]]:
        self._next("mark", "(")
        arguments: list[Any] = []
        options: dict[str, Any] = {}
        while not self._is("mark", ")"):
            if arguments or options:
                self._next("mark", ",")
            if self._is("name") and self._is("mark", "=", ahead=1):
                name = self._next("name")
                self._next("mark", "=")
                options[name] = self._next("name") if self._is("name") else int(self._next("number"))
            elif options or len(arguments) >= _WIDEST:
                raise _invalid(self._text)
            else:
                arguments.append(self._expression(depth + 1))
        self._next("mark", ")")
        return arguments, options

    def _call(self, name: str, arguments: list[Any], options: Mapping[str, Any]) -> Any:
        if name in ("Symbol", "Integer", "Rational", "Float"):
            return self._atom(name, arguments, options)
        if options or not all(isinstance(each, sympy.Basic) for each in arguments):
            raise _invalid(self._text)
        if name in _NUMBERS and not arguments:
            return _NUMBERS[name]()
        if name in ("Pow", "PowByNatural"):
            base, exponent = arguments
            if not exponent.is_Integer or abs(int(exponent)) > _HIGHEST_POWER:
                raise _invalid(self._text)
            return sympy.Pow(base, exponent) if name == "Pow" else functions.PowByNatural(base, exponent)
        if name not in _FUNCTIONS or not arguments:
            raise _invalid(self._text)
        return _FUNCTIONS[name](*arguments)

    def _atom(self, name: str, arguments: list[Any], options: Mapping[str, Any]) -> Any:
        if name == "Symbol":
            (symbol,) = arguments
            wrong = not isinstance(symbol, str) or not SYMBOL.fullmatch(symbol) or not options.keys() <= _ASSUMPTIONS
            if wrong or not all(value in ("True", "False") for value in options.values()):
                raise _invalid(self._text)
            return sympy.Symbol(symbol, **{key: value == "True" for key, value in options.items()})
        if name == "Float":
            (number,) = arguments
            if not isinstance(number, str) or len(number) > 40 or not options.keys() <= {"precision"}:
                raise _invalid(self._text)
            return sympy.Float(float(number))
        if options or not all(isinstance(each, int) for each in arguments) or len(arguments) > 2:
            raise _invalid(self._text)
        return sympy.Integer(*arguments) if name == "Integer" else sympy.Rational(*arguments)


def _bounded(found: Any, text: str) -> Any:
    """Reject an expression with numbers too large for further computation."""
    numbers = found.atoms(sympy.Rational) if isinstance(found, sympy.Basic) else ()
    if any(abs(each.p) > _LARGEST or each.q > _LARGEST for each in numbers):
        raise _invalid(text)
    return found
