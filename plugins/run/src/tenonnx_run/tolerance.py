"""The table of tolerances."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tenonnx.graph.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``a`` is as good as ``b`` when ``|a - b| <= absolute + relative * |b|``. An override carries its ``reason``."""

    absolute: float
    relative: float
    reason: str = ""

    def __str__(self) -> str:
        if not self.absolute and not self.relative:
            return "may not differ"
        return f"may differ by {self.absolute:.3g} + {self.relative:.3g} * |expected|"


EXACT = Tolerance(0.0, 0.0)

#: For each dtype the distance of 1 to the next number, and how many such distances one operation may be off: libraries
#: compute functions such as exp and erf to different last digits, and a chain of operations in a short format rounds
#: each step. Eight bits and fewer are formats to store in, like integers, and are exact; see ``steps`` of ``compare``.
_ROUNDING: dict[DType, tuple[float, float]] = {
    DType.float64: (2.0**-52, 256),
    DType.float32: (2.0**-23, 64),
    DType.float16: (2.0**-10, 4),
    DType.bfloat16: (2.0**-7, 4),
    DType.complex128: (2.0**-52, 256),
    DType.complex64: (2.0**-23, 64),
}


def tolerance_for(dtype: DType, accumulation: int = 1) -> Tolerance:
    """The tolerance of one dtype for results that sum up ``accumulation`` terms of magnitude about 1.

    Rounding errors are as often up as down, so that they grow with the square root of the number of terms.
    """
    distance, units = _ROUNDING.get(dtype, (0.0, 0.0))
    bound = distance * units * max(1, accumulation) ** 0.5
    return Tolerance(bound, bound) if bound else EXACT


#: So many distances of one number to the next, by the root of the number of terms, are what rounding alone explains.
_UNITS_OF_ROUNDING = 4


def distance_of(dtype: DType) -> float:
    """The distance of 1 to the next number of a format to compute in; 0 for what is exact."""
    return _ROUNDING.get(dtype, (0.0, 0.0))[0]


def rounding_for(dtype: DType, accumulation: int = 1) -> float:
    """The share of the largest number of an output by which another order of rounding may change it."""
    return distance_of(dtype) * _UNITS_OF_ROUNDING * math.sqrt(max(1, accumulation))
