"""One word for what can be said in several: the rules ``normal``, by which fusion finds a body in other words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Op, TensorType, Value, static
from tenonnx_standard.casting import cast
from tenonnx_standard.linear_algebra import gemm, matmul
from tenonnx_standard.math import add, div, mul, neg, pow_, reciprocal, sqrt, sub
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from tenonnx_standard.shapes import identity, reshape, transpose
from tenonnx_standard.simplification import transposed_once


def _is_float(x: Value) -> bool:
    return isinstance(x.type, TensorType) and x.type.dtype.is_float


def _number(x: Value) -> float | None:
    """The one number of a small constant of floats."""
    held = static(x) if _is_float(x) else None
    return float(held.reshape(-1)[0]) if held is not None and held.size == 1 else None


@sub.rule("normal")
def _(A: Value, B: Value) -> Value | None:
    return A + B * -1.0 if _is_float(A) else None


@neg.rule("normal")
def _(X: Value) -> Value | None:
    return X * -1.0 if _is_float(X) else None


@div.rule("normal")
def _(A: Value, B: Value) -> Value | None:
    if not _is_float(A):
        return None
    number = _number(B)
    return A * reciprocal(B) if number is None else A * (1.0 / number) if number else None


@pow_.rule("normal")
def _(X: Value, Y: Value) -> Value | None:
    power = _number(Y) if _is_float(X) else None
    if power == 0.5:
        return sqrt(X)
    if power == -0.5:
        return reciprocal(sqrt(X))
    if power in (2.0, 3.0):
        return X * X if power == 2.0 else X * X * X
    return None


def _drops(op: Op, unit: float) -> None:
    """Leave out what changes nothing."""

    @op.rule("normal")
    def _(A: Value, B: Value) -> Value | None:
        for x, other in ((A, B), (B, A)):
            if _number(other) == unit and other.rank == 0:
                return x
        return None


_drops(add, 0.0)
_drops(mul, 1.0)


@identity.rule("normal")
def _(input: Value) -> Value:
    return input


@cast.rule("normal")
def _(input: Value, *, to: int, **_: Any) -> Value | None:
    return input if isinstance(input.type, TensorType) and input.type.dtype == to else None


@transpose.rule("normal")
def _(data: Value, *, perm: Sequence[int] | None) -> Value | None:
    """As ``simplify`` has it, and the order always written."""
    found = transposed_once(data, perm=perm)
    return transpose(data, perm=list(range(data.ndim))[::-1]) if found is None and perm is None else found


@reshape.rule("normal")
def _(data: Value, shape: Value, *, allowzero: int) -> Value | None:
    """What is shaped twice has the last shape, and nothing where it had it before."""
    before = data.producer
    wanted = static(shape)
    if wanted is None:
        return None
    known = data.type.shape if isinstance(data.type, TensorType) else None
    if known is not None and tuple(wanted.tolist()) == known:
        return data
    if before is not None and before.op is reshape and before.inputs[0] is not None and (wanted > 0).all():
        return reshape(before.inputs[0], shape, allowzero=allowzero)
    return None


@gemm.rule("normal")
def _(A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int) -> Value:
    left, right = (transpose(x, perm=[1, 0]) if turned else x for x, turned in ((A, transA), (B, transB)))
    product = matmul(left, right) * alpha
    return product if C is None else product + C * beta


def _counts_from_the_front(op: Op) -> None:
    """Name axes by their place from the front."""

    @op.rule("normal")
    def _(data: Value, axes: Value | None, *, keepdims: int, noop_with_empty_axes: int) -> Value | None:
        held = static(axes) if axes is not None else None
        if held is None or data.rank is None or (held >= 0).all():
            return None
        placed = np.sort(held % data.rank).tolist()
        return op(data, placed, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)  # type: ignore[no-any-return]


for _op in (reduce_mean, reduce_sum, reduce_max, reduce_min, reduce_prod):
    _counts_from_the_front(_op)
