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
    """The differences that a caller allows in place of the table of tolerances; None is what the table has."""

    absolute: float | None = None
    relative: float | None = None

    @classmethod
    def of(cls, verify: bool | float, atol: float | None = None, rtol: float | None = None) -> Allowed | None:
        """Those that arguments of these names ask for, None for no comparison.

        A float ``verify`` is the largest difference, with no relative part unless ``rtol`` has one; ``atol`` alone
        leaves that of the table, as in ``torch.allclose``.

        Raises ``InvalidCall`` for anything but a number of that kind, and for an ``atol`` that is given twice.
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
        """The tolerance for an array; None is that of the table."""
        if self.absolute is None and self.relative is None:
            return coarse
        held = coarse or tolerance_for(DType.of(expected.dtype), terms)
        absolute = held.absolute if self.absolute is None else self.absolute
        return Tolerance(absolute, held.relative if self.relative is None else self.relative, "given by the caller")


#: What the table has, and nothing else.
BY_TABLE = Allowed()


def element_types_inside(graph: Graph) -> set[DType]:
    """The element types of the values that nodes give, which are inferred for it."""
    infer(graph, strict=False)
    return {v.type.dtype for n in graph.walk() for v in n.outputs if v is not None and isinstance(v.type, TensorType)}


def coarse_inside(graph: Graph) -> Tolerance | None:
    """The tolerance of half precision where inner values have it: backends keep more digits of them, or fewer."""
    kinds = element_types_inside(graph)
    for dtype in (DType.bfloat16, DType.float16):
        if dtype in kinds:
            held = tolerance_for(dtype, accumulation(graph))
            return Tolerance(held.absolute, held.relative, f"inner values are {dtype}")
    return None
