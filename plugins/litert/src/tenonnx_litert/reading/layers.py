"""Rules of TFLite's convolutions, matrix products, pooling and detection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_litert.reading.calls import Call, activated, lite_rule
from tenonnx_litert.reading.reader import Operator
from tenonnx_tensorflow.rules.windows import Layout, Window, channels_first, channels_last, transposed
from tenonnx_tensorflow.tracked_values import int64, number

_PADDING = {0: "SAME", 1: "VALID"}
_LAYOUT = Layout(True, 4)


def is_hybrid(call: Call, weights: int) -> bool:
    """Whether activations are float32 and weights int8; hybrid kernels quantize the activations at run time."""
    first, second = call.ins[0], call.ins[weights]
    return (
        first is not None
        and first.dtype is np.float32
        and second is not None
        and second.quantization is not None
        and second.dtype is np.int8
    )


def _is_by_channel(call: Call, weights: int) -> bool:
    """Whether weights have per-channel scales; kernels then quantize activations asymmetrically."""
    tensor = call.ins[weights]
    return tensor is not None and tensor.quantization is not None and len(tensor.quantization.scales) > 1


def as_quantized(x: Value, axes: list[int], asymmetric: bool) -> Value:
    """Round floats to the values of int8 quantization, with one scale per slice, reduced over ``axes``."""
    zero, one = number(0, x), number(1, x)
    if not asymmetric:
        size = ops.reduce_max(ops.absolute(x), axes, keepdims=1)
        scale = ops.where(ops.equal(size, zero), one, ops.div(size, number(127, x)))
        return ops.mul(ops.round_(ops.div(x, scale)), scale)
    low = ops.minimum(ops.reduce_min(x, axes, keepdims=1), zero)
    high = ops.maximum(ops.reduce_max(x, axes, keepdims=1), zero)
    none = ops.equal(low, high)
    scale = ops.where(none, one, ops.div(ops.sub(high, low), number(255, x)))
    from_low, from_high = ops.sub(number(-128, x), ops.div(low, scale)), ops.sub(number(127, x), ops.div(high, scale))
    nearer = ops.less(
        ops.add(number(128, x), ops.absolute(ops.div(low, scale))),
        ops.add(number(127, x), ops.absolute(ops.div(high, scale))),
    )
    point = ops.clip(ops.round_(ops.where(nearer, from_low, from_high)), number(-128, x), number(127, x))
    point = ops.where(none, zero, point)
    quantized = ops.clip(ops.add(ops.round_(ops.div(x, scale)), point), number(-128, x), number(127, x))
    return ops.mul(ops.sub(quantized, point), scale)


def _window(call: Call, kernel: list[int], with_dilation: bool = True) -> Window:
    strides = [call.option("StrideH"), call.option("StrideW")]
    apart = (
        [call.option("DilationHFactor", 1) or 1, call.option("DilationWFactor", 1) or 1] if with_dilation else [1, 1]
    )
    return Window(kernel, strides, apart, _PADDING[call.option("Padding", 0)])


def sizes_of(call: Call, position: int) -> list[int]:
    tensor = call.ins[position]
    if tensor is None or tensor.shape is None or None in tensor.shape:
        raise NotRepresentable("the sizes of a kernel are not known", given=call.operator.title)
    return [int(n) for n in tensor.shape]  # type: ignore[arg-type]


def _biased(call: Call, y: Value, position: int) -> Value:
    return ops.add(y, call.real(position)) if call.has(position) else y


@lite_rule("CONV_2D")
def conv(call: Call) -> Value:
    _, height, width, depth = sizes_of(call, 1)
    x = call.real(0)
    x = as_quantized(x, [1, 2, 3], asymmetric=_is_by_channel(call, 1)) if is_hybrid(call, 1) else x
    images = channels_first(x)
    channels = x.shape[3] if x.shape is not None else None
    window = _window(call, [height, width])
    weights = call.turned(1, [0, 3, 1, 2])
    group = int(channels) // depth if isinstance(channels, int) else 1
    bias = call.real(2) if call.has(2) else None
    return activated(call, channels_last(ops.conv(images, weights, bias, group=group, **window.attributes(images))))


@lite_rule("DEPTHWISE_CONV_2D")
def depthwise(call: Call) -> Value:
    _, height, width, count = sizes_of(call, 1)
    x = call.real(0)
    x = as_quantized(x, [1, 2, 3], asymmetric=True) if is_hybrid(call, 1) else x
    images = channels_first(x)
    window = _window(call, [height, width])
    weights = call.turned(1, [3, 0, 1, 2])
    group = count // (call.option("DepthMultiplier", 0) or 1)
    channels = x.shape[3] if x.shape is not None else None
    group = int(channels) if isinstance(channels, int) else group
    bias = call.real(2) if call.has(2) else None
    return activated(call, channels_last(ops.conv(images, weights, bias, group=group, **window.attributes(images))))


@lite_rule("TRANSPOSE_CONV")
def transpose_conv(call: Call) -> Value:
    _, height, width, _ = sizes_of(call, 1)
    images = channels_first(call.real(2))
    weights = call.turned(1, [3, 0, 1, 2])
    window = _window(call, [height, width], with_dilation=False)
    y = channels_last(transposed(images, weights, int64(call.raw(0)), window, _LAYOUT))
    return activated(call, _biased(call, y, 3))


@lite_rule("CONV_3D", "CONV_3D_TRANSPOSE")
def conv_3d(call: Call) -> Value:
    is_transposed = call.name == "CONV_3D_TRANSPOSE"
    kernel = sizes_of(call, 1)
    strides = [call.option(f"Stride{n}") for n in "DHW"]
    dilations = [call.option(f"Dilation{n}Factor", 1) or 1 for n in "DHW"]
    window = Window(kernel[:3], strides, dilations, _PADDING[call.option("Padding", 0)])
    volumes = channels_first(call.real(2 if is_transposed else 0))
    weights = call.turned(1, [4, 3, 0, 1, 2])
    if is_transposed:
        y = transposed(volumes, weights, int64(call.raw(0)), window, Layout(True, 5))
    else:
        y = ops.conv(volumes, weights, **window.attributes(volumes))
    return activated(call, _biased(call, channels_last(y), 3 if is_transposed else 2))


@lite_rule("FULLY_CONNECTED")
def fully_connected(call: Call) -> Value:
    count, depth = sizes_of(call, 1)
    x = call.real(0)
    keeps = bool(call.option("KeepNumDims", False))
    if keeps and x.ndim > 2 and not is_hybrid(call, 1):
        return activated(call, _biased(call, ops.matmul(x, call.turned(1, [1, 0])), 2))
    rows = ops.reshape(x, [-1, depth]) if x.rank != 2 else x
    if is_hybrid(call, 1):
        rows = as_quantized(rows, [1], asymmetric=bool(call.option("AsymmetricQuantizeInputs", False)))
    y = ops.matmul(rows, call.turned(1, [1, 0]))
    y = activated(call, _biased(call, y, 2))
    if keeps and x.rank != 2:
        front = ops.slice_(ops.shape(x), [0], [x.ndim - 1], [0])
        return ops.reshape(y, ops.concat(front, constant(np.asarray([count])), axis=0))
    return y


@lite_rule("BATCH_MATMUL")
def batch_matmul(call: Call) -> Value:
    """Matrix product; hybrid kernels quantize each row of the floats separately."""
    adjoint = [bool(call.option(name, False)) for name in ("AdjX", "AdjY")]
    first, second = call.real(0), call.real(1)
    if is_hybrid(call, 1):
        axis = first.ndim - (2 if adjoint[0] else 1)
        first = as_quantized(first, [axis], bool(call.option("AsymmetricQuantizeInputs", False)))
    product: Value = call.as_rule("BatchMatMul", first, second, adj_x=adjoint[0], adj_y=adjoint[1])
    return product


@lite_rule("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")
def pool(call: Call) -> Value:
    kernel = [call.option("FilterHeight"), call.option("FilterWidth")]
    window = _window(call, kernel, with_dilation=False)
    images = channels_first(call.real(0))
    attributes = window.attributes(images)
    if call.name == "MAX_POOL_2D":
        y = ops.max_pool(images, kernel_shape=kernel, **attributes)
    elif call.name == "AVERAGE_POOL_2D":
        y = ops.average_pool(images, kernel_shape=kernel, **attributes)
    else:
        y = ops.sqrt(ops.average_pool(ops.mul(images, images), kernel_shape=kernel, **attributes))
    return activated(call, channels_last(y))


# ----- detection ------------------------------------------------------------------------------------------------------


DETECTION = "TFLite_Detection_PostProcess"


def custom_options(operator: Operator) -> Mapping[str, Any]:
    """The options of a custom operator, by name (stored as a FlexBuffer)."""
    import flatbuffers.flexbuffers as flexbuffers

    options: Mapping[str, Any] = flexbuffers.Loads(bytearray(operator.custom))
    return options


@lite_rule(DETECTION)
def detection(call: Call) -> Any:
    """Decode boxes relative to anchors, then suppress overlapping ones: over the best class, or in each class.

    Returns boxes, classes, scores and the number of detections (TFLite_Detection_PostProcess).
    """
    options = custom_options(call.operator)
    most, classes = int(options["max_detections"]), int(options["num_classes"])
    of_box = int(options.get("max_classes_per_detection", 1))
    quantized, scores, anchors = call.real(0), call.real(1), call.real(2)
    anchors = ops.unsqueeze(anchors, [0]) if anchors.rank == 2 else anchors

    def column(x: Value, k: int, scale: str | None = None) -> Value:
        values = ops.slice_(x, [k], [k + 1], [2])
        return values if scale is None else ops.div(values, number(float(options[scale]), values))

    half = number(0.5, quantized)
    y = ops.add(ops.mul(column(quantized, 0, "y_scale"), column(anchors, 2)), column(anchors, 0))
    x = ops.add(ops.mul(column(quantized, 1, "x_scale"), column(anchors, 3)), column(anchors, 1))
    height = ops.mul(ops.mul(ops.exp(column(quantized, 2, "h_scale")), column(anchors, 2)), half)
    width = ops.mul(ops.mul(ops.exp(column(quantized, 3, "w_scale")), column(anchors, 3)), half)
    boxes = ops.concat(ops.sub(y, height), ops.sub(x, width), ops.add(y, height), ops.add(x, width), axis=2)
    of_classes = ops.slice_(scores, [-classes], [np.iinfo(np.int64).max], [2])  # a first column is the background
    regular = bool(options.get("use_regular_nms", False))
    overlap = constant(np.asarray([float(options["nms_iou_threshold"])], np.float32))
    least = constant(np.asarray([float(options["nms_score_threshold"])], np.float32))
    if regular:
        each = constant(np.asarray([int(options.get("detections_per_class", 100))]))
        candidates = ops.transpose(of_classes, perm=[0, 2, 1])
    else:
        each = constant(np.asarray([most]))
        candidates = ops.transpose(ops.reduce_max(of_classes, [2], keepdims=1), perm=[0, 2, 1])
    chosen = ops.non_max_suppression(boxes, candidates, each, overlap, least)
    places = ops.slice_(chosen, [0, 2], [np.iinfo(np.int64).max, 3], [0, 1])
    values = ops.gather_nd(ops.squeeze(candidates, [0]), ops.slice_(chosen, [1], [3], [1]))
    count = ops.minimum(ops.shape(values), constant(np.asarray([most])))
    best, order = ops.top_k(values, count)
    place = ops.gather(ops.squeeze(places, [1]), order)
    box = ops.gather(ops.squeeze(boxes, [0]), place)
    if regular:
        kind = ops.gather(ops.squeeze(ops.slice_(chosen, [1], [2], [1]), [1]), order)
    elif of_box > classes:
        raise NotRepresentable("a detection requests more classes than the model has", given=call.operator.title)
    else:  # the best classes of each box, one after the other
        best, kind = ops.top_k(ops.gather(ops.squeeze(of_classes, [0]), place), constant(np.asarray([of_box])))
        box = ops.reshape(ops.tile(box, constant(np.asarray([1, of_box]))), [-1, 4])
        best, kind = ops.reshape(best, [-1]), ops.reshape(kind, [-1])
    zero = constant(np.asarray([0]))

    def padded(value: Value) -> Value:
        length = ops.slice_(ops.shape(value), [0], [1], [0])
        missing = ops.sub(constant(np.asarray([most * of_box])), length)
        ends = ops.concat(zero, missing, axis=0) if value.rank == 1 else ops.concat(zero, zero, missing, zero, axis=0)
        return ops.unsqueeze(ops.pad(value, ends), [0])

    return [padded(box), padded(ops.cast(kind, to=DType.float32)), padded(best), ops.cast(count, to=DType.float32)]
