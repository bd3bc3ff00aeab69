"""Readers of calibration data, and the methods that find ranges."""

from __future__ import annotations

import abc
from enum import Enum
from typing import Any


class CalibrationMethod(Enum):
    """Methods that find the range of an activation on data."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Base of classes that give the inputs of one run after the other; each object with ``get_next`` is one."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """Inputs by name, or None at the end."""

    def __iter__(self) -> CalibrationDataReader:
        return self

    def __next__(self) -> dict[str, Any]:
        found = self.get_next()
        if found is None:
            raise StopIteration
        return found

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        raise NotImplementedError
