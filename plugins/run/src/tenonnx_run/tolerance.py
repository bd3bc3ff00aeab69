"""The table of tolerances."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tenonnx.graph.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``a`` matches ``b`` if ``|a - b| <= absolute + relative * |b|``. An override has a ``reason``."""

    absolute: float
    relative: float
    reason: str = ""

    def __str__(self) -> str:
        if not self.absolute and not self.relative:
            return "may not differ"
        return f"may differ by {self.absolute:.3g} + {self.relative:.3g} * |expected|"


EXACT = Tolerance(0.0, 0.0)

#: For each dtype the machine epsilon, and the error allowed for one operation in multiples of it: libraries differ in
#: the last digits of functions such as exp and erf, and chains of operations in a short format round at each step.
#: Floats of at most eight bits are storage formats and compared exactly, like integers; see ``steps`` of ``compare``.
_ROUNDING: dict[DType, tuple[float, float]] = {
    DType.float64: (2.0**-52, 256),
    DType.float32: (2.0**-23, 64),
    DType.float16: (2.0**-10, 4),
    DType.bfloat16: (2.0**-7, 4),
    DType.complex128: (2.0**-52, 256),
    DType.complex64: (2.0**-23, 64),
}


def tolerance_for(dtype: DType, accumulation: int = 1) -> Tolerance:
    """The tolerance of a dtype for results that sum up ``accumulation`` terms of magnitude about 1.

    Rounding errors have random signs, so they grow with the square root of the number of terms.
    """
    distance, units = _ROUNDING.get(dtype, (0.0, 0.0))
    bound = distance * units * max(1, accumulation) ** 0.5
    return Tolerance(bound, bound) if bound else EXACT


#: Rounding error, in multiples of epsilon times the root of the number of terms, that another order of summation
#: explains.
_UNITS_OF_ROUNDING = 4


def distance_of(dtype: DType) -> float:
    """The machine epsilon of a dtype; 0 if it is compared exactly."""
    return _ROUNDING.get(dtype, (0.0, 0.0))[0]


def rounding_for(dtype: DType, accumulation: int = 1) -> float:
    """Error that another order of rounding may cause, relative to the largest number of an output."""
    return distance_of(dtype) * _UNITS_OF_ROUNDING * math.sqrt(max(1, accumulation))
