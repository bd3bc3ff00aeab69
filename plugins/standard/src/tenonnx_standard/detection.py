"""Object detection: non-maximum suppression and pooling over regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Index,
    TensorType,
    TypeMismatch,
    Value,
    at_least,
    constant,
    dims,
    holds,
    limits,
    one_of,
    op,
    primitive,
    shapes,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import and_, where
from tenonnx_standard.math import ceil, floor, maximum, minimum
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.shapes import flatten, reshape, transpose
from tenonnx_standard.slicing import gather
from tenonnx_standard.windows import Array, one_float_dtype, widened

#: Number of boxes compared with each other at a time.
BLOCK = 64

# ----- NonMaxSuppression ----------------------------------------------------------------------------------------------


@primitive("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes,
    scores,
    max_output_boxes_per_class: Index = None,
    iou_threshold=None,
    score_threshold=None,
    *,
    center_point_box=0,
):
    """Boxes by decreasing score, without those that overlap a better box of their class too much.

    Each row of the result is (batch, class, box).
    """


@non_max_suppression.type
def non_max_suppression_type(boxes, scores, *limits, center_point_box):
    title = non_max_suppression.title
    one_float_dtype(title, boxes, scores)
    wrong = boxes.rank == 3 and isinstance(boxes.shape[2], int) and boxes.shape[2] != 4
    if wrong or boxes.rank not in (3, None) or scores.rank not in (3, None):
        raise TypeMismatch(
            f"{title}: shapes are not (batch, boxes, 4) for boxes and (batch, classes, boxes) for scores",
            given=f"{boxes!r}, {scores!r}",
        )
    if center_point_box not in (0, 1):
        raise TypeMismatch(f"{title}: center_point_box is neither 0 nor 1", given=str(center_point_box))
    return TensorType(DType.int64, (None, 3))


@non_max_suppression.numpy
def non_max_suppression_numpy(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box
):
    def number(limit: Array | None, default: Any) -> Any:
        return default if limit is None or not limit.size else limit.reshape(-1)[0]

    most, overlap = int(number(max_output_boxes_per_class, 0)), number(iou_threshold, 0.0)
    least = number(score_threshold, None)
    chosen: list[tuple[int, int, int]] = []
    for batch in range(boxes.shape[0] if most > 0 else 0):
        corners = _corners(boxes[batch], center_point_box)
        for kind in range(scores.shape[1]):
            values = scores[batch, kind]
            candidates = np.arange(values.size) if least is None else np.flatnonzero(values > least)
            order = candidates[np.argsort(-values[candidates], kind="stable")]
            chosen += [(batch, kind, int(box)) for box in _suppress_overlaps(corners, order, most, overlap)]
    return np.asarray(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Array, center_point_box: int) -> Array:
    """The minimum and maximum coordinates of boxes: (4, boxes)."""
    if center_point_box:
        x, y, width, height = boxes.T
        return np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
    a, b = boxes[:, :2].T, boxes[:, 2:].T
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)])


def _suppress_overlaps(corners: Array, order: Array, most: int, overlap: float) -> list[int]:
    """Boxes in ``order``, without those that overlap one chosen before by more than ``overlap``.

    Works block by block, since ``most`` may be reached early. The remaining boxes of a block are the bits of an
    integer, so that each step jumps to the next of them.
    """
    chosen: list[int] = []
    for first in range(0, order.size, BLOCK):
        block = order[first : first + BLOCK]
        if chosen:
            block = block[~_overlapping(corners[:, chosen], corners[:, block], overlap).any(0)]
        hits = np.packbits(_overlapping(corners[:, block], corners[:, block], overlap), axis=1, bitorder="little")
        free = (1 << block.size) - 1
        while free:
            k = (free & -free).bit_length() - 1
            chosen.append(block[k])
            if len(chosen) == most:
                return chosen
            free &= ~(int.from_bytes(hits[k].tobytes(), "little") | 1 << k)
    return chosen


@np.errstate(all="ignore")
def _overlapping(a: Array, b: Array, overlap: float) -> Array:
    """Whether the intersection over union of each box of ``a`` with each of ``b`` exceeds ``overlap``."""
    area_a, area_b = ((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    a, b = a[:, :, None], b[:, None]
    sides = np.minimum(a[2:], b[2:])
    sides -= np.maximum(a[:2], b[:2])
    np.maximum(sides, 0, out=sides)
    shared = sides[0] * sides[1]
    union = area_a[:, None] + area_b
    union -= shared
    shared /= union
    return shared > max(overlap, 0)  # type: ignore[no-any-return]


# ----- RoiAlign -------------------------------------------------------------------------------------------------------

HALF_PIXEL, OUTPUT_HALF_PIXEL = "half_pixel", "output_half_pixel"


@op("RoiAlign", since=10)
def roi_align(
    X,
    rois,
    batch_indices: Index,
    *,
    coordinate_transformation_mode=HALF_PIXEL,
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    """Regions of ``X``, pooled over bilinear samples (He et al., Mask R-CNN, 2017)."""
    _batch, _channels, height, width = dims(X)
    count = dims(rois)[0]
    rows = flatten(transpose(X, perm=[0, 2, 3, 1]), axis=3)
    aligned = coordinate_transformation_mode == HALF_PIXEL
    samples_y = _samples(rois[:, 1], rois[:, 3], height, output_height, sampling_ratio, spatial_scale, aligned)
    samples_x = _samples(rois[:, 0], rois[:, 2], width, output_width, sampling_ratio, spatial_scale, aligned)
    image = reshape(batch_indices * height, [count, 1, 1])
    total = None
    for y, weight_y in samples_y.taps:
        line = ((y + image) * width)[:, :, :, None, None]
        for x, weight_x in samples_x.taps:
            place = line + x[:, None, None]
            weight = weight_y[:, :, :, None, None] * weight_x[:, None, None]
            pixels = gather(rows, place, axis=0) * weight[..., None]
            total = pixels if total is None else total + pixels if mode == "avg" else maximum(total, pixels)
    taken = and_(samples_y.counted[:, :, :, None, None], samples_x.counted[:, None, None])[..., None]
    if mode == "avg":
        pooled = reduce_sum(total, [2, 4], keepdims=0)
        counts = maximum(samples_y.counts * samples_x.counts, 1.0)
        pooled = pooled / reshape(counts, [-1, 1, 1, 1])
    else:
        pooled = reduce_max(where(taken, total, float(np.finfo(np.float16).min)), [2, 4], keepdims=0)
        some = reshape((samples_y.counts > 0.0) & (samples_x.counts > 0.0), [-1, 1, 1, 1])
        pooled = where(some, pooled, 0.0)
    return transpose(pooled, perm=[0, 3, 1, 2])


class _Samples:
    """Samples of regions along one axis: two taps each, whether they count, and their number per bin."""

    def __init__(self, taps: Sequence[tuple[Value, Value]], taken: Value, counts: Value) -> None:
        self.taps, self.counted, self.counts = taps, taken, counts


def _samples(
    start: Value, end: Value, size: Any, bins: int, sampling_ratio: int, spatial_scale: float, aligned: bool
) -> _Samples:
    shift = 0.5 if aligned else 0.0
    low, high = start * float(spatial_scale) - shift, end * float(spatial_scale) - shift
    length = high - low if aligned else maximum(high - low, 1.0)
    one = length * 0.0 + 1.0
    counts = one * float(sampling_ratio) if sampling_ratio > 0 else maximum(ceil(length / float(bins)), 0.0)
    most: Any = sampling_ratio
    if sampling_ratio <= 0:
        greatest = reduce_max(concat(constant(np.ones(1), start.dtype), counts, axis=0), [0], keepdims=0)
        most = cast(greatest, to=DType.int64)
    i = cast(range_(0, most, 1), to=start.dtype)
    inside = (i + 0.5) / maximum(counts, 1.0)[:, None, None]
    limits.check_elements([bins, max(sampling_ratio, 1)], roi_align.title)
    place = constant(np.arange(bins).reshape(1, -1, 1), start.dtype) + inside
    y = low[:, None, None] + (length / float(bins))[:, None, None] * place
    last = (cast(size, to=start.dtype) if isinstance(size, Value) else float(size)) - 1.0
    taken = (i < counts[:, None, None]) & (place > -1.0)
    real = taken & (y >= -1.0) & (y <= last + 1.0)
    y = minimum(maximum(y, 0.0), last)
    before = floor(y)
    after = minimum(before + 1.0, last)
    taps = [
        (cast(before, to=DType.int64), where(real, 1.0 - (y - before), 0.0)),
        (cast(after, to=DType.int64), where(real, y - before, 0.0)),
    ]
    return _Samples(taps, taken, counts)


roi_align.requires(
    shapes(X="batch channels height width", rois="regions 4", batch_indices="regions"),
    one_of(coordinate_transformation_mode=(HALF_PIXEL, OUTPUT_HALF_PIXEL), mode=("avg", "max")),
    at_least(output_height=1, output_width=1, height=1, width=1),
)


@roi_align.numpy
def roi_align_numpy(
    X,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode,
    mode,
    output_height,
    output_width,
    sampling_ratio,
    spatial_scale,
):
    x, boxes = widened(X, rois)
    _check_images(roi_align.title, batch_indices, x.shape[0])
    boxes = boxes * boxes.dtype.type(spatial_scale)
    aligned = coordinate_transformation_mode == HALF_PIXEL
    axes = [
        _array_samples(boxes[:, a], boxes[:, a + 2], x.shape[3 - a], bins, sampling_ratio, aligned)
        for a, bins in ((1, output_height), (0, output_width))
    ]
    y = np.zeros(limits.sized((boxes.shape[0], x.shape[1], output_height, output_width), roi_align.title), x.dtype)
    if mode == "avg":
        _pool_means(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), batch_indices, axes, y)
    else:
        _pool_maxima(x, batch_indices, axes, y)
    return y.astype(X.dtype, copy=False)


def _check_images(title: str, indices: Array, batch: int) -> None:
    if indices.size and not (indices.min() >= 0 and indices.max() < batch):
        raise TypeMismatch(
            f"{title}: batch_indices holds an index outside the batch", given=f"{indices.max()} of {batch}"
        )


def _array_samples(
    start: Array, end: Array, size: int, bins: int, sampling_ratio: int, aligned: bool
) -> tuple[Array, Array, Array, Array]:
    """Samples along one axis: their number per bin, then two positions and two weights per region, bin and sample."""
    shift = start.dtype.type(0.5 if aligned else 0)
    low, length = start - shift, end - start
    if not aligned:
        length = np.maximum(length, 1)
    counts = np.full(start.shape, sampling_ratio, start.dtype) if sampling_ratio > 0 else np.ceil(length / bins)
    counts = np.maximum(counts, 0)
    limits.check_elements([len(start), bins, counts.max(initial=0)], roi_align.title)
    i = np.arange(int(counts.max(initial=0)), dtype=start.dtype)
    inside = (i + start.dtype.type(0.5)) / np.maximum(counts, 1)[:, None, None]
    y = low[:, None, None] + (length / bins)[:, None, None] * (np.arange(bins, dtype=start.dtype)[:, None] + inside)
    real = (i < counts[:, None, None]) & (y >= -1) & (y <= size)
    y = np.clip(y, 0, size - 1)
    before = np.floor(y)
    places = np.stack([before, np.minimum(before + 1, size - 1)]).astype(np.intp)
    weights = np.stack([1 - (y - before), y - before]) * real
    return counts, places, weights, np.asarray(size)


def _pool_means(x: Array, images: Array, axes: Sequence[Any], y: Array) -> None:
    """Means of samples, which are linear in each axis: two small matrix products per region, channels last."""
    matrices = []
    for counts, places, weights, size in axes:
        regions, bins = places.shape[1:3]
        matrix = np.zeros((regions, bins, int(size)), x.dtype)
        where_to = (np.arange(regions)[:, None, None], np.arange(bins)[:, None])
        for tap in (0, 1):
            np.add.at(matrix, (*where_to, places[tap]), weights[tap])
        matrix /= np.maximum(counts, 1)[:, None, None]
        matrices.append(matrix)
    rows, columns = matrices
    channels = x.shape[3]
    for region, image in enumerate(images):
        used_y, used_x = np.flatnonzero(rows[region].any(0)), np.flatnonzero(columns[region].any(0))
        if not used_y.size or not used_x.size:
            continue
        top, bottom, left, right = used_y[0], used_y[-1] + 1, used_x[0], used_x[-1] + 1
        part = x[image, top:bottom].reshape(bottom - top, -1)[:, left * channels : right * channels]
        lines = (rows[region, :, top:bottom] @ part).reshape(y.shape[2], right - left, channels)
        y[region] = np.matmul(columns[region, :, left:right], lines).transpose(2, 0, 1)


def _pool_maxima(x: Array, images: Array, axes: Sequence[Any], y: Array) -> None:
    (counts_y, places_y, weights_y, _), (counts_x, places_x, weights_x, _) = axes
    for region, image in enumerate(images):
        rows, columns = int(counts_y[region]), int(counts_x[region])
        if not rows or not columns:
            continue
        best: Any = None
        for a in (0, 1):
            line, weight_y = places_y[a, region, :, :rows], weights_y[a, region, :, :rows]
            for b in (0, 1):
                column, weight_x = places_x[b, region, :, :columns], weights_x[b, region, :, :columns]
                pixels = x[image][:, line[:, :, None, None], column]
                pixels = pixels * (weight_y[:, :, None, None] * weight_x)
                best = pixels if best is None else np.maximum(best, pixels)
        y[region] = best.max((2, 4))


@roi_align.until(16)
def roi_align_unshifted(
    X, rois, batch_indices: Index, *, mode="avg", output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0
):
    """RoiAlign without the shift of coordinates by half a pixel."""
    return roi_align(
        X,
        rois,
        batch_indices,
        coordinate_transformation_mode=OUTPUT_HALF_PIXEL,
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@roi_align.lower(to=roi_align_unshifted)
def roi_align_to_roi_align_unshifted(X, rois, batch_indices, *, coordinate_transformation_mode, **attributes):
    if coordinate_transformation_mode == OUTPUT_HALF_PIXEL:
        return roi_align_unshifted(X, rois, batch_indices, **attributes)
    return None


# ----- MaxRoiPool -----------------------------------------------------------------------------------------------------


@op("MaxRoiPool", data_movement=True)
def max_roi_pool(X, rois, *, pooled_shape: list[int], spatial_scale=1.0):
    """The maximum in each bin of regions, which are rounded to pixels; 0 for empty bins (Girshick, 2015)."""
    for bins in pooled_shape:
        limits.check("nodes", 16 * bins, max_roi_pool.title)  # each bin has its own nodes
    regions = gather(X, cast(rois[:, 0], to=DType.int64), axis=0)
    for k, bins in enumerate(pooled_shape):
        first, beyond = _bins(rois[:, 1 + (1 - k)], rois[:, 3 + (1 - k)], dims(X)[2 + k], bins, spatial_scale)
        i = reshape(cast(range_(0, dims(X)[2 + k], 1), to=X.dtype), [-1, *(1,) * (1 - k)])
        parts = []
        for b in range(bins):
            low, high = (reshape(v[:, b], [-1, 1, 1, 1]) for v in (first, beyond))
            masked = where((i >= low) & (i < high), regions, -np.inf)
            parts.append(reduce_max(masked, [2 + k], keepdims=1))
        regions = concat(*parts, axis=2 + k) if len(parts) > 1 else parts[0]
    return where(regions > -np.inf, regions, 0.0)


def _bins(start: Value, end: Value, size: Any, bins: int, spatial_scale: float) -> tuple[Value, Value]:
    low, high = (_rounded(v * float(spatial_scale)) for v in (start, end))
    step = (maximum(high - low + 1.0, 1.0) / float(bins))[:, None]
    b = constant(np.arange(bins).reshape(1, -1), start.dtype)
    last = cast(size, to=start.dtype) if isinstance(size, Value) else float(size)
    edges = (floor(b * step) + low[:, None], ceil((b + 1.0) * step) + low[:, None])
    first, beyond = (minimum(maximum(edge, 0.0), last) for edge in edges)
    return first, beyond


def _rounded(x: Value) -> Value:
    """``x`` rounded to integers, halves away from 0."""
    return where(x < 0.0, ceil(x - 0.5), floor(x + 0.5))


max_roi_pool.requires(
    shapes(X="batch channels height width", rois="regions 5"),
    at_least(pooled_shape=1),
    holds(lambda pooled_shape: None if len(pooled_shape) == 2 else "pooled_shape is not a height and a width"),
)


@max_roi_pool.numpy
def max_roi_pool_numpy(X, rois, *, pooled_shape, spatial_scale):
    limits.check_elements((len(rois), X.shape[1], *pooled_shape), max_roi_pool.title)
    (boxes,) = widened(rois)
    images = boxes[:, 0].astype(np.intp)
    _check_images(max_roi_pool.title, images, X.shape[0])
    scaled = boxes[:, 1:] * boxes.dtype.type(spatial_scale)
    corners = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    filled, places = [], []
    for k, bins in enumerate(pooled_shape):
        low, high = corners[:, 1 - k, None], corners[:, 3 - k, None]
        step = np.maximum(high - low + 1, 1) / boxes.dtype.type(bins)
        b = np.arange(bins, dtype=boxes.dtype)
        edges = np.stack([np.floor(b * step) + low, np.ceil((b + 1) * step) + low])
        first, beyond = np.clip(edges, 0, X.shape[2 + k]).astype(np.intp)
        widest = (beyond - first).max(initial=1)
        places.append(np.minimum(first[:, None] + np.arange(widest)[:, None], np.maximum(beyond[:, None] - 1, 0)))
        filled.append(first < beyond)
    x = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    y = np.zeros(limits.sized((boxes.shape[0], X.shape[1], *pooled_shape), max_roi_pool.title), X.dtype)
    for region, image in enumerate(images if X.size else ()):
        rows, columns = (axis[region] for axis in places)
        left = columns.min()
        lines = x[image, :, left : columns.max() + 1].take(rows, 0).max(0)
        y[region] = lines.take(columns - left, 1).max(1).transpose(2, 0, 1)
    np.copyto(y, y.dtype.type(0), where=~(filled[0][:, None, :, None] & filled[1][:, None, None]))
    return y
