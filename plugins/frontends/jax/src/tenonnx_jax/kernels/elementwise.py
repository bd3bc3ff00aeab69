"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_jax.kernels import Inconclusive, is_float, rule, with_symbols

#: JAX functions with the op's signature.
_SAME: dict[Any, Any] = {
    ops.absolute: jnp.abs,
    ops.neg: jnp.negative,
    ops.sign: jnp.sign,
    ops.exp: jnp.exp,
    ops.log: jnp.log,
    ops.sqrt: jnp.sqrt,
    ops.erf: jax.scipy.special.erf,
    ops.round_: jnp.round,
    ops.sin: jnp.sin,
    ops.cos: jnp.cos,
    ops.tan: jnp.tan,
    ops.asin: jnp.arcsin,
    ops.acos: jnp.arccos,
    ops.atan: jnp.arctan,
    ops.sinh: jnp.sinh,
    ops.cosh: jnp.cosh,
    ops.tanh: jnp.tanh,
    ops.asinh: jnp.arcsinh,
    ops.acosh: jnp.arccosh,
    ops.atanh: jnp.arctanh,
    ops.ceil: jnp.ceil,
    ops.floor: jnp.floor,
    ops.add: jnp.add,
    ops.sub: jnp.subtract,
    ops.mul: jnp.multiply,
    ops.isnan: jnp.isnan,
    ops.equal: jnp.equal,
    ops.less: jnp.less,
    ops.greater: jnp.greater,
    ops.less_or_equal: jnp.less_equal,
    ops.greater_or_equal: jnp.greater_equal,
    ops.where: jnp.where,
    ops.and_: jnp.logical_and,
    ops.or_: jnp.logical_or,
    ops.xor: jnp.logical_xor,
    ops.not_: jnp.logical_not,
    ops.bitwise_and: jnp.bitwise_and,
    ops.bitwise_or: jnp.bitwise_or,
    ops.bitwise_xor: jnp.bitwise_xor,
    ops.bitwise_not: jnp.bitwise_not,
    ops.relu: jax.nn.relu,
    ops.sigmoid: jax.nn.sigmoid,
    ops.softsign: jax.nn.soft_sign,
    ops.identity: lambda x: x,
}

for _op, _function in _SAME.items():
    rule(_op)(_function)


@rule(ops.reciprocal)
def reciprocal_rule(x: Any) -> Any:
    return 1 / x


@rule(ops.softplus)
def softplus_rule(x: Any) -> Any:
    return jnp.logaddexp(x, jnp.zeros((), x.dtype))


@rule(ops.maximum)
def maximum_rule(*data_0: Any) -> Any:
    return reduce(_of_dims(jax.core.max_dim) if _are_dims(data_0) else jnp.maximum, data_0)


@rule(ops.minimum)
def minimum_rule(*data_0: Any) -> Any:
    return reduce(_of_dims(jax.core.min_dim) if _are_dims(data_0) else jnp.minimum, data_0)


def _are_dims(contents: Sequence[Any]) -> bool:
    """Whether all contents are known, and include symbolic dims."""
    return any(map(with_symbols, contents)) and all(isinstance(each, np.ndarray) for each in contents)


def _of_dims(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Vectorize a function of two dims for object arrays."""
    each = np.frompyfunc(function, 2, 1)
    return lambda first, second: np.asarray(each(first, second), object)


@rule(ops.sum_)
def sum_rule(*data_0: Any) -> Any:
    return reduce(jnp.add, data_0)


@rule(ops.mean)
def mean_rule(*data_0: Any) -> Any:
    return reduce(jnp.add, data_0) / len(data_0)


@rule(ops.div)
def div_rule(a: Any, b: Any) -> Any:
    if _are_dims((a, b)):
        return _of_dims(_quotient)(a, b)
    if is_float(a):
        shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(b))
        if jnp.shape(b) != shape or not isinstance(b, jax.core.Tracer):
            b = lax.optimization_barrier(jnp.broadcast_to(b, shape))  # XLA would multiply by the reciprocal
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))  # truncates towards zero


def _quotient(size: Any, divisor: Any) -> Any:
    """The quotient of numbers that are known not to be negative: rounded down, it is truncated."""
    if size >= 0 and divisor > 0:
        return size // divisor
    raise Inconclusive(f"{size} / {divisor}")


@rule(ops.mod)
def mod_rule(a: Any, b: Any, *, fmod: int) -> Any:
    return jnp.fmod(a, b) if fmod else jnp.mod(a, b)


@rule(ops.pow_, takes=lambda x, y: x.dtype.is_float)
def pow_rule(x: Any, y: Any) -> Any:
    return jnp.power(x, y if not is_float(y) else y.astype(x.dtype)).astype(x.dtype)


@rule(ops.isinf)
def isinf_rule(x: Any, *, detect_negative: int, detect_positive: int) -> Any:
    result = jnp.zeros(x.shape, bool)
    result = result | jnp.isneginf(x) if detect_negative else result
    return result | jnp.isposinf(x) if detect_positive else result


@rule(ops.clip)
def clip_rule(x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else jnp.maximum(x, low.reshape(()))
    return x if high is None else jnp.minimum(x, high.reshape(()))


_PLAIN = {DType.bool, DType.float16, DType.bfloat16, DType.float32, DType.float64, *(d for d in DType if d.is_integer)}


def _plain_cast(x: Value, *, to: int, **attributes: Any) -> bool:
    return x.dtype in _PLAIN and DType(to) in _PLAIN and DType(to).bits >= 8 and x.dtype.bits >= 8


@rule(ops.cast, takes=_plain_cast)
def cast_rule(x: Any, *, to: int, saturate: int, round_mode: str) -> Any:
    dtype = jax.dtypes.canonicalize_dtype(DType(to).numpy)
    if with_symbols(x) and jnp.issubdtype(dtype, jnp.signedinteger):
        return x
    if is_float(x) and jnp.issubdtype(dtype, jnp.integer):
        return _to_integer(x, dtype)
    return x.astype(dtype)


def _to_integer(x: Any, dtype: Any) -> Any:
    """Convert like CPUs: to a wide integer, keeping the low bits."""
    wide = jax.dtypes.canonicalize_dtype(jnp.int64) if dtype in (jnp.int64, jnp.uint32) else jnp.int32
    if dtype == jnp.uint64 or (dtype == jnp.uint32 and wide != jnp.int64):
        return NotImplemented
    return x.astype(wide).astype(dtype)


@rule(ops.bitcast)
def bitcast_rule(x: Any, *, to: int) -> Any:
    dtype = DType(to)
    return NotImplemented if dtype is DType.bool or x.dtype == bool else lax.bitcast_convert_type(x, dtype.numpy)


@rule(ops.leaky_relu)
def leaky_relu_rule(x: Any, *, alpha: float) -> Any:
    return jnp.where(x >= 0, x, x * alpha)


@rule(ops.elu)
def elu_rule(x: Any, *, alpha: float) -> Any:
    return jax.nn.elu(x, alpha)


@rule(ops.prelu)
def prelu_rule(x: Any, slope: Any) -> Any:
    return jnp.where(x < 0, x * slope, x)


@rule(ops.gelu)
def gelu_rule(x: Any, *, approximate: str) -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")
