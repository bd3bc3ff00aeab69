"""Resampling along one axis: input positions and weights of each output element.

The arithmetic is defined once for numpy arrays (``Arrays``) and for values (``Values``).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, TypeMismatch, Value, limits
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, ceil, floor, maximum, minimum
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import unsqueeze

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]

COORDINATES = (
    "half_pixel_symmetric",
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = ("nearest", "linear", "cubic")


class Method(NamedTuple):
    """The attributes of Resize that select how an axis is resampled."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


class Arrays:
    """Arithmetic on numpy arrays of float64."""

    floor, ceil, absolute, where = np.floor, np.ceil, np.abs, np.where
    maximum, minimum = np.maximum, np.minimum

    @staticmethod
    def count(low: Any, high: Any) -> Array:
        """The integers from ``low`` up to, but excluding, ``high``, as floats."""
        limits.check_elements([high - low], "a resampled axis")
        return np.arange(low, high, dtype=np.float64)

    @staticmethod
    def spread(x: Array) -> Array:
        """``x`` with a new last axis."""
        return x[..., None]

    @staticmethod
    def total(x: Array) -> Array:
        """Sums along the last axis, which is kept."""
        return x.sum(-1, keepdims=True)

    @staticmethod
    def same(a: Any, b: Any) -> Any:
        return a == b


class Values:
    """The arithmetic of ``Arrays`` on float64 values."""

    floor, ceil, absolute, where = floor, ceil, absolute, where
    maximum, minimum, same = maximum, minimum, equal

    @staticmethod
    def count(low: Any, high: Any) -> Value:
        return cast(range_(*(_whole(n) for n in (low, high, 1))), to=DType.float64)

    @staticmethod
    def spread(x: Value) -> Value:
        return unsqueeze(x, [-1])

    @staticmethod
    def total(x: Value) -> Value:
        return reduce_sum(x, [-1], keepdims=1)


def _whole(number: Any) -> Any:
    return cast(number, to=DType.int64) if isinstance(number, Value) else int(number)


def source(xp: Any, method: Method, size: Any, output: Any, scale: Any, length: Any, start: Any, end: Any) -> Any:
    """Input coordinates of the ``output`` elements of the resampled axis.

    ``length`` is the resampled length before rounding; the input is cropped to ``start`` to ``end``. With aligned
    corners, ONNX's test cases use this length; onnxruntime and PyTorch use ``output``.
    """
    i = xp.count(0, output)
    match method.coordinates:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return (i + 0.5) / scale - 0.5 + (1.0 - output / length) * size / 2.0
        case "pytorch_half_pixel":
            return xp.where(xp.same(output, 1.0), i * 0.0, (i + 0.5) / scale - 0.5)
        case "align_corners":
            return i * (size - 1.0) / xp.where(xp.same(length, 1.0), length, length - 1.0)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return xp.where(xp.same(scale, 1.0), i, (i + 0.5) / scale)  # an axis that keeps its length is unchanged
    last = size - 1.0
    step = (end - start) * last / xp.where(xp.same(length, 1.0), length, length - 1.0)
    return xp.where(xp.same(length, 1.0), i * 0.0 + (start + end) * last / 2.0, start * last + i * step)


def nearest(xp: Any, method: Method, x: Any, size: Any) -> Any:
    """The integer positions nearest to ``x``."""
    match method.nearest:
        case "round_prefer_floor":
            x = xp.ceil(x - 0.5)
        case "round_prefer_ceil":
            x = xp.floor(x + 0.5)
        case "floor":
            x = xp.floor(x)
        case "ceil":
            x = xp.ceil(x)
    return xp.minimum(xp.maximum(x, 0.0), size - 1.0)


def taps(xp: Any, method: Method, x: Any, size: Any, scale: Any) -> tuple[Any, Any]:
    """For each ``x``, the positions and weights of the weighted mean, along a last axis."""
    radius: Any = 2.0 if method.mode == "cubic" else 1.0
    shrink: Any = xp.minimum(scale, 1.0) if method.antialias else 1.0
    reach = xp.ceil(radius / shrink) if method.antialias else radius
    base = xp.spread(xp.floor(x))
    positions = base + xp.count(1.0 - reach, reach + 1.0)
    weights = _kernel(xp, method, xp.absolute(positions - xp.spread(x)) * shrink)
    if method.exclude_outside:
        weights = xp.where(xp.same(xp.minimum(xp.maximum(positions, 0.0), size - 1.0), positions), weights, 0.0)
    if method.exclude_outside or method.antialias:
        whole = xp.total(weights)
        weights = weights / xp.where(xp.same(whole, 0.0), 1.0, whole)
    return xp.minimum(xp.maximum(positions, 0.0), size - 1.0), weights


