"""TFLite operators that equal TensorFlow ops of another name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_litert.reading.calls import Call, QuantizedResult, activated, lite_rule, moves, real_of
from tenonnx_tensorflow.attributes import _DTYPES
from tenonnx_tensorflow.rules.resizing import by_matrices, plane
from tenonnx_tensorflow.tracked_values import as_dtype, int64, known, number

#: TensorFlow's type numbers by TFLite's type numbers.
_TYPES = {0: 1, 1: 19, 2: 3, 3: 4, 4: 9, 5: 7, 6: 10, 7: 5, 8: 8, 9: 6, 10: 2, 12: 23, 15: 22, 16: 17, 18: 14}

#: Elementwise functions and comparisons without attributes.
_PLAIN: dict[str, tuple[str, Callable[[Call], dict[str, Any]]]] = {
    name: (op, lambda call: {})
    for name, op in {
        "ABS": "Abs",
        "CEIL": "Ceil",
        "COS": "Cos",
        "EXP": "Exp",
        "FLOOR": "Floor",
        "LOG": "Log",
        "LOGICAL_NOT": "LogicalNot",
        "NEG": "Neg",
        "RELU": "Relu",
        "RELU6": "Relu6",
        "ROUND": "Rint",
        "RSQRT": "Rsqrt",
        "SIGN": "Sign",
        "SIN": "Sin",
        "SQRT": "Sqrt",
        "SQUARE": "Square",
        "TANH": "Tanh",
        "LOGISTIC": "Sigmoid",
        "ELU": "Elu",
        "ZEROS_LIKE": "ZerosLike",
        "LOG_SOFTMAX": "LogSoftmax",
        "MAXIMUM": "Maximum",
        "MINIMUM": "Minimum",
        "POW": "Pow",
        "FLOOR_DIV": "FloorDiv",
        "FLOOR_MOD": "FloorMod",
        "SQUARED_DIFFERENCE": "SquaredDifference",
        "ATAN2": "Atan2",
        "EQUAL": "Equal",
        "NOT_EQUAL": "NotEqual",
        "GREATER": "Greater",
        "GREATER_EQUAL": "GreaterEqual",
        "LESS": "Less",
        "LESS_EQUAL": "LessEqual",
        "LOGICAL_AND": "LogicalAnd",
        "LOGICAL_OR": "LogicalOr",
        "BITWISE_XOR": "BitwiseXor",
        "RIGHT_SHIFT": "RightShift",
        "ADD_N": "AddN",
        "RANK": "Rank",
        "WHERE": "Where",
        "BROADCAST_ARGS": "BroadcastArgs",
        "COMPLEX_ABS": "ComplexAbs",
        "REAL": "Real",
        "IMAG": "Imag",
        "SEGMENT_SUM": "SegmentSum",
        "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSum",
        "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMax",
        "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMin",
        "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProd",
        "RANGE": "Range",
    }.items()
}

_KEEPING: Callable[[Call], dict[str, Any]] = lambda call: {"keep_dims": call.option("KeepDims", False)}  # noqa: E731

#: Operators that compute with real numbers: quantized inputs are dequantized.
_BY_NUMBERS = _PLAIN | {
    "MEAN": ("Mean", _KEEPING),
    "SUM": ("Sum", _KEEPING),
    "REDUCE_PROD": ("Prod", _KEEPING),
    "REDUCE_ANY": ("Any", _KEEPING),
    "REDUCE_ALL": ("All", _KEEPING),
    "REDUCE_MAX": ("Max", _KEEPING),
    "REDUCE_MIN": ("Min", _KEEPING),
    "LEAKY_RELU": ("LeakyRelu", lambda call: {"alpha": call.option("Alpha", 0.0)}),
    "CUMSUM": (
        "Cumsum",
        lambda call: {"exclusive": call.option("Exclusive", False), "reverse": call.option("Reverse", False)},
    ),
    "BUCKETIZE": ("Bucketize", lambda call: {"boundaries": call.option("Boundaries", [])}),
    "MATRIX_DIAG": ("MatrixDiag", lambda call: {}),
    "MATRIX_SET_DIAG": ("MatrixSetDiag", lambda call: {}),
    "SPARSE_TO_DENSE": ("SparseToDense", lambda call: {}),
    "RFFT2D": ("RFFT2D", lambda call: {}),
}

#: Operators that move, select or copy elements. They move quantized values unchanged if input and result share a scale.
_MOVING: dict[str, tuple[str, Callable[[Call], dict[str, Any]]]] = {
    "TRANSPOSE": ("Transpose", lambda call: {}),
    "EXPAND_DIMS": ("ExpandDims", lambda call: {}),
    "SQUEEZE": ("Squeeze", lambda call: {"squeeze_dims": call.option("SqueezeDims", [])}),
    "SLICE": ("Slice", lambda call: {}),
    "TILE": ("Tile", lambda call: {}),
    "REVERSE_V2": ("ReverseV2", lambda call: {}),
    "BROADCAST_TO": ("BroadcastTo", lambda call: {}),
    "GATHER_ND": ("GatherNd", lambda call: {}),
    "GATHER": ("Gather", lambda call: {"batch_dims": call.option("BatchDims", 0)}),
    "UNPACK": ("Unpack", lambda call: {"num": call.option("Num", 0), "axis": call.option("Axis", 0)}),
    "STRIDED_SLICE": (
        "StridedSlice",
        lambda call: {
            f"{m}_mask": call.option(f"{n}Mask", 0)
            for m, n in (
                ("begin", "Begin"),
                ("end", "End"),
                ("ellipsis", "Ellipsis"),
                ("new_axis", "NewAxis"),
                ("shrink_axis", "ShrinkAxis"),
            )
        },
    ),
    "MIRROR_PAD": ("MirrorPad", lambda call: {"mode": ("REFLECT", "SYMMETRIC")[call.option("Mode", 0)]}),
    "REVERSE_SEQUENCE": (
        "ReverseSequence",
        lambda call: {"seq_dim": call.option("SeqDim", 0), "batch_dim": call.option("BatchDim", 0)},
    ),
    "SPACE_TO_DEPTH": ("SpaceToDepth", lambda call: {"block_size": call.option("BlockSize", 1)}),
    "DEPTH_TO_SPACE": ("DepthToSpace", lambda call: {"block_size": call.option("BlockSize", 1)}),
    "SPACE_TO_BATCH_ND": ("SpaceToBatchND", lambda call: {}),
    "BATCH_TO_SPACE_ND": ("BatchToSpaceND", lambda call: {}),
    "RESIZE_NEAREST_NEIGHBOR": (
        "ResizeNearestNeighbor",
        lambda call: {
            "align_corners": call.option("AlignCorners", False),
            "half_pixel_centers": call.option("HalfPixelCenters", False),
        },
    ),
    "SCATTER_ND": ("ScatterNd", lambda call: {}),
}


def _register() -> None:
    for name, (op, attributes) in _BY_NUMBERS.items():
        lite_rule(name)(_computed(op, attributes))
    for name, (op, attributes) in _MOVING.items():
        lite_rule(name)(_moved(op, attributes))


def _computed(op: str, attributes: Callable[[Call], dict[str, Any]]) -> Callable[[Call], Any]:
    return lambda call: call.as_rule(op, *call.reals, **attributes(call))


def _moved(op: str, attributes: Callable[[Call], dict[str, Any]]) -> Callable[[Call], Any]:
    def moved(call: Call) -> Any:
        as_quantized = moves(call) and op != "SpaceToBatchND"  # its padding is 0 as a real number
        inputs = call.values if as_quantized else call.reals
        if op == "Gather":
            inputs = [*inputs[:2], constant(np.asarray(call.option("Axis", 0)))]
        results = call.as_rule(op, *inputs, **attributes(call))
        if not as_quantized:
            return results
        return [QuantizedResult(value) for value in results] if isinstance(results, list) else QuantizedResult(results)

    return moved


_register()


@lite_rule("ADD", "SUB", "MUL", "DIV")
def arithmetic(call: Call) -> Value:
    op = {"ADD": ops.add, "SUB": ops.sub, "MUL": ops.mul, "DIV": ops.div}[call.name]
    return activated(call, op(call.real(0), call.real(1)))


@lite_rule("RELU_N1_TO_1", "RELU_0_TO_1")
def clipped(call: Call) -> Value:
    x = call.real(0)
    return ops.clip(x, number(-1 if "N1" in call.name else 0, x), number(1, x))


@lite_rule("PRELU")
def prelu(call: Call) -> Value:
    x, slope = call.real(0), call.real(1)
    return ops.where(ops.less(x, number(0, x)), ops.mul(x, slope), x)


@lite_rule("GELU")
def gelu(call: Call) -> Value:
    return ops.gelu(call.real(0), approximate="tanh" if call.option("Approximate", False) else "none")


@lite_rule("HARD_SWISH")
def hard_swish(call: Call) -> Value:
    return ops.hard_swish(call.real(0))


@lite_rule("SOFTMAX")
def softmax(call: Call) -> Value:
    x, beta = call.real(0), call.option("Beta", 1.0)
    return ops.softmax(x if beta == 1.0 else ops.mul(x, number(beta, x)), axis=-1)


@lite_rule("L2_NORMALIZATION")
def l2_normalization(call: Call) -> Value:
    x = call.real(0)
    size = ops.sqrt(ops.reduce_sum_square(x, [x.ndim - 1], keepdims=1))
    return activated(call, ops.div(x, ops.maximum(size, number(1e-6, x))))


@lite_rule("LOCAL_RESPONSE_NORMALIZATION")
def lrn(call: Call) -> Value:
    result: Value = call.as_rule(
        "LRN",
        call.real(0),
        depth_radius=call.option("Radius"),
        bias=call.option("Bias"),
        alpha=call.option("Alpha"),
        beta=call.option("Beta"),
    )
    return result


@lite_rule("RESHAPE")
def reshape(call: Call) -> Any:
    shape = int64(call.raw(1)) if call.has(1) else constant(np.asarray(call.option("NewShape", []), np.int64))
    reshaped = call.as_rule("Reshape", call.raw(0) if moves(call) else call.real(0), shape)
    return QuantizedResult(reshaped) if moves(call) else reshaped


@lite_rule("CONCATENATION")
def concatenation(call: Call) -> Any:
    alike = all(
        t is not None and t.quantization is not None and t.quantization.is_as(call.outs[0].quantization)
        for t in call.ins
    )
    parts = call.values if alike else call.reals
    axis = call.option("Axis", 0) % parts[0].ndim
    joined = ops.concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
    return (
        QuantizedResult(joined)
        if alike and not call.option("FusedActivationFunction", 0)
        else activated(call, real_of(joined, call.outs[0].quantization) if alike else joined)
    )


@lite_rule("PACK")
def pack(call: Call) -> Any:
    parts = call.values if moves(call) else call.reals
    packed = call.as_rule("Pack", *parts, axis=call.option("Axis", 0))
    return QuantizedResult(packed) if moves(call) else packed


@lite_rule("SPLIT", "SPLIT_V")
def split(call: Call) -> Any:
    place = 1 if call.name == "SPLIT" else 0
    tensor = call.ins[place]
    quantized = (
        tensor is not None
        and tensor.quantization is not None
        and all(tensor.quantization.is_as(out.quantization) for out in call.outs)
    )
    x = call.raw(place) if quantized else call.real(place)
    count = len(call.outs)
    if call.name == "SPLIT":
        pieces = call.as_rule("Split", call.raw(0), x, num_split=count)
    else:
        pieces = call.as_rule("SplitV", x, call.raw(1), call.raw(2), num_split=count)
    return [QuantizedResult(value) for value in pieces] if quantized else pieces


@lite_rule("RESIZE_BILINEAR")
def bilinear(call: Call) -> Value:
    """Bilinear resizing; int16 inputs use the kernel's 10-bit weights, which are coarser than the quantized values."""
    corners, halves = call.option("AlignCorners", False), call.option("HalfPixelCenters", False)
    x, wanted = call.real(0), known(call.raw(1), "the size of images").tolist()
    if call.raw(0).dtype is not DType.int16:
        result: Value = call.as_rule("ResizeBilinear", x, call.raw(1), align_corners=corners, half_pixel_centers=halves)
        return result
    return by_matrices(
        x, *(_weights_of_10_bits(b, a, corners, halves) for b, a in zip(plane(x, call.name), wanted, strict=True))
    )


