"""Parsing fields of text files; the same rules for all readers of text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from tenonnx import DType

#: Fields for booleans.
BOOLS = {"true": True, "1": True, "false": False, "0": False}

#: Fields for missing numbers.
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "<NA>")

#: Possible delimiters of columns.
_DELIMITERS = ",;\t"

#: Pattern of numbers, in the syntax of both Python and RE2.
NUMBER = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"

#: Pattern of further fields for floats, in lower case.
_NOT_FINITE = r"[+-]?(inf|infinity|nan)"

#: No integer type has more digits.
_DIGITS = 20


def delimiter_of(first_row: str) -> str:
    """The delimiter of a file: the most frequent one in its first row."""
    return max(_DELIMITERS, key=first_row.count)


def field_parser(dtype: DType) -> Callable[[str], Any]:
    """Parser of a trimmed, non-empty field.

    It raises ``ValueError``, ``KeyError`` or ``OverflowError`` for an invalid field.
    """
    if dtype is DType.bool:
        return lambda field: BOOLS[field.lower()]
    return _real if dtype.is_float else _whole


def _real(field: str) -> float:
    """Parse a number, or infinity or NaN by name; digits are ASCII, and overflow is an error."""
    if re.fullmatch(_NOT_FINITE, field.lower()):
        return float(field)
    if not re.fullmatch(NUMBER, field):
        raise ValueError(field)
    number = float(field)
    if math.isinf(number):
        raise OverflowError(field)
    return number


def _whole(field: str) -> int:
    """Parse an integer, perhaps written as a float: 3.0 or 1e3."""
    if not re.fullmatch(NUMBER, field):
        raise ValueError(field)
    try:
        number = Decimal(field)  # a float would round integers above 2**53
    except InvalidOperation:
        raise ValueError(field) from None
    if not number.is_finite() or number.adjusted() >= _DIGITS or number != number.to_integral_value():
        raise ValueError(field)
    return int(number)
