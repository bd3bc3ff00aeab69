"""Tolerances between a graph and its source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tenonnx.extend import DType, Graph, InvalidCall, TensorType
from tenonnx.extend.checks import Tolerance, accumulation, tolerance_for
from tenonnx.extend.transforms import infer


@dataclass(frozen=True)
class Allowed:
    """Tolerances from a caller, in place of the default ones; None means the default."""

    absolute: float | None = None
    relative: float | None = None

    @classmethod
    def of(cls, verify: bool | float, atol: float | None = None, rtol: float | None = None) -> Allowed | None:
        """Tolerances from the arguments of ``tx.load``, None for no comparison.

        A float ``verify`` is the absolute tolerance, with a relative one of zero unless ``rtol`` is passed; ``atol``
        alone keeps the default relative tolerance, as in ``torch.allclose``.

        Raises ``InvalidCall`` for invalid numbers, and if both ``verify`` and ``atol`` are tolerances.
        """
        if not isinstance(verify, bool | float):
            raise InvalidCall(
                "verify is neither True, False nor an absolute tolerance, a float", given=repr(verify)[:80]
            )
        if isinstance(verify, float):
            if atol is not None:
                raise InvalidCall("the absolute tolerance was given both by verify and by atol")
            verify, atol, rtol = True, verify, 0.0 if rtol is None else rtol
        for name, limit in (("atol", atol), ("rtol", rtol)):
            if limit is not None and not (isinstance(limit, int | float) and 0 <= limit < math.inf):
                raise InvalidCall(f"{name} is not a non-negative number", given=repr(limit)[:80])
        return cls(atol, rtol) if verify else None

    def around(self, expected: Any, terms: int, coarse: Tolerance | None) -> Tolerance | None:
        """The tolerance for an array; None for the default."""
        if self.absolute is None and self.relative is None:
            return coarse
        tolerance = coarse or tolerance_for(DType.of(expected.dtype), terms)
        absolute = tolerance.absolute if self.absolute is None else self.absolute
        return Tolerance(
            absolute, tolerance.relative if self.relative is None else self.relative, "given by the caller"
        )


#: The default tolerances.
BY_TABLE = Allowed()


def element_types_inside(graph: Graph) -> set[DType]:
    """Element types of all values that nodes produce, after type inference."""
    infer(graph, strict=False)
    return {v.type.dtype for n in graph.walk() for v in n.outputs if v is not None and isinstance(v.type, TensorType)}


def coarse_inside(graph: Graph) -> Tolerance | None:
    """The tolerance of half precision if inner values have it, whose precision differs between backends."""
    kinds = element_types_inside(graph)
    for dtype in (DType.bfloat16, DType.float16):
        if dtype in kinds:
            tolerance = tolerance_for(dtype, accumulation(graph))
            return Tolerance(tolerance.absolute, tolerance.relative, f"inner values are {dtype}")
    return None