def _weights_of_10_bits(before: int, after: int, corners: bool, halves: bool) -> np.ndarray[Any, Any]:
    """Interpolation matrix (after, before) of one axis."""
    one, less = 1 << 10, int(corners and after > 1)
    step = (one * (before - less) + (after - less) // 2) // (after - less)
    matrix = np.zeros((after, before))
    for row in range(after):
        place = row * step + (step // 2 - one // 2 if halves else 0)
        low, high = max(place // one, 0), min(max(place + one - 1, 0) // one, before - 1)
        matrix[row, low] += 1 - (place - one * low) / one
        matrix[row, high] += (place - one * low) / one
    return matrix


@lite_rule("PAD", "PADV2")
def pad(call: Call) -> Any:
    """Pad with a constant; the default is 0, for quantized values their zero point."""
    value = call.real(2) if call.has(2) else None
    if not moves(call) or call.raw(0).dtype is DType.int16:  # runtimes do not pad int16
        return call.as_rule("PadV2", call.real(0), call.raw(1), value)
    if call.has(2):
        if (
            call.ins[2] is None
            or not call.ins[2].quantization
            or not call.ins[2].quantization.is_as(call.outs[0].quantization)
        ):
            return call.as_rule("PadV2", call.real(0), call.raw(1), value)
        return QuantizedResult(
            call.as_rule("PadV2", call.raw(0), call.raw(1), ops.reshape(call.raw(2), constant(np.zeros(0, np.int64))))
        )
    quantization = call.outs[0].quantization
    assert quantization is not None
    return QuantizedResult(
        call.as_rule("PadV2", call.raw(0), call.raw(1), number(int(quantization.zero_points[0]), call.raw(0)))
    )


@lite_rule("SELECT", "SELECT_V2")
def select(call: Call) -> Value:
    result: Value = call.as_rule(
        "Select" if call.name == "SELECT" else "SelectV2", call.raw(0), call.real(1), call.real(2)
    )
    return result


@lite_rule("CAST")
def cast(call: Call) -> Any:
    return call.as_rule("Cast", call.raw(0), DstT=_number_of(call.outs[0].dtype))


def _number_of(dtype: Any) -> int:
    return next(number for number, kind in _DTYPES.items() if kind is dtype)


@lite_rule("BITCAST")
def bitcast(call: Call) -> Any:
    return call.as_rule("Bitcast", call.raw(0), type=_number_of(call.outs[0].dtype))


@lite_rule("SHAPE")
def shape(call: Call) -> Value:
    return as_dtype(ops.shape(call.raw(0)), DType.of(np.dtype(call.outs[0].dtype)))


@lite_rule("FILL")
def fill(call: Call) -> Any:
    return call.as_rule("Fill", call.raw(0), call.real(1))


@lite_rule("ARG_MAX", "ARG_MIN")
def arg(call: Call) -> Value:
    result: Value = call.as_rule(
        "ArgMax" if call.name == "ARG_MAX" else "ArgMin",
        call.raw(0),
        call.raw(1),
        output_type=_number_of(call.outs[0].dtype),
    )
    return result


@lite_rule("TOPK_V2")
def top_k(call: Call) -> Any:
    quantized = moves_first(call)
    values, indices = call.as_rule("TopKV2", call.raw(0) if quantized else call.real(0), call.raw(1))
    return [QuantizedResult(values) if quantized else values, as_dtype(indices, DType.of(np.dtype(call.outs[1].dtype)))]


def moves_first(call: Call) -> bool:
    source = call.ins[0].quantization if call.ins[0] is not None else None
    return source is not None and source.is_as(call.outs[0].quantization)


@lite_rule("UNIQUE")
def unique(call: Call) -> Any:
    return call.as_rule("Unique", call.raw(0), out_idx=_number_of(call.outs[1].dtype))


@lite_rule("ONE_HOT")
def one_hot(call: Call) -> Any:
    return call.as_rule("OneHot", call.raw(0), call.raw(1), call.real(2), call.real(3), axis=call.option("Axis", -1))


@lite_rule("DYNAMIC_UPDATE_SLICE")
def update_slice(call: Call) -> Any:
    """Replace a window of the input; start indices are clamped so that it fits."""
    x, update, starts = call.raw(0), call.raw(1), int64(call.raw(2))
    last = ops.sub(ops.shape(x), ops.shape(update))
    begin = ops.minimum(ops.maximum(starts, constant(np.asarray(0))), last)
    before = ops.concat(begin, ops.sub(last, begin), axis=0)
    mask = ops.pad(ops.expand(constant(np.asarray(1, np.int32)), ops.shape(update)), before)
    updated = ops.where(ops.greater(mask, constant(np.asarray(0, np.int32))), ops.pad(update, before), x)
    return QuantizedResult(updated) if moves(call) else updated


@lite_rule("EMBEDDING_LOOKUP")
def embedding(call: Call) -> Value:
    return ops.gather(call.real(1), int64(call.raw(0)), axis=0)


@lite_rule("NON_MAX_SUPPRESSION_V4")
def suppression(call: Call) -> Any:
    return call.as_rule("NonMaxSuppressionV4", *call.reals, pad_to_max_output_size=True)


@lite_rule("NON_MAX_SUPPRESSION_V5")
def soft_suppression(call: Call) -> Any:
    indices, scores, count = call.as_rule("NonMaxSuppressionV5", *call.reals, pad_to_max_output_size=True)
    return [indices, scores, count]


@lite_rule("QUANTIZE")
def quantize(call: Call) -> Value:
    return call.real(0)


@lite_rule("DEQUANTIZE")
def dequantize(call: Call) -> Value:
    return as_dtype(call.real(0), DType.float32)


@lite_rule("FAKE_QUANT")
def fake_quant(call: Call) -> Any:
    return call.as_rule(
        "FakeQuantWithMinMaxArgs",
        call.real(0),
        min=call.option("Min"),
        max=call.option("Max"),
        num_bits=call.option("NumBits"),
        narrow_range=call.option("NarrowRange"),
    )


@lite_rule("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def drawn(call: Call) -> Any:
    op = "RandomUniform" if call.name == "RANDOM_UNIFORM" else "RandomStandardNormal"
    return call.as_rule(op, call.raw(0), dtype=1)
