"""Symbolic arrays: numpy's functions and operators on values of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, dims

#: Elementwise numpy functions. Integers and booleans are cast to float first, as in numpy.
_UNARY: dict[Any, Callable[[Any], Any]] = {
    np.exp: ops.exp,
    np.log: ops.log,
    np.sqrt: ops.sqrt,
    np.sin: ops.sin,
    np.cos: ops.cos,
    np.tan: ops.tan,
    np.arcsin: ops.asin,
    np.arccos: ops.acos,
    np.arctan: ops.atan,
    np.sinh: ops.sinh,
    np.cosh: ops.cosh,
    np.tanh: ops.tanh,
    np.arcsinh: ops.asinh,
    np.arccosh: ops.acosh,
    np.arctanh: ops.atanh,
    np.floor: ops.floor,
    np.ceil: ops.ceil,
    np.rint: ops.round_,
    np.reciprocal: ops.reciprocal,
    np.expm1: lambda x: ops.exp(x) - 1.0,
    np.log1p: lambda x: ops.log(x + 1.0),
    np.exp2: lambda x: ops.exp(x * float(np.log(2.0))),
    np.log2: lambda x: ops.log(x) * float(1 / np.log(2.0)),
    np.log10: lambda x: ops.log(x) * float(1 / np.log(10.0)),
    np.cbrt: lambda x: ops.sign(x) * ops.pow_(ops.absolute(x), number(x, 1 / 3)),
    np.isnan: ops.isnan,
    np.isinf: ops.isinf,
    np.isfinite: lambda x: ops.not_(ops.or_(ops.isnan(x), ops.isinf(x))),
    np.trunc: lambda x: ops.sign(x) * ops.floor(ops.absolute(x)),
    np.deg2rad: lambda x: x * float(np.pi / 180),
    np.rad2deg: lambda x: x * float(180 / np.pi),
    np.radians: lambda x: x * float(np.pi / 180),
    np.degrees: lambda x: x * float(180 / np.pi),
}
_ANY_UNARY: dict[Any, Callable[[Any], Any]] = {
    np.absolute: ops.absolute,
    np.fabs: ops.absolute,
    np.sign: ops.sign,
    np.negative: ops.neg,
    np.positive: lambda x: x,
    np.square: lambda x: x * x,
    np.logical_not: lambda x: ops.not_(truth(x)),
    np.invert: ops.not_,
}
_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: lambda x, y: x + y,
    np.subtract: lambda x, y: x - y,
    np.multiply: lambda x, y: x * y,
    np.maximum: lambda x, y: _with_nan(ops.maximum, x, y),
    np.minimum: lambda x, y: _with_nan(ops.minimum, x, y),
    np.fmax: lambda x, y: _without_nan(ops.maximum, x, y),
    np.fmin: lambda x, y: _without_nan(ops.minimum, x, y),
    np.hypot: lambda x, y: ops.sqrt(x * x + y * y),
    np.arctan2: lambda y, x: _angle(y, x),
    np.heaviside: lambda x, h: ops.where(
        x < 0, number(x, 0), ops.where(x > 0, number(x, 1), ops.where(ops.isnan(x), x, h))
    ),
    np.logaddexp: lambda x, y: ops.maximum(x, y) + ops.log(ops.exp(-ops.absolute(x - y)) + 1.0),
    np.fmod: lambda x, y: ops.mod(x, y, fmod=1),
    np.power: ops.pow_,
    np.float_power: ops.pow_,
    np.equal: ops.equal,
    np.not_equal: lambda x, y: ops.not_(ops.equal(x, y)),
    np.less: lambda x, y: x < y,
    np.greater: lambda x, y: x > y,
    np.less_equal: lambda x, y: x <= y,
    np.greater_equal: lambda x, y: x >= y,
}
_LOGIC: dict[Any, Callable[[Any, Any], Any]] = {
    np.logical_and: ops.and_,
    np.logical_or: ops.or_,
    np.logical_xor: ops.xor,
    np.bitwise_and: ops.and_,
    np.bitwise_or: ops.or_,
    np.bitwise_xor: ops.xor,
}

#: Other numpy functions, registered by ``tracing``.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
_METHODS = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "std": np.std,
    "var": np.var,
    "clip": np.clip,
    "dot": np.dot,
    "cumsum": np.cumsum,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "take": np.take,
}


class Rows(int):
    """Unknown number of rows: valid as an array size, but not in computations."""

    def __new__(cls) -> Rows:
        return super().__new__(cls, 251)

    def _refused(self, *_: Any) -> Any:
        raise TypeError("the number of rows is not known where a function is traced")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refused
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __float__ = __bool__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = _refused


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A value of a graph with the interface of a numpy array."""

    def __init__(self, value: Value, names: Sequence[str] = ()) -> None:
        self.value = value
        self.names = list(names)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(dim if isinstance(dim, int) else Rows() for dim in dims(self.value))

    @property
    def ndim(self) -> int:
        return int(self.value.rank or 0)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.value.dtype.numpy)

    @property
    def T(self) -> TracedArray:  # noqa: N802  numpy's name
        return TracedArray(ops.transpose(self.value))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("the numbers of the rows are not known where a function is traced")

    def __bool__(self) -> bool:
        raise TypeError("a branch may not depend on the numbers in the rows; use np.where")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or any(value is not None for value in options.values()):
            raise TypeError(f"numpy.{ufunc.__name__} with {method} or {', '.join(options)} is not supported")
        return TracedArray(_computed(ufunc, [plain(each) for each in inputs]))

    def __array_function__(self, function: Any, _: Any, arguments: Any, options: Any) -> Any:
        if function not in FUNCTIONS:
            raise TypeError(f"numpy.{function.__name__} is not supported")
        return FUNCTIONS[function](*arguments, **options)

    def __getitem__(self, key: Any) -> TracedArray:
        named = key if isinstance(key, list) else [key]
        if named and all(isinstance(each, str) for each in named):
            return self._named(named, isinstance(key, list))
        return TracedArray(_indexed(self.value, key if isinstance(key, tuple) else (key,)))

    def _named(self, names: list[str], several: bool) -> TracedArray:
        """Columns by name: several as a table, one as a vector."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            known = ", ".join(self.names) if self.names else "no names"
            raise TypeError(f"a column {unknown[0]!r} is not known where the function is traced, which sees {known}")
        places = [self.names.index(name) for name in names]
        return TracedArray(self[:, places].value, names) if several else self[:, places[0]]

    def astype(self, dtype: Any) -> TracedArray:
        return TracedArray(ops.cast(self.value, to=DType.of(np.dtype(dtype))))

    def copy(self) -> TracedArray:
        return self

    def reshape(self, *shape: Any) -> TracedArray:
        return FUNCTIONS[np.reshape](self, shape[0] if len(shape) == 1 else shape)  # type: ignore[no-any-return]

    def fillna(self, value: float) -> TracedArray:
        """Replace missing numbers, as in pandas."""
        return TracedArray(ops.where(ops.isnan(self.value), number(self.value, value), self.value), self.names)

    def toarray(self) -> TracedArray:
        """Densify sparse rows; a separate value, which is not recorded as sparse."""
        return TracedArray(ops.identity(self.value), self.names)

    def to_numpy(self) -> TracedArray:
        return self

    def to_frame(self) -> TracedArray:
        """A column as a table of one column, as in pandas."""
        return TracedArray(ops.unsqueeze(self.value, np.array([1], np.int64)))

    def ravel(self) -> TracedArray:
        return FUNCTIONS[np.reshape](self, -1)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return lambda *arguments, **options: FUNCTIONS[_METHODS[name]](self, *arguments, **options)
        raise AttributeError(f"an array's {name} is not supported")


def plain(each: Any) -> Any:
    return each.value if isinstance(each, TracedArray) else each


def number(like: Any, number: Any) -> Any:
    return np.asarray(number, like.dtype.numpy)


def truth(x: Value) -> Value:
    return x if x.dtype is DType.bool else ops.not_(ops.equal(x, number(x, 0)))


def floating(x: Value) -> Value:
    return x if x.dtype.is_float else ops.cast(x, to=DType.float64)


def _with_nan(function: Any, x: Any, y: Any) -> Any:
    """Propagate NaN, as in numpy."""
    result = function(x, y)
    for each in (x, y):
        if isinstance(each, Value) and each.dtype.is_float:
            result = ops.where(ops.isnan(each), each, result)
    return result


def _without_nan(function: Any, x: Any, y: Any) -> Any:
    """Ignore NaN in favor of the other argument."""
    x, y = (each if isinstance(each, Value) else ops.expand(each, np.array([1], np.int64)) for each in (x, y))
    return ops.where(ops.isnan(x), y, ops.where(ops.isnan(y), x, function(x, y)))


def _angle(y: Any, x: Any) -> Any:
    """The angle of a point in all four quadrants."""
    half = number(x, np.pi / 2)
    turned = ops.where(y < 0, -half * 2, half * 2)
    upright = ops.where(y < 0, -half, ops.where(y > 0, half, number(x, 0)))
    slope = ops.atan(ops.div(y, ops.where(ops.equal(x, number(x, 0)), number(x, 1), x)))
    filled = ops.where(ops.isnan(y), y, upright) if isinstance(y, Value) else upright
    return ops.where(x > 0, slope, ops.where(x < 0, slope + turned, ops.where(ops.isnan(x), x, filled)))


def alike(inputs: Sequence[Any]) -> list[Any]:
    """Promote to a common dtype: that of the value for a Python number, else by numpy's rules."""
    values = [each for each in inputs if isinstance(each, Value)]
    known = [each.dtype.numpy for each in values]
    fitted = [each for each in inputs if not isinstance(each, Value)]
    dtype = np.result_type(
        *known,
        *(
            each if np.ndim(each) == 0 and not isinstance(each, np.generic) else each.dtype
            for each in map(_as_number, fitted)
        ),
    )
    if any(isinstance(each, np.ndarray | np.float64) for each in fitted) and all(d == np.float32 for d in known):
        dtype = np.dtype(np.float32)  # float64 constants in the function do not promote float32 rows
    element_type = DType.of(dtype)
    return [
        ops.cast(each, to=element_type)
        if isinstance(each, Value) and each.dtype is not element_type
        else each
        if isinstance(each, Value)
        else np.asarray(each, dtype)
        for each in inputs
    ]


