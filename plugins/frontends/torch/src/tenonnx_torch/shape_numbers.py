"""Shape arithmetic on Python and symbolic numbers, without tensors in the traced program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, TensorType, Value
from tenonnx_torch.values import NATIVE

#: Arrays with more elements are tensors rather than shapes.
LONGEST = 64


@dataclass(frozen=True, slots=True)
class Numbers:
    """A small array: a shape, axes, pads, or a result computed from these; an object array for symbolic sizes."""

    array: np.ndarray[Any, Any]
    dtype: DType

    @property
    def is_symbolic(self) -> bool:
        return self.array.dtype == object

    @property
    def ints(self) -> list[Any]:
        """The elements, each an ``int`` or a ``torch.SymInt``."""
        return self.array.reshape(-1).tolist()

    def tensor(self) -> torch.Tensor:
        if not self.is_symbolic:
            return torch.tensor(self.array.tolist(), dtype=NATIVE[self.dtype]).reshape(self.array.shape)
        scalars = [_as_scalar(each, NATIVE[self.dtype]) for each in self.array.reshape(-1)]
        return scalars[0] if not self.array.ndim else torch.stack(scalars).reshape(self.array.shape)


def _as_scalar(number: Any, dtype: torch.dtype) -> torch.Tensor:
    return number.to(dtype) if isinstance(number, torch.Tensor) else torch.scalar_tensor(number, dtype=dtype)


def numbers_of(elements: Sequence[Any], dtype: DType = DType.int64) -> Numbers:
    """A vector of numbers, such as a shape."""
    contents = np.empty(len(elements), object)
    for place, element in enumerate(elements):
        contents[place] = element
    return _as_numbers(contents, dtype)


def number_of(element: Any, dtype: DType = DType.int64) -> Numbers:
    """A scalar number."""
    return _as_numbers(element, dtype)


def known_numbers(value: Value | None, floats: int = 1) -> Numbers | None:
    """The elements of a constant of at most LONGEST integers or booleans, or at most ``floats`` floats; else None."""
    kind = None if value is None else value.type
    if value is None or value.data is None or not isinstance(kind, TensorType) or kind.dtype not in _KNOWN:
        return None
    array = value.data.array()
    if array.size > (floats if kind.dtype.is_float else LONGEST):
        return None
    return Numbers(array, kind.dtype)


_KNOWN = {DType.int32, DType.int64, DType.bool, DType.float32, DType.float64}


def as_tensor(contents: Any) -> Any:
    """Contents with ``Numbers`` converted to a tensor."""
    return contents.tensor() if isinstance(contents, Numbers) else contents


def computed(op: Op, rule: Callable[..., Any], given: Sequence[Numbers | None], attributes: dict[str, Any]) -> Any:
    """Compute an op on ``Numbers``: by its numpy ``rule``, or symbolically.

    Returns ``NotImplemented`` for ops other than shape arithmetic, and for large results.
    """
    function = _ARITHMETIC.get(op, rule if op in _MOVES else None)
    if function is None or (op in _GROWS and given[1] is not None and not _is_small(op, given)):
        return NotImplemented
    symbolic = any(each is not None and each.is_symbolic for each in given)
    if not symbolic:
        function = rule
    elif op in _MOVES and any(each is not None and each.is_symbolic for each in given[_MOVES[op] :]):
        return NotImplemented
    moved = len(given) if not symbolic else _MOVES.get(op, len(given))
    arrays: list[Any] = [
        None if each is None else each.array.astype(object) if symbolic and k < moved else each.array
        for k, each in enumerate(given)
    ]
    if symbolic and op is ops.where:
        arrays[0] = arrays[0].astype(bool)
    result = function(*arrays, **attributes)
    if result is NotImplemented:
        return result
    results = result if isinstance(result, tuple) else (result,)
    if any(np.size(each) > LONGEST for each in results):
        return NotImplemented
    dtype = _dtype_of(op, given, attributes)
    return tuple(_as_numbers(each, dtype) for each in results)


def _is_small(op: Op, given: Sequence[Numbers | None]) -> bool:
    shape = given[1]
    assert shape is not None
    return not shape.is_symbolic and int(np.prod(shape.array, dtype=np.int64)) <= LONGEST


def _dtype_of(op: Op, given: Sequence[Numbers | None], attributes: dict[str, Any]) -> DType:
    if op is ops.cast:
        return DType(attributes["to"])
    if op in _TRUTH:
        return DType.bool
    first = given[1] if op is ops.where else given[0]
    assert first is not None
    return first.dtype


def _as_numbers(array: Any, dtype: DType) -> Numbers:
    """``Numbers`` of an array, with elements converted to ``dtype`` unless one is symbolic."""
    numbers = array if isinstance(array, np.ndarray) else _scalar(array)
    if numbers.dtype == object and all(isinstance(each, int | float | np.generic) for each in numbers.reshape(-1)):
        numbers = numbers.astype(dtype.numpy)
    return Numbers(numbers, dtype)


def _scalar(number: Any) -> np.ndarray[Any, Any]:
    scalar = np.empty((), np.asarray(number).dtype if isinstance(number, np.generic) else object)
    scalar[()] = number
    return scalar


# ----- arithmetic of symbolic numbers ---------------------------------------------------------------------------------


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Vectorize a function of numbers for object arrays."""
    compute = np.frompyfunc(function, function.__code__.co_argcount, 1)
    return lambda *arrays, **attributes: compute(*arrays)


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float | torch.SymFloat) or isinstance(b, float | torch.SymFloat):
        return a / b
    if _is_traced(a, b):
        return torch.div(*_tensors(a, b), rounding_mode="trunc")
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, which may be symbolic."""
    return torch.maximum(*_tensors(a, b)) if _is_traced(a, b) else torch.sym_max(a, b)


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers, which may be symbolic."""
    return torch.minimum(*_tensors(a, b)) if _is_traced(a, b) else torch.sym_min(a, b)


