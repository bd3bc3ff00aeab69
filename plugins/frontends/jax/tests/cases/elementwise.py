"""Elementwise functions, of every element type."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from cases import BATCH, bools, case, floats, integers, positive

x, p, i = floats(3, 4), positive(3, 4), integers(3, 4)

for _name in [
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "exp",
    "expm1",
    "abs",
    "sign",
    "floor",
    "ceil",
    "square",
    "negative",
    "arctan",
    "arcsinh",
    "cbrt",
    "exp2",
    "isnan",
    "isfinite",
    "degrees",
    "rint",
    "trunc",
    "positive",
    "sinc",
    "signbit",
]:
    case(f"jnp.{_name}", getattr(jnp, _name), x, dims=BATCH)
for _name in ["log", "log1p", "sqrt", "reciprocal", "log2", "log10"]:
    case(f"jnp.{_name}", getattr(jnp, _name), p, dims=BATCH)
for _name in ["arcsin", "arccos", "arctanh"]:
    case(f"jnp.{_name}", getattr(jnp, _name), p / 2.1, dims=BATCH)
case("jnp.arccosh", jnp.arccosh, p + 1, dims=BATCH)

two = {0: {0: "batch"}, 1: {0: "batch"}}
for _name in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "arctan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "mod",
    "fmod",
    "floor_divide",
    "copysign",
    "heaviside",
    "nextafter",
]:
    case(f"jnp.{_name}", getattr(jnp, _name), x, floats(3, 4, seed=1), dims=two)
case("jnp.power", jnp.power, p, x, dims=two)
for _name in [
    "add",
    "subtract",
    "multiply",
    "floor_divide",
    "mod",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "gcd",
]:
    case(f"jnp.{_name} of ints", getattr(jnp, _name), i, integers(3, 4, seed=1, low=1), dims=two)
case("lax.div of ints by zero", lax.div, i, integers(3, 4, low=-1, high=2, seed=2), dims=two)
case("lax.rem of ints by zero", lax.rem, i, integers(3, 4, low=-1, high=2, seed=2), dims=two)
case("lax.pow of ints", lambda a: a**3 + a**0, i, dims=BATCH)
case("integer_pow", lambda a: a**5 + a**-2 + a**2, p, dims=BATCH)
case("lax.clamp", lambda a: lax.clamp(-0.5, a, 0.5), x, dims=BATCH)
case("jnp.clip ints", lambda a: jnp.clip(a, -2, 3), i, dims=BATCH)
case(
    "lax.round away",
    lambda a: lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO),
    np.float32([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5]),
)
case(
    "lax.round even",
    lambda a: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN),
    np.float32([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5]),
)
case("comparisons", lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b), i, integers(3, 4, seed=5), dims=two)
case("logic", lambda a, b: (a & b, a | b, a ^ b, ~a, jnp.logical_and(a, b)), bools(3, 4), bools(3, 4, seed=1), dims=two)
case("where", lambda a, b: jnp.where(a > 0, a, b), x, floats(3, 4, seed=1), dims=two)
case("select_n of ints", lambda w, a, b, c: lax.select_n(w, a, b, c), integers(3, 4, low=0, high=3), x, x + 1, x + 2)
case("jnp.select", lambda a: jnp.select([a < -0.5, a < 0.5], [a, a * 2], a * 3), x, dims=BATCH)
case("shifts of int32", lambda a: (a << 3, a >> 2, lax.shift_right_logical(a, jnp.int32(4))), i, dims=BATCH)
case(
    "shifts by values",
    lambda a, b: (lax.shift_left(a, b), lax.shift_right_arithmetic(a, b)),
    i,
    integers(3, 4, low=0, high=40),
    dims=two,
)
case("shifts of uint32", lambda a: (a << 3, a >> 2), integers(3, 4, low=0, high=1 << 31, dtype=np.uint32), dims=BATCH)
case("invert", lambda a: ~a, i, dims=BATCH)
case("population_count", lax.population_count, integers(3, 4, low=0, high=1 << 31, dtype=np.uint32), dims=BATCH)
case("clz", lax.clz, integers(3, 4, low=0, high=1 << 31, dtype=np.int32), dims=BATCH)
case("bitcast", lambda a: lax.bitcast_convert_type(a, jnp.int32), x, dims=BATCH)
case(
    "bitcast back",
    lambda a: lax.bitcast_convert_type(a, jnp.float32),
    integers(3, 4, low=1 << 29, high=1 << 30),
    dims=BATCH,
)
for _kind in ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "bool"]:
    case(f"to {_kind}", lambda a, kind=_kind: a.astype(kind), x * 3, dims=BATCH)
case(
    "to ints beyond their range",
    lambda a: (a.astype(jnp.int32), a.astype(jnp.uint8), a.astype(jnp.int8)),
    np.float32([1e20, -1e20, np.nan, 300.7, -5.5, np.inf]),
)
for _kind in (np.float16, ml_dtypes.bfloat16):
    case(f"polynomial of {_kind.__name__}", lambda a: a * a + a - 1, x.astype(_kind), dims=BATCH)
    case(f"softmax of {_kind.__name__}", jax.nn.softmax, x.astype(_kind), dims=BATCH)
for _kind in (np.int8, np.uint8, np.int16, np.uint16, np.uint32):
    case(
        f"arithmetic of {_kind.__name__}",
        lambda a: a * a + a - 3,
        integers(3, 4, low=0, high=100, dtype=_kind),
        dims=BATCH,
    )
case("x64 floats", lambda a: jnp.sin(a) * 2, x.astype(np.float64), dims=BATCH, x64=True)
case("x64 ints", lambda a: a * 3_000_000_000, integers(3, 4, dtype=np.int64), dims=BATCH, x64=True)
case("x64 off, given float64", lambda a: jnp.sin(a) * 2, x.astype(np.float64), dims=BATCH)
case("x64 erfinv", lax.erf_inv, (p / 2.1).astype(np.float64), x64=True)
case("reduce_precision", lambda a: lax.reduce_precision(a, 5, 10), x, dims=BATCH)
for _name in [
    "erf",
    "erfc",
    "erfinv",
    "logit",
    "lgamma_",
    "digamma",
    "expit",
    "xlogy_",
    "log_ndtr",
    "ndtri",
    "i0e",
    "i1e",
    "bessel_",
]:
    if not _name.endswith("_"):
        case(f"special.{_name}", getattr(jax.scipy.special, _name), p / 2.1, dims=BATCH)
case("special.gammaln", jax.scipy.special.gammaln, p * 3, dims=BATCH)
case("special.gammaln below zero", jax.scipy.special.gammaln, -p * 3 + 0.03, dims=BATCH)
case("special.erfc far", jax.scipy.special.erfc, np.float32([-4, -1, -0.3, 0, 0.3, 0.7, 2, 3.9, 4.5, 8]))
case("special.igamma", jax.scipy.special.gammainc, p, positive(3, 4, seed=2))
case("special.betainc", jax.scipy.special.betainc, p, positive(3, 4, seed=2), p / 2.1)
case("special.logsumexp", lambda a: jax.scipy.special.logsumexp(a, axis=1), x, dims=BATCH)
case(
    "nan and infinity",
    lambda a: (jnp.maximum(a, 0), jnp.minimum(a, 1), jnp.sign(a), jnp.nan_to_num(a), jnp.isinf(a)),
    np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 1]),
)
case(
    "complex arithmetic",
    lambda a, b: jnp.abs((a + 1j * b) * (a - 2j * b) / (1 + 1j * a)),
    x,
    floats(3, 4, seed=1),
    dims=two,
)
case(
    "complex functions",
    lambda a, b: jnp.real(jnp.exp(lax.complex(a, b)) + jnp.sqrt(lax.complex(a, b)) + jnp.log(lax.complex(a, b))),
    x,
    floats(3, 4, seed=1),
    dims=two,
)
case("complex angle", lambda a, b: jnp.angle(lax.complex(a, b)), x, floats(3, 4, seed=1), dims=two)
case(
    "complex matmul", lambda a, b: jnp.imag(lax.complex(a, a * 2) @ lax.complex(b, b - 1)), x, floats(4, 2), dims=BATCH
)
case("complex output", lambda a, b: lax.complex(a, b).T, x, floats(3, 4, seed=1))
case("complex input", lambda a: jnp.conj(a) * 2, x + 1j * floats(3, 4, seed=1))
case(
    "gamma functions of a number and arrays",
    lambda a: (
        jax.scipy.special.gammainc(2.0, jnp.abs(a)),
        jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(a)),
        jax.scipy.special.zeta(jnp.abs(a) + 1.5, 1.0),
        jax.scipy.special.polygamma(1, jnp.abs(a) + 0.5),
    ),
    x,
    dims=BATCH,
)
case(
    "reductions of bits",
    lambda a: (lax.reduce_and(a, (1,)), lax.reduce_or(a, (1,)), lax.reduce_xor(a, (0, 1))),
    integers(3, 4),
    dims=BATCH,
)
case(
    "more complex functions",
    lambda z: (jnp.tanh(z), jnp.tan(z), jnp.sinh(z), jnp.cosh(z), lax.rsqrt(z), jnp.expm1(z), jnp.log1p(z), z**1.5),
    x + 1j * floats(3, 4, seed=1),
    dims=BATCH,
)
case(
    "bits of numbers of other sizes",
    lambda a, b: (lax.bitcast_convert_type(a, jnp.uint8), lax.bitcast_convert_type(b, jnp.int32)),
    x,
    integers(3, 2, dtype=np.int16),
    dims={0: {0: "n"}},
)
