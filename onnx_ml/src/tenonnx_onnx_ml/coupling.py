"""Pairwise coupling: class probabilities from those of pairs of classes.

Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004), algorithm 2: the
probabilities ``p`` that minimize ``p @ Q @ p``, by coordinate descent. The result depends on the stopping criterion,
which is that of libsvm and onnxruntime.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, Value, constant, dims, limits, subgraph
from tenonnx_standard.casting import cast
from tenonnx_standard.control_flow import loop
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import where
from tenonnx_standard.math import absolute
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.shapes import expand, reshape, unsqueeze

Array = np.ndarray[Any, Any]

_ITERATIONS = 100


def pairs(classes: int) -> list[tuple[int, int]]:
    """The pairs of classes, in the order of their classifiers."""
    return list(itertools.combinations(range(classes), 2))


@functools.cache
def _quadratic(classes: int) -> tuple[Array, Array, Array]:
    """Contributions of ``r * r``, ``(1 - r) ** 2`` and ``r * (1 - r)`` of the pairs to the flattened matrix ``Q``."""
    shape = limits.sized((classes * (classes - 1) // 2, classes, classes), "the pairs of classes")
    first, second, both = (np.zeros(shape, np.float32) for _ in range(3))
    for pair, (i, j) in enumerate(pairs(classes)):
        second[pair, j, j] = first[pair, i, i] = 1
        both[pair, i, j] = both[pair, j, i] = -1
    flat = len(pairs(classes)), classes * classes
    return second.reshape(flat), first.reshape(flat), both.reshape(flat)


def coupled(r: Value, classes: int) -> Value:
    """Probabilities [rows, classes] from those of the first class of each pair [rows, pairs]."""
    second, first, both = (constant(matrix) for matrix in _quadratic(classes))
    q = matmul(r * r, second) + matmul((1.0 - r) * (1.0 - r), first) + matmul(r * (1.0 - r), both)
    q = reshape(q, [-1, classes, classes])
    units = np.eye(classes, dtype=np.float32)

    def step(iteration: Value, goes_on: Value, p: Value) -> tuple[Value, Value]:
        product = reduce_sum(q * unsqueeze(p, [1]), [2], keepdims=0)
        value = reduce_sum(p * product, [1])
        active = reduce_max(absolute(product - value), [1]) >= 0.005 / classes
        for k in range(classes):
            diagonal, part = q[:, k, k : k + 1], product[:, k : k + 1]
            move = where(active, (value - part) / diagonal, 0.0)
            p = (p + move * constant(units[k])) / (1.0 + move)
            value = (value + move * (move * diagonal + 2.0 * part)) / (1.0 + move) / (1.0 + move)
            product = (product + move * q[:, k]) / (1.0 + move)
        return reduce_max(cast(active, to=DType.int32), keepdims=0) > 0, p

    start = expand(constant(np.full((1, classes), 1 / classes, np.float32)), [dims(r)[0], classes])
    formals = [
        ("iteration", TensorType(DType.int64, ())),
        ("goes_on", TensorType(DType.bool, ())),
        ("probabilities", TensorType(DType.float32, (r.shape[0], classes))),
    ]
    return loop(constant(np.int64(_ITERATIONS)), None, start, body=subgraph(step, formals))


@np.errstate(all="ignore")
def coupled_array(r: Array, classes: int) -> Array:
    """``coupled`` for an array."""
    second, first, both = _quadratic(classes)
    q = ((r * r) @ second + ((1 - r) * (1 - r)) @ first + (r * (1 - r)) @ both).reshape(-1, classes, classes)
    result = np.full((len(r), classes), 1 / classes, np.float32)
    rows = np.arange(len(r))
    for _ in range(_ITERATIONS):
        p = result[rows]
        product = np.matmul(q, p[:, :, None])[:, :, 0]
        value = (p * product).sum(axis=1, keepdims=True)
        active = np.abs(product - value).max(axis=1, initial=0) >= np.float32(0.005 / classes)
        if not active.all():
            rows, q, p, product, value = (each[active] for each in (rows, q, p, product, value))
        if not len(rows):
            break
        for k in range(classes):
            diagonal, part = q[:, k, k : k + 1], product[:, k : k + 1].copy()
            move = (value - part) / diagonal
            p[:, k] += move[:, 0]
            scale = 1 + move
            p /= scale
            value = (value + move * (move * diagonal + 2 * part)) / scale / scale
            product = (product + move * q[:, k]) / scale
        result[rows] = p
    return result
