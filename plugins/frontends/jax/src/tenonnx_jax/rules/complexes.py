"""Complex numbers as pairs of a real and an imaginary part."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import NotRepresentable, Value, constant
from tenonnx_frontends import complex_pairs
from tenonnx_jax.dims import is_static
from tenonnx_jax.promotion import scalar
from tenonnx_jax.rules import RULES, of_parts
from tenonnx_jax.rules.elementwise import converted
from tenonnx_jax.rules.reductions import contracted
from tenonnx_jax.types import Parts, is_complex


@of_parts("complex")
def complex_of_parts(equation: Any, real: Value, imaginary: Value, **_: Any) -> Any:
    return Parts((real, imaginary))


@of_parts("real")
def real_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return z[0]


@of_parts("imag")
def imag_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return z[1]


@of_parts("conj")
def conj_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return Parts(complex_pairs.conjugate(z)) if isinstance(z, Parts) else Parts((z, ops.mul(z, scalar(0, z))))


def _by_part(*names: str) -> None:
    """Register rules that apply linear primitives to the real and the imaginary part separately."""
    for name in names:

        def each(equation: Any, *values: Any, _name: str = name, **params: Any) -> Any:
            return Parts(RULES[_name](equation, *column, **params) for column in zip(*values, strict=True))

        of_parts(name)(each)


_by_part("add", "sub", "neg", "add_any", "reduce_sum", "cumsum", "pad", "concatenate", "dynamic_update_slice_of_parts")


@of_parts("mul")
def mul_of_parts(equation: Any, a: Any, b: Any, **_: Any) -> Any:
    return Parts(complex_pairs.product(a, b))


@of_parts("square")
def square_of_parts(equation: Any, a: Any, **_: Any) -> Any:
    return Parts(complex_pairs.product(a, a))


@of_parts("div")
def div_of_parts(equation: Any, a: Any, b: Any, **_: Any) -> Any:
    return Parts(complex_pairs.quotient(a, b))


@of_parts("integer_pow")
def integer_pow_of_parts(equation: Any, z: Any, *, y: int, **params: Any) -> Any:
    one = Parts((ops.add(ops.mul(z[0], scalar(0, z[0])), scalar(1, z[0])), ops.mul(z[0], scalar(0, z[0]))))
    result = one
    for _turn in range(abs(y)):
        result = Parts(complex_pairs.product(result, z))
    return Parts(complex_pairs.quotient(one, result)) if y < 0 else result


@of_parts("abs")
def abs_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return complex_pairs.magnitude(z)


@of_parts("sign")
def sign_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    size = complex_pairs.magnitude(z)
    none = ops.equal(size, scalar(0, size))
    return Parts(ops.div(part, ops.where(none, scalar(1, size), size)) for part in z)


def _angle(equation: Any, z: Any) -> Value:
    result: Value = RULES["atan2"](equation, z[1], z[0])
    return result


@of_parts("exp")
def exp_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return Parts(complex_pairs.exponential(z))


@of_parts("log")
def log_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return Parts((ops.log(complex_pairs.magnitude(z)), _angle(equation, z)))


@of_parts("sqrt")
def sqrt_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    size = complex_pairs.magnitude(z)
    half = scalar(0.5, size)
    real = ops.sqrt(ops.relu(ops.mul(ops.add(size, z[0]), half)))
    imaginary = ops.sqrt(ops.relu(ops.mul(ops.sub(size, z[0]), half)))
    below = ops.less(z[1], scalar(0, size))
    return Parts((real, ops.where(below, ops.neg(imaginary), imaginary)))


@of_parts("sin")
def sin_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return Parts((ops.mul(ops.sin(z[0]), ops.cosh(z[1])), ops.mul(ops.cos(z[0]), ops.sinh(z[1]))))


@of_parts("cos")
def cos_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return Parts((ops.mul(ops.cos(z[0]), ops.cosh(z[1])), ops.neg(ops.mul(ops.sin(z[0]), ops.sinh(z[1])))))


def _tanh(z: Any) -> Any:
    x, y = jnp.clip(lax.real(z), -20, 20), lax.imag(z)  # beyond 20, tanh is exactly 1 or -1
    below = jnp.cosh(2 * x) + jnp.cos(2 * y)
    return lax.complex(jnp.sinh(2 * x) / below, jnp.sin(2 * y) / below)


def _by_parts(real: Any, imaginary: Any) -> Any:
    """Build a function of ``z`` from two functions of its real and imaginary parts."""
    return lambda z: lax.complex(real(lax.real(z), lax.imag(z)), imaginary(lax.real(z), lax.imag(z)))


#: Definitions of further primitives in terms of the ones above, which JAX traces.
_COMPOSED: dict[str, Any] = {
    "tanh": _tanh,
    "tan": lambda z: -1j * _tanh(1j * z),
    "sinh": _by_parts(lambda x, y: jnp.sinh(x) * jnp.cos(y), lambda x, y: jnp.cosh(x) * jnp.sin(y)),
    "cosh": _by_parts(lambda x, y: jnp.cosh(x) * jnp.cos(y), lambda x, y: jnp.sinh(x) * jnp.sin(y)),
    "rsqrt": lambda z: 1 / lax.sqrt(z),
    "expm1": lambda z: lax.exp(z) - 1,
    "log1p": lambda z: lax.log(z + 1),
    "logistic": lambda z: 1 / (1 + lax.exp(-z)),
    "pow": lambda z, w: lax.exp(w * lax.log(z)),
}


def _compose(name: str, function: Any) -> None:
    @of_parts(name)
    def name_of_parts(equation: Any, *values: Any, **_: Any) -> Any:
        return equation.trace(function, *values)[0]


for _name, _function in _COMPOSED.items():
    _compose(_name, _function)


@of_parts("eq")
def eq_of_parts(equation: Any, a: Any, b: Any, **_: Any) -> Any:
    return complex_pairs.equal(a, b)


@of_parts("ne")
def ne_of_parts(equation: Any, a: Any, b: Any, **_: Any) -> Any:
    return ops.not_(complex_pairs.equal(a, b))


@of_parts("is_finite")
def is_finite_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    return ops.and_(*(RULES["is_finite"](equation, part) for part in z))


@of_parts("convert_element_type")
def convert_element_type_of_parts(equation: Any, z: Any, **_: Any) -> Any:
    if not isinstance(z, Parts):
        real = converted(z, equation.dtype)
        return Parts((real, ops.mul(real, scalar(0, real))))
    if is_complex(equation.out.dtype):
        return Parts(converted(part, equation.dtype) for part in z)
    return converted(z[0], equation.dtype)


@of_parts("broadcast_in_dim")
def broadcast_in_dim_of_parts(equation: Any, z: Any, *rest: Any, **params: Any) -> Any:
    return Parts(RULES["broadcast_in_dim"](equation, part, *rest, **params) for part in z)


@of_parts("dot_general")
def dot_general_of_parts(equation: Any, x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    ((x_sum, y_sum), (x_batch, y_batch)) = dimension_numbers

    def product(a: Value, b: Value) -> Value:
        left, right = (a, equation.ins[0].shape, x_batch, x_sum), (b, equation.ins[1].shape, y_batch, y_sum)
        return contracted(equation, left, right, equation.dtype)

    a, b = (v if isinstance(v, Parts) else (v, None) for v in (x, y))
    real = product(a[0], b[0])
    if a[1] is not None and b[1] is not None:
        real = ops.sub(real, product(a[1], b[1]))
    crossed = [product(p, q) for p, q in ((a[0], b[1]), (a[1], b[0])) if p is not None and q is not None]
    return Parts((real, crossed[0] if len(crossed) == 1 else ops.add(*crossed)))


__all__ = ["NotRepresentable", "constant", "is_static", "np"]
