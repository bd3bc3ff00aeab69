"""Images: resizing, cropping, colors, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, static, subgraph
from tenonnx_frontends.nearest import reads_as_resize
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.windows import channels_first, channels_last
from tenonnx_tensorflow.tracked_values import as_dtype, int64, known, number, scalar


def _resized(x: Value, size: Value, **attributes: Any) -> Value:
    image = channels_first(x)
    sizes = ops.concat(ops.slice_(ops.shape(image), [0], [2], [0]), int64(size), axis=0)
    return channels_last(ops.resize(image, sizes=sizes, **attributes))


def _coordinates(node: Any) -> str:
    if node.get("align_corners", False):
        return "align_corners"
    return "half_pixel" if node.get("half_pixel_centers", False) else "asymmetric"


@rule("ResizeBilinear")
def bilinear(node: Any, x: Value, size: Value) -> Value:
    image = x if x.dtype.numpy.kind == "f" and x.dtype is not DType.float64 else ops.cast(x, to=DType.float32)
    image = as_dtype(image, DType.float32)
    return _resized(image, size, mode="linear", coordinate_transformation_mode=_coordinates(node))


@rule("ResizeNearestNeighbor")
def nearest(node: Any, x: Value, size: Value) -> Value:
    """``Resize`` where it reads the same pixels, else positions computed like in TensorFlow."""
    mode = _coordinates(node)
    if mode == "align_corners" or _reads_as_resize(x, size, mode):
        near = "floor" if mode == "asymmetric" else "round_prefer_ceil"
        return _resized(x, size, mode="nearest", coordinate_transformation_mode=mode, nearest_mode=near)
    for axis in (1, 2):
        length = scalar(ops.gather(ops.shape(x), [axis]))
        wanted = scalar(ops.slice_(int64(size), [axis - 1], [axis], [0]))
        places = ops.floor(ops.mul(_steps(wanted, mode), _scale(length, wanted)))
        last = ops.sub(length, constant(np.asarray(1)))
        x = ops.gather(x, ops.minimum(ops.cast(places, to=DType.int64), last), axis=axis)
    return x


def _reads_as_resize(x: Value, size: Value, mode: str) -> bool:
    sizes, offset = static(size), 0.5 if mode == "half_pixel" else 0.0
    pairs = [] if sizes is None else list(zip(x.shape[1:3], sizes.tolist(), strict=True))
    return bool(pairs) and all(isinstance(n, int) and reads_as_resize(n, after, offset) for n, after in pairs)


def _steps(wanted: Value, mode: str) -> Value:
    """The positions 0, 1, ... of the result, as float32, at the centers of pixels in the mode ``half_pixel``."""
    steps = ops.cast(ops.range_(constant(np.asarray(0)), wanted, constant(np.asarray(1))), to=DType.float32)
    return ops.add(steps, number(0.5, DType.float32)) if mode == "half_pixel" else steps


def _scale(before: Value, after: Value) -> Value:
    return ops.div(ops.cast(before, to=DType.float32), ops.cast(after, to=DType.float32))


@rule("ResizeBicubic")
def bicubic(node: Any, x: Value, size: Value) -> Value:
    """Interpolate four elements along each axis, with weights tabulated at 1024 positions between two elements.

    With half-pixel centers, Keys's kernel is used, and weights outside of the image are dropped.
    """
    image = as_dtype(x, DType.float32)
    for axis in (1, 2):
        wanted = scalar(ops.slice_(int64(size), [axis - 1], [axis], [0]))
        image = _cubic_along(image, axis, wanted, _coordinates(node))
    return image


def _cubic_along(x: Value, axis: int, wanted: Value, mode: str) -> Value:
    length = scalar(ops.gather(ops.shape(x), [axis]))
    before, after, one = length, wanted, constant(np.asarray(1))
    if mode == "align_corners":
        several = ops.greater(after, one)
        before, after = ops.where(several, ops.sub(before, one), before), ops.where(several, ops.sub(after, one), after)
    places = ops.mul(_steps(wanted, mode), _scale(before, after))
    places = ops.sub(places, number(0.5, DType.float32)) if mode == "half_pixel" else places
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
    """Keys's cubic convolution kernel (1981) at a distance below two."""

    def polynomial(*coefficients: float) -> Value:
        total = number(coefficients[0], distance)
        for each in coefficients[1:]:
            total = ops.add(ops.mul(total, distance), number(each, distance))
        return total

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    return ops.where(ops.less_or_equal(distance, number(1, distance)), near, far)


