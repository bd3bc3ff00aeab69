"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, dims
from tenonnx_litert.builtins import neural
from tenonnx_litert.integers import is_weight
from tenonnx_litert.lowerings.registry import as_floats, lowers, reshaped, unless

#: Maximum rank of the operands of BATCH_MATMUL.
_MOST = 5


@lowers(ops.matmul)
def matmul(a: Value, b: Value) -> Any:
    as_floats(a, b)
    unless(a.shape is None or b.shape is None, "the rank of an input is unknown")
    if a.ndim == 1:
        y = ops.matmul(ops.unsqueeze(a, [0]), b)
        return ops.squeeze(y, [-1 if b.ndim == 1 else -2])
    if b.ndim == 1:
        return ops.squeeze(ops.matmul(a, ops.unsqueeze(b, [1])), [-1])
    if is_weight(b) and b.ndim == 2:
        weights = ops.transpose(b, perm=[1, 0])
        return neural.fully_connected(a, weights, keep_num_dims=int(a.ndim != 2))
    unless(max(a.ndim, b.ndim) > _MOST, f"BATCH_MATMUL takes up to {_MOST} axes")
    return neural.batch_matmul(a, b)


@lowers(ops.gemm)
def gemm(a: Value, b: Value, c: Value | None, *, alpha: float, beta: float, transA: int, transB: int) -> Any:
    as_floats(a, b, c)
    x = ops.transpose(a, perm=[1, 0]) if transA else a
    weights = b if transB else ops.transpose(b, perm=[1, 0])
    if alpha != 1.0:
        weights = weights * constant(np.float32(alpha))
    if c is not None and beta != 1.0:
        c = c * constant(np.float32(beta))
    count = weights.shape[0]
    fits = c is not None and is_weight(c) and isinstance(count, int) and list(c.shape) in ([count], [1, count])
    y = neural.fully_connected(x, weights, reshaped(c, [count]) if fits and c is not None else None)
    return y if c is None or fits else ops.add(y, c)


@lowers(ops.flatten)
def flatten(x: Value, *, axis: int) -> Any:
    sizes = dims(x)
    axis = axis + x.ndim if axis < 0 else axis
    if all(isinstance(n, int) for n in sizes[axis:]) and not (axis and 0 in sizes[axis:]):
        return reshaped(x, [sizes[0] if axis == 1 else -1, int(np.prod(sizes[axis:], dtype=int))])
    unless(not all(isinstance(n, int) for n in sizes[:axis]), "several dims are dynamic")
    return reshaped(x, [int(np.prod(sizes[:axis], dtype=int)), -1])
