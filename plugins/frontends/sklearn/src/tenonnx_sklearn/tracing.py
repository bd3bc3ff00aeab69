"""Tracing of user-defined numpy functions, such as ``np.log1p(X)[:, 1:]``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TenonnxError, Value
from tenonnx_frontends.numerics import einsum
from tenonnx_sklearn import traced_arrays, traced_texts
from tenonnx_sklearn.algebra import smallest
from tenonnx_sklearn.traced_arrays import FUNCTIONS, Rows, TracedArray, alike, floating, number, plain, truth

Traced = TypeVar("Traced", bound="TracedArray")


def traced(function: Callable[..., Any], value: Value, names: Sequence[str] = (), **options: Any) -> Value:
    """Trace ``function`` on an array, as nodes of the graph of ``value``.

    With ``names``, columns can be selected by name, as in a table. Raises ``NotRepresentable`` with the line of the
    function for an operation without an ONNX equivalent.
    """
    return traced_call(function, TracedArray, TracedArray(value, names), **options).value


def traced_call(function: Callable[..., Any], kind: type[Traced], *given: Any, **options: Any) -> Traced:
    """Result of ``function`` on traced arrays, which must be of type ``kind``."""
    try:
        result = function(*given, **options)
    except TenonnxError:
        raise
    except Exception as error:
        raise NotRepresentable(
            "cannot trace a function: it calls more than numpy, or its steps depend on the numbers in the rows",
            given=f"{_where(error)}: {error}",
            do="register a rule for an estimator of your own, which computes the same in ops",
        ) from error
    if not isinstance(result, kind):
        raise NotRepresentable(
            "a function returns something other than values computed from the rows", given=type(result).__name__
        )
    return result


def _where(error: Exception) -> str:
    """The last line of a traceback outside of this file."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, traced_arrays.__file__, traced_texts.__file__)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else "a call"


def _reshape(x: TracedArray, shape: Any) -> TracedArray:
    sizes = [shape] if isinstance(shape, int) else list(shape)
    known = list(x.shape)
    if sizes and isinstance(sizes[0], Rows):  # the number of rows
        sizes[0] = 0
    elif len(sizes) > 1 and sizes[0] == -1 and isinstance(known[-1], int) and all(isinstance(n, int) for n in sizes):
        pass
    if not all(isinstance(size, int) for size in sizes):
        raise TypeError("a shape may name the rows first, and else numbers")
    return TracedArray(ops.reshape(x.value, np.array(sizes, np.int64)))


def _reduced(kind: str) -> Callable[..., Any]:
    def reduce(x: Any, axis: Any = None, keepdims: Any = False, ddof: int = 0, **options: Any) -> TracedArray:
        if any(value not in (None, 0) for value in options.values()) or axis is None:
            raise TypeError(f"a {kind} over all rows, or with {', '.join(options) or 'no axis'}, is not supported")
        rank = x.ndim
        axes = [int(each) % rank for each in np.atleast_1d(axis)]
        if 0 in axes:
            raise TypeError(f"a {kind} over rows is not supported: one row in is one row out")
        at, keep = np.array(axes, np.int64), int(bool(keepdims))
        value = x.value if kind in ("max", "min", "sum", "prod") else floating(x.value)
        if kind in ("std", "var"):
            mean = ops.reduce_mean(value, at, keepdims=1)
            variance = ops.reduce_mean((value - mean) * (value - mean), at, keepdims=keep)
            count = float(np.prod([x.shape[each] for each in axes]))
            variance = variance * (count / (count - ddof)) if ddof else variance
            return TracedArray(ops.sqrt(variance) if kind == "std" else variance)
        if value.dtype is DType.bool:
            value = ops.cast(value, to=DType.int64)
        function = {
            "sum": ops.reduce_sum,
            "mean": ops.reduce_mean,
            "max": ops.reduce_max,
            "min": ops.reduce_min,
            "prod": ops.reduce_prod,
        }[kind]
        found = function(value, at, keepdims=keep)
        if kind in ("max", "min") and value.dtype.is_float:  # NaN propagates, as in numpy
            filled = ops.where(ops.isnan(value), value, number(value, 0))
            found = found + ops.reduce_sum(filled, at, keepdims=keep)
        return TracedArray(found)

    return reduce


