"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value, constant, static
from tenonnx_litert.builtins import elementwise as tfl
from tenonnx_litert.builtins import movement
from tenonnx_litert.lowerings.registry import LOWERINGS, as_floats, broadcast, lowers, reshaped, unless

_WHOLE = (DType.float32, DType.int32, DType.int64)
_SMALL = (DType.int8, DType.uint8, DType.int16, DType.uint16)


def _in_type(kind: DType, function: Any, *values: Value, back: bool = True) -> Value:
    """Compute a function in another element type, and cast the result back."""
    result = function(*(ops.cast(v, to=kind) for v in values))
    return ops.cast(result, to=values[0].dtype) if back else result


def _binary(op: Op[Any], builtin: Any, kinds: tuple[DType, ...], *, back: bool = True) -> None:
    def lowered(x: Value, y: Value, **_: Any) -> Any:
        if x.dtype in _SMALL and x.dtype not in kinds:
            return _in_type(DType.int32, op, x, y, back=back)
        unless(x.dtype not in kinds, f"{builtin.name} does not take {x.dtype}")
        return broadcast(builtin, x, y)

    lowers(op)(lowered)


_binary(ops.add, tfl.add, _WHOLE)
_binary(ops.sub, tfl.sub, _WHOLE)
_binary(ops.mul, tfl.mul, _WHOLE)
_binary(ops.div, tfl.div, (DType.float32, DType.int32))
_binary(ops.equal, tfl.equal, (*_WHOLE, DType.bool), back=False)
_binary(ops.less, tfl.less, _WHOLE, back=False)
_binary(ops.less_or_equal, tfl.less_equal, _WHOLE, back=False)
_binary(ops.greater, tfl.greater, _WHOLE, back=False)
_binary(ops.greater_or_equal, tfl.greater_equal, _WHOLE, back=False)
_binary(ops.and_, tfl.logical_and, (DType.bool,))
_binary(ops.or_, tfl.logical_or, (DType.bool,))
_binary(ops.xor, tfl.not_equal, (DType.bool,))
_binary(ops.bitwise_xor, tfl.bitwise_xor, (DType.int8, DType.uint8, DType.int16, DType.uint16, DType.int32))


