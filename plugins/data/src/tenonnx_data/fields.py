"""Fields of text files as values of an element type: the rule of all readers of text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from tenonnx import DType

#: What a field of truth values may be.
BOOLS = {"true": True, "1": True, "false": False, "0": False}

#: What text of a file says for a number that is missing.
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "<NA>")

#: Possible delimiters of columns.
_DELIMITERS = ",;\t"

#: What a field of numbers may be, in the syntax of Python and of RE2.
NUMBER = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"

#: What a field of floats may be besides, in lower case.
_NOT_FINITE = r"[+-]?(inf|infinity|nan)"

#: No element type has whole numbers of more digits.
_DIGITS = 20


def delimiter_of(first_row: str) -> str:
    """The delimiter of a file: the most frequent one in its first row."""
    return max(_DELIMITERS, key=first_row.count)


def field_parser(dtype: DType) -> Callable[[str], Any]:
    """Parser of a field that is trimmed and not empty.

    It raises ``ValueError``, ``KeyError`` or ``OverflowError`` for a field that is no such value.
    """
    if dtype is DType.bool:
        return lambda field: BOOLS[field.lower()]
    return _real if dtype.is_float else _whole


def _real(field: str) -> float:
    """A number, or an infinity or NaN by name; digits are ASCII, and what is too large is no infinity."""
    if re.fullmatch(_NOT_FINITE, field.lower()):
        return float(field)
    if not re.fullmatch(NUMBER, field):
        raise ValueError(field)
    number = float(field)
    if math.isinf(number):
        raise OverflowError(field)
    return number


def _whole(field: str) -> int:
    """A whole number, which other programs may have written as a float: 3.0 or 1e3."""
    if not re.fullmatch(NUMBER, field):
        raise ValueError(field)
    try:
        number = Decimal(field)  # a float would round what is above 2**53
    except InvalidOperation:
        raise ValueError(field) from None
    if not number.is_finite() or number.adjusted() >= _DIGITS or number != number.to_integral_value():
        raise ValueError(field)
    return int(number)