def _joined(parts: Any, axis: int = 0) -> TracedArray:
    values = [plain(each) for each in parts]
    template = next((each for each in values if isinstance(each, Value)), None)
    if template is None or axis % int(template.rank or 1) == 0:
        raise TypeError("rows are not joined below others: one row in is one row out")
    return TracedArray(ops.concat(*alike([_for_rows(each, template) for each in values]), axis=axis))


def _for_rows(each: Any, template: Value) -> Any:
    """Broadcast a constant array made with ``X.shape[0]`` rows, which must be equal, to the actual rows."""
    if isinstance(each, Value):
        return each
    each = np.asarray(each, template.dtype.numpy if np.asarray(each).dtype.kind == "f" else None)
    if each.ndim < 2 or each.shape[0] != Rows() or (each != each[:1]).any():
        raise TypeError("an array that is joined neither comes from the rows nor is alike for each of X.shape[0] rows")
    count = ops.shape(template, start=0, end=1)
    return ops.expand(each[:1], ops.concat(count, np.array(each.shape[1:], np.int64), axis=0))


def _beside(parts: Any) -> TracedArray:
    upright = [each if each.ndim > 1 else each[:, None] for each in parts]
    return _joined(upright, 1)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, **options: Any) -> TracedArray:
    """Clip with the argument names of numpy, or ``lower`` and ``upper`` of pandas."""
    low = next((options.pop(name) for name in ("min", "lower") if name in options), a_min)
    high = next((options.pop(name) for name in ("max", "upper") if name in options), a_max)
    if options:
        raise TypeError(f"clip with {', '.join(options)} is not supported")
    for bound, function in ((low, np.maximum), (high, np.minimum)):
        x = x if bound is None else function(x, bound)
    return x  # type: ignore[no-any-return]


def _where_of(condition: Any, x: Any, y: Any) -> TracedArray:
    one, two = (
        alike([plain(x), plain(y)])
        if isinstance(x, TracedArray) or isinstance(y, TracedArray)
        else (np.asarray(x, np.result_type(x, y)), np.asarray(y, np.result_type(x, y)))
    )
    mask = plain(condition)
    return TracedArray(ops.where(truth(mask) if isinstance(mask, Value) else mask, one, two))


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> TracedArray:
    info = np.finfo(x.dtype)
    value = ops.where(ops.isnan(x.value), number(x.value, nan), x.value)
    high, low = (info.max if posinf is None else posinf), (info.min if neginf is None else neginf)
    value = ops.where(ops.equal(value, number(value, np.inf)), number(value, high), value)
    return TracedArray(ops.where(ops.equal(value, number(value, -np.inf)), number(value, low), value))


