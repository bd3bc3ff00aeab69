"""Budgets of a quantization: a bound of the error, or of the size of the weights."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tenonnx.extend import InvalidCall

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"\s*(?P<number>[0-9.]+)\s*(?:(?P<prefix>[kmg]i?)?b(?:ytes)?|(?P<bits>bits|bpw))\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """The greatest error of the outputs, or the bits of a weight on average, or the bytes of all: one of the three."""

    error: float | None = None
    bits: float | None = None
    bytes: float | None = None

    @staticmethod
    def of(given: float | str) -> Budget:
        """A budget from a number, or from text such as ``4.5 bits`` or ``20 MiB``. Raises ``InvalidCall``."""
        text = str(given)
        found = _SIZE.fullmatch(text)
        try:
            number = float(found["number"] if found else text)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise InvalidCall(
                "quantize: budget is neither an error nor a size",
                given=text,
                do="give an error such as 0.05, or a size such as 4.5bits or 20MiB",
            )
        if number < 0:
            raise InvalidCall("quantize: budget is negative", given=text)
        if found is None:
            return Budget(error=number)
        if found["bits"]:
            return Budget(bits=number)
        return Budget(bytes=number * _UNITS[(found["prefix"] or "").lower()])

    def bits_of(self, elements: int) -> float:
        """The bits of so many weights in all."""
        return self.bits * elements if self.bits is not None else 8 * (self.bytes or 0.0)
