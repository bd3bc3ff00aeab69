"""Images: other sizes, crops, colours, boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_tensorflow.held import as_dtype, int64, known, number, scalar
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.windows import channels_first, channels_last


def _resized(x: Value, size: Value, **attributes: Any) -> Value:
    held = channels_first(x)
    sizes = ops.concat(ops.slice_(ops.shape(held), [0], [2], [0]), int64(size), axis=0)
    return channels_last(ops.resize(held, sizes=sizes, **attributes))


def _coordinates(node: Any) -> str:
    if node.get("align_corners", False):
        return "align_corners"
    return "half_pixel" if node.get("half_pixel_centers", False) else "asymmetric"


@rule("ResizeBilinear")
def bilinear(node: Any, x: Value, size: Value) -> Value:
    held = x if x.dtype.numpy.kind == "f" and x.dtype is not DType.float64 else ops.cast(x, to=DType.float32)
    held = as_dtype(held, DType.float32)
    return _resized(held, size, mode="linear", coordinate_transformation_mode=_coordinates(node))


@rule("ResizeNearestNeighbor")
def nearest(node: Any, x: Value, size: Value) -> Value:
    mode = _coordinates(node)
    near = "floor" if mode == "asymmetric" else "round_prefer_ceil"
    return _resized(x, size, mode="nearest", coordinate_transformation_mode=mode, nearest_mode=near)


@rule("ResizeBicubic")
def bicubic(node: Any, x: Value, size: Value) -> Value:
    """Means of four elements along each axis, by weights that are tabled at 1024 places between two elements.

    With half pixels by Keys's kernel, whose weights outside of the image are left out.
    """
    held = as_dtype(x, DType.float32)
    for axis in (1, 2):
        wanted = scalar(ops.slice_(int64(size), [axis - 1], [axis], [0]))
        held = _cubic_along(held, axis, wanted, _coordinates(node))
    return held


def _cubic_along(x: Value, axis: int, wanted: Value, mode: str) -> Value:
    length = scalar(ops.gather(ops.shape(x), [axis]))
    one, half = number(1, DType.float32), number(0.5, DType.float32)
    before, after = (ops.cast(n, to=DType.float32) for n in (length, wanted))
    if mode == "align_corners":
        several = ops.greater(after, one)
        before, after = ops.where(several, ops.sub(before, one), before), ops.where(several, ops.sub(after, one), after)
    scale = ops.div(before, after)
    steps = ops.cast(ops.range_(constant(np.asarray(0)), wanted, constant(np.asarray(1))), to=DType.float32)
    shift = half if mode == "half_pixel" else number(0, DType.float32)
    places = ops.sub(ops.mul(ops.add(steps, shift), scale), shift)
    first = ops.floor(places)
    tabled = number(1024, DType.float32)
    part = ops.div(ops.round_(ops.mul(ops.sub(places, first), tabled)), tabled)
    last = ops.sub(length, constant(np.asarray(1)))
    weights, rows = [], []
    for k in range(-1, 3):
        index = ops.add(ops.cast(first, to=DType.int64), constant(np.asarray(k)))
        distance = ops.absolute(ops.sub(part, number(k, DType.float32)))
        weight = _cubic_weight(distance, -0.5 if mode == "half_pixel" else -0.75)
        kept = ops.clip(index, constant(np.asarray(0)), last)
        if mode == "half_pixel":
            weight = ops.where(ops.equal(index, kept), weight, number(0, DType.float32))
        weights.append(weight)
        rows.append(ops.gather(x, kept, axis=axis))
    if mode == "half_pixel":
        total = ops.sum_(*weights)
        weights = [ops.div(weight, total) for weight in weights]
    others = [k for k in range(3) if k != axis - 1]
    shaped = [ops.unsqueeze(weight, [0, *(k + 1 for k in others)]) for weight in weights]
    return ops.sum_(*(ops.mul(row, weight) for row, weight in zip(rows, shaped, strict=True)))


def _cubic_weight(distance: Value, a: float) -> Value:
    """Keys's convolution kernel (1981) at a distance below two."""

    def polynomial(*coefficients: float) -> Value:
        total = number(coefficients[0], distance)
        for each in coefficients[1:]:
            total = ops.add(ops.mul(total, distance), number(each, distance))
        return total

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    return ops.where(ops.less_or_equal(distance, number(1, distance)), near, far)


