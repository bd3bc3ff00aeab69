"""Shape, dtype and contents of an input, for rules that specialize a call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An input of calls for which a kernel is specialized.

    ``contents`` is set if the input is the same in all these calls, else None.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    contents: np.ndarray[Any, Any] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)
