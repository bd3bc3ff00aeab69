"""Tracing of functions of two rows, such as user-defined metrics and kernels, for all pairs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.traced_arrays import TracedArray
from tenonnx_sklearn.tracing import traced_call

_LAST = np.array([2], np.int64)


def traced_pairs(function: Callable[..., Any], X: Value, points: Any, **options: Any) -> Value:
    """``function(row, point)`` for all pairs: ``[rows, points]``.

    Raises ``NotRepresentable`` with the line of the function for an operation without an ONNX equivalent.
    """
    row = TracedVector(ops.unsqueeze(X, np.array([1], np.int64)), int(X.shape[1]))
    other = TracedVector(_constant(X, np.asarray(points, X.dtype.numpy)[None]), int(X.shape[1]))
    found = traced_call(lambda *both: _one_number(function(*both, **options)), TracedVector, row, other)
    return ops.squeeze(found.value, _LAST)


def _one_number(found: Any) -> Any:
    if isinstance(found, TracedVector) and found.size is not None:
        raise TypeError("a function of two rows does not return one number")
    return found


def _constant(X: Value, numbers: Any) -> Value:
    with X.graph.building():
        return ops.identity(numbers)


class TracedVector(TracedArray):
    """A vector for each pair, ``[rows, points, size]``; ``size`` None is a number for each pair, with last dim 1."""

    def __init__(self, value: Value, size: int | None) -> None:
        super().__init__(value)
        self.size = size

    @property
    def shape(self) -> tuple[Any, ...]:
        return () if self.size is None else (self.size,)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[TracedVector]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> TracedVector:
        if self.size is None or isinstance(key, tuple):
            raise TypeError("a row has one axis")
        places = np.arange(self.size)[key]
        found = ops.gather(self.value, np.atleast_1d(places), axis=2)
        return TracedVector(found, None if np.ndim(places) == 0 else len(places))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is np.matmul and method == "__call__":
            return _dot(*inputs)
        if method == "reduce" and ufunc in _REDUCED and options.get("axis", 0) in (0, -1, None):
            return _reduced(_REDUCED[ufunc], inputs[0])
        found = super().__array_ufunc__(ufunc, method, *inputs, **options)
        sizes = [
            each.size if isinstance(each, TracedVector) else np.size(each)
            for each in inputs
            if np.ndim(each) or isinstance(each, TracedVector)
        ]
        return TracedVector(found.value, next((size for size in sizes if size is not None), None))

    def __array_function__(self, function: Any, _: Any, arguments: Any, options: Any) -> Any:
        if function is np.ndim:
            return self.ndim
        if function in (np.dot, np.inner, np.vdot):
            return _dot(*arguments)
        if function is np.linalg.norm and not set(options) - {"ord"}:
            return _norm(*arguments, **options)
        if function in _OVER_ROW and options.get("axis", 0) in (0, -1, None) and not options.get("keepdims"):
            return _reduced(_OVER_ROW[function], arguments[0])
        if function in (np.clip, np.where):
            found = super().__array_function__(function, _, arguments, options)
            sizes = [each.size for each in arguments if isinstance(each, TracedVector)]
            return TracedVector(found.value, next((size for size in sizes if size is not None), None))
        raise TypeError(f"numpy.{function.__name__} of two rows is not supported")

    def __getattr__(self, name: str) -> Any:
        if name in _OVER_ROW_BY_NAME:
            return lambda *_, **__: _reduced(_OVER_ROW_BY_NAME[name], self)
        raise AttributeError(f"a row's {name} is not supported")


def _reduced(function: Callable[..., Value], x: Any) -> TracedVector:
    if not isinstance(x, TracedVector):
        raise TypeError("a sum of a row and numbers is not supported; use numpy's on the row")
    value = x.value if x.value.dtype.is_float else ops.cast(x.value, to="float64")
    return TracedVector(function(value, _LAST, keepdims=1), None)


def _dot(x: Any, y: Any) -> TracedVector:
    if np.ndim(x) > 1 or np.ndim(y) > 1:  # a row times a fitted matrix
        if not isinstance(x, TracedVector):
            x, y = y, np.asarray(x).T
        matrix = np.asarray(y, x.dtype)
        return TracedVector(ops.matmul(x.value, matrix), matrix.shape[1])
    return _reduced(ops.reduce_sum, x * y)


def _norm(x: TracedVector, ord: Any = None) -> TracedVector:
    size: Any = np.abs(x)
    if ord in (None, 2):
        return TracedVector(ops.sqrt(_dot(x, x).value), None)
    if ord in (1, np.inf):
        return _reduced(ops.reduce_sum if ord == 1 else ops.reduce_max, size)
    return _reduced(ops.reduce_sum, size**ord) ** (1 / ord)  # type: ignore[no-any-return]


_OVER_ROW: dict[Any, Callable[..., Value]] = {
    np.sum: ops.reduce_sum,
    np.mean: ops.reduce_mean,
    np.max: ops.reduce_max,
    np.min: ops.reduce_min,
    np.prod: ops.reduce_prod,
    np.amax: ops.reduce_max,
    np.amin: ops.reduce_min,
}
_OVER_ROW_BY_NAME = {
    function.__name__: found for function, found in _OVER_ROW.items() if function not in (np.amax, np.amin)
}
_REDUCED: dict[Any, Callable[..., Value]] = {
    np.add: ops.reduce_sum,
    np.maximum: ops.reduce_max,
    np.minimum: ops.reduce_min,
    np.multiply: ops.reduce_prod,
}
