"""Comparison of runtime values: tensors, sequences, maps, strings and absent values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import TensorType
from tenonnx_run.tolerance import EXACT, Tolerance, tolerance_for

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The outcome of a comparison.

    ``absolute`` and ``relative`` are the largest differences between finite numbers. ``path`` is the path of the worst
    element: keys and positions of containers, then its index. ``reason`` describes the difference. ``empty`` means that
    there was nothing to compare: no elements, or only NaN.
    """

    equal: bool
    absolute: float = 0.0
    relative: float = 0.0
    path: tuple[Any, ...] | None = None
    reason: str = ""
    empty: bool = False

    def inside(self, key: Any) -> Difference:
        """The same difference, with ``key`` of the enclosing container in front of its path."""
        where = (key, *(self.path or ())) if not self.equal else self.path
        return replace(self, path=where, reason=f"[{key!r}]: {self.reason}" if self.reason else "")


def compare(
    actual: Any,
    expected: Any,
    *,
    accumulation: int = 1,
    tolerance: Tolerance | None = None,
    steps: int = 0,
    numbers: bool = False,
) -> Difference:
    """Compare runtime values by the table of tolerances; dtypes and shapes must be equal.

    NaN equals NaN, an infinity only itself. ``accumulation`` is the number of terms that are summed for each element.
    With ``steps``, integers (and floats of at most eight bits) may differ by that many ULP. ``tolerance`` overrides the
    table for floats and needs a reason, else ``InvalidCall`` is raised. With ``numbers``, floats of two dtypes are
    compared with the tolerance of the less precise one.
    """
    if tolerance is not None and not tolerance.reason:
        raise InvalidCall("a tolerance other than the default has no reason", given=str(tolerance))
    absolute, relative = (None, None) if tolerance is None else (tolerance.absolute, tolerance.relative)
    return compare_by(Tolerances(accumulation, absolute, relative, steps=steps, numbers=numbers), actual, expected)


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Tolerances of one comparison: the table and the caller's overrides for floats.

    Floats computed in ``half`` precision get its tolerance, whatever their dtype.
    """

    accumulation: int = 1
    absolute: float | None = None
    relative: float | None = None
    half: DType | None = None
    steps: int = 0
    numbers: bool = False

    def tolerance(self, dtype: DType) -> Tolerance:
        tolerance = tolerance_for(dtype, self.accumulation)
        if tolerance is EXACT:
            return tolerance
        if self.half is not None:
            tolerance = max(tolerance, tolerance_for(self.half, self.accumulation), key=lambda each: each.relative)
        return Tolerance(
            tolerance.absolute if self.absolute is None else self.absolute,
            tolerance.relative if self.relative is None else self.relative,
        )


def compare_by(rules: Tolerances, actual: Any, expected: Any) -> Difference:
    """Compare by tolerances that are shared by many values, see ``compare``."""
    if actual is None or expected is None:
        return _unless(actual is expected, f"{_kind(actual)} instead of {_kind(expected)}")
    if isinstance(actual, Mapping) or isinstance(expected, Mapping):
        return _compare_maps(rules, actual, expected)
    if isinstance(actual, list | tuple) or isinstance(expected, list | tuple):
        return _compare_sequences(rules, actual, expected)
    return _compare_tensors(rules, actual, expected)


def _unless(equal: bool, reason: str) -> Difference:
    return Difference(True) if equal else Difference(False, path=(), reason=reason)


def _compare_maps(rules: Tolerances, actual: Any, expected: Any) -> Difference:
    if not isinstance(actual, Mapping) or not isinstance(expected, Mapping):
        return _unless(False, f"{_kind(actual)} instead of {_kind(expected)}")
    if set(actual) != set(expected):
        return _unless(False, f"keys {sorted(actual, key=repr)} instead of {sorted(expected, key=repr)}")
    pairs = {key: _of_one_dtype(actual[key], expected[key]) for key in expected}
    return _worst([compare_by(rules, a, e).inside(key) for key, (a, e) in pairs.items()])


def _of_one_dtype(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Elements of maps: a Python number has no dtype and takes that of the other side."""
    import numpy as np

    if isinstance(actual, bool | int | float) and isinstance(expected, np.ndarray | np.generic):
        return np.asarray(actual, expected.dtype), expected
    if isinstance(expected, bool | int | float) and isinstance(actual, np.ndarray | np.generic):
        return actual, np.asarray(expected, actual.dtype)
    return actual, expected


def _compare_sequences(rules: Tolerances, actual: Any, expected: Any) -> Difference:
    if not all(isinstance(each, Sequence) and not isinstance(each, str | bytes) for each in (actual, expected)):
        return _unless(False, f"{_kind(actual)} instead of {_kind(expected)}")
    if len(actual) != len(expected):
        return _unless(False, f"{len(actual)} elements instead of {len(expected)}")
    pairs = enumerate(zip(actual, expected, strict=True))
    return _worst([compare_by(rules, a, e).inside(position) for position, (a, e) in pairs])