FUNCTIONS |= {
    np.sum: _reduced("sum"),
    np.mean: _reduced("mean"),
    np.max: _reduced("max"),
    np.min: _reduced("min"),
    np.prod: _reduced("prod"),
    np.std: _reduced("std"),
    np.var: _reduced("var"),
    np.amax: _reduced("max"),
    np.amin: _reduced("min"),
    np.concatenate: _joined,
    np.hstack: _beside,
    np.column_stack: _beside,
    np.clip: _clip,
    np.where: _where_of,
    np.nan_to_num: _nan_to_num,
    np.reshape: _reshape,
    np.copy: lambda x: x,
    np.ravel: lambda x: _reshape(x, -1),
    np.stack: lambda parts, axis=0: _joined([_expand(each, axis) for each in parts], axis),
    np.expand_dims: lambda x, axis: _expand(x, axis),
    np.delete: lambda x, obj, axis: _delete(x, obj, axis),
    np.take: lambda x, indices, axis: x[(slice(None),) * (axis % x.ndim) + (indices,)],
    np.dot: lambda x, y: x @ y,
    np.zeros_like: lambda x, **_: _filled(x, 0),
    np.ones_like: lambda x, **_: _filled(x, 1),
    np.full_like: lambda x, fill_value, **_: _filled(x, fill_value),
    np.diff: lambda x, axis=-1: _diff(x, axis),
    np.cumsum: lambda x, axis: TracedArray(ops.cumsum(x.value, np.int64(_beyond_rows(axis % x.ndim)))),
    np.argmax: lambda x, axis: TracedArray(ops.argmax(x.value, axis=_beyond_rows(axis % x.ndim), keepdims=0)),
    np.argmin: lambda x, axis: TracedArray(ops.argmin(x.value, axis=_beyond_rows(axis % x.ndim), keepdims=0)),
    np.linalg.norm: lambda x, axis, keepdims=False: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
    np.ndim: lambda x: x.ndim,
    np.shape: lambda x: x.shape,
    np.transpose: lambda x: x.T,
    np.round: lambda x, decimals=0: np.rint(x * 10.0**decimals) / 10.0**decimals,
    np.sort: lambda x, axis=-1: TracedArray(_sorted(x, axis)[0]),
    np.argsort: lambda x, axis=-1, **_: TracedArray(_sorted(x, axis)[1]),
    np.median: lambda x, axis, keepdims=False: _quantile(x, 0.5, axis, keepdims),
    np.quantile: lambda x, q, axis, keepdims=False: _quantile(x, q, axis, keepdims),
    np.percentile: lambda x, q, axis, keepdims=False: _quantile(x, q / 100, axis, keepdims),
    np.ptp: lambda x, axis, keepdims=False: (
        np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)
    ),
    np.any: lambda x, axis, keepdims=False: np.max(_whole(x), axis=axis, keepdims=keepdims) > 0,
    np.all: lambda x, axis, keepdims=False: np.min(_whole(x), axis=axis, keepdims=keepdims) > 0,
    np.count_nonzero: lambda x, axis, keepdims=False: np.sum(_whole(x), axis=axis, keepdims=keepdims),
    np.nansum: lambda x, axis, keepdims=False: np.sum(_known(x, 0), axis=axis, keepdims=keepdims),
    np.nanmean: lambda x, axis, keepdims=False: (
        np.nansum(x, axis=axis, keepdims=keepdims)
        / np.count_nonzero(np.logical_not(np.isnan(x)), axis=axis, keepdims=keepdims).astype(x.dtype)
    ),
    np.nanmax: lambda x, axis, keepdims=False: np.max(_known(x, -np.inf), axis=axis, keepdims=keepdims),
    np.nanmin: lambda x, axis, keepdims=False: np.min(_known(x, np.inf), axis=axis, keepdims=keepdims),
    np.average: lambda x, axis, weights=None: (
        np.mean(x, axis=axis)
        if weights is None
        else np.sum(x * np.asarray(weights), axis=_beyond_rows(axis % x.ndim)) / float(np.sum(weights))
    ),
    np.select: lambda conditions, choices, default=0: _selected(conditions, choices, default),
    np.digitize: lambda x, bins, right=False: _digitized(x, bins, right),
    np.searchsorted: lambda a, v, side="left": _digitized(v, a, side == "left"),
    np.isin: lambda x, among: _among(x, among),
    np.interp: lambda x, xp, fp: _interpolated(x, xp, fp),
    np.polyval: lambda p, x: _polynomial(p, x),
    np.einsum: lambda words, *parts: TracedArray(einsum(words, *alike([plain(each) for each in parts]))),
    np.tile: lambda x, reps: _tiled(x, reps),
    np.flip: lambda x, axis: x[..., ::-1] if axis in (1, -1) else _down(),
    np.fliplr: lambda x: x[:, ::-1],
    np.roll: lambda x, shift, axis: x[
        (slice(None),) * _beyond_rows(axis % x.ndim) + (np.roll(np.arange(x.shape[axis]), shift),)
    ],
    np.split: lambda x, n, axis: _split(x, n, axis),
    np.array_split: lambda x, n, axis: _split(x, n, axis),
    np.repeat: lambda x, repeats, axis: x[
        (slice(None),) * _beyond_rows(axis % x.ndim) + (np.repeat(np.arange(x.shape[axis]), repeats),)
    ],
    np.outer: lambda x, y: _expand(x, 1) * np.ravel(y),
    np.insert: lambda x, obj, values, axis: _inserted(x, obj, values, axis),
    np.piecewise: lambda x, conditions, functions: _piecewise(x, conditions, functions),
    np.broadcast_to: lambda x, shape: _broadcast(x, shape),
    np.isclose: lambda x, y, rtol=1e-5, atol=1e-8: (np.abs(x - y) <= atol + rtol * np.abs(y)) | np.equal(x, y),
    np.hsplit: lambda x, n: _split(x, n, 1),
    np.pad: lambda x, width, **options: _padded(x, width, **options),
}


