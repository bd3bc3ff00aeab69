"""Distances, matrix inverses, complex numbers and Fourier transforms."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    TensorType,
    Value,
    at_least,
    constant,
    dims,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    subgraph,
)


@op("CDist", domain="com.microsoft")
def cdist(A, B, *, metric="sqeuclidean"):
    """The Euclidean distance of each row of ``A`` to each row of ``B``, or its square."""
    lengths = [ops.reduce_sum(x * x, [1]) for x in (A, B)]
    squares = lengths[0] + ops.transpose(lengths[1]) - (A @ ops.transpose(B)) * 2.0
    squares = ops.maximum(squares, 0.0)
    return ops.sqrt(squares) if metric == "euclidean" else squares


cdist.requires(shapes(A="m n", B="k n"), floats("A", "B"), same_dtype("A", "B"))
cdist.requires(one_of(metric=("sqeuclidean", "euclidean")))


@cdist.vjp
def cdist_vjp(g, y, A, B, *, metric):
    if metric == "euclidean":  # 0 for equal rows, a subgradient there
        none = ops.equal(y, 0.0)
        g = ops.where(none, 0.0, g / ops.where(none, 1.0, y))
    else:
        g = g * 2.0
    to_a = A * ops.reduce_sum(g, [1], keepdims=1) - g @ B
    turned = ops.transpose(g)
    return to_a, B * ops.reduce_sum(turned, [1], keepdims=1) - turned @ A


# ----- inverse matrices -----------------------------------------------------------------------------------------------


@op("Inverse", domain="com.microsoft")
def inverse(X):
    """The inverses of square matrices, by Gauss-Jordan elimination with partial pivoting."""
    x = ops.cast(X, to=DType.float32) if X.dtype.bits < 32 else X
    size = dims(x)[-1]
    places = ops.range_(0, size, 1)
    unit = ops.cast(ops.equal(ops.reshape(places, [-1, 1]), places), to=x.dtype)

    def step(number: Value, goes_on: Value, beside: Value) -> tuple[Value, Value]:
        """Reduce column ``number`` to a unit vector."""
        at = ops.reshape(number, [1])
        column = ops.squeeze(ops.gather(beside, at, axis=-1), [-1])
        height = ops.where(ops.less(places, number), -1.0, ops.absolute(column))
        best = ops.unsqueeze(ops.equal(places, ops.argmax(height, axis=-1)), [-1])
        pivot = ops.reduce_sum(ops.where(best, beside, 0.0), [-2])
        here = ops.reshape(ops.equal(places, number), [-1, 1])
        swapped = ops.where(here, pivot, ops.where(best, ops.gather(beside, at, axis=-2), beside))
        row = pivot / ops.gather(pivot, at, axis=-1)
        eliminated = swapped - ops.gather(swapped, at, axis=-1) * row
        return ops.identity(goes_on), ops.where(here, row, eliminated)

    beside = ops.concat(x, ops.expand(unit, ops.shape(x)), axis=-1)
    scalar = TensorType(DType.int64, ())
    formals = [("number", scalar), ("goes_on", scalar.with_dtype(DType.bool)), ("beside", beside.type)]
    count = size if isinstance(size, Value) else constant(size, DType.int64)
    found = ops.loop(count, None, beside, body=subgraph(step, formals))
    return ops.cast(found[..., size:], to=X.dtype)


@inverse.vjp
def inverse_vjp(g, y, X):
    turned = ops.transpose(y, perm=[*range(y.ndim - 2), y.ndim - 1, y.ndim - 2])
    return -(turned @ g @ turned)


inverse.requires(shapes(X="... n n"), floats("X"))


# ----- complex numbers, as pairs along the last axis ------------------------------------------------------------------


@op("ComplexMul", domain="com.microsoft")
def complex_mul(A, B):
    """The product of complex numbers."""
    return _product(A, B, 1)


complex_mul.traits(on_request=True)


@op("ComplexMulConj", domain="com.microsoft")
def complex_mul_conj(A, B):
    """The product of complex numbers with the conjugates of others."""
    return _product(A, B, -1)


complex_mul_conj.traits(on_request=True)


def _product(A: Value, B: Value, sign: int) -> Value:
    (a, b), (c, d) = (ops.split(x, axis=-1, num_outputs=2) for x in (A, B))
    d = d if sign > 0 else -d
    return ops.concat(a * c - b * d, a * d + b * c, axis=-1)


for made in (complex_mul, complex_mul_conj):
    made.requires(shapes(A="... 2", B="... 2"), floats("A", "B"), same_dtype("A", "B"))


# ----- Fourier transforms ---------------------------------------------------------------------------------------------


@op("Rfft", domain="com.microsoft")
def rfft(X, *, normalized=0, onesided=1, signal_ndim=1):
    """The one-sided spectrum of real signals over the last ``signal_ndim`` axes."""
    y = ops.dft(ops.unsqueeze(X, [X.ndim]), axis=X.ndim - 1, onesided=1)
    for axis in range(X.ndim - signal_ndim, X.ndim - 1):
        y = ops.dft(y, axis=axis)
    return y


rfft.traits(on_request=True)


@op("Irfft", domain="com.microsoft")
def irfft(X, *, normalized=0, onesided=1, signal_ndim: int):
    """Real signals from their one-sided spectrum; ``n`` frequencies result in ``2 * n - 1`` elements."""
    last, x = X.ndim - 2, X
    for axis in range(last + 1 - signal_ndim, last):
        x = ops.dft(x, axis=axis, inverse=1)
    y = ops.dft(x, dims(x)[last] * 2 - 1, axis=last, inverse=1, onesided=1)
    return ops.squeeze(y, [last + 1])


irfft.traits(on_request=True)


def _hold_axes(X: Value, needed: int) -> str | None:
    return "X has fewer axes than signal_ndim" if X.rank is not None and X.rank < needed else None


for made in (rfft, irfft):
    made.requires(floats("X"), at_least(signal_ndim=1), one_of(normalized=(0,), onesided=(1,)))
rfft.requires(holds(lambda X, signal_ndim: _hold_axes(X, signal_ndim)))
irfft.requires(shapes(X="... 2"), holds(lambda X, signal_ndim: _hold_axes(X, signal_ndim + 1)))


# ----- checks ---------------------------------------------------------------------------------------------------------


@op("IsAllFinite", domain="com.microsoft")
def is_all_finite(*input, isinf_only=0, isnan_only=0):
    """Whether no element is infinite (unless ``isnan_only``) or NaN (unless ``isinf_only``)."""
    found = []
    for x in input:
        wide = ops.cast(x, to=DType.float32) if x.dtype.bits < 32 else x
        found += [] if isnan_only else [ops.isinf(wide)]
        found += [] if isinf_only else [ops.isnan(wide)]
    flat = ops.concat(*(ops.reshape(each, [-1]) for each in found), axis=0)
    return ops.equal(ops.reduce_sum(ops.cast(flat, to=DType.int64), keepdims=0), 0)


is_all_finite.traits(on_request=True)


is_all_finite.requires(
    floats("input"),
    holds(lambda isinf_only, isnan_only: "isinf_only and isnan_only are both 1" if isinf_only and isnan_only else None),
)
