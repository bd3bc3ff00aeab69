"""Functions shared by many rules."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx.extend.formats import Role
from tenonnx_sklearn.scaling import absorbed


def like(X: Value, numbers: Any) -> Any:
    """Fitted numbers in the dtype of ``X``."""
    return np.asarray(numbers).astype(X.dtype.numpy)


def cast(X: Value, dtype: DType) -> Value:
    return X if X.dtype is dtype else ops.cast(X, to=dtype)


def double(X: Value) -> Value:
    return cast(X, DType.float64)


def affine(X: Value, weights: Any, bias: Any = 0.0, tuned: tuple[str, str] | None = None) -> Value:
    """``X @ weights.T + bias``; a weight vector results in one number for each row.

    With two names, weights and bias are trainable parameters.
    """
    X, weights, bias = absorbed(X, np.asarray(weights), np.asarray(bias))
    matrix, offset = like(X, np.atleast_2d(weights).T), like(X, np.atleast_1d(bias))
    if tuned is not None:
        y = X @ _parameter(X, tuned[0], matrix) + _parameter(X, tuned[1], offset)
    else:
        y = X @ matrix + offset if bias.any() else X @ matrix
    return flat(y) if weights.ndim == 1 else y


def _parameter(X: Value, name: str, numbers: Any) -> Value:
    """A parameter in the graph of ``X``, with its name made unique by a number."""
    graph = X.graph
    taken = graph.names()
    unique = next(each for k in count() if (each := f"{name}_{k}" if k else name) not in taken)
    value = graph.variable(unique, numbers)
    value.role = Role("parameter")
    return value


def constant(X: Value, numbers: Any) -> Value:
    """The same numbers for each row of ``X``: ``float[rows, size]``."""
    row = like(X, np.reshape(numbers, (1, -1)))
    return ops.expand(row, ops.concat(ops.shape(X, start=0, end=1), np.array([row.shape[1]], np.int64), axis=0))


def flat(X: Value) -> Value:
    return ops.reshape(X, np.array([-1], np.int64))


def column(X: Value, index: int) -> Value:
    """A column as a vector."""
    return ops.gather(X, np.int64(index), axis=1)


def columns(X: Value, indices: Any) -> Value:
    return ops.gather(X, np.asarray(indices, np.int64), axis=1)


def upright(X: Value) -> Value:
    """A vector as a column; a matrix unchanged."""
    return ops.unsqueeze(X, np.array([1], np.int64)) if X.rank == 1 else X


def alike(parts: list[Value]) -> list[Value]:
    """Promote values to a common dtype, float64 if one of them is."""
    wide = any(part.dtype is DType.float64 for part in parts)
    return [double(part) if wide and part.dtype.is_float else part for part in parts]


def beside(parts: list[Value]) -> Value:
    """Concatenate matrices and vectors along columns."""
    parts = [upright(part) for part in alike(parts)]
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)


def added(parts: list[Value]) -> Value:
    """The sum of values of equal shape."""
    first, *others = alike(parts)
    for each in others:
        first = first + each
    return first


def total(X: Value, keepdims: bool = False) -> Value:
    """Row sums."""
    return ops.reduce_sum(X, np.array([1], np.int64), keepdims=int(keepdims))


def greatest(X: Value) -> Value:
    """Row maxima, as a column."""
    return ops.reduce_max(X, np.array([1], np.int64), keepdims=1)


def position(X: Value) -> Value:
    """Index of the first maximum of each row."""
    return ops.argmax(X, axis=1, keepdims=0)


def nearest(X: Value) -> Value:
    """Index of the first minimum of each row."""
    return ops.argmin(X, axis=1, keepdims=0)


def smallest(X: Value, count: int) -> tuple[Value, Value]:
    """The smallest numbers of each row in order, and their indices: both ``[rows, count]``.

    A row is appended, since TopK without rows crashes onnxruntime 1.26.
    """
    more = ops.concat(X, np.zeros((1, int(X.shape[1])), X.dtype.numpy), axis=0)
    numbers, places = ops.top_k(more, np.array([count], np.int64), axis=1, largest=0)
    return one_less(numbers), one_less(places)


def one_less(X: Value) -> Value:
    """All rows except the last."""
    return ops.slice_(X, np.array([0], np.int64), np.array([-1], np.int64), np.array([0], np.int64))


def is_positive(X: Value) -> Value:
    """1 for positive numbers and 0 for others, as an index."""
    return ops.cast(X > 0.0, to=DType.int64)


def label(classes: Any, index: Value) -> Value:
    """The class at an index: int64 for integers, or strings."""
    classes = np.asarray(classes)
    if classes.dtype.kind in "iu":
        classes = classes.astype(np.int64)
    elif classes.dtype.kind in "US":
        classes = classes.astype(object)
    if classes.dtype.kind == "i" and (classes == np.arange(len(classes))).all():
        return index
    return ops.gather(classes, index, axis=0)


def is_zero(X: Value) -> Value:
    """Mask of zeros; ``==`` would compare the identity of values."""
    return ops.equal(X, X.dtype.numpy.type(0))


def both(positive: Value) -> Value:
    """The probabilities of two classes, from that of the second one."""
    return beside([1.0 - positive, positive])


def normalized(X: Value) -> Value:
    """Rows scaled to a sum of one; zero rows become uniform."""
    sums = total(X, keepdims=True)
    empty = is_zero(sums)
    size = X.shape[1]
    return ops.where(empty, like(X, 1.0 / size), X / ops.where(empty, like(X, 1.0), sums))


#: Integers up to this size are counts, whose squares are exact.
SMALL = 1024


def squared_distances(X: Value, points: Any) -> Value:
    """Squared distances ``float64[rows, points]``, relative to the center of the points to avoid cancellation.

    If the points are small integers, such as counts, distances are computed exactly, so that ties are ties. ``points``
    may also be a value.
    """
    if isinstance(points, Value):
        gaps = ops.unsqueeze(double(X), np.array([1], np.int64)) - ops.unsqueeze(
            double(points), np.array([0], np.int64)
        )
        return ops.reduce_sum(gaps * gaps, np.array([2], np.int64), keepdims=0)
    points = np.asarray(points, np.float64)
    is_count = (points == np.rint(points)).all() and np.abs(points).max(initial=0) < SMALL
    center = np.zeros(points.shape[1]) if is_count else points.mean(axis=0)
    rows, points = double(X) - center, points - center
    sums = total(rows * rows, keepdims=True) + (points * points).sum(axis=1)
    return ops.relu(sums - (rows * 2.0) @ points.T)


def kernel(X: Value, points: Any, kind: str, gamma: Any = None, coef0: float = 1.0, degree: float = 3) -> Value:
    """Pairwise kernels of scikit-learn, in float64."""
    points = np.asarray(points, np.float64)
    gamma = (1.0 if kind == "chi2" else 1.0 / points.shape[1]) if gamma is None else float(gamma)
    if kind == "rbf":
        return ops.exp(squared_distances(X, points) * -gamma)
    if kind == "laplacian":
        return ops.exp(minkowski(X, points, 1) * -gamma)
    rows = double(X)
    if kind == "additive_chi2":
        return additive_chi_kernel(X, points)
    if kind == "chi2":
        return ops.exp(additive_chi_kernel(X, points) * gamma)
    if kind == "precomputed":
        return double(X)
    if kind == "cosine":
        length = ops.sqrt(total(rows * rows, keepdims=True))
        rows = rows / ops.where(is_zero(length), np.float64(1), length)
        return rows @ (points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-300)).T
    if kind == "linear":
        return rows @ points.T
    # onnxruntime rounds a scalar factor to float32, even in float64 products, so the points are scaled
    product = rows @ (points * gamma).T + float(coef0)
    if kind in ("poly", "polynomial"):
        return product if degree == 1 else ops.pow_(product, np.float64(degree))
    if kind == "sigmoid":
        return ops.tanh(product)
    raise KeyError(kind)


def additive_chi_kernel(X: Value, points: Any) -> Value:
    """Additive chi-squared kernel: minus the sum of squared differences over sums, for non-negative numbers."""
    x, y = ops.unsqueeze(double(X), np.array([1], np.int64)), np.asarray(points, np.float64)[None]
    sums, gaps = x + y, x - y
    parts = gaps * gaps / ops.where(is_zero(sums), np.float64(1), sums)
    return -ops.reduce_sum(parts, np.array([2], np.int64), keepdims=0)


KERNELS = (
    "additive_chi2",
    "chi2",
    "cosine",
    "laplacian",
    "linear",
    "poly",
    "polynomial",
    "precomputed",
    "rbf",
    "sigmoid",
)


def minkowski(X: Value, points: Any, p: float) -> Value:
    """Minkowski distances ``float64[rows, points]``; ``p`` infinity is the Chebyshev distance."""
    if p == 2:
        return ops.sqrt(squared_distances(X, points))
    points = np.asarray(points, np.float64)
    gaps = ops.absolute(ops.unsqueeze(double(X), np.array([1], np.int64)) - points[None])
    axes = np.array([2], np.int64)
    if p == np.inf:
        return ops.reduce_max(gaps, axes, keepdims=0)
    if p == 1:
        return ops.reduce_sum(gaps, axes, keepdims=0)
    return ops.pow_(ops.reduce_sum(ops.pow_(gaps, np.float64(p)), axes, keepdims=0), np.float64(1 / p))


def wave(angle: Value, function: Any) -> Value:
    """Sine or cosine in float64: reduced to one period, since runtimes compute these in float32."""
    turns = angle * float(0.5 / np.pi)
    rest = (turns - ops.floor(turns)) * float(2 * np.pi)
    return double(function(cast(rest, DType.float32)))


def interpolate(x: Value, xs: Any, ys: Any) -> Value:
    """Linear interpolation of ``ys`` at ``x``, constant outside of the points; a float64 vector."""
    xs, ys = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    if len(xs) == 1:
        return x * 0.0 + float(ys[0])
    x = ops.clip(double(x), xs[0], xs[-1])
    reached = cast(ops.unsqueeze(x, np.array([1], np.int64)) >= xs[None, 1:-1], DType.int64)
    place = ops.reduce_sum(reached, np.array([1], np.int64), keepdims=0)
    slopes = np.diff(ys) / np.maximum(np.diff(xs), 1e-300)
    left, start, slope = (ops.gather(table, place, axis=0) for table in (xs[:-1], ys[:-1], slopes))
    return start + (x - left) * slope