#: Operators whose results are positions or sizes and so fit into int32.
_OF_POSITIONS = {"TOPK_V2", "ARG_MAX", "ARG_MIN", "SHAPE", "WHERE"}
_ON_POSITIONS = {
    *("RESHAPE", "TRANSPOSE", "GATHER", "GATHER_ND", "STRIDED_SLICE", "CONCATENATION", "SPLIT", "SPLIT_V", "TILE"),
    *("BROADCAST_TO", "ADD", "SUB", "MUL", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SELECT_V2", "CAST", "RANGE"),
}


def _is_position(value: Value, depth: int = 20) -> bool:
    """Whether an integer is computed from positions and sizes only."""
    contents = static(value)
    if contents is not None:
        return bool(np.all(np.abs(contents) < 2**31))
    if value.dtype in (DType.int32, DType.bool, *_SMALL) or value.symbolic_contents is not None:
        return True
    node = value.producer
    if value.dtype is not DType.int64 or node is None or not depth:
        return False
    inputs = (v for v in node.inputs if v is not None)
    return node.op_type in _OF_POSITIONS or (
        node.op_type in _ON_POSITIONS and all(_is_position(v, depth - 1) for v in inputs)
    )


@lowers(ops.div)
def div_of_positions(x: Value, y: Value) -> Any:
    """Quotients of positions and sizes, in int32."""
    fits = x.dtype is DType.int64 and _is_position(x) and _is_position(y)
    unless(not fits, f"DIV does not take {x.dtype}")
    return _in_type(DType.int32, ops.div, x, y)


@lowers(ops.mod)
def mod(x: Value, y: Value, *, fmod: int) -> Any:
    if x.dtype in _SMALL:
        return _in_type(DType.int32, lambda a, b: ops.mod(a, b, fmod=fmod), x, y)
    if fmod and x.dtype is DType.float32:
        quotient = ops.div(x, y)
        truncated = ops.where(quotient < 0.0, ops.ceil(quotient), ops.floor(quotient))
        return x - truncated * y
    unless(bool(fmod), "FLOOR_MOD does not compute fmod=1")
    unless(x.dtype not in _WHOLE, f"FLOOR_MOD does not take {x.dtype}")
    return broadcast(tfl.floor_mod, x, y)


@lowers(ops.pow_)
def pow_(x: Value, y: Value) -> Any:
    as_floats(x)
    contents = static(y)
    if contents is not None and np.size(contents) == 1 and np.size(contents) >= y.ndim:
        power = float(np.reshape(contents, -1)[0])
        if power in (1.0, 2.0, 0.5, -1.0, -0.5, 3.0) and y.ndim <= x.ndim:
            return _power(x, power)
    y = ops.cast(y, to=DType.float32) if y.dtype is not DType.float32 else y
    return broadcast(tfl.pow_, x, y)


def _power(x: Value, power: float) -> Any:
    if power == 1.0:
        return x
    if power == 2.0:
        return tfl.mul(x, x)
    if power == 3.0:
        return tfl.mul(tfl.mul(x, x), x)
    if power == 0.5:
        return tfl.sqrt(x)
    return ops.div(constant(np.float32(1)), x if power == -1.0 else tfl.sqrt(x))


def _extreme(op: Op[Any], builtin: Any) -> None:
    def lowered(*values: Value) -> Any:
        if values[0].dtype in _SMALL:
            return _in_type(DType.int32, op, *values)
        unless(values[0].dtype not in _WHOLE, f"{builtin.name} does not take {values[0].dtype}")
        result = values[0]
        for value in values[1:]:
            result = broadcast(builtin, result, value)
        return result

    lowers(op)(lowered)


_extreme(ops.maximum, tfl.maximum)
_extreme(ops.minimum, tfl.minimum)


@lowers(ops.clip)
def clip(x: Value, least: Value | None, greatest: Value | None) -> Any:
    low, high = (None if v is None else static(v) for v in (least, greatest))
    if x.dtype is DType.float32 and (least is None or low is not None) and (greatest is None or high is not None):
        bounds = (-np.inf if low is None else float(low), np.inf if high is None else float(high))
        functions = {(0.0, 6.0): tfl.relu6, (-1.0, 1.0): tfl.relu_n1_to_1, (0.0, np.inf): tfl.relu}
        if bounds in functions:
            return functions[bounds](x)
    y = x if least is None else ops.maximum(x, least)
    return y if greatest is None else ops.minimum(y, greatest)


@lowers(ops.where)
def where(condition: Value, x: Value, y: Value) -> Any:
    unless(x.dtype is DType.string, "SELECT_V2 does not take strings")
    if x.dtype in (DType.uint16, DType.uint32):
        return _in_type(DType.int64, lambda a, b: ops.where(condition, a, b), x, y)
    return broadcast(tfl.select_v2, condition, x, y)


# ----- of one input ---------------------------------------------------------------------------------------------------


def _unary(op: Op[Any], builtin: Any, *kinds: DType) -> None:
    def lowered(x: Value, **_: Any) -> Any:
        unless(x.dtype not in (kinds or (DType.float32,)), f"{builtin.name} does not take {x.dtype}")
        return builtin(x)

    lowers(op)(lowered)


for _op, _builtin in (
    (ops.exp, tfl.exp),
    (ops.log, tfl.log),
    (ops.sqrt, tfl.sqrt),
    (ops.sin, tfl.sin),
    (ops.cos, tfl.cos),
    (ops.floor, tfl.floor),
    (ops.ceil, tfl.ceil),
    (ops.round_, tfl.round_),
    (ops.tanh, tfl.tanh),
    (ops.sigmoid, tfl.logistic),
    (ops.relu, tfl.relu),
    (ops.hard_swish, tfl.hard_swish),
):
    _unary(_op, _builtin)
_unary(ops.neg, tfl.neg, *_WHOLE)
_unary(ops.absolute, tfl.absolute, DType.float32, DType.int32)
_unary(ops.sign, tfl.sign, DType.float32, DType.int32)
_unary(ops.not_, tfl.logical_not, DType.bool)


@lowers(ops.absolute, ops.sign)
def through_maximum(x: Value) -> Any:
    unless(x.dtype is not DType.int64, f"no kernel takes {x.dtype}")
    return ops.maximum(x, -x)


LOWERINGS[ops.sign].pop()


@lowers(ops.reciprocal)
def reciprocal(x: Value) -> Any:
    as_floats(x)
    return tfl.div(constant(np.float32(1)), x)


@lowers(ops.isnan)
def isnan(x: Value) -> Any:
    return tfl.not_equal(x, x)


@lowers(ops.atan)
def atan(x: Value) -> Any:
    as_floats(x)
    return tfl.atan2(x, ops.expand(constant(np.float32(1)), ops.shape(x)))


@lowers(ops.asin)
def asin(x: Value) -> Any:
    as_floats(x)
    return tfl.atan2(x, ops.sqrt(1.0 - x * x))


@lowers(ops.acos)
def acos(x: Value) -> Any:
    as_floats(x)
    return tfl.atan2(ops.sqrt(1.0 - x * x), x)


@lowers(ops.gelu)
def gelu(x: Value, *, approximate: str) -> Any:
    as_floats(x)
    return tfl.gelu(x, approximate=int(approximate == "tanh"))


@lowers(ops.elu)
def elu(x: Value, *, alpha: float) -> Any:
    as_floats(x)
    unless(alpha != 1.0, "ELU supports only alpha 1")
    return tfl.elu(x)


@lowers(ops.leaky_relu)
def leaky_relu(x: Value, *, alpha: float) -> Any:
    as_floats(x)
    return tfl.leaky_relu(x, alpha=alpha)


@lowers(ops.prelu)
def prelu(x: Value, slope: Value) -> Any:
    as_floats(x, slope)
    unless(x.ndim > 4, "PRELU takes up to 4 axes")
    return tfl.prelu(x, reshaped(slope, (*[1] * (x.ndim - slope.ndim), *slope.shape)))


def _along_last_axis(op: Op[Any], builtin: Any) -> None:
    def lowered(x: Value, *, axis: int) -> Any:
        as_floats(x)
        if axis in (-1, x.ndim - 1):
            return builtin(x)
        order = list(range(x.ndim))
        order[axis], order[-1] = order[-1], order[axis]
        return ops.transpose(builtin(ops.transpose(x, perm=order)), perm=order)

    lowers(op)(lowered)


_along_last_axis(ops.softmax, tfl.softmax)
_along_last_axis(ops.log_softmax, tfl.log_softmax)


# ----- types ----------------------------------------------------------------------------------------------------------

_CAST = (
    DType.float32,
    DType.float16,
    DType.float64,
    DType.int8,
    DType.uint8,
    DType.int16,
    DType.uint16,
    DType.int32,
    DType.uint32,
    DType.int64,
    DType.bool,
)


@lowers(ops.cast)
def cast(x: Value, *, to: int, **_: Any) -> Any:
    to = DType(to)
    contents = static(x) if x.dtype in (DType.int4, DType.uint4) else None
    if contents is not None:
        return ops.cast(constant(contents.astype(np.int32)), to=to)
    unless(x.dtype not in _CAST or to not in _CAST, f"CAST does not convert {x.dtype} to {to}")
    if x.dtype is to:
        return x
    if to is DType.bool and x.dtype.is_float:
        return ops.not_(ops.equal(x, constant(np.zeros((), x.dtype.numpy), x.dtype)))
    return tfl.cast(x, out_data_type=to.name)


@lowers(ops.identity)
def identity(x: Value) -> Any:
    """A copy, for a graph output that needs its own tensor."""
    if x.shape is not None and [isinstance(n, int) for n in x.shape].count(False) <= 1 and 0 not in x.shape:
        return movement.reshape(x, constant(np.asarray([n if isinstance(n, int) else -1 for n in x.shape], np.int32)))
    return tfl.cast(x, out_data_type=x.dtype.name)