@rule("CropAndResize")
def crop_and_resize(node: Any, x: Value, boxes: Value, numbers: Value, size: Value) -> Value:
    """Resample each box between its corners; samples outside of the image are ``extrapolation_value``."""
    height, width = known(size, "the size of crops").tolist()
    image = as_dtype(x, DType.float32)
    plane = ops.cast(ops.slice_(ops.shape(image), [1], [3], [0]), to=DType.float32)
    last = ops.sub(plane, constant(np.asarray([1, 1], np.float32)))
    rows = _sampled(boxes, last, 0, height)
    columns = _sampled(boxes, last, 1, width)
    chosen = ops.gather(image, int64(numbers), axis=0)
    if node.get("method", "bilinear") == "nearest":
        sampled = _nearest_samples(chosen, rows, columns, last)
    else:
        sampled = _bilinear_samples(chosen, rows, columns, last)
    inside = ops.and_(
        ops.unsqueeze(_inside(rows, ops.slice_(last, [0], [1], [0])), [2]),
        ops.unsqueeze(_inside(columns, ops.slice_(last, [1], [2], [0])), [1]),
    )
    filled = constant(np.asarray(node.get("extrapolation_value", 0.0), np.float32))
    return ops.where(ops.unsqueeze(inside, [3]), sampled, filled)


def _bilinear_samples(images: Value, rows: Value, columns: Value, last: Value) -> Value:
    """Bilinear samples of each image at its rows and columns, by a grid from -1 to 1 with aligned corners."""
    grid_y = _normalized(rows, ops.slice_(last, [0], [1], [0]))
    grid_x = _normalized(columns, ops.slice_(last, [1], [2], [0]))
    grid = _pairs(grid_x, grid_y)
    return channels_last(
        ops.grid_sample(channels_first(images), grid, mode="linear", padding_mode="border", align_corners=1)
    )


def _nearest_samples(images: Value, rows: Value, columns: Value, last: Value) -> Value:
    """Nearest samples, rounding halves up."""
    zero, half = number(0, DType.float32), number(0.5, DType.float32)
    places = []
    for axis, positions in enumerate((rows, columns)):
        rounded = ops.floor(ops.add(positions, half))
        kept = ops.minimum(ops.maximum(rounded, zero), ops.slice_(last, [axis], [axis + 1], [0]))
        places.append(ops.cast(kept, to=DType.int64))
    return ops.gather_nd(images, _pairs(*reversed(places), swapped=True), batch_dims=1)


def _pairs(x: Value, y: Value, *, swapped: bool = False) -> Value:
    """All pairs of a column and a row of each box along a last axis; rows first if ``swapped``."""
    wide, high = ops.unsqueeze(x, [1]), ops.unsqueeze(y, [2])
    shape = ops.concat(ops.shape(y), ops.slice_(ops.shape(x), [1], [2], [0]), axis=0)
    pair = [ops.unsqueeze(ops.expand(each, shape), [3]) for each in (wide, high)]
    return ops.concat(*(reversed(pair) if swapped else pair), axis=3)


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


# ----- colors --------------------------------------------------------------------------------------------------------


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
    """Shift the hue between the minimum and the maximum of the colors."""
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
    """Indices of the selected boxes of one image and class, best first."""
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
    factor = float(known(sigma, "the sigma of soft suppression"))
    if factor:
        return _softly_suppressed(node, boxes, scores, most, least, factor)
    indices, count = padded_suppression(node, boxes, scores, most, overlap, least)
    kept = ops.gather(scores, int64(indices))
    if node.get("pad_to_max_output_size", False):
        row = ops.range_(
            constant(np.asarray(0, np.int32)), ops.cast(ops.size(indices), to=DType.int32), number(1, count)
        )
        kept = ops.where(ops.less(row, count), kept, number(0, kept))
    return [indices, kept, count]


def _softly_suppressed(node: Any, boxes: Value, scores: Value, most: Value, least: Value, sigma: float) -> list[Value]:
    """Select boxes one by one; scores of overlapping boxes are multiplied by ``exp(-iou**2 / (2 sigma))``.

    Scores of selected boxes are minus infinity. Like TensorFlow, it ignores the overlap threshold.
    """
    taken = number(-np.inf, scores)
    threshold = as_dtype(least, scores.dtype)
    count = ops.minimum(scalar(int64(most)), ops.size(scores))

    def suppressed(step: Value, going_on: Value, remaining: Value) -> list[Value]:
        best = ops.argmax(remaining, axis=0, keepdims=0)
        shares = _overlaps(boxes, ops.gather(boxes, best))
        weight = ops.exp(ops.mul(ops.mul(shares, shares), number(-0.5 / sigma, scores)))
        left = ops.mul(remaining, weight)
        numbers = ops.range_(constant(np.asarray(0)), ops.size(remaining), constant(np.asarray(1)))
        left = ops.where(ops.equal(numbers, best), taken, left)
        left = ops.where(ops.greater(left, threshold), left, taken)
        going_on_next = ops.greater(ops.reduce_max(left, keepdims=0), taken)
        return [going_on_next, left, best, ops.gather(remaining, best)]

    formals = [("step", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ())), ("left", scores.type)]
    body = subgraph(suppressed, formals)
    starts = ops.greater(ops.reduce_max(scores, keepdims=0), threshold)
    _, chosen, kept = ops.loop(count, starts, ops.where(ops.greater(scores, threshold), scores, taken), body=body)
    indices, valid = ops.cast(chosen, to=DType.int32), ops.cast(ops.size(chosen), to=DType.int32)
    if node.get("pad_to_max_output_size", False):
        indices, kept = _filled(indices, most), _filled(kept, most)
    return [indices, kept, valid]