def _beyond_rows(axis: int) -> int:
    if axis == 0:
        raise TypeError("a calculation over rows is not supported: one row in is one row out")
    return axis


def _down() -> Any:
    raise TypeError("rows are not put in another order")


def _whole(x: TracedArray) -> TracedArray:
    return TracedArray(ops.cast(truth(x.value), to=DType.int64))


def _known(x: TracedArray, filling: float) -> TracedArray:
    return TracedArray(ops.where(ops.isnan(x.value), number(x.value, filling), x.value))


def _sorted(x: TracedArray, axis: int) -> tuple[Value, Value]:
    """Sort ascending along an axis, with indices; missing numbers come last."""
    at = _beyond_rows(axis % x.ndim)
    if x.ndim != 2 or at != 1:
        raise TypeError("a matrix is sorted along its columns alone")
    last = ops.where(ops.isnan(x.value), number(x.value, np.inf), x.value) if x.value.dtype.is_float else x.value
    places = smallest(last, int(x.shape[1]))[1]
    return ops.gather_elements(x.value, places, axis=1), places


def _quantile(x: TracedArray, q: float, axis: int, keepdims: bool) -> Any:
    ordered = np.sort(x, axis=axis)
    place = float(q) * (x.shape[1] - 1)
    low, high = (ordered[:, [int(f(place))]] for f in (np.floor, np.ceil))
    gone = np.sum(x * 0.0, axis=1, keepdims=True)  # a missing number makes the result missing
    result = low + (high - low) * float(place - np.floor(place)) + gone
    return result if keepdims else result[:, 0]


def _selected(conditions: Any, choices: Any, default: Any) -> Any:
    result = default
    for condition, choice in list(zip(conditions, choices, strict=True))[::-1]:
        result = np.where(condition, choice, result)
    return result


def _digitized(x: Any, bins: Any, right: bool) -> TracedArray:
    bins = np.asarray(bins)
    if not isinstance(x, TracedArray) or (np.diff(bins) < 0).any():
        raise TypeError("bins are not constant numbers that rise")
    upright = ops.unsqueeze(x.value, np.array([x.ndim], np.int64))
    limits = bins.astype(x.dtype)
    below = upright <= limits if right else upright < limits
    hits = ops.cast(ops.not_(below), to=DType.int64)  # missing numbers are above all bins
    return TracedArray(ops.reduce_sum(hits, np.array([x.ndim], np.int64), keepdims=0))


def _among(x: TracedArray, among: Any) -> Any:
    result = x < x
    for each in np.ravel(among).tolist():
        result = result | (np.equal(x, each) if each == each else False)
    return result