def _worst(parts: list[Difference]) -> Difference:
    failed = next((part for part in parts if not part.equal), None)
    absolute = max((part.absolute for part in parts), default=0.0)
    relative = max((part.relative for part in parts), default=0.0)
    if failed is None:
        return Difference(True, absolute, relative, empty=all(part.empty for part in parts))
    return Difference(False, absolute, relative, failed.path, failed.reason)


def _compare_tensors(rules: Tolerances, actual: Any, expected: Any) -> Difference:
    import numpy as np

    a, e = np.asarray(actual), np.asarray(expected)
    kind, wanted = _tensor_type(a), _tensor_type(e)
    if kind is None or wanted is None or not (kind == wanted or (rules.numbers and _both_compute(kind, wanted))):
        return _unless(False, f"{kind or _kind(actual)} instead of {wanted or _kind(expected)}")
    dtype = max(kind.dtype, wanted.dtype, key=lambda dtype: tolerance_for(dtype).relative)
    if dtype is DType.string:
        a, e = a.astype(object), e.astype(object)
    if dtype.is_complex:
        a, e = (np.stack([x.real, x.imag], axis=-1) for x in (a, e))
    if tolerance_for(dtype) is EXACT:
        return _compare_exactly(a, e, kind, rules.steps)
    return _compare_floats(a.astype(np.float64), e.astype(np.float64), kind, rules.tolerance(dtype))


def _both_compute(kind: TensorType, other: TensorType) -> bool:
    """Whether both have the same shape and dtypes for floating-point computation."""
    dtypes = kind.dtype, other.dtype
    return kind.shape == other.shape and all(d.is_float and tolerance_for(d) is not EXACT for d in dtypes)


def _compare_exactly(a: Array, e: Array, kind: TensorType, steps: int) -> Difference:
    import numpy as np

    if kind.dtype is DType.string or kind.dtype is DType.bool:
        return _report(a, e, a != e, np.zeros(a.shape), kind, "may not differ")
    if kind.dtype.is_float:
        ladder = _numbers(kind.dtype)
        a, e = a.astype(np.float64), e.astype(np.float64)
        nan = np.isnan(a) != np.isnan(e)
        difference = np.abs(np.searchsorted(ladder, a) - np.searchsorted(ladder, e))
        difference = np.where(nan, len(ladder), difference)
    else:
        wide = np.uint64 if kind.dtype is DType.uint64 else np.int64
        a, e = a.astype(wide), e.astype(wide)
        with np.errstate(over="ignore"):
            difference = np.where(a > e, a - e, e - a).astype(np.uint64)
    allowed = "may not differ" if not steps else f"may be {steps} ULP apart"
    return _report(a, e, difference > steps, difference.astype(np.float64), kind, allowed)


@functools.cache
def _numbers(dtype: DType) -> Array:
    """All numbers of a format of at most eight bits, in order."""
    import numpy as np

    quantized = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    return np.unique(quantized[~np.isnan(quantized)])


def _compare_floats(a: Array, e: Array, kind: TensorType, tolerance: Tolerance) -> Difference:
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a - e)
        wrong = ~(distance <= tolerance.absolute + tolerance.relative * np.abs(e))
    wrong &= ~((a == e) | (np.isnan(a) & np.isnan(e)))
    wrong |= np.isinf(e) & (a != e)
    return _report(a, e, wrong, distance, kind, str(tolerance))


def _report(a: Array, e: Array, wrong: Any, distance: Array, kind: TensorType, allowed: str) -> Difference:
    import numpy as np

    wrong = np.asarray(wrong, dtype=bool)
    finite = np.where(np.isfinite(distance), distance, 0.0)
    absolute = float(finite.max(initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.abs(e.astype(np.float64)) if e.dtype != object else np.ones(e.shape)
        ratio = np.where(finite > 0, finite / size, 0.0)
    relative = float(ratio.max(initial=0.0))
    if not wrong.any():
        return Difference(True, absolute, relative, empty=not np.equal(e, e).any())
    badness = np.where(wrong, np.where(np.isfinite(distance), distance, np.inf), -1.0)
    position = np.unravel_index(int(badness.argmax()), badness.shape)
    rank = len(kind.shape or ())
    where = tuple(int(i) for i in position[:rank])
    reason = (
        f"{kind} at {list(where)}: {a[position].item()!r} instead of {e[position].item()!r}; "
        f"{int(wrong.sum())} of {wrong.size} elements differ, "
        f"by up to {absolute:.6g} ({relative:.3g} relative); {allowed}"
        if e.dtype != object
        else f"{kind} at {list(where)}: {a[position]!r} instead of {e[position]!r}; {allowed}"
    )
    return Difference(False, absolute, relative, where, reason)


def _tensor_type(array: Array) -> TensorType | None:
    try:
        return TensorType(DType.of(array.dtype), array.shape)
    except ValueError:
        return None


def _kind(contents: Any) -> str:
    if contents is None:
        return "nothing"
    return {"list": "a sequence", "tuple": "a sequence", "dict": "a map"}.get(type(contents).__name__, "a tensor")