def _as_number(each: Any) -> Any:
    return each if isinstance(each, int | float | bool | np.ndarray | np.generic) else np.asarray(each)


def _computed(ufunc: Any, inputs: list[Any]) -> Value:
    if ufunc in _UNARY:
        return _UNARY[ufunc](floating(inputs[0]))  # type: ignore[no-any-return]
    if ufunc in _ANY_UNARY:
        return _ANY_UNARY[ufunc](inputs[0])  # type: ignore[no-any-return]
    if ufunc in _LOGIC:
        parts = [truth(each) if isinstance(each, Value) else np.asarray(each, bool) for each in inputs]
        return _LOGIC[ufunc](*parts)  # type: ignore[no-any-return]
    if ufunc in (np.true_divide, np.floor_divide, np.remainder, np.matmul):
        x, y = alike(inputs)
        if ufunc is np.matmul:
            return ops.matmul(x, y)
        if not (x if isinstance(x, Value) else y).dtype.is_float:
            x, y = (floating(e) if isinstance(e, Value) else np.asarray(e, np.float64) for e in (x, y))
        quotient = ops.div(x, y)
        if ufunc is np.true_divide:
            return quotient
        whole = ops.floor(quotient)
        return whole if ufunc is np.floor_divide else x - whole * y
    if ufunc in _BINARY:
        return _BINARY[ufunc](*alike(inputs))  # type: ignore[no-any-return]
    raise TypeError(f"numpy.{ufunc.__name__} is not supported")


