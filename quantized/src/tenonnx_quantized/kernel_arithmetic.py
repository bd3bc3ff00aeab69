"""QLinear ops on numpy in the arithmetic of onnxruntime's kernels, in float32 and in their order, for equal results.

By definition, values are divided, rounded, and shifted by the zero point. Kernels multiply by ratios of scales and
round sums that include the zero point, so that ties may round to another quantized value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op
from tenonnx.extend.transforms import Evaluator
from tenonnx_quantized.elementwise import qlinear_add, qlinear_mul, qlinear_softmax
from tenonnx_quantized.matrix import matmul_integer
from tenonnx_quantized.pooling import qlinear_average_pool, qlinear_global_average_pool
from tenonnx_quantized.products import qgemm
from tenonnx_quantized.quantize import encode_array
from tenonnx_standard.windows import Windows, covering, windows

Array = np.ndarray[Any, Any]


#: The least scale whose reciprocal is finite in float32, regardless of how the CPU treats subnormal numbers.
_LEAST = np.finfo(np.float32).tiny


def _number(parameter: Array | None) -> Any:
    """A scale or zero point in float32; zero if absent."""
    return np.float32(0 if parameter is None else parameter.reshape(()))


def _fused(a: Array, b: Any, c: Any) -> Array:
    """``a * b + c`` with a single rounding: float64 represents such products exactly."""
    return (a.astype(np.float64) * float(b) + c).astype(np.float32)  # type: ignore[no-any-return]


def _by_kernel(op: Op) -> Callable[[Callable[..., Array]], None]:
    """Register a numpy rule that rounds ``units(*inputs)``, which includes the zero point.

    The result has the type of the last zero point or, without one, of the first quantized values.

    The op's definition is used where kernels disagree: for empty tensors, and for scales that are infinite, NaN or
    subnormal.
    """
    scales = [place for place, each in enumerate(op.signature.inputs) if each.name.lower().endswith("_scale")]
    last = max(place for place, each in enumerate(op.signature.inputs) if each.name.lower().endswith("_zero_point"))

    def define(units: Callable[..., Array]) -> None:
        @op.numpy
        @np.errstate(all="ignore")
        def op_numpy(*inputs: Array | None, **attributes: Any) -> Array:
            given = [each for each in inputs if each is not None]
            plain = all(each.size for each in given) and all(
                scale is not None and ((scale >= _LEAST) & (scale < np.inf)).all()
                for scale in (inputs[place] for place in scales)
            )
            if not plain:
                return _by_definition(op, inputs, attributes)
            like = given[0] if inputs[last] is None else inputs[last]
            return encode_array(np.array(units(*inputs, **attributes), np.float32), None, DType.of(like.dtype))

    return define


def _by_definition(op: Op, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> Array:
    evaluator = Evaluator(body_of=op)
    given = [None if each is None else evaluator.wrap(each) for each in inputs]
    (result,) = evaluator.call(op, given, attributes)
    assert result is not None
    return evaluator.contents(result)


@_by_kernel(qlinear_add)
def qlinear_add_numpy(*inputs):
    """Computed like on CPUs with fused multiply-add; a single-element operand is added first."""
    pair = (inputs[0:3], inputs[3:6])
    first, second = reversed(pair) if inputs[0].size == 1 else pair
    scale, zero_point = map(_number, inputs[6:8])
    by_first, by_second = (_number(each[1]) / scale for each in (first, second))
    shift = _fused(_number(first[2]), by_first, by_second * _number(second[2]))
    return _fused(first[0], by_first, _fused(second[0], by_second, zero_point - shift))


@_by_kernel(qlinear_mul)
def qlinear_mul_numpy(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point):
    products = (A.astype(np.float32) - _number(A_zero_point)) * (B.astype(np.float32) - _number(B_zero_point))
    return products * (_number(A_scale) * _number(B_scale) / _number(C_scale)) + _number(C_zero_point)


@_by_kernel(qlinear_average_pool)
def qlinear_average_pool_numpy(
    X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last, kernel_shape, count_include_pad, **attributes
):
    """The elements of a window are added sequentially, row by row."""
    image = (X.astype(np.float32) - _number(x_zero_point)) * _number(x_scale)
    image = np.moveaxis(image, -1, 1) if channels_last else image
    window = windows(qlinear_average_pool.title, kernel_shape, dilations=None, **attributes)
    sizes = image.shape[2:]
    begins, ends = window.padding(sizes) if count_include_pad else ([0] * window.rank, [0] * window.rank)
    counted = np.ones([1, 1, *(size + b + e for size, b, e in zip(sizes, begins, ends, strict=True))], np.float32)
    means = _summed(image, window, sizes) / _summed(counted, window, sizes, begins)
    means = np.moveaxis(means, 1, -1) if channels_last else means
    return means / _number(y_scale) + _number(y_zero_point)


def _summed(image: Array, window: Windows, sizes: Sequence[int], within: Sequence[int] | None = None) -> Array:
    """The sums of windows over zero-padded images of these sizes; ``image`` is the padded range ``within``."""
    begins, ends = covering(window, sizes)
    own = within or [0] * window.rank
    around = [
        (begin - inside, size + begin + end - (begin - inside) - length)
        for begin, end, size, inside, length in zip(begins, ends, sizes, own, image.shape[2:], strict=True)
    ]
    padded = np.pad(image, [(0, 0), (0, 0), *around])
    spans = [(n - 1) * stride + 1 for n, stride in zip(window.outputs(sizes), window.strides, strict=True)]
    reads = (
        [slice(at, at + span, step) for at, span, step in zip(offset, spans, window.strides, strict=True)]
        for offset in window.offsets
    )
    return functools.reduce(np.add, (padded[(..., *read)] for read in reads))


@_by_kernel(qlinear_global_average_pool)
def qlinear_global_average_pool_numpy(X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last):
    axes = tuple(range(1, X.ndim - 1) if channels_last else range(2, X.ndim))
    count = np.prod([X.shape[axis] for axis in axes], dtype=np.int64)
    sums = X.sum(axes, dtype=np.int64, keepdims=True) - count * int(_number(x_zero_point))
    scale = _number(x_scale) / (_number(y_scale) * np.float32(count))
    return np.rint(sums.astype(np.float32) * scale) + _number(y_zero_point)


@_by_kernel(qgemm)
def qgemm_numpy(A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, *, alpha, transA, transB):
    a, b = A.T if transA else A, B.T if transB else B
    sums = matmul_integer.rules["numpy"](a, b, a_zero_point.reshape(()), b_zero_point.reshape(-1))
    sums = sums if C is None else sums + C
    scale = np.float32(alpha) * _number(a_scale) * b_scale.reshape(-1) / _number(y_scale)
    return np.rint(sums.astype(np.float32) * scale) + _number(y_zero_point)


#: Table value for the largest element of a row in softmax kernels, before the division by the sum.
_LARGEST = 0x7FFFFF


@_by_kernel(qlinear_softmax)
def qlinear_softmax_numpy(X, X_scale, x_zero_point, y_scale, y_zero_point, *, axis, opset):
    """Use an integer table of the exponentials of all 256 distances from the largest element of a row."""
    axis = axis % max(X.ndim, 1)
    rows = np.moveaxis(X, axis, -1) if opset >= 13 else X.reshape(-1, int(np.prod(X.shape[axis:])))
    distances = (np.arange(256) - 255) * float(_number(X_scale))
    largest = min((2**32 - 1) / max(rows.shape[-1], 1), _LARGEST)
    table = np.rint(largest * np.exp(distances)).astype(np.int64)
    found = table[rows.astype(np.int64) - rows.max(-1, keepdims=True, initial=np.iinfo(X.dtype).min) + 255]
    sums = found.sum(-1, keepdims=True)
    quantized = np.rint(found * int(1 / _number(y_scale)) / sums) + _number(y_zero_point)
    return np.moveaxis(quantized, -1, axis) if opset >= 13 else quantized.reshape(X.shape)
