"""Matrix products fused with transposition and scaling."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, op
from tenonnx_contrib_ms.activations import named
from tenonnx_contrib_ms.gelu import fast_gelu

Array = np.ndarray[Any, Any]


def _order(rank: int, trans: int, trans_batch: int) -> list[int]:
    """The permutation of axes before the product; a vector keeps its only axis."""
    order = list(range(rank))
    if trans_batch and rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if trans and rank > 1:
        order[-2:] = order[:-3:-1]
    return order


def _transposed(x: Value, trans: int, trans_batch: int) -> Value:
    if not trans and not trans_batch:
        return x
    order = _order(x.ndim, trans, trans_batch)
    return x if order == sorted(order) else ops.transpose(x, perm=order)


def _product(A: Value, B: Value, alpha: float, trans: tuple[int, int], trans_batch: tuple[int, int] = (0, 0)) -> Value:
    y = ops.matmul(_transposed(A, trans[0], trans_batch[0]), _transposed(B, trans[1], trans_batch[1]))
    return y if alpha == 1 else y * alpha


@op("FusedMatMul", domain="com.microsoft")
def fused_matmul(A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """``alpha`` times the matrix product of A and B.

    ``transA`` and ``transB`` swap the last two axes first; before that, ``transBatchA`` and ``transBatchB`` move the
    first axis after the batch axes.
    """
    return _product(A, B, alpha, (transA, transB), (transBatchA, transBatchB))


@op("TransposeMatMul", domain="com.microsoft")
def transpose_matmul(A, B, *, alpha=1.0, transA=0, transB=0):
    """FusedMatMul under its former name."""
    return _product(A, B, alpha, (transA, transB))


transpose_matmul.traits(on_request=True)


@op("FusedMatMulActivation", domain="com.microsoft")
def fused_matmul_activation(
    A,
    B,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha=1.0,
    transA=0,
    transB=0,
    transBatchA=0,
    transBatchB=0,
):
    """FusedMatMul, then an activation."""
    y = fused_matmul(A, B, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return named(fused_matmul_activation, y, activation, axis=activation_axis, **parameters)


fused_matmul_activation.traits(on_request=True)


@op("GemmFastGelu", domain="com.microsoft")
def gemm_fast_gelu(X, W, bias=None):
    """FastGelu of the matrix product plus ``bias``."""
    return fast_gelu(ops.matmul(X, W), bias)


gemm_fast_gelu.traits(on_request=True)


@op("SparseToDenseMatMul", domain="com.microsoft")
def sparse_to_dense_matmul(A, B, *, alpha=1.0, transA=0, transB=0):
    """TransposeMatMul of a sparse matrix, represented by a dense tensor."""
    return _product(A, B, alpha, (transA, transB))


sparse_to_dense_matmul.traits(on_request=True)