def by_matrices(x: Value, rows: Any, columns: Any) -> Value:
    """Each row and column of the result as a mean of others."""
    held = as_dtype(channels_first(x), DType.float32)
    wide = ops.matmul(held, constant(np.asarray(columns, np.float32).T))
    return channels_last(ops.matmul(constant(np.asarray(rows, np.float32)), wide))


def plane(x: Value, what: str) -> tuple[int, int]:
    sizes = x.shape[1:3] if x.shape is not None else ()
    if len(sizes) != 2 or not all(isinstance(n, int) for n in sizes):
        raise NotRepresentable(f"the sizes of images must be known for {what}", given=f"{x.type}")
    return int(sizes[0]), int(sizes[1])  # type: ignore[arg-type]


@rule("ResizeArea")
def area(node: Any, x: Value, size: Value) -> Value:
    """The mean of what an element covers: shares of elements at both ends."""
    wanted = known(size, "the size of ResizeArea").tolist()
    matrices = []
    for before, after in zip(plane(x, node.op), wanted, strict=True):
        step = (before - 1) / (after - 1) if node.get("align_corners", False) and after > 1 else before / after
        matrix = np.zeros((after, before))
        for k in range(after):
            start, end = k * step, (k + 1) * step
            for place in range(math.floor(start), min(math.ceil(end), math.ceil(end))):
                share = min(end, place + 1) - max(start, place)
                matrix[k, min(place, before - 1)] += share / step
        matrices.append(matrix)
    return by_matrices(x, *matrices)


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


#: Weights of elements by their distance, and how far they reach.
_KERNELS = {
    "lanczos1": (_lanczos(1), 1), "lanczos3": (_lanczos(3), 3), "lanczos5": (_lanczos(5), 5),
    "box": (lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0)), 1),
    "triangle": (lambda x: np.maximum(1 - x, 0), 1), "keyscubic": (_cubic(0, 0.5), 2),
    "mitchellcubic": (_cubic(1 / 3, 1 / 3), 2),
    "gaussian": (lambda x: np.where(x >= 1.5, 0, np.exp(-0.5 * (x / 0.5) ** 2)), 1.5),
}  # fmt: skip


@rule("ScaleAndTranslate")
def scale_and_translate(node: Any, x: Value, size: Value, scale: Value, translation: Value) -> Value:
    """Each element by a kernel around its place in the image, wider where the image shrinks (``antialias``)."""
    weigh, radius = _KERNELS[node.get("kernel_type", "lanczos3")]
    wanted = known(size, "the size of a resized image").tolist()
    scales = known(scale, "the scales of a resized image").astype(np.float64)
    shifts = known(translation, "the translation of a resized image").astype(np.float64)
    matrices = []
    for axis, (before, after) in enumerate(zip(plane(x, node.op), wanted, strict=True)):
        inverse: Any = np.float32(1 / scales[axis])  # as the kernel rounds, which decides what lies at its edge
        kernel_scale = max(inverse, 1.0) if node.get("antialias", True) else 1.0
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


