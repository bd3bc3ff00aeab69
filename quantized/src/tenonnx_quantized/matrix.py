"""Matrix products of quantized values: MatMulInteger and QLinearMatMul."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, dtypes, op
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.qlinear import numbers, requantized
from tenonnx_quantized.quantize import encode, encode_array, is_zero, to
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.shapes import reshape

Array = np.ndarray[Any, Any]

#: Integers up to this magnitude are exact in float32, whose matrix products are the fastest.
_EXACT = 1 << 24

_EIGHT_BITS = (DType.int8, DType.uint8)
_FLOAT8 = (DType.float8e4m3fn, DType.float8e4m3fnuz, DType.float8e5m2, DType.float8e5m2fnuz)


# ----- parameters per row and column ----------------------------------------------------------------------------------


def by_row(parameter: Value) -> Value:
    """A scale or zero point of the left matrix: a single one, one per row, or shaped to broadcast."""
    if is_single(parameter):
        return scalar(parameter)
    return reshape(parameter, [-1, 1]) if parameter.ndim == 1 else parameter


def by_column(parameter: Value) -> Value:
    """A scale or zero point of the right matrix: a single one, one per column, or shaped to broadcast."""
    return scalar(parameter) if is_single(parameter) else parameter


def _by_row(parameter: Array) -> Array:
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, 1) if parameter.ndim == 1 else parameter


def _by_column(parameter: Array) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter


def _shifted(x: Value, zero_point: Value | None, dtype: DType) -> Value:
    """Quantized values minus their zero point, in ``dtype``."""
    return to(x, dtype) if zero_point is None or is_zero(zero_point) else to(x, dtype) - to(zero_point, dtype)


def _shifted_array(x: Array, zero_point: Array | None) -> Array:
    wide = x.astype(np.float32)
    if zero_point is not None and zero_point.any():
        wide -= zero_point.astype(np.float32)
    return wide


def exact_product(a: Array, b: Array, largest: float | None = None) -> Array:
    """The product of float32 matrices of small integers as int32, which wraps around.

    The inner axis is split into ranges whose sums float32 represents exactly. ``largest`` is the maximum magnitude in
    ``b``, if known.
    """
    greatest = _greatest(a) * (_greatest(b) if largest is None else largest)
    run = max(1, int(_EXACT // greatest)) if greatest else a.shape[-1]
    inner = a.shape[-1]
    if inner <= run:
        return np.asarray(np.matmul(a, b)).astype(np.int32)
    total: Any = 0
    for start in range(0, inner, run):
        rows = b[..., start : start + run, :] if b.ndim > 1 else b[start : start + run]
        total = total + np.asarray(np.matmul(a[..., start : start + run], rows)).astype(np.int32)
    return np.asarray(total)


def _greatest(x: Array) -> float:
    return float(max(x.max(initial=0), -x.min(initial=0)))


# ----- MatMulInteger --------------------------------------------------------------------------------------------------


def _product_type(op: Op, A: Value, B: Value, dtype: DType, parameters: Any) -> TensorType:
    """The type of the product. Raises if the matrices are not quantized or their parameters do not fit."""
    shape = matmul.rules["type"](Value("A", A.tensor.with_dtype(dtype)), Value("B", B.tensor.with_dtype(dtype)))
    for matrix, parameter, place in parameters:
        if parameter is None or parameter.tensor.shape is None or is_single(parameter) or matrix.rank is None:
            continue
        given = f"{parameter!r} for {matrix!r}"
        size = parameter.shape[0] if parameter.ndim == 1 else parameter.shape[place] if parameter.ndim > 1 else 1
        length = matrix.shape[place] if matrix.ndim > 1 else None
        if isinstance(size, int) and isinstance(length, int) and size not in (1, length):
            raise TypeMismatch(
                f"{op.title}: a scale or zero point does not have one element for each row or column", given=given
            )
        if matrix.ndim < 2 or parameter.ndim > max(matrix.ndim, 1):
            raise TypeMismatch(f"{op.title}: a scale or zero point is not a scalar, vector or matrix", given=given)
    return shape.with_dtype(dtype)


def _check_quantized(op: Op, *pairs: tuple[Value, Value | None], allowed: Any = _EIGHT_BITS) -> None:
    for x, zero_point in pairs:
        if x.dtype not in allowed:
            raise TypeMismatch(
                f"{op.title}: an input is neither int8 nor uint8",
                given=repr(x),
                available=", ".join(d.name for d in allowed),
            )
        if zero_point is not None and zero_point.dtype is not x.dtype:
            raise TypeMismatch(
                f"{op.title}: dtype of a zero point differs from that of its quantized tensor",
                given=f"{x!r}, {zero_point!r}",
            )


@op("MatMulInteger", since=10)
def matmul_integer(A, B, a_zero_point=None, b_zero_point=None):
    """The int32 product of values minus zero points, which may be per row of A and per column of B."""
    a = _shifted(A, None if a_zero_point is None else by_row(a_zero_point), DType.int32)
    b = _shifted(B, None if b_zero_point is None else by_column(b_zero_point), DType.int32)
    return matmul(a, b)


@matmul_integer.type
def matmul_integer_type(A, B, a_zero_point, b_zero_point):
    _check_quantized(matmul_integer, (A, a_zero_point), (B, b_zero_point))
    return _product_type(matmul_integer, A, B, DType.int32, ((A, a_zero_point, -2), (B, b_zero_point, -1)))


@numpy_rule(matmul_integer)
def matmul_integer_numpy(A, B, a_zero_point, b_zero_point):
    a = _shifted_array(A, None if a_zero_point is None else _by_row(a_zero_point))
    b = _shifted_array(B, None if b_zero_point is None else _by_column(b_zero_point))
    return exact_product(a, b)


@matmul_integer.specialize
def matmul_integer_specialize(A, B, a_zero_point, b_zero_point):
    if B.contents is None or (b_zero_point is not None and b_zero_point.contents is None):
        return None
    right = _shifted_array(B.contents, None if b_zero_point is None else _by_column(b_zero_point.contents))
    largest = _greatest(right)

    def multiply(A, B, a_zero_point, b_zero_point):
        left = _shifted_array(A, None if a_zero_point is None else _by_row(a_zero_point))
        return exact_product(left, right, largest)

    return multiply


@matmul_integer.vjp
def matmul_integer_vjp(g, y, A, B, a_zero_point, b_zero_point):
    """The gradient of the product of dequantized values, whose cotangents the quantized values receive."""
    a = _shifted(A, None if a_zero_point is None else by_row(a_zero_point), g.dtype)
    b = _shifted(B, None if b_zero_point is None else by_column(b_zero_point), g.dtype)
    return *matmul.rules["vjp"](g, y, a, b), None, None


matmul_integer.traits(integer_sums=True)


# ----- QLinearMatMul --------------------------------------------------------------------------------------------------


@op("QLinearMatMul", since=10)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """The matrix product of dequantized values, quantized by ``y_scale`` and ``y_zero_point``.

    Products of integers are accumulated in int32, and scaled in float32. ``a`` may have parameters per row, ``b`` per
    column.
    """
    exact = DType.int32 if a.dtype.is_integer and b.dtype.is_integer else DType.float32
    product = matmul(_shifted(a, by_row(a_zero_point), exact), _shifted(b, by_column(b_zero_point), exact))
    a_scale, b_scale, y_scale = (to(v, DType.float32) for v in (a_scale, b_scale, y_scale))
    units = to(product, DType.float32) * (by_row(a_scale) * by_column(b_scale) / by_column(y_scale))
    return encode(units, by_column(y_zero_point), y_zero_point.dtype)


@qlinear_matmul.type
def qlinear_matmul_type(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    _check_quantized(
        qlinear_matmul, (a, a_zero_point), (b, b_zero_point), (y_zero_point, None), allowed=(*_EIGHT_BITS, *_FLOAT8)
    )
    for scale in (a_scale, b_scale, y_scale):
        if not scale.dtype.is_float or scale.dtype is not a_scale.dtype:
            given = f"{a_scale!r}, {b_scale!r}, {y_scale!r}"
            raise TypeMismatch(f"{qlinear_matmul.title}: scales are not floats of one type", given=given)
    parameters = ((a, a_zero_point, -2), (a, a_scale, -2), (b, b_zero_point, -1), (b, b_scale, -1))
    y = _product_type(qlinear_matmul, a, b, DType.float32, parameters).with_dtype(y_zero_point.dtype)
    for parameter in (a_scale, b_scale, y_scale, y_zero_point):
        known = parameter.tensor.shape
        if known is None or y.shape is None or is_single(parameter):
            continue
        if parameter is a_scale and len(known) == 1:  # one per row
            known = (*known, 1)
        pairs = zip(known[::-1], y.shape[::-1], strict=False)
        if len(known) > len(y.shape) or any(
            isinstance(p, int) and isinstance(d, int) and p not in (1, d) for p, d in pairs
        ):
            raise TypeMismatch(
                f"{qlinear_matmul.title}: scale or zero point does not broadcast to y", given=f"{parameter!r} for {y}"
            )
    return y


@qlinear_matmul.vjp(surrogate=True)
def qlinear_matmul_vjp(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    left, right = numbers(a, a_scale, a_zero_point, -2), numbers(b, b_scale, b_zero_point, -1)
    if left is None or right is None or not is_single(y_scale):
        return None
    return requantized(to(matmul(left, right), y_scale.dtype), y_scale, y_zero_point, a)


@numpy_rule(qlinear_matmul)
@np.errstate(all="ignore")
def qlinear_matmul_numpy(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    left, right = _shifted_array(a, _by_row(a_zero_point)), _shifted_array(b, _by_column(b_zero_point))
    integers = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    product = exact_product(left, right) if integers else np.matmul(left, right)
    a_scale, b_scale, y_scale = (v.astype(np.float32) for v in (a_scale, b_scale, y_scale))
    units = np.asarray(product, np.float32) * (_by_row(a_scale) * _by_column(b_scale) / _by_column(y_scale))
    return encode_array(np.asarray(units), _by_column(y_zero_point), DType.of(y_zero_point.dtype))


qlinear_matmul.traits(scales="a_scale b_scale y_scale")
qlinear_matmul.requires(
    dtypes(y_zero_point=" ".join(dtype.name for dtype in (*_EIGHT_BITS, *_FLOAT8))),
)