def _interpolated(x: TracedArray, xp: Any, fp: Any) -> Any:
    xp, fp = np.asarray(xp, np.float64), np.asarray(fp, np.float64)
    place = _digitized(x, xp[1:-1], False)
    left, start, slope = (
        TracedArray(ops.gather(t.astype(x.dtype), place.value, axis=0))
        for t in (xp[:-1], fp[:-1], np.diff(fp) / np.diff(xp))
    )
    return start + (np.clip(x, float(xp[0]), float(xp[-1])) - left) * slope


def _polynomial(p: Any, x: Any) -> Any:
    result = x * 0.0
    for each in np.asarray(p).tolist():
        result = result * x + each
    return result


def _tiled(x: TracedArray, reps: Any) -> Any:
    sizes = list(np.atleast_1d(reps))
    if len(sizes) != x.ndim or sizes[0] != 1:
        raise TypeError("rows are not repeated: one row in is one row out")
    return TracedArray(ops.tile(x.value, np.array(sizes, np.int64)))


def _split(x: TracedArray, n: Any, axis: int) -> list[TracedArray]:
    places = (
        np.array_split(np.arange(x.shape[axis]), n) if isinstance(n, int) else np.split(np.arange(x.shape[axis]), n)
    )
    return [x[(slice(None),) * _beyond_rows(axis % x.ndim) + (each,)] for each in places]


def _padded(x: TracedArray, width: Any, mode: str = "constant", constant_values: float = 0.0) -> TracedArray:
    widths = np.broadcast_to(width, (x.ndim, 2))
    if mode != "constant" or widths[0].any():
        raise TypeError("only columns are padded, with one number")
    return TracedArray(ops.pad(x.value, widths.T.ravel().astype(np.int64), number(x.value, constant_values)))


def _filled(x: TracedArray, filling: float) -> TracedArray:
    """A constant for each element, which may be NaN."""
    return TracedArray(ops.expand(np.asarray(filling, x.dtype), ops.shape(x.value)))


def _inserted(x: TracedArray, where: int, values: Any, axis: int) -> Any:
    at = _beyond_rows(axis % x.ndim)
    if x.ndim != 2 or at != 1 or not isinstance(where, int):
        raise TypeError("a column is inserted in a matrix, before one other")
    column = _filled(x[:, :1], values) if np.ndim(values) == 0 else values
    return _beside([x[:, :where], column, x[:, where:]])


def _piecewise(x: TracedArray, conditions: Any, functions: Any) -> Any:
    """The last true condition wins; an extra function is the default."""
    of = [each if callable(each) else partial(_filled, filling=each) for each in functions]
    result = of[len(conditions)](x) if len(of) > len(conditions) else _filled(x, 0)
    for condition, function in zip(conditions, of, strict=False):
        result = np.where(condition, function(x), result)
    return result


def _broadcast(x: TracedArray, shape: Any) -> TracedArray:
    sizes = [1 if isinstance(size, Rows) else int(size) for size in np.atleast_1d(np.asarray(shape, object))]
    if not isinstance(shape[0], Rows) or len(sizes) != x.ndim:
        raise TypeError("rows are broadcast along their columns alone")
    return TracedArray(ops.expand(x.value, np.array(sizes, np.int64)))


def _expand(x: TracedArray, axis: int) -> TracedArray:
    return TracedArray(ops.unsqueeze(x.value, np.array([axis % (x.ndim + 1)], np.int64)))


def _delete(x: TracedArray, which: Any, axis: int) -> TracedArray:
    size = x.shape[axis]
    return x[(slice(None),) * (axis % x.ndim) + (np.delete(np.arange(size), which),)]


def _diff(x: TracedArray, axis: int) -> TracedArray:
    before = (slice(None),) * _beyond_rows(axis % x.ndim)
    return x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