def _kernel(xp: Any, method: Method, distance: Any) -> Any:
    """The weight at a distance: a triangle, or Keys' cubic convolution (IEEE 1163711, equation 4)."""
    if method.mode == "linear":
        return xp.maximum(1.0 - distance, 0.0)
    a = method.cubic
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    far = ((distance * a - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return xp.where(distance <= 1.0, near, xp.where(distance < 2.0, far, 0.0))


class Axis(NamedTuple):
    """An axis to resample, with static sizes; see ``source``."""

    size: int
    output: int
    scale: float
    length: float
    start: float = 0.0
    end: float = 1.0

    @property
    def unchanged(self) -> bool:
        return self.size == self.output and self.scale == 1 and self.start == 0 and self.end == 1


@functools.lru_cache(maxsize=128)
def positions(axis: Axis, method: Method) -> Array:
    """Mode nearest: the input position of every output element."""
    return nearest(Arrays, method, _source(axis, method), axis.size).astype(np.intp)


@functools.lru_cache(maxsize=32)
def matrix(axis: Axis, method: Method) -> Array:
    """Other modes: the weight of every input element (column) in every output element (row)."""
    places, weights = taps(Arrays, method, _source(axis, method), axis.size, np.float64(axis.scale))
    result = np.zeros(limits.sized((axis.output, axis.size), "a matrix that resamples"))
    np.add.at(result, (np.arange(axis.output)[:, None], places.astype(np.intp)), weights)
    return result


@functools.lru_cache(maxsize=32)
def outside(axis: Axis, method: Method) -> Array | None:
    """Mask of output elements outside the input, which get the extrapolation value; None if there are none."""
    if method.coordinates != "tf_crop_and_resize":
        return None
    x = _source(axis, method)
    result = (x < 0) | (x > axis.size - 1)
    return result if result.any() else None


def _source(axis: Axis, method: Method) -> Array:
    numbers = (axis.size, axis.output, axis.scale, axis.length, axis.start, axis.end)
    return source(Arrays, method, *(np.float64(n) for n in numbers))


def contract(x: Array, weights: Array, axis: int) -> Array:
    """``x`` multiplied by a matrix along one axis, in blocks, since resampling matrices are banded."""
    rows, size = weights.shape
    before, after = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis + 1 :]))
    y = np.empty((*x.shape[:axis], rows, *x.shape[axis + 1 :]), x.dtype)
    if not y.size:
        return y
    x3, y3 = x.reshape(before, size, after), y.reshape(before, rows, after)
    block = rows if size <= 128 else 64
    for low in range(0, rows, block):
        part = weights[low : low + block]
        used = np.flatnonzero(part.any(0))
        first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 1)
        part = part[:, first:last]
        if after == 1:
            np.matmul(x3[:, first:last, 0], part.T, out=y3[:, low : low + block, 0])
        else:
            np.matmul(part, x3[:, first:last], out=y3[:, low : low + block])
    return y


def axes_to_resample(
    shape: Sequence[int], chosen: Sequence[int], roi: Array | None, scales: Array | None, sizes: Any, policy: str
) -> dict[int, Axis]:
    """The axes that change, if all sizes are static."""
    if sizes is not None:
        factors = [int(n) / shape[a] if shape[a] else 1.0 for a, n in zip(chosen, sizes, strict=True)]
        outputs = [int(n) for n in sizes]
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(chosen)
            outputs = [math.floor(factor * shape[a] + 0.5) for a in chosen]
    else:
        factors = [float(s) for s in scales]
        outputs = [scaled_size(shape[a], s) for a, s in zip(chosen, scales, strict=True)]
    result = {}
    for k, a in enumerate(chosen):
        start, end = (0.0, 1.0) if roi is None else (float(roi[k]), float(roi[k + len(chosen)]))
        axis = Axis(int(shape[a]), outputs[k], factors[k], factors[k] * shape[a], start, end)
        if axis.output and not axis.size:
            raise TypeMismatch("an empty axis has no elements to resample", given=f"axis {a}, resized to {axis.output}")
        if not axis.unchanged:
            result[a] = axis
    return result


def scaled_size(size: int, scale: Any) -> int:
    return int(np.floor(np.float32(size) * np.float32(scale)))


def resample(x: Array, axes: dict[int, Axis], method: Method, extrapolation_value: float = 0.0) -> Array:
    """``x`` resampled along some axes, shrinking ones first to reduce the work."""
    order = sorted(axes, key=lambda a: (axes[a].scale > 1, a if axes[a].scale <= 1 else -a))
    dtype = x.dtype
    limits.check_elements((axes[a].output if a in axes else size for a, size in enumerate(x.shape)), "a resized tensor")
    if method.mode == "nearest":
        for a in order:
            x = x.take(positions(axes[a], method), a)
    else:
        wide = np.float64 if (dtype.kind in "iu" and dtype.itemsize > 2) or dtype == np.float64 else np.float32
        x = x.astype(wide, copy=False)
        for a in order:
            x = contract(x, matrix(axes[a], method).astype(wide), a)
    mask: Any = False
    for a, axis in axes.items():
        beyond = outside(axis, method)
        if beyond is not None:
            mask = mask | beyond.reshape(-1, *(1,) * (x.ndim - 1 - a))
    if mask is not False:
        x = np.where(mask, x.dtype.type(extrapolation_value), x)
    return rounded_to(x, dtype)


def rounded_to(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` in ``dtype``; integers are rounded and clipped."""
    if x.dtype == dtype:
        return x
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.clip(np.rint(x), info.min, info.max).astype(dtype)
    return x.astype(dtype)