@rule("CropAndResize")
def crop_and_resize(node: Any, x: Value, boxes: Value, numbers: Value, size: Value) -> Value:
    """Samples between the corners of each box; what lies outside of the image is ``extrapolation_value``."""
    height, width = known(size, "the size of crops").tolist()
    image = as_dtype(x, DType.float32)
    plane = ops.cast(ops.slice_(ops.shape(image), [1], [3], [0]), to=DType.float32)
    last = ops.sub(plane, constant(np.asarray([1, 1], np.float32)))
    rows = _sampled(boxes, last, 0, height)
    columns = _sampled(boxes, last, 1, width)
    # Grid points from -1 to 1, as GridSample wants them with aligned corners.
    grid_y = _normalized(rows, ops.slice_(last, [0], [1], [0]))
    grid_x = _normalized(columns, ops.slice_(last, [1], [2], [0]))
    shape = ops.concat(ops.slice_(ops.shape(boxes), [0], [1], [0]), constant(np.asarray([height, width])), axis=0)
    y, x_ = ops.expand(ops.unsqueeze(grid_y, [2]), shape), ops.expand(ops.unsqueeze(grid_x, [1]), shape)
    grid = ops.concat(ops.unsqueeze(x_, [3]), ops.unsqueeze(y, [3]), axis=3)
    chosen = ops.gather(channels_first(image), int64(numbers), axis=0)
    mode = "nearest" if node.get("method", "bilinear") == "nearest" else "linear"
    if mode == "nearest":
        raise NotRepresentable("crops must be sampled bilinearly", given="method=nearest")
    sampled = ops.grid_sample(chosen, grid, mode=mode, padding_mode="border", align_corners=1)
    inside = ops.and_(
        ops.unsqueeze(_inside(rows, ops.slice_(last, [0], [1], [0])), [2]),
        ops.unsqueeze(_inside(columns, ops.slice_(last, [1], [2], [0])), [1]),
    )
    filled = constant(np.asarray(node.get("extrapolation_value", 0.0), np.float32))
    return channels_last(ops.where(ops.unsqueeze(inside, [1]), sampled, filled))


def _sampled(boxes: Value, last: Value, axis: int, count: int) -> Value:
    start = ops.slice_(boxes, [axis], [axis + 1], [1])
    end = ops.slice_(boxes, [axis + 2], [axis + 3], [1])
    length = ops.slice_(last, [axis], [axis + 1], [0])
    if count > 1:
        step = ops.div(ops.mul(ops.sub(end, start), length), number(count - 1, DType.float32))
        places = constant(np.arange(count, dtype=np.float32)[None, :])
        return ops.add(ops.mul(start, length), ops.mul(places, step))
    return ops.mul(ops.mul(ops.add(start, end), length), number(0.5, DType.float32))


def _normalized(places: Value, last: Value) -> Value:
    one = number(1, DType.float32)
    safe = ops.maximum(last, one)
    return ops.sub(ops.div(ops.mul(places, number(2, DType.float32)), safe), one)


def _inside(places: Value, last: Value) -> Value:
    return ops.and_(ops.greater_or_equal(places, number(0, DType.float32)), ops.less_or_equal(places, last))


# ----- colours --------------------------------------------------------------------------------------------------------


def _channel(x: Value, k: int) -> Value:
    return ops.slice_(x, [k], [k + 1], [x.ndim - 1])


@rule("RGBToHSV")
def rgb_to_hsv(node: Any, x: Value) -> Value:
    red, green, blue = (_channel(x, k) for k in range(3))
    value = ops.reduce_max(x, [x.ndim - 1], keepdims=1)
    spread = ops.sub(value, ops.reduce_min(x, [x.ndim - 1], keepdims=1))
    zero, one = number(0, x), number(1, x)
    saturation = ops.where(
        ops.greater(value, zero), ops.div(spread, ops.where(ops.greater(value, zero), value, one)), zero
    )
    sixth = ops.reciprocal(ops.mul(number(6, x), ops.where(ops.greater(spread, zero), spread, one)))
    hue = ops.where(
        ops.equal(red, value),
        ops.mul(sixth, ops.sub(green, blue)),
        ops.where(
            ops.equal(green, value),
            ops.add(ops.mul(sixth, ops.sub(blue, red)), number(2 / 6, x)),
            ops.add(ops.mul(sixth, ops.sub(red, green)), number(4 / 6, x)),
        ),
    )
    hue = ops.where(ops.greater(spread, zero), hue, zero)
    hue = ops.where(ops.less(hue, zero), ops.add(hue, one), hue)
    return ops.concat(hue, saturation, value, axis=x.ndim - 1)


