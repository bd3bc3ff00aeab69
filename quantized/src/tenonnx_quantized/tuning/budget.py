"""Budgets of a quantization: a bound of the error, the size of the weights, or the latency of layers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tenonnx.extend import InvalidCall

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"\s*(?P<number>[0-9.]+)\s*(?:(?P<prefix>[kmg]i?)?b(?:ytes)?|(?P<bits>bits|bpw))\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*(?P<number>[0-9.]+)\s*(?P<unit>s|ms|us|µs)\s*")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


@dataclass(frozen=True, slots=True)
class Budget:
    """A bound of a quantization; exactly one of the fields is set.

    ``error`` bounds the relative error of the outputs, ``bits`` the average bits per weight, the others the total size
    of the weights and the time of all layers.
    """

    error: float | None = None
    bits: float | None = None
    bytes: float | None = None
    seconds: float | None = None

    @staticmethod
    def of(given: float | str) -> Budget:
        """A budget from a number, or from text such as ``4.5 bits``, ``20 MiB`` or ``3 ms``. Raises ``InvalidCall``."""
        text = str(given)
        found, timed = _SIZE.fullmatch(text), _TIME.fullmatch(text)
        try:
            number = float(next((each["number"] for each in (found, timed) if each), text))
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise InvalidCall(
                "quantize: budget is neither an error, a size nor a time",
                given=text,
                do="give an error such as 0.05, a size such as 4.5bits or 20MiB, or a time such as 3ms",
            )
        if number < 0:
            raise InvalidCall("quantize: budget is negative", given=text)
        if timed:
            return Budget(seconds=number * _SECONDS[timed["unit"]])
        if found is None:
            return Budget(error=number)
        if found["bits"]:
            return Budget(bits=number)
        return Budget(bytes=number * _UNITS[(found["prefix"] or "").lower()])

    @staticmethod
    def is_time(given: float | str | None) -> bool:
        return given is not None and Budget.of(given).seconds is not None

    def bits_of(self, elements: int) -> float:
        """The total bits of this number of weights."""
        return self.bits * elements if self.bits is not None else 8 * (self.bytes or 0.0)
