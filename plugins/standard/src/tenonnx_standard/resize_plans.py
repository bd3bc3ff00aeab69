"""Input positions and weights of each axis of Resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Value,
    constant,
    dims,
    static,
    vector,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal, less, or_, where
from tenonnx_standard.math import floor
from tenonnx_standard.reduction import reduce_max, reduce_min, reduce_sum
from tenonnx_standard.resample_1d import (
    Axis,
    Method,
    Values,
    matrix,
    nearest,
    outside,
    positions,
    source,
    taps,
)
from tenonnx_standard.shapes import unsqueeze


class Plan:
    """Plan for resampling an axis: positions or a matrix, and a mask of outside elements, as arrays or values."""

    def __init__(self, axis: int, places: Any, weights: Any, beyond: Any) -> None:
        self.axis, self.positions, self.weights, self.beyond = axis, places, weights, beyond


def wide(dtype: DType) -> DType:
    """The dtype for computing means of ``dtype``."""
    return DType.float64 if dtype is DType.float64 or (dtype.is_integer and dtype.bits > 16) else DType.float32


def fixed_plan(a: int, axis: Axis, method: Method, wide: DType) -> Plan:
    beyond = outside(axis, method)
    kept = None if beyond is None else constant(beyond)
    if method.mode == "nearest":
        return Plan(a, constant(positions(axis, method).astype(np.int64)), None, kept)
    return Plan(a, None, constant(matrix(axis, method), wide), kept)


def open_plans(
    X: Value,
    chosen: Sequence[int],
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    method: Method,
    policy: str,
) -> list[Plan]:
    """The plans when some sizes are known only at run time."""
    contents = None if scales is None else static(scales)
    lengths = doubles([dims(X)[a] for a in chosen])
    if scales is not None:
        factors = cast(scales, to=DType.float64)
        outputs = floor(cast(lengths, to=DType.float32) * cast(scales, to=DType.float32))
        outputs = cast(outputs, to=DType.float64)
    else:
        outputs = cast(sizes, to=DType.float64)
        factors = outputs / lengths
        if policy != "stretch":
            extreme = reduce_min if policy == "not_larger" else reduce_max
            factors = extreme(factors, [0], keepdims=1) + lengths * 0.0
            outputs = floor(factors * lengths + 0.5)
    region = None if roi is None else cast(roi, to=DType.float64)
    plans = []
    for k, a in enumerate(chosen):
        if contents is not None and contents[k] == 1 and roi is None:
            continue
        size, output, factor = (v[k] for v in (lengths, outputs, factors))
        start, end = (0.0, 1.0) if region is None else (region[k], region[k + len(chosen)])
        x = source(Values, method, size, output, factor, factor * size, start, end)
        beyond = or_(less(x, 0.0), less(size - 1.0, x)) if roi is not None else None
        if method.mode == "nearest":
            plans.append(Plan(a, cast(nearest(Values, method, x, size), to=DType.int64), None, beyond))
            continue
        places, weights = taps(Values, method, x, size, factor)
        hits = equal(unsqueeze(places, [-1]), Values.count(0, size))
        dense = reduce_sum(where(hits, unsqueeze(weights, [-1]), 0.0), [1], keepdims=0)
        plans.append(Plan(a, None, cast(dense, to=wide(X.dtype)), beyond))
    return plans


def doubles(numbers: Sequence[Any]) -> Value:
    return cast(vector(numbers), to=DType.float64)