@rule("HSVToRGB")
def hsv_to_rgb(node: Any, x: Value) -> Value:
    hue, saturation, value = (_channel(x, k) for k in range(3))
    zero, one = number(0, x), number(1, x)
    turned = ops.mul(hue, number(6, x))

    def clipped(v: Value) -> Value:
        return ops.clip(v, zero, one)

    red = clipped(ops.sub(ops.absolute(ops.sub(turned, number(3, x))), one))
    green = clipped(ops.sub(number(2, x), ops.absolute(ops.sub(turned, number(2, x)))))
    blue = clipped(ops.sub(number(2, x), ops.absolute(ops.sub(turned, number(4, x)))))
    rest = ops.sub(one, saturation)
    parts = [ops.mul(ops.add(rest, ops.mul(saturation, part)), value) for part in (red, green, blue)]
    return ops.concat(*parts, axis=x.ndim - 1)


@rule("AdjustContrastv2")
def adjust_contrast(node: Any, x: Value, factor: Value) -> Value:
    mean = ops.reduce_mean(x, [x.ndim - 3, x.ndim - 2], keepdims=1)
    return ops.add(ops.mul(ops.sub(x, mean), as_dtype(factor, x.dtype)), mean)


@rule("AdjustSaturation")
def adjust_saturation(node: Any, x: Value, factor: Value) -> Value:
    hsv = rgb_to_hsv(node, x)
    saturation = ops.clip(ops.mul(_channel(hsv, 1), as_dtype(factor, x.dtype)), number(0, x), number(1, x))
    return hsv_to_rgb(node, ops.concat(_channel(hsv, 0), saturation, _channel(hsv, 2), axis=x.ndim - 1))


@rule("AdjustHue")
def adjust_hue(node: Any, x: Value, delta: Value) -> Value:
    """The hue turned, between the least and the greatest of the three colours, whatever these are."""
    top, low = (reduce(x, [x.ndim - 1], keepdims=1) for reduce in (ops.reduce_max, ops.reduce_min))
    spread, zero = ops.sub(top, low), number(0, x)
    flat = ops.equal(spread, zero)
    shares = ops.div(ops.sub(x, low), ops.where(flat, number(1, x), spread))
    hue = _channel(rgb_to_hsv(node, shares), 0)
    moved = ops.add(ops.where(flat, zero, hue), as_dtype(delta, x.dtype))
    moved = ops.sub(moved, ops.floor(moved))
    one = ops.add(ops.mul(moved, zero), number(1, x))
    return ops.add(ops.mul(hsv_to_rgb(node, ops.concat(moved, one, one, axis=x.ndim - 1)), spread), low)


# ----- boxes ----------------------------------------------------------------------------------------------------------


def _suppressed(boxes: Value, scores: Value, most: Value, overlap: Value, least: Value | None) -> Value:
    """The numbers of the boxes that are kept, best first, of one image and class."""
    given = [ops.unsqueeze(boxes, [0]), ops.unsqueeze(scores, [0, 1]), ops.reshape(int64(most), [1])]
    given.append(ops.reshape(as_dtype(overlap, DType.float32), [1]))
    if least is not None:
        given.append(ops.reshape(as_dtype(least, DType.float32), [1]))
    return ops.squeeze(ops.slice_(ops.non_max_suppression(*given), [2], [3], [1]), [1])