def _overlaps(boxes: Value, other: Value) -> Value:
    """The intersection of each box with another box, over their union; 0 where one has no area."""

    def corners(boxes: Value, axis: int) -> list[Value]:
        first, second = (
            [ops.gather(boxes, constant(np.asarray(k)), axis=axis) for k in pair] for pair in ((0, 1), (2, 3))
        )
        low = [ops.minimum(a, b) for a, b in zip(first, second, strict=True)]
        high = [ops.maximum(a, b) for a, b in zip(first, second, strict=True)]
        return [*low, *high]

    def area(low_y: Value, low_x: Value, high_y: Value, high_x: Value) -> Value:
        return ops.mul(ops.sub(high_y, low_y), ops.sub(high_x, low_x))

    zero, one = number(0, boxes), number(1, boxes)
    mine, others = corners(boxes, 1), corners(other, 0)
    sides = [
        ops.maximum(ops.sub(ops.minimum(mine[k + 2], others[k + 2]), ops.maximum(mine[k], others[k])), zero)
        for k in range(2)
    ]
    common = ops.mul(*sides)
    areas = area(*mine), area(*others)
    union = ops.sub(ops.add(*areas), common)
    flat = ops.or_(*(ops.less_or_equal(each, zero) for each in areas))
    return ops.where(flat, zero, ops.div(common, ops.where(flat, one, union)))


@rule("CombinedNonMaxSuppression", outputs="nmsed_boxes nmsed_scores nmsed_classes valid_detections")
def combined_suppression(
    node: Any, boxes: Value, scores: Value, of_class: Value, in_all: Value, overlap: Value, least: Value
) -> list[Value]:
    """The best boxes over all classes of each image, padded by zeros."""
    batch = boxes.shape[0] if boxes.shape is not None else None
    shared = boxes.shape[2] if boxes.shape is not None else None
    if not isinstance(batch, int) or not isinstance(shared, int):
        raise NotRepresentable("the batch or the number of classes of boxes is not known", given=f"{boxes.type}")
    most = int(known(in_all, "how many boxes are kept"))
    each = int(known(of_class, "how many boxes of a class are kept"))
    classes = scores.shape[2] if scores.shape is not None else None
    total = min(most, each * int(classes)) if node.get("pad_per_class", False) and isinstance(classes, int) else most
    turned = ops.transpose(scores, perm=[0, 2, 1])
    limits = [constant(np.asarray([each])), ops.reshape(overlap, [1]), ops.reshape(least, [1])]
    if shared == 1:
        flat, place = ops.squeeze(boxes, [2]), [0, 2]
        chosen = ops.non_max_suppression(flat, turned, *limits)
    else:  # separate boxes for each class of each image
        flat, place = ops.transpose(boxes, perm=[0, 2, 1, 3]), [0, 1, 2]
        of_each = ops.non_max_suppression(
            ops.reshape(flat, [batch * shared, -1, 4]), ops.reshape(turned, [batch * shared, 1, -1]), *limits
        )
        pair, box_number = (ops.slice_(of_each, [k], [k + 1], [1]) for k in (0, 2))
        number_of_classes = constant(np.asarray(shared))
        chosen = ops.concat(ops.div(pair, number_of_classes), ops.mod(pair, number_of_classes), box_number, axis=1)
    columns: list[Sequence[Value]] = []
    for k in range(batch):
        mine = ops.equal(ops.slice_(chosen, [0], [1], [1]), constant(np.asarray(k)))
        rows = ops.compress(chosen, ops.squeeze(mine, [1]), axis=0)
        selected_scores = ops.gather_nd(turned, rows)
        count = ops.minimum(ops.shape(selected_scores), constant(np.asarray([total])))
        best, order = ops.top_k(selected_scores, count)
        rows = ops.gather(rows, order)
        box = ops.gather_nd(flat, ops.gather(rows, constant(np.asarray(place)), axis=1))
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
        "the model decodes or encodes images",
        given=node.title,
        do="decode them before the model, and load it from the decoded tensor on",
    )
