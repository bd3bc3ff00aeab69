"""TFLite operators on every quantized type: uint8, int8 and int16, with per-tensor or per-channel weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from judging import Case, array
from lite_files import Op, T, built

#: Scale and zero point of an input, and of another input, by quantized type.
_X = {np.float32: (None, 0), np.uint8: (0.02, 131), np.int8: (0.02, -3), np.int16: (1e-4, 0)}
_Y = {np.float32: (None, 0), np.uint8: (0.031, 117), np.int8: (0.031, 11), np.int16: (1.7e-4, 0)}

#: Fixed output scales of some kernels.
_UNIT = {np.uint8: (1 / 256, 0), np.int8: (1 / 256, -128), np.int16: (1 / 32768, 0)}
_SIGNED = {np.uint8: (1 / 128, 128), np.int8: (1 / 128, 0), np.int16: (1 / 32768, 0)}


def _like(shape: Sequence[int], dtype: Any, held: Any = None) -> T:
    scale, zero = (_X if held is None else held)[dtype]
    return T(shape=tuple(shape), dtype=dtype, scale=scale, zero=zero)


def _weights(dtype: Any, *shape: int, axis: int | None = None) -> T:
    """Per-tensor weights, with a zero point for unsigned types, or per-channel weights."""
    if dtype is np.float32:
        return T(array(*shape))
    if dtype is np.uint8:
        return T(np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8), scale=0.01, zero=120)
    quantized = np.random.default_rng(1).integers(-127, 128, shape).astype(np.int8)
    if axis is None:
        return T(quantized, scale=0.01)
    return T(quantized, scale=np.linspace(0.005, 0.02, shape[axis]).astype(np.float32), axis=axis)


def _bias(dtype: Any, weights: T, count: int) -> T:
    if dtype is np.float32:
        return T(array(count))
    scale = _X[dtype][0] * np.asarray(weights.scale, np.float32)
    return T((array(count) / scale).astype(np.int64 if dtype is np.int16 else np.int32), scale=scale)


def single(
    name: str,
    inputs: Sequence[T],
    outputs: Sequence[T],
    options: tuple[str, dict[str, Any]] | None = None,
    version: int = 1,
) -> Path:
    """A file of one operator; tensors without contents are inputs."""
    tensors = [*inputs, *outputs]
    numbers = list(range(len(tensors)))
    given = [k for k in numbers[: len(inputs)] if tensors[k].contents is None]
    op = Op(name, numbers[: len(inputs)], numbers[len(inputs) :], options, version=version)
    return built(tensors, [op], given, numbers[len(inputs) :])


def convolution(
    dtype: Any, activation: int = 0, axis: int | None = None, dilation: int = 1, padding: int = 0, stride: int = 2
) -> Path:
    weights = _weights(dtype, 5, 3, 3, 4, axis=axis)
    options = {
        "padding": padding,
        "strideH": stride,
        "strideW": stride,
        "dilationHFactor": dilation,
        "dilationWFactor": dilation,
        "fusedActivationFunction": activation,
    }
    size = -(-9 // stride) if padding == 0 else -(-(9 - 2 * dilation) // stride)
    wide = -(-8 // stride) if padding == 0 else -(-(8 - 2 * dilation) // stride)
    return single(
        "CONV_2D",
        [_like((2, 9, 8, 4), dtype), weights, _bias(dtype, weights, 5)],
        [_like((2, size, wide, 5), dtype, _Y)],
        ("Conv2DOptions", options),
    )


def depthwise(dtype: Any, activation: int = 0, axis: int | None = None, multiplier: int = 2) -> Path:
    weights = _weights(dtype, 1, 3, 3, 4 * multiplier, axis=axis)
    options = {
        "padding": 0,
        "strideH": 1,
        "strideW": 1,
        "dilationHFactor": 1,
        "dilationWFactor": 1,
        "depthMultiplier": multiplier,
        "fusedActivationFunction": activation,
    }
    count = 4 * multiplier
    return single(
        "DEPTHWISE_CONV_2D",
        [_like((2, 6, 5, 4), dtype), weights, _bias(dtype, weights, count)],
        [_like((2, 6, 5, count), dtype, _Y)],
        ("DepthwiseConv2DOptions", options),
    )


def transposed(dtype: Any, axis: int | None = None) -> Path:
    weights = _weights(dtype, 5, 3, 3, 4, axis=axis)
    options = {"padding": 0, "strideH": 2, "strideW": 2}
    shape = T(np.asarray([2, 12, 10, 5], np.int32))
    return single(
        "TRANSPOSE_CONV",
        [shape, weights, _like((2, 6, 5, 4), dtype)],
        [_like((2, 12, 10, 5), dtype, _Y)],
        ("TransposeConvOptions", options),
    )


def dense(dtype: Any, activation: int = 0, axis: int | None = None, with_bias: bool = True, keep: bool = False) -> Path:
    weights = _weights(dtype, 5, 6, axis=axis)
    options = {"fusedActivationFunction": activation, "keepNumDims": keep}
    rest = [_bias(dtype, weights, 5)] if with_bias else []
    shape = (2, 3, 6) if keep else (3, 6)
    return single(
        "FULLY_CONNECTED",
        [_like(shape, dtype), weights, *rest],
        [_like((*shape[:-1], 5), dtype, _Y)],
        ("FullyConnectedOptions", options),
    )


def hybrid(name: str, axis: int | None = None, asymmetric: bool = False) -> Path:
    """Float activations with quantized weights."""
    x, weights = _like((2, 6, 5, 4), np.float32), _weights(np.int8, 5, 3, 3, 4, axis=axis)
    if name == "FULLY_CONNECTED":
        weights = _weights(np.int8, 5, 6, axis=axis)
        options = {"fusedActivationFunction": 1, "asymmetricQuantizeInputs": asymmetric}
        return single(
            name,
            [_like((3, 6), np.float32), weights, T(array(5))],
            [_like((3, 5), np.float32)],
            ("FullyConnectedOptions", options),
        )
    if name == "BATCH_MATMUL":
        options = {"adjX": False, "adjY": False, "asymmetricQuantizeInputs": asymmetric}
        return single(
            name,
            [_like((2, 3, 6), np.float32), _weights(np.int8, 2, 6, 5)],
            [_like((2, 3, 5), np.float32)],
            ("BatchMatMulOptions", options),
        )
    if name == "EMBEDDING_LOOKUP":
        return single(name, [T(np.asarray([3, 0, 3], np.int32)), _weights(np.int8, 5, 6)], [_like((3, 6), np.float32)])
    options = {"padding": 0, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    if name == "DEPTHWISE_CONV_2D":
        weights = _weights(np.int8, 1, 3, 3, 8, axis=axis)
        return single(
            name,
            [x, weights, T(array(8))],
            [_like((2, 6, 5, 8), np.float32)],
            ("DepthwiseConv2DOptions", {**options, "depthMultiplier": 2}),
        )
    return single(name, [x, weights, T(array(5))], [_like((2, 6, 5, 5), np.float32)], ("Conv2DOptions", options))


_KINDS = {"uint8": np.uint8, "int8": np.int8, "int16": np.int16}
_SHAPE = (2, 4, 6, 3)


def plain(
    name: str,
    dtype: Any,
    held: Any = _Y,
    options: Any = None,
    count: int = 1,
    shape: Sequence[int] = _SHAPE,
    more: Sequence[T] = (),
    out: Sequence[int] | None = None,
    version: int | None = None,
) -> Path:
    """An operator on quantized inputs, where the second one has other scales."""
    inputs = [_like(shape, dtype, _X if k == 0 else _Y) for k in range(count)]
    newest = 1 if name in ("RESHAPE", "HARD_SWISH", "ELU") else 2
    return single(
        name, [*inputs, *more], [_like(shape if out is None else out, dtype, held)], options, version or newest
    )


def _options(name: str, **given: Any) -> tuple[str, dict[str, Any]]:
    return name, given


_AXIS = [T(np.asarray([1, 2], np.int32))]
_PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("ADD", {"count": 2, "options": _options("AddOptions", fusedActivationFunction=1)}),
    "sub": ("SUB", {"count": 2, "options": _options("SubOptions", fusedActivationFunction=0)}),
    "mul": ("MUL", {"count": 2, "options": _options("MulOptions", fusedActivationFunction=3)}),
    "logistic": ("LOGISTIC", {"held": _UNIT}),
    "tanh": ("TANH", {"held": _SIGNED}),
    "softmax": ("SOFTMAX", {"held": _UNIT, "options": _options("SoftmaxOptions", beta=0.7)}),
    "relu": ("RELU", {}),
    "relu6": ("RELU6", {}),
    "leaky": ("LEAKY_RELU", {"options": _options("LeakyReluOptions", alpha=0.3)}),
    "max_pool": (
        "MAX_POOL_2D",
        {
            "held": _X,
            "out": (2, 2, 3, 3),
            "options": _options(
                "Pool2DOptions",
                padding=0,
                strideH=2,
                strideW=2,
                filterHeight=3,
                filterWidth=2,
                fusedActivationFunction=0,
            ),
        },
    ),
    "average_pool": (
        "AVERAGE_POOL_2D",
        {
            "held": _X,
            "out": (2, 2, 3, 3),
            "options": _options(
                "Pool2DOptions",
                padding=0,
                strideH=2,
                strideW=2,
                filterHeight=3,
                filterWidth=2,
                fusedActivationFunction=0,
            ),
        },
    ),
    "mean": ("MEAN", {"more": _AXIS, "out": (2, 3), "options": _options("ReducerOptions", keepDims=False)}),
    "sum": ("SUM", {"more": _AXIS, "out": (2, 3), "options": _options("ReducerOptions", keepDims=False)}),
    "reduce_max": (
        "REDUCE_MAX",
        {"held": _X, "more": _AXIS, "out": (2, 3), "options": _options("ReducerOptions", keepDims=False)},
    ),
    "reshape": ("RESHAPE", {"held": _X, "more": [T(np.asarray([2, -1], np.int32))], "out": (2, 72)}),
    "transpose": ("TRANSPOSE", {"held": _X, "more": [T(np.asarray([0, 3, 1, 2], np.int32))], "out": (2, 3, 4, 6)}),
    "pad": (
        "PAD",
        {"held": _X, "more": [T(np.asarray([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32))], "out": (2, 7, 7, 3)},
    ),
    "concatenation": (
        "CONCATENATION",
        {
            "count": 2,
            "held": _X,
            "out": (2, 4, 6, 6),
            "options": _options("ConcatenationOptions", axis=3, fusedActivationFunction=0),
        },
    ),
    "maximum": ("MAXIMUM", {"count": 1, "held": _X, "more": [T(np.asarray([131], np.uint8), scale=0.02, zero=131)]}),
    "l2_normalization": ("L2_NORMALIZATION", {"held": _SIGNED}),
    "quantize": ("QUANTIZE", {}),
    "abs": ("ABS", {"held": _X}),
    "batch_matmul": (
        "BATCH_MATMUL",
        {"shape": (2, 4, 4), "count": 2, "options": _options("BatchMatMulOptions", adjX=False, adjY=True)},
    ),
    "squared_difference": ("SQUARED_DIFFERENCE", {"count": 2}),
    "exp": ("EXP", {}),
    "hard_swish": ("HARD_SWISH", {}),
    "log_softmax": (
        "LOG_SOFTMAX",
        {"held": {np.uint8: (16 / 256, 255), np.int8: (16 / 256, 127), np.int16: (16 / 65536, 0)}},
    ),
    "bilinear": (
        "RESIZE_BILINEAR",
        {
            "held": _X,
            "more": [T(np.asarray([8, 12], np.int32))],
            "out": (2, 8, 12, 3),
            "options": _options("ResizeBilinearOptions", halfPixelCenters=True),
        },
    ),
    "slice": (
        "SLICE",
        {
            "held": _X,
            "more": [T(np.asarray([0, 1, 2, 0], np.int32)), T(np.asarray([2, 2, -1, 3], np.int32))],
            "out": (2, 2, 4, 3),
        },
    ),
    "gather": (
        "GATHER",
        {
            "held": _X,
            "more": [T(np.asarray([2, 0], np.int32))],
            "out": (2, 2, 6, 3),
            "options": _options("GatherOptions", axis=1),
        },
    ),
    "elu": ("ELU", {}),
    "gelu": ("GELU", {}),
}
#: Operators with kernels only for these quantized types, and their outputs if these are not quantized.
_ONLY = {
    "maximum": ("uint8",),
    "concatenation": ("uint8",),
    "exp": ("int8", "int16"),
    "hard_swish": ("uint8", "int8"),
    "elu": ("int8",),
    "squared_difference": ("int8",),
    "log_softmax": ("uint8", "int8"),
    "l2_normalization": ("uint8", "int8"),
    "batch_matmul": ("int8", "int16"),
    "leaky": ("uint8", "int8", "int16"),
    "abs": ("int8", "int16"),
    "gelu": ("uint8", "int8"),
    "tanh": ("uint8", "int8"),
}

CASES = {
    f"{name}_{kind}": Case(lambda op=op, dtype=dtype, given=given: plain(op, dtype, **given))
    for name, (op, given) in _PLAIN.items()
    for kind, dtype in _KINDS.items()
    if kind in _ONLY.get(name, tuple(_KINDS))
} | {
    "conv_uint8": Case(lambda: convolution(np.uint8)),
    "conv_uint8_relu6": Case(lambda: convolution(np.uint8, 3)),
    "conv_uint8_dilated": Case(lambda: convolution(np.uint8, dilation=2, padding=1, stride=1)),
    "conv_int8_one_scale": Case(lambda: convolution(np.int8, 1)),
    "conv_int8_channels": Case(lambda: convolution(np.int8, 0, 0)),
    "conv_int16": Case(lambda: convolution(np.int16, 0, 0)),
    "conv_int16_one_scale": Case(lambda: convolution(np.int16)),
    "depthwise_uint8": Case(lambda: depthwise(np.uint8, 1)),
    "depthwise_int8_channels": Case(lambda: depthwise(np.int8, 0, 3)),
    "depthwise_int8_one_scale": Case(lambda: depthwise(np.int8)),
    "depthwise_int16": Case(lambda: depthwise(np.int16, 1, 3)),
    "transposed_uint8": Case(lambda: transposed(np.uint8)),
    "transposed_int8": Case(lambda: transposed(np.int8, 0)),
    "transposed_int8_one_scale": Case(lambda: transposed(np.int8)),
    "transposed_int16": Case(lambda: transposed(np.int16, 0)),
    "dense_uint8": Case(lambda: dense(np.uint8, 3)),
    "dense_int8_one_scale": Case(lambda: dense(np.int8, 1)),
    "dense_int8_channels": Case(lambda: dense(np.int8, 0, 0)),
    "dense_int16": Case(lambda: dense(np.int16)),
    "dense_int8_kept": Case(lambda: dense(np.int8, keep=True, with_bias=False)),
    "dense_uint8_kept": Case(lambda: dense(np.uint8, keep=True)),
    **{
        f"hybrid_{name.lower()}{'' if axis is None else '_channels'}{'_asymmetric' if asymmetric else ''}": Case(
            lambda name=name, axis=axis, asymmetric=asymmetric: hybrid(name, axis, asymmetric)
        )
        for name, axis, asymmetric in (
            ("CONV_2D", None, False),
            ("CONV_2D", 0, False),
            ("DEPTHWISE_CONV_2D", 3, False),
            ("FULLY_CONNECTED", None, False),
            ("FULLY_CONNECTED", None, True),
            ("FULLY_CONNECTED", 0, False),
            ("FULLY_CONNECTED", 0, True),
            ("BATCH_MATMUL", None, False),
            ("BATCH_MATMUL", None, True),
            ("EMBEDDING_LOOKUP", None, False),
        )
    },
}