def _is_traced(*numbers: Any) -> bool:
    """Whether a number is a tensor, as sizes in ``torch.jit.trace``."""
    return any(isinstance(each, torch.Tensor) for each in numbers)


def _tensors(*numbers: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(each) for each in numbers]


def _cast(array: Any, *, to: int, **_: Any) -> Any:
    dtype = DType(to)
    if dtype is DType.bool:
        return _each(lambda n: bool(n != 0))(array)
    return _each(_to_float if dtype.is_float else _to_int)(array)


def _to_float(n: Any) -> Any:
    return n.double() if isinstance(n, torch.Tensor) else torch.sym_float(n)


def _to_int(n: Any) -> Any:
    return n.long() if isinstance(n, torch.Tensor) else torch.sym_int(n)


def _reduced(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def reduced(array: Any, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int) -> Any:
        if array.ndim > 1 or (axes is None and noop_with_empty_axes):
            return NotImplemented
        result = functools.reduce(function, array.reshape(-1))
        return np.array([result], object).reshape([1] * array.ndim) if keepdims else result

    return reduced


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    compute = np.frompyfunc(function, 2, 1)
    return lambda *arrays: functools.reduce(compute, arrays)


_ARITHMETIC: dict[Any, Callable[..., Any]] = {
    ops.add: _each(lambda a, b: a + b),
    ops.sub: _each(lambda a, b: a - b),
    ops.mul: _each(lambda a, b: a * b),
    ops.div: _each(_divided),
    ops.mod: _each(lambda a, b: a % b),
    ops.neg: _each(lambda a: -a),
    ops.absolute: _each(lambda a: abs(a)),
    ops.floor: _each(lambda a: a // 1),
    ops.ceil: _each(lambda a: -(-a // 1)),
    ops.equal: _each(lambda a, b: bool(a == b)),
    ops.less: _each(lambda a, b: bool(a < b)),
    ops.greater: _each(lambda a, b: bool(a > b)),
    ops.less_or_equal: _each(lambda a, b: bool(a <= b)),
    ops.greater_or_equal: _each(lambda a, b: bool(a >= b)),
    ops.not_: _each(lambda a: not a),
    ops.and_: _each(lambda a, b: bool(a) and bool(b)),
    ops.or_: _each(lambda a, b: bool(a) or bool(b)),
    ops.maximum: _folded(larger),
    ops.minimum: _folded(smaller),
    ops.sum_: _folded(lambda a, b: a + b),
    ops.cast: _cast,
    ops.reduce_prod: _reduced(lambda a, b: a * b),
    ops.reduce_sum: _reduced(lambda a, b: a + b),
    ops.reduce_max: _reduced(larger),
    ops.reduce_min: _reduced(smaller),
}

_TRUTH = {
    ops.equal,
    ops.less,
    ops.greater,
    ops.less_or_equal,
    ops.greater_or_equal,
    ops.not_,
    ops.and_,
    ops.or_,
}

#: Ops that move elements, with the number of their data inputs: the others are positions, which must not be symbolic.
_MOVES: dict[Any, int] = {
    ops.identity: 1,
    ops.reshape: 1,
    ops.squeeze: 1,
    ops.unsqueeze: 1,
    ops.flatten: 1,
    ops.transpose: 1,
    ops.expand: 1,
    ops.tile: 1,
    ops.concat: 1 << 30,
    ops.split: 1,
    ops.slice_: 1,
    ops.gather: 1,
    ops.gather_elements: 1,
    ops.gather_nd: 1,
    ops.where: 3,
}

_GROWS = {ops.expand, ops.tile}
