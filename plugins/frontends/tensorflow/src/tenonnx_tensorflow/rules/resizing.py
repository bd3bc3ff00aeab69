"""Resizing images by matrices: area averages, and antialiasing kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.windows import channels_first, channels_last
from tenonnx_tensorflow.tracked_values import as_dtype, int64, number, scalar

_FLOAT = DType.float32


def by_matrices(x: Value, rows: Any, columns: Any) -> Value:
    """Multiply by one matrix along height and one along width."""
    image = as_dtype(channels_first(x), _FLOAT)
    first, second = (
        each if isinstance(each, Value) else constant(np.asarray(each, np.float32)) for each in (rows, columns)
    )
    return channels_last(ops.matmul(first, ops.matmul(image, ops.transpose(second, perm=[1, 0]))))


def _plane(x: Value) -> tuple[int, int] | None:
    """Height and width of images, if both are static."""
    sizes = x.shape[1:3] if x.shape is not None else ()
    if len(sizes) != 2 or not all(isinstance(n, int) for n in sizes):
        return None
    return int(sizes[0]), int(sizes[1])  # type: ignore[arg-type]


def plane(x: Value, what: str) -> tuple[int, int]:
    """Height and width of images. Raises ``NotRepresentable`` for dynamic ones."""
    result = _plane(x)
    if result is None:
        raise NotRepresentable(f"the sizes of images are not known for {what}", given=f"{x.type}")
    return result


def _lengths(x: Value, size: Value, axis: int) -> tuple[Value, Value]:
    """The old and the new length of an axis of an image, as scalars."""
    before = ops.gather(ops.shape(x), constant(np.asarray(axis + 1)))
    return before, scalar(ops.slice_(int64(size), [axis], [axis + 1], [0]))


def _steps(count: Value, axis: int) -> Value:
    """0, 1, ... as floats, a column (``axis`` 1) or a row (0)."""
    numbers = ops.range_(constant(np.asarray(0)), count, constant(np.asarray(1)))
    return ops.unsqueeze(ops.cast(numbers, to=_FLOAT), [axis])


@rule("ResizeArea")
def area(node: Any, x: Value, size: Value) -> Value:
    """The mean over the area of each output element, with fractional weights at its borders."""
    aligned, sizes, wanted = node.get("align_corners", False), _plane(x), static(size)
    if sizes is None or wanted is None:
        return by_matrices(x, *(_shares(*_lengths(x, size, axis), aligned) for axis in range(2)))
    matrices = []
    for before, after in zip(sizes, np.asarray(wanted).tolist(), strict=True):
        step = (before - 1) / (after - 1) if aligned and after > 1 else before / after
        matrix = np.zeros((after, before))
        for k in range(after):
            start, end = k * step, (k + 1) * step
            for place in range(math.floor(start), math.ceil(end)):
                share = min(end, place + 1) - max(start, place)
                matrix[k, min(place, before - 1)] += share / step
        matrices.append(matrix)
    return by_matrices(x, *matrices)


def _shares(before: Value, after: Value, aligned: bool) -> Value:
    """Weight of each input element in each output element; the last element is repeated beyond the image."""
    lengths = [ops.cast(n, to=_FLOAT) for n in (before, after)]
    zero, one = number(0, _FLOAT), number(1, _FLOAT)
    step = ops.div(*lengths)
    if aligned:
        several = ops.greater(lengths[1], one)
        apart = ops.maximum(ops.sub(lengths[1], one), one)
        step = ops.where(several, ops.div(ops.sub(lengths[0], one), apart), step)
    start, place = ops.mul(_steps(after, 1), step), _steps(before, 0)
    end = ops.add(start, step)
    is_last = ops.equal(place, ops.sub(lengths[0], one))
    until = ops.where(is_last, ops.reduce_max(end, keepdims=1), ops.add(place, one))
    share = ops.maximum(ops.sub(ops.minimum(end, until), ops.maximum(start, place)), zero)
    return ops.div(share, step)


def _lanczos(radius: float) -> Any:
    def weigh(x: Any) -> Any:
        near = np.where(x == 0, 1e-9, x)
        found = radius * np.sin(np.pi * near) * np.sin(np.pi * near / radius) / (np.pi**2 * near**2)
        return np.where(x > radius, 0, np.where(x == 0, 1, found))

    return weigh


def _cubic(b: float, c: float) -> Any:
    def weigh(x: Any) -> Any:
        near = ((12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + (6 - 2 * b)) / 6
        far = ((-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + (8 * b + 24 * c)) / 6
        return np.where(x >= 2, 0, np.where(x >= 1, far, near))

    return weigh


#: Kernels as functions of distance, with their radius.
_KERNELS = {
    "lanczos1": (_lanczos(1), 1),
    "lanczos3": (_lanczos(3), 3),
    "lanczos5": (_lanczos(5), 5),
    "box": (lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0)), 1),
    "triangle": (lambda x: np.maximum(1 - x, 0), 1),
    "keyscubic": (_cubic(0, 0.5), 2),
    "mitchellcubic": (_cubic(1 / 3, 1 / 3), 2),
    "gaussian": (lambda x: np.where(x >= 1.5, 0, np.exp(-0.5 * (x / 0.5) ** 2)), 1.5),
}


def _lanczos_of(radius: float) -> Callable[[Value], Value]:
    def weigh(x: Value) -> Value:
        at_zero = ops.equal(x, number(0, x))
        angle = ops.mul(ops.where(at_zero, number(1, x), x), number(np.pi, x))
        part = ops.div(angle, number(radius, x))
        found = ops.div(ops.mul(ops.sin(angle), ops.sin(part)), ops.mul(angle, part))
        return ops.where(ops.greater(x, number(radius, x)), number(0, x), ops.where(at_zero, number(1, x), found))

    return weigh


def _polynomial(x: Value, *coefficients: float) -> Value:
    total = number(coefficients[0], x)
    for each in coefficients[1:]:
        total = ops.add(ops.mul(total, x), number(each, x))
    return total


def _cubic_of(b: float, c: float) -> Callable[[Value], Value]:
    def weigh(x: Value) -> Value:
        near = _polynomial(x, (12 - 9 * b - 6 * c) / 6, (-18 + 12 * b + 6 * c) / 6, 0, (6 - 2 * b) / 6)
        far = _polynomial(x, (-b - 6 * c) / 6, (6 * b + 30 * c) / 6, (-12 * b - 48 * c) / 6, (8 * b + 24 * c) / 6)
        inside = ops.where(ops.less(x, number(1, x)), near, far)
        return ops.where(ops.less(x, number(2, x)), inside, number(0, x))

    return weigh


def _box_of(x: Value) -> Value:
    half = number(0.5, x)
    return ops.where(ops.less(x, half), number(1, x), ops.where(ops.equal(x, half), half, number(0, x)))


def _gaussian_of(x: Value) -> Value:
    found = ops.exp(ops.mul(ops.mul(x, x), number(-2, x)))
    return ops.where(ops.less(x, number(1.5, x)), found, number(0, x))


_KERNELS_OF_VALUES: dict[str, Callable[[Value], Value]] = {
    "lanczos1": _lanczos_of(1),
    "lanczos3": _lanczos_of(3),
    "lanczos5": _lanczos_of(5),
    "box": _box_of,
    "triangle": lambda x: ops.maximum(ops.sub(number(1, x), x), number(0, x)),
    "keyscubic": _cubic_of(0, 0.5),
    "mitchellcubic": _cubic_of(1 / 3, 1 / 3),
    "gaussian": _gaussian_of,
}


@rule("ScaleAndTranslate")
def scale_and_translate(node: Any, x: Value, size: Value, scale: Value, translation: Value) -> Value:
    """Resample by a kernel around each position in the image, widened for downscaling (``antialias``)."""
    kernel, antialias = node.get("kernel_type", "lanczos3"), bool(node.get("antialias", True))
    weigh, radius = _KERNELS[kernel]
    sizes, given = _plane(x), [static(each) for each in (size, scale, translation)]
    if sizes is None or any(each is None for each in given):
        rows, columns = (
            _kernel_matrix(
                kernel,
                *_lengths(x, size, axis),
                scale=scalar(ops.slice_(scale, [axis], [axis + 1], [0])),
                shift=scalar(ops.slice_(translation, [axis], [axis + 1], [0])),
                antialias=antialias,
            )
            for axis in range(2)
        )
        return by_matrices(x, rows, columns)
    wanted, scales, shifts = (np.asarray(each) for each in given)
    matrices = []
    for axis, (before, after) in enumerate(zip(sizes, wanted.tolist(), strict=True)):
        inverse: Any = np.float32(
            1 / np.float64(scales[axis])
        )  # rounded like TensorFlow's kernel, which decides whether elements at its edge count
        kernel_scale = max(inverse, 1.0) if antialias else 1.0
        places = (np.arange(after, dtype=np.float32) + np.float32(0.5)) * inverse - np.float32(shifts[axis]) * inverse
        distance = np.abs(np.arange(before)[None, :] + 0.5 - places[:, None]) / kernel_scale
        weights = weigh(distance)
        start = np.clip(np.ceil(places - radius * kernel_scale - 0.5), 0, None)
        end = np.clip(np.floor(places + radius * kernel_scale - 0.5), None, before - 1)
        inside = (np.arange(before) >= start[:, None]) & (np.arange(before) <= end[:, None])
        weights = np.where(inside, weights, 0)
        total = weights.sum(1, keepdims=True)
        matrix = np.where(np.abs(total) < 1000 * np.finfo(np.float32).tiny, 0, weights / np.where(total == 0, 1, total))
        outside = (places < 0) | (places > before)
        matrices.append(np.where(outside[:, None], 0, matrix))
    return by_matrices(x, *matrices)


def _kernel_matrix(kernel: str, before: Value, after: Value, scale: Value, shift: Value, antialias: bool) -> Value:
    """Weights of image elements (columns) for output elements (rows)."""
    one, half, zero = (number(n, _FLOAT) for n in (1, 0.5, 0))
    inverse = ops.div(one, scale)
    wide = ops.maximum(inverse, one) if antialias else one
    reach = ops.mul(number(_KERNELS[kernel][1], _FLOAT), wide)
    places = ops.sub(ops.mul(ops.add(_steps(after, 1), half), inverse), ops.mul(shift, inverse))
    elements = _steps(before, 0)
    distance = ops.div(ops.absolute(ops.sub(ops.add(elements, half), places)), wide)
    start, end = (ops.sub(op(places, reach), half) for op in (ops.sub, ops.add))
    inside = ops.and_(ops.greater_or_equal(elements, ops.ceil(start)), ops.less_or_equal(elements, ops.floor(end)))
    weights = ops.where(inside, _KERNELS_OF_VALUES[kernel](distance), zero)
    total = ops.reduce_sum(weights, [1], keepdims=1)
    tiny = number(1000 * float(np.finfo(np.float32).tiny), _FLOAT)
    is_empty = ops.less(ops.absolute(total), tiny)
    outside = ops.or_(ops.less(places, zero), ops.greater(places, ops.cast(before, to=_FLOAT)))
    kept = ops.not_(ops.or_(is_empty, outside))
    return ops.where(kept, ops.div(weights, ops.where(is_empty, one, total)), zero)
