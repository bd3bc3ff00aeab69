"""Accuracy classes of lowerings."""

from __future__ import annotations

from enum import IntEnum


class Accuracy(IntEnum):
    """Accuracy class of a lowering, the most accurate first.

    ``EXACT`` has equal results, ``ROUNDING`` differs by rounding, ``FINITE`` is wrong for NaN, infinities or huge
    values, and ``APPROXIMATE`` has an error that its docstring states.
    """

    EXACT = 0
    ROUNDING = 1
    FINITE = 2
    APPROXIMATE = 3