@rule("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(node: Any, boxes: Value, scores: Value, most: Value, *rest: Value) -> Value:
    overlap = rest[0] if rest else constant(np.asarray(node.get("iou_threshold", 0.5), np.float32))
    found = _suppressed(boxes, scores, most, overlap, rest[1] if len(rest) > 1 else None)
    return ops.cast(found, to=DType.int32)


@rule("NonMaxSuppressionV4", outputs="selected_indices valid_outputs")
def padded_suppression(
    node: Any, boxes: Value, scores: Value, most: Value, overlap: Value, least: Value
) -> list[Value]:
    found = ops.cast(_suppressed(boxes, scores, most, overlap, least), to=DType.int32)
    count = ops.cast(ops.size(found), to=DType.int32)
    return [_filled(found, most) if node.get("pad_to_max_output_size", False) else found, count]


def _filled(x: Value, most: Value) -> Value:
    missing = ops.sub(ops.reshape(int64(most), [1]), ops.shape(x))
    return ops.pad(x, ops.concat(constant(np.asarray([0])), missing, axis=0))


@rule("NonMaxSuppressionV5", outputs="selected_indices selected_scores valid_outputs")
def soft_suppression(
    node: Any, boxes: Value, scores: Value, most: Value, overlap: Value, least: Value, sigma: Value
) -> list[Value]:
    if float(known(sigma, "the sigma of soft suppression")):
        raise NotRepresentable("boxes must be suppressed or kept", given="a soft_nms_sigma that is not 0")
    indices, count = padded_suppression(node, boxes, scores, most, overlap, least)
    kept = ops.gather(scores, int64(indices))
    if node.get("pad_to_max_output_size", False):
        row = ops.range_(
            constant(np.asarray(0, np.int32)), ops.cast(ops.size(indices), to=DType.int32), number(1, count)
        )
        kept = ops.where(ops.less(row, count), kept, number(0, kept))
    return [indices, kept, count]


@rule("CombinedNonMaxSuppression", outputs="nmsed_boxes nmsed_scores nmsed_classes valid_detections")
def combined_suppression(
    node: Any, boxes: Value, scores: Value, of_class: Value, in_all: Value, overlap: Value, least: Value
) -> list[Value]:
    """The best boxes of all classes of each image, zeros behind the last."""
    batch = boxes.shape[0] if boxes.shape is not None else None
    shared = boxes.shape[2] if boxes.shape is not None else None
    if not isinstance(batch, int) or shared != 1:
        raise NotRepresentable("the batch must be known, and boxes shared by the classes", given=f"{boxes.type}")
    most = int(known(in_all, "how many boxes are kept"))
    each = int(known(of_class, "how many boxes of a class are kept"))
    classes = scores.shape[2] if scores.shape is not None else None
    total = min(most, each * int(classes)) if node.get("pad_per_class", False) and isinstance(classes, int) else most
    flat = ops.squeeze(boxes, [2])
    turned = ops.transpose(scores, perm=[0, 2, 1])
    chosen = ops.non_max_suppression(
        flat, turned, constant(np.asarray([each])), ops.reshape(overlap, [1]), ops.reshape(least, [1])
    )
    columns: list[Sequence[Value]] = []
    for k in range(batch):
        mine = ops.equal(ops.slice_(chosen, [0], [1], [1]), constant(np.asarray(k)))
        rows = ops.compress(chosen, ops.squeeze(mine, [1]), axis=0)
        held = ops.gather_nd(turned, rows)
        count = ops.minimum(ops.shape(held), constant(np.asarray([total])))
        best, order = ops.top_k(held, count)
        rows = ops.gather(rows, order)
        box = ops.gather_nd(flat, ops.gather(rows, constant(np.asarray([0, 2])), axis=1))
        if node.get("clip_boxes", True):
            box = ops.clip(box, number(0, box), number(1, box))
        kind = as_dtype(ops.squeeze(ops.slice_(rows, [1], [2], [1]), [1]), scores.dtype)
        missing = ops.sub(constant(np.asarray([total])), count)
        zero = constant(np.asarray([0]))
        columns.append(
            (
                ops.pad(box, ops.concat(zero, zero, missing, zero, axis=0)),
                ops.pad(best, ops.concat(zero, missing, axis=0)),
                ops.pad(kind, ops.concat(zero, missing, axis=0)),
                scalar(ops.cast(count, to=DType.int32)),
            )
        )
    stacked = [[ops.unsqueeze(value, [0]) for value in column] for column in zip(*columns, strict=True)]
    return [ops.concat(*column, axis=0) if batch > 1 else column[0] for column in stacked]


@rule("DecodeJpeg", "DecodePng", "DecodeImage", "EncodeJpeg", "EncodePng", "DecodeBmp", "DecodeGif")
def decoded(node: Any, *_: Value) -> Value:
    raise NotRepresentable(
        "images must come as numbers", given=node.title, do="decode them before the model, from its next tensor on"
    )