def _indexed(x: Value, key: tuple[Any, ...]) -> Value:
    """Basic and integer indexing, mostly of columns."""
    place = next((k for k, each in enumerate(key) if each is Ellipsis), None)
    if place is not None:
        fill = int(x.rank or 0) - sum(each is not None for each in key) + 1
        key = (*key[:place], *[slice(None)] * fill, *key[place + 1 :])
    axis = 0
    for each in key:
        if each is None:
            x = ops.unsqueeze(x, np.array([axis], np.int64))
            axis += 1
        elif isinstance(each, slice):
            if each != slice(None):
                step = 1 if each.step is None else int(each.step)
                last = np.iinfo(np.int64).max if step > 0 else np.iinfo(np.int64).min
                start = (0 if step > 0 else np.iinfo(np.int64).max) if each.start is None else int(each.start)
                stop = last if each.stop is None else int(each.stop)
                x = ops.slice_(x, *(np.array([n], np.int64) for n in (start, stop, axis, step)))
            axis += 1
        elif isinstance(each, TracedArray):
            raise TypeError("rows are not chosen by what they hold: one row in is one row out")
        elif axis == 0:
            raise TypeError("rows are not chosen by their place: one row in is one row out")
        else:
            places = np.asarray(each)
            places = np.flatnonzero(places) if places.dtype == bool else places.astype(np.int64)
            x = ops.gather(x, places, axis=axis)
            axis += places.ndim
    return x
