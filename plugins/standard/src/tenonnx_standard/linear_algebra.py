"""Matrix products, Einstein sums and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Operand,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    op,
    primitive,
    shapes,
    subgraph,
)
from tenonnx.extend.symbolic import broadcast_shapes
from tenonnx_standard import costs
from tenonnx_standard.broadcasting import check_one_dtype
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.logic import equal
from tenonnx_standard.math import neg

Array = np.ndarray[Any, Any]


# ----- MatMul ---------------------------------------------------------------------------------------------------------


@primitive("MatMul")
def matmul(A, B):
    """The matrix product of the last two axes; all others broadcast.

    A vector is a row on the left and a column on the right.
    """


@matmul.type
def matmul_type(A: Value, B: Value) -> TensorType:
    check_one_dtype(matmul, (A, B))
    a, b = A.tensor.shape, B.tensor.shape
    if a is None or b is None:
        return TensorType(A.dtype)
    if not a or not b:
        raise TypeMismatch(f"{matmul.title}: an input is a scalar", given=f"{A!r}, {B!r}")
    inner, outer = a[-1], b[-2] if len(b) > 1 else b[-1]
    if isinstance(inner, int) and isinstance(outer, int) and inner != outer:
        raise TypeMismatch(f"{matmul.title}: inner dims of A and B differ", given=f"{A!r}, {B!r}")
    try:
        batch = broadcast_shapes(a[:-2], b[:-2])
    except ValueError as error:
        title = f"{matmul.title}: batch axes of A and B do not broadcast"
        raise TypeMismatch(title, given=f"{A!r}, {B!r}") from error
    return TensorType(A.dtype, (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ())))


@numpy_rule(matmul)
def matmul_numpy(A: Array, B: Array) -> Array:
    return product(A, B).astype(A.dtype, copy=False)


@matmul.specialize
def matmul_specialize(A: Operand, B: Operand) -> Any:
    if A.dtype != B.dtype or A.dtype not in (np.float32, np.float64) or 1 in (A.size, B.size):
        return None  # np.dot of a single element ignores 0 * NaN
    if A.ndim == B.ndim == 2:
        return np.dot
    if A.ndim > 2 and B.ndim == 2:
        rows, shape = (-1, A.shape[-1]), (*A.shape[:-1], B.shape[-1])
        return lambda A, B: np.dot(A.reshape(rows), B).reshape(shape)
    return np.matmul


#: Integer products of at least this many terms are checked for whether float arithmetic is exact.
_MANY_TERMS = 1 << 15


def product(a: Array, b: Array) -> Array:
    """The matrix product; float16 is computed in float32, integers in float64 if that is exact."""
    dtype = a.dtype
    if dtype.kind in "iu":
        terms = a.size * (b.shape[-1] if b.ndim > 1 else 1)
        if terms >= _MANY_TERMS and _magnitude(a) * _magnitude(b) * a.shape[-1] < 1 << 53:
            return _product(a.astype(np.float64), b.astype(np.float64)).astype(dtype)
        return np.matmul(a, b)
    if dtype.itemsize <= 2:
        a, b = a.astype(np.float32), b.astype(np.float32)
    return _product(a, b)


def _magnitude(x: Array) -> int:
    return max(abs(int(x.min(initial=0))), int(x.max(initial=0)))


def _product(a: Array, b: Array) -> Array:
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and a.size:
        # A single large product is faster than one per matrix of a.
        return (a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


@matmul.vjp
def matmul_vjp(g: Value, y: Value, A: Value, B: Value) -> tuple[Value, Value]:
    if A.ndim == 1 and B.ndim == 1:
        return g * B, g * A
    # Axes are non-negative, since opsets below 11 have no negative ones.
    if A.ndim == 1:
        row = ops.unsqueeze(g, [g.ndim - 1])
        return ops.sum_to(ops.squeeze(matmul(row, swapped(B)), [g.ndim - 1]), A), ops.unsqueeze(A, [1]) * row
    if B.ndim == 1:
        column = ops.unsqueeze(g, [g.ndim])
        return column * B, ops.sum_to(ops.squeeze(matmul(swapped(A), column), [g.ndim]), B)
    if B.ndim == 2 and A.ndim > 2:
        rows = size(dims(A)[:-1])
        left = ops.as_shape(A, [rows, dims(A)[-1]])
        return matmul(g, swapped(B)), _weight_gradient(left, ops.as_shape(g, [rows, dims(B)[-1]]), B)
    if B.ndim == A.ndim == 2:
        return matmul(g, swapped(B)), _weight_gradient(A, g, B)
    return ops.sum_to(matmul(g, swapped(B)), A), ops.sum_to(matmul(swapped(A), g), B)


def _weight_gradient(A: Value, g: Value, B: Value) -> Value:
    """The gradient of the matrix ``B``; if ``B`` is a transpose, computed so that two transposes cancel."""
    node = B.producer
    if node is not None and node.op is ops.transpose:
        return swapped(matmul(swapped(g), A))
    return matmul(swapped(A), g)  # type: ignore[no-any-return]


def swapped(x: Value) -> Value:
    """``x`` with its last two axes exchanged."""
    last = x.ndim - 1
    return ops.transpose(x, perm=[*range(last - 1), last, last - 1])  # type: ignore[no-any-return]


def size(lengths: list[Any]) -> Any:
    """The product of dims, which are ints or values."""
    whole: Any = 1
    for length in lengths:
        whole = length if isinstance(whole, int) and whole == 1 else whole * length
    return whole


def sum_of_first_axes(x: Value, count: int) -> Value:
    """``x`` summed over its first ``count`` axes, as a row of ones times a matrix: runtimes sum columns slowly."""
    sizes = dims(x)
    if x.dtype not in (DType.float32, DType.float64) or count in (0, x.ndim):
        return ops.reduce_sum(x, list(range(count)), keepdims=0) if count else x  # type: ignore[no-any-return]
    rows = size(sizes[:count])
    ones = ops.expand(constant(np.ones((1, 1)), x.dtype), [1, rows])
    return ops.as_shape(matmul(ones, ops.as_shape(x, [rows, size(sizes[count:])])), sizes[count:])


# ----- Gemm -----------------------------------------------------------------------------------------------------------


@op("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """alpha A B + beta C, for matrices that may be transposed first; C broadcasts."""
    y = matmul(ops.transpose(A, perm=[1, 0]) if transA else A, ops.transpose(B, perm=[1, 0]) if transB else B)
    y = _scaled(y, alpha)
    return y if C is None else y + _scaled(C, beta)


def _scaled(x: Value, factor: float) -> Value:
    if factor == 1:
        return x
    if x.dtype.is_float or float(factor).is_integer():
        return x * (factor if x.dtype.is_float else int(factor))
    return cast(cast(x, to=DType.float64) * factor, to=x.dtype)  # type: ignore[no-any-return]


@gemm.type
def gemm_type(
    A: Value, B: Value, C: Value | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> TensorType:
    present = [v for v in (A, B, C) if v is not None]
    check_one_dtype(gemm, present)
    given = ", ".join(map(repr, present)) + f", transA={transA}, transB={transB}"
    if any(v.rank not in (None, 2) for v in (A, B)):
        raise TypeMismatch(f"{gemm.title}: A or B is not a matrix", given=given)
    m, k = (None, None) if A.rank is None else A.shape[::-1] if transA else A.shape
    inner, n = (None, None) if B.rank is None else B.shape[::-1] if transB else B.shape
    if isinstance(k, int) and isinstance(inner, int) and k != inner:
        raise TypeMismatch(f"{gemm.title}: inner dims of A and B differ", given=given)
    if C is not None and C.rank is not None:
        ends = zip(C.shape[::-1], (n, m), strict=False)
        if C.ndim > 2 or any(isinstance(d, int) and isinstance(e, int) and d not in (1, e) for d, e in ends):
            raise TypeMismatch(f"{gemm.title}: C does not broadcast to the product of A and B", given=given)
    return TensorType(A.dtype, (m, n))


@numpy_rule(gemm)
def gemm_numpy(
    A: Array, B: Array, C: Array | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Array:
    y = product(A.T if transA else A, B.T if transB else B)
    exact = A.dtype.kind in "iu"
    if alpha != 1:
        y = _scaled_integers(y, alpha) if exact else np.multiply(y, y.dtype.type(alpha), out=y)
    if C is not None:
        scaled = _scaled_integers(C, beta) if exact else C.astype(y.dtype) * y.dtype.type(beta)
        np.add(y, scaled, out=y)
    return y.astype(A.dtype, copy=False)


def _scaled_integers(x: Array, factor: float) -> Array:
    """Integers times a factor, with wrap-around for an integral factor and never through floats."""
    if float(factor).is_integer():
        return x * np.asarray(int(factor)).astype(x.dtype)  # type: ignore[no-any-return]
    return (x * factor).astype(x.dtype)


@gemm.specialize
def gemm_specialize(
    A: Operand, B: Operand, C: Operand | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Any:
    usual = A.dtype in (np.float32, np.float64) and alpha == 1 and (C is None or beta == 1)
    if not usual or 1 in (A.size, B.size):
        return None

    known = None if B.contents is None else B.contents.T if transB else B.contents
    row = (1, -1) if A.shape[transA] == 1 and C is not None and C.size > 1 else ()

    def multiply(A: Array, B: Array, C: Array | None = None) -> Array:
        right = known if known is not None else B.T if transB else B
        y = np.dot(A.T if transA else A, right)
        if C is not None:
            y += C.reshape(row) if row else C
        return y

    return multiply


@gemm.vjp
def gemm_vjp(g: Value, y: Value, A: Value, B: Value, C: Value | None, *, alpha, beta, transA, transB):
    left = gemm(B, g, alpha=alpha, transA=transB, transB=1) if transA else gemm(g, B, alpha=alpha, transB=1 - transB)
    right = gemm(g, A, alpha=alpha, transA=1, transB=transA) if transB else gemm(A, g, alpha=alpha, transA=1 - transA)
    return left, right, None if C is None else ops.sum_to(_scaled(g, beta), C)


@gemm.until(11)
def gemm_with_c(A, B, C, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """Gemm with C as a required input."""
    return gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)


@gemm.lower(to=gemm_with_c)
def gemm_to_gemm_with_c(
    A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    c = constant(np.zeros(1), A.dtype) if C is None else C
    return gemm_with_c(A, B, c, alpha=alpha, beta=beta, transA=transA, transB=transB)  # type: ignore[no-any-return]


@gemm_with_c.until(7)
def gemm_one_way(A, B, C, *, alpha=1.0, beta=1.0, broadcast=0, transA=0, transB=0):
    """Gemm that broadcasts C only with ``broadcast``."""
    y = gemm(A, B, alpha=alpha, transA=transA, transB=transB)
    if not broadcast and C.rank not in (None, 2):
        raise TypeMismatch(
            f"{gemm_one_way.title}: shape of C differs from that of A times B, without broadcasting",
            given=repr(C),
            do="set broadcast=1",
        )
    return y + _scaled(C, beta)


@gemm_with_c.lower(to=gemm_one_way)
def gemm_with_c_to_gemm_one_way(A: Value, B: Value, C: Value, **attributes: Any) -> Value:
    return gemm_one_way(A, B, C, broadcast=1, **attributes)  # type: ignore[no-any-return]


# ----- Det ------------------------------------------------------------------------------------------------------------


@op("Det", since=11)
def det(X):
    """The determinant of square matrices.

    The body is the Faddeev-LeVerrier recurrence, a polynomial in the elements, which suits small matrices.
    """
    _, determinant = _adjugate(cast(X, to=DType.float64 if X.dtype is DType.float64 else DType.float32))
    return cast(ops.squeeze(determinant, [X.ndim - 2, X.ndim - 1]), to=X.dtype)


#: Larger matrices use a loop instead of unrolled steps.
MANY_ROWS = 64


def _adjugate(x: Value) -> tuple[Value, Value]:
    """The adjugate of square matrices, and their determinants as matrices of one element."""
    length = next((dim for dim in x.shape[-2:] if isinstance(dim, int)), None)
    if length is None or length > MANY_ROWS:
        return _looped_adjugate(x)
    unit = constant(np.eye(length), x.dtype)
    factor, coefficient = unit, constant(np.ones((1, 1)), x.dtype)
    for number in range(1, length + 1):
        if number > 1:
            factor = matmul(x, factor) + coefficient * unit
        coefficient = _trace(matmul(x, factor), unit) / -number
    return (factor, neg(coefficient)) if length % 2 else (neg(factor), coefficient)


def _looped_adjugate(x: Value) -> tuple[Value, Value]:
    """``_adjugate`` for matrices whose size is known only at run time."""
    length = dims(x)[-1]
    numbers = ops.range_(0, length, 1)
    unit = cast(equal(ops.reshape(numbers, [-1, 1]), numbers), to=x.dtype)

    def step(iteration: Value, goes_on: Value, factor: Value, coefficient: Value) -> tuple[Value, Value, Value]:
        factor = matmul(x, factor) + coefficient * unit
        coefficient = _trace(matmul(x, factor), unit) / -cast(iteration + 1, to=x.dtype)
        return ops.identity(goes_on), factor, coefficient

    nothing = ops.zeros_like(x)
    one = _trace(nothing, unit) + 1
    scalar = TensorType(DType.int64, ())
    formals = [
        ("iteration", scalar),
        ("goes_on", scalar.with_dtype(DType.bool)),
        ("factor", x.type),
        ("coefficient", one.type),
    ]
    factor, coefficient = ops.loop(length, None, nothing, one, body=subgraph(step, formals))
    sign = cast(1 - length % 2 * 2, to=x.dtype)
    return neg(sign * factor), sign * coefficient


def _trace(x: Value, unit: Value) -> Value:
    return ops.reduce_sum(x * unit, [x.ndim - 2, x.ndim - 1], keepdims=1)  # type: ignore[no-any-return]


det.requires(shapes(X="... size size"))


@numpy_rule(det)
def det_numpy(X: Array) -> Array:
    wide = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(np.linalg.det(wide)).astype(X.dtype, copy=False)


@det.vjp
def det_vjp(g: Value, y: Value, X: Value) -> Value:
    """The derivative of a determinant is the transposed adjugate, even for singular matrices."""
    adjugate, _ = _adjugate(X)
    return ops.unsqueeze(g, [g.ndim, g.ndim + 1]) * swapped(adjugate)


costs.count(matmul, costs.matrices)
costs.count(gemm, costs.gemm)
