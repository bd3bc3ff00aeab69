"""Fields of text files as values of an element type."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from tenonnx import DType

#: What a field of truth values may be.
BOOLS = {"true": True, "1": True, "false": False, "0": False}

#: No element type has whole numbers of more digits.
_DIGITS = 20


def field_parser(dtype: DType) -> Callable[[str], Any]:
    """What makes a value of a field that is trimmed and not empty.

    It raises ``ValueError``, ``KeyError`` or ``OverflowError`` for a field that is no such value.
    """
    if dtype is DType.bool:
        return lambda field: BOOLS[field.lower()]
    return float if dtype.is_float else _whole


def _whole(field: str) -> int:
    """A whole number, which other programs may have written as a float: 3.0 or 1e3."""
    try:
        return int(field)
    except ValueError:
        pass
    try:
        number = Decimal(field)  # a float would round what is above 2**53
    except InvalidOperation:
        raise ValueError(field) from None
    if not number.is_finite() or number.adjusted() >= _DIGITS or number != number.to_integral_value():
        raise ValueError(field)
    return int(number)
