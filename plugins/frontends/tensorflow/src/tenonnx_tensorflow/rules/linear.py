"""Matrix products, and solvers of linear systems."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_frontends import numerics
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import as_dtype, number


def _transposed_if(x: Value, is_transposed: bool) -> Value:
    return ops.transpose(x, perm=[*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]) if is_transposed else x


@rule("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(node: Any, a: Value, b: Value) -> Value:
    if node.op == "MatMul":
        permuted = node.get("transpose_a", False), node.get("transpose_b", False)
    else:
        permuted = node.get("adj_x", False), node.get("adj_y", False)
    left, right = _transposed_if(a, permuted[0]), _transposed_if(b, permuted[1])
    if "Tout" in node and node.op == "BatchMatMulV3":
        wanted = dtype_of(node["Tout"])
        return ops.matmul(as_dtype(left, wanted), as_dtype(right, wanted))
    narrow = left.dtype.numpy.kind in "iu" and left.dtype not in (DType.int32, DType.int64, DType.uint32, DType.uint64)
    if narrow:
        product = ops.matmul(ops.cast(left, to=DType.int32), ops.cast(right, to=DType.int32))
        return ops.cast(product, to=left.dtype)
    return ops.matmul(left, right)


@rule("Einsum")
def einsum(node: Any, *values: Value) -> Value:
    return numerics.einsum(node["equation"], *values)


@rule("_FusedMatMul", "_FusedConv2D")
def fused(node: Any, *_: Value) -> Value:
    raise NotRepresentable("the graph was written by TensorFlow's optimizer", given=node.title)


@rule("BiasAdd", "BiasAddV1")
def bias_add(node: Any, x: Value, bias: Value) -> Value:
    if node.get("data_format", "NHWC").startswith("NC") and x.ndim > 2:
        return ops.add(x, ops.unsqueeze(bias, list(range(1, x.ndim - 1))))
    return ops.add(x, bias)


@rule("Cross")
def cross(node: Any, a: Value, b: Value) -> Value:
    def permuted(x: Value, order: list[int]) -> Value:
        return ops.gather(x, constant(np.asarray(order)), axis=x.ndim - 1)

    first = ops.mul(permuted(a, [1, 2, 0]), permuted(b, [2, 0, 1]))
    return ops.sub(first, ops.mul(permuted(a, [2, 0, 1]), permuted(b, [1, 2, 0])))


@rule("MatrixDeterminant")
def determinant(node: Any, x: Value) -> Value:
    return ops.det(x)


@rule("LogMatrixDeterminant", outputs="sign log_abs_determinant")
def log_determinant(node: Any, x: Value) -> list[Value]:
    found = ops.det(x)
    return [ops.sign(found), ops.log(ops.absolute(found))]


def _size(x: Value) -> int:
    size = x.shape[-1] if x.shape is not None else None
    if not isinstance(size, int):
        raise NotRepresentable("the size of matrices is not known", given=f"{x.type}")
    if size > 64:
        raise NotRepresentable("matrices have more than 64 rows, too many to be solved row by row", given=f"{x.type}")
    return size


def _row(x: Value, k: int) -> Value:
    return ops.slice_(x, [k], [k + 1], [x.ndim - 2])


def _column(x: Value, k: int) -> Value:
    return ops.slice_(x, [k], [k + 1], [x.ndim - 1])


@rule("Cholesky")
def cholesky(node: Any, x: Value) -> Value:
    """Cholesky factor, column by column."""
    size = _size(x)
    rest, columns = x, []
    for k in range(size):
        column = _column(rest, k)
        scaled = ops.div(column, ops.sqrt(_row(column, k)))
        mask = constant((np.arange(size) >= k)[:, None])
        scaled = ops.where(mask, scaled, number(0, x))
        columns.append(scaled)
        rest = ops.sub(rest, ops.mul(scaled, _transposed_if(scaled, True)))
    return ops.concat(*columns, axis=x.ndim - 1)


@rule("MatrixTriangularSolve")
def triangular_solve(node: Any, a: Value, b: Value) -> Value:
    """Solve a triangular system by substitution."""
    size, lower = _size(a), bool(node.get("lower", True))
    if node.get("adjoint", False):
        a, lower = _transposed_if(a, True), not lower
    order = range(size) if lower else range(size - 1, -1, -1)
    rows: dict[int, Value] = {}
    for k in order:
        left = _row(b, k)
        for j, row in rows.items():
            left = ops.sub(left, ops.mul(_column(_row(a, k), j), row))
        rows[k] = ops.div(left, _column(_row(a, k), k))
    return ops.concat(*(rows[k] for k in range(size)), axis=b.ndim - 2)


def _eliminated(a: Value, b: Value) -> Value:
    """Solve ``a x = b`` by Gauss-Jordan elimination with partial pivoting."""
    size = _size(a)
    shape = ops.concat(ops.slice_(ops.shape(a), [0], [a.ndim - 2], [0]), constant(np.asarray([1, 1])), axis=0)
    numbers = ops.add(ops.expand(constant(np.zeros((1, 1), np.int64)), shape), constant(np.arange(size)[:, None]))
    whole = ops.concat(a, b, axis=a.ndim - 1)
    for k in range(size):
        sizes = ops.absolute(_column(whole, k))
        sizes = ops.where(constant((np.arange(size) >= k)[:, None]), sizes, number(-1, a))
        best = ops.argmax(sizes, axis=a.ndim - 2, keepdims=1)
        is_best, is_here = ops.equal(numbers, best), ops.equal(numbers, constant(np.asarray(k)))
        chosen = ops.reduce_sum(ops.where(is_best, whole, number(0, a)), [a.ndim - 2], keepdims=1)
        here = _row(whole, k)
        whole = ops.where(is_here, chosen, ops.where(is_best, here, whole))
        pivot = ops.div(_row(whole, k), _column(_row(whole, k), k))
        reduced = ops.sub(whole, ops.mul(_column(whole, k), pivot))
        whole = ops.where(is_here, pivot, reduced)
    return ops.slice_(whole, [size], [np.iinfo(np.int64).max], [a.ndim - 1])


@rule("MatrixInverse")
def inverse(node: Any, x: Value) -> Value:
    eye = constant(np.eye(_size(x), dtype=x.dtype.numpy))
    matrix = _transposed_if(x, bool(node.get("adjoint", False)))
    return _eliminated(matrix, ops.expand(eye, ops.shape(x)))


@rule("MatrixSolve")
def solve(node: Any, a: Value, b: Value) -> Value:
    return _eliminated(_transposed_if(a, bool(node.get("adjoint", False))), b)
