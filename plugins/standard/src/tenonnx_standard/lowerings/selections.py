"""Lowerings of resizing, sorting and selection to other ops."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_standard.lowerings.registry import (
    cut,
    integers,
    like,
    lowering,
    numbers,
    of_floats,
    reshaped,
    sizes,
    unless,
    within,
)


def _sources(x: Value, roi: Value | None, scales: Value | None, given: Value | None, attributes: Any) -> list[Any]:
    """For each axis, the source index of each output element, computed by the op itself on indices."""
    unless(attributes["mode"] != "nearest" or roi is not None)
    shape = sizes(x)
    unless(not 0 < np.prod(shape) < 1 << 20)
    places = constant(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), DType.float32)
    taken = numbers(ops.resize(places, None, scales, given, **attributes)).astype(np.int64)
    unless(not taken.size)
    found = np.unravel_index(taken, shape)
    return [np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1)[:, 0] for axis, each in enumerate(found)]


def _factors(x: Value, sources: list[Any]) -> list[int]:
    """Number of repetitions of each element along each axis."""
    factors = [len(each) // n for each, n in zip(sources, sizes(x), strict=True)]
    for each, times, n in zip(sources, factors, sizes(x), strict=True):
        unless(not np.array_equal(each, np.repeat(np.arange(n), times)))
    return factors


@lowering(ops.resize)
def resize_by_expand(X, roi, scales, sizes_, **attributes):
    """Repeat elements by Expand."""
    factors = _factors(X, _sources(X, roi, scales, sizes_, attributes))
    shape = sizes(X)
    split_shape = [n for pair in zip(shape, [1] * len(shape), strict=True) for n in pair]
    whole = [n for pair in zip(shape, factors, strict=True) for n in pair]
    axes = [axis for axis, times in enumerate(factors) if times != 1]
    keep = [k for k in range(len(split_shape)) if k % 2 == 0 or k // 2 in axes]
    spread = ops.expand(reshaped(X, [split_shape[k] for k in keep]), integers([whole[k] for k in keep]))
    return reshaped(spread, [n * times for n, times in zip(shape, factors, strict=True)])


@lowering(ops.resize)
def resize_by_gather(X, roi, scales, sizes_, **attributes):
    result = X
    for axis, (each, n) in enumerate(zip(_sources(X, roi, scales, sizes_, attributes), sizes(X), strict=True)):
        if not np.array_equal(each, np.arange(n)):
            result = ops.gather(result, integers(each.tolist()), axis=axis)
    return result


@lowering(ops.resize)
def resize_by_slices(X, roi, scales, sizes_, **attributes):
    """Take every n-th element along each axis."""
    result = X
    for axis, (each, n) in enumerate(zip(_sources(X, roi, scales, sizes_, attributes), sizes(X), strict=True)):
        step = int(each[1] - each[0]) if len(each) > 1 else 1
        unless(step < 1 or not np.array_equal(each, each[0] + step * np.arange(len(each))))
        if len(each) != n or each[0]:
            result = cut(result, axis, int(each[0]), int(each[-1]) + 1, step)
    return result


@lowering(ops.resize)
def resize_by_conv_transpose(X, roi, scales, sizes_, **attributes):
    """Spread each pixel over a block."""
    of_floats(X)
    factors = _factors(X, _sources(X, roi, scales, sizes_, attributes))
    unless(X.rank != 4 or factors[:2] != [1, 1])
    channels = sizes(X)[1]
    ones = like(X, np.ones((channels, 1, *factors[2:])))
    return ops.conv_transpose(X, ones, group=channels, strides=factors[2:])


def _weights(x: Value, roi: Value | None, scales: Value | None, given: Value | None, attributes: Any) -> Any:
    """The interpolation matrices of the last two axes: the weight of each element in each result."""
    of_floats(x)
    rank, shape = x.rank or 0, sizes(x)
    unless(roi is not None or attributes["axes"] or attributes["antialias"] or rank < 2)
    unless(attributes["keep_aspect_ratio_policy"] != "stretch")
    by = numbers(scales) if scales is not None and scales.shape != (0,) else None
    to = None if by is not None else numbers(given)
    unless(any(b != 1 for b in by[:-2]) if by is not None else tuple(to[:-2]) != shape[:-2])
    for axis in (-2, -1):
        eye = constant(np.eye(shape[axis], dtype=np.float32), DType.float32)
        scale = None if by is None else constant(np.array([1, by[axis]], np.float32), DType.float32)
        size = integers([shape[axis], int(to[axis])]) if to is not None else None
        weights = numbers(ops.resize(eye, None, scale, size, **attributes))
        if weights.shape[0] != weights.shape[1] or not np.array_equal(weights, np.eye(len(weights))):
            yield axis, weights


@lowering(ops.resize, "finite")
def resize_by_matmul(X, roi, scales, sizes_, **attributes):
    """Multiply by interpolation matrices along the last two axes."""
    result = X
    for axis, weights in _weights(X, roi, scales, sizes_, attributes):
        result = ops.matmul(result, like(X, weights)) if axis == -1 else ops.matmul(like(X, weights.T), result)
    return result


@lowering(ops.resize, "finite")
def resize_by_gathered_neighbors(X, roi, scales, sizes_, **attributes):
    """Along the last two axes, the weighted sum of two gathered elements."""
    unless(attributes["mode"] != "linear")
    result = X
    for axis, weights in _weights(X, roi, scales, sizes_, attributes):
        unless(np.any(np.count_nonzero(weights, axis=0) > 2))
        first = (weights != 0).argmax(axis=0)
        second = np.minimum(first + 1, len(weights) - 1)
        shares = weights[first, np.arange(len(first))]
        tail = [1] * (-1 - axis)
        near, far = (ops.gather(result, integers(each.tolist()), axis=axis) for each in (first, second))
        near, far = (
            ops.mul(v, like(X, s.reshape(-1, *tail))) for v, s in ((near, shares), (far, weights.sum(axis=0) - shares))
        )
        result = ops.add(near, far)
    return result


@lowering(ops.top_k, "finite")
def top_1_by_reduction(X, K, *, axis, largest, sorted):
    unless(int(numbers(K).reshape(-1)[0]) != 1)
    values = (ops.reduce_max if largest else ops.reduce_min)(X, integers([axis]))
    return values, (ops.argmax if largest else ops.argmin)(X, axis=axis)


def _first(data: Value, reduced: Value, axis: int, keepdims: int, last: int) -> Any:
    """The first index of the element equal to the reduced one, as the maximum of descending numbers."""
    unless(last)
    where = within(axis, data.rank or 0)
    size = sizes(data)[where]
    unless(size > 1 << 20)
    shape = [size if each == where else 1 for each in range(data.rank or 0)]
    down = constant((size - np.arange(size, dtype=np.float32)).reshape(shape), DType.float32)
    score = ops.mul(ops.cast(ops.equal(data, reduced), to=DType.float32), down)
    best = ops.reduce_max(score, integers([where]), keepdims=keepdims)
    return ops.cast(ops.sub(constant(np.float32(size), DType.float32), best), to=DType.int64)


@lowering(ops.argmax, "finite")
def argmax_by_reduction(data, *, axis, keepdims, select_last_index):
    return _first(data, ops.reduce_max(data, integers([axis])), axis, keepdims, select_last_index)


@lowering(ops.argmin, "finite")
def argmin_by_reduction(data, *, axis, keepdims, select_last_index):
    return _first(data, ops.reduce_min(data, integers([axis])), axis, keepdims, select_last_index)


@lowering(ops.argmax, "finite")
def argmax_by_top_k(data, *, axis, keepdims, select_last_index):
    unless(select_last_index)
    place = ops.top_k(data, integers([1]), axis=axis)[1]
    return place if keepdims else ops.squeeze(place, integers([axis]))


@lowering(ops.argmin, "finite")
def argmin_by_argmax(data, **attributes):
    of_floats(data)
    return ops.argmax(ops.neg(data), **attributes)
