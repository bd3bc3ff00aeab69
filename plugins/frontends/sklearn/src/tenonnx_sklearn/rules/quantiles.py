"""Quantiles, splines and the normal distribution."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import beside, cast, column, double, interpolate
from tenonnx_sklearn.conversion import Outputs, converts, refusal

#: Rational functions of Wichura's algorithm AS 241 for normal quantiles: in the center, near the tails and in the
#: tails. Each is a numerator and a denominator, lowest power first.
_MIDDLE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_OUTER = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_ENDS = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
#: Distance from a bound below which scikit-learn uses the bound itself.
NEAR = 1e-7


def _rational(x: Value, parts: Any) -> Value:
    above, below = (_horner(x, coefficients) for coefficients in parts)
    return above / below


def _horner(x: Value, coefficients: Any) -> Value:
    y = x * float(coefficients[-1]) + float(coefficients[-2])
    for each in coefficients[-3::-1]:
        y = y * x + float(each)
    return y


def normal_quantile(p: Value) -> Value:
    """Quantile function of the standard normal distribution."""
    q = p - 0.5
    middle = q * _rational(0.180625 - q * q, _MIDDLE)
    r = ops.sqrt(-ops.log(ops.minimum(p, 1.0 - p)))
    outside = ops.where(r <= 5.0, _rational(r - 1.6, _OUTER), _rational(r - 5.0, _ENDS))
    return ops.where(ops.absolute(q) <= 0.425, middle, ops.sign(q) * outside)


def erf(x: Value) -> Value:
    """The error function in float64 by Chebyshev polynomials, since runtimes compute Erf in float32."""
    from scipy.special import erfcx

    def logs(u: Any) -> Any:
        t = (u + 1) / 2
        return np.log(erfcx(2 / t - 2) / t)

    factors = np.polynomial.chebyshev.chebinterpolate(logs, 27)
    size = ops.absolute(x)
    t = 2.0 / (size + 2.0)
    u = t * 2.0 - 1.0
    before, now = u * 0.0, u * 0.0 + float(factors[-1])
    for factor in factors[-2:0:-1]:
        before, now = now, now * u * 2.0 - before + float(factor)
    rest = t * ops.exp(now * u - before + float(factors[0]) - size * size)
    return ops.sign(x) * (1.0 - rest)


def _normal_limits() -> tuple[float, float]:
    from scipy.stats import norm

    low = float(norm.ppf(NEAR - np.spacing(1)))
    return low, -low


@converts("sklearn.QuantileTransformer")
def quantiles(model: Any, X: Value) -> Outputs:
    """The mean of interpolations from below and from above, which differ at repeated quantiles."""
    normal, references = model.output_distribution == "normal", np.asarray(model.references_)
    parts = []
    for k, found in enumerate(np.asarray(model.quantiles_, np.float64).T):
        x = double(column(X, k))
        above = interpolate(-x, -found[::-1], -references[::-1])
        y = (interpolate(x, found, references) - above) * 0.5
        near = NEAR if normal else 0.0
        last, first = (x + near > found[-1], x - near < found[0]) if normal else (x >= found[-1], x <= found[0])
        y = ops.where(first, np.float64(0), ops.where(last, np.float64(1), y))
        if normal:  # of probabilities that scikit-learn rounds to the dtype of the rows
            low, high, y = *_normal_limits(), double(cast(y, X.dtype))
            y = ops.clip(normal_quantile(ops.clip(y, np.float64(NEAR / 2), np.float64(1 - NEAR / 2))), low, high)
        parts.append(ops.where(ops.isnan(x), x, y))
    return {"transform": cast(beside(parts), X.dtype)}


def quantile_of(model: Any, y: Value) -> Value:
    """Inverse of ``QuantileTransformer`` for a matrix ``y``."""
    from_normal = model.output_distribution == "normal"
    parts = []
    for k, found in enumerate(np.asarray(model.quantiles_, np.float64).T):
        p = double(column(y, k))
        if from_normal:
            p = erf(p * float(np.sqrt(0.5))) * 0.5 + 0.5
        x = interpolate(p, np.asarray(model.references_), found)
        near = NEAR if from_normal else 0.0
        x = ops.where(p + near > 1.0, np.float64(found[-1]), x)
        parts.append(ops.where(p - near < 0.0, np.float64(found[0]), x))
    return cast(beside(parts), y.dtype)


@converts("sklearn.SplineTransformer")
def splines(model: Any, X: Value) -> Outputs:
    """Polynomials between knots, from their derivatives at the lower knot."""
    if model.extrapolation not in ("constant", "linear", "continue", "periodic", "error"):
        raise refusal(model, f"extrapolation={model.extrapolation}")
    if model.extrapolation == "linear" and model.degree < 2 and X.shape[1] > 1:
        raise refusal(model, f"degree={model.degree} with extrapolation=linear and several columns")
    parts = []
    for k, spline in enumerate(model.bsplines_):
        x = double(column(X, k))
        y = _spline(model, spline, x)
        if getattr(model, "handle_missing", "error") == "zeros":
            y = ops.where(ops.isnan(ops.unsqueeze(x, np.array([1], np.int64))), np.float64(0), y)
        kept = np.arange(y.shape[1] - (not model.include_bias))
        parts.append(ops.gather(y, kept, axis=1))
    return {"transform": cast(beside(parts), X.dtype)}


def _spline(model: Any, spline: Any, x: Value) -> Value:
    degree, knots = model.degree, np.asarray(spline.t, np.float64)
    first, last = float(knots[degree]), float(knots[-degree - 1])
    starts = np.unique(knots[degree : -degree - 1])
    starts = starts[starts < last]
    given = x
    if model.extrapolation == "periodic":
        turns = (x - first) / (last - first)
        x = (turns - ops.floor(turns)) * (last - first) + first
    elif model.extrapolation != "continue":
        x = ops.clip(x, np.float64(first), np.float64(last))
    reached = cast(ops.unsqueeze(x, np.array([1], np.int64)) >= starts[None, 1:], DType.int64)
    place = ops.reduce_sum(reached, np.array([1], np.int64), keepdims=0)
    step = ops.unsqueeze(x - ops.gather(starts, place, axis=0), np.array([1], np.int64))
    powers = [np.asarray(spline(starts, nu=j)) / factorial(j) for j in range(degree + 1)]
    y = ops.gather(powers[-1], place, axis=0)
    for each in powers[-2::-1]:
        y = y * step + ops.gather(each, place, axis=0)
    outside = ops.unsqueeze(given - x, np.array([1], np.int64))
    if model.extrapolation == "linear":
        slope = np.asarray([spline(first, nu=1), spline(last, nu=1)])
        low = ops.where(outside < 0.0, outside, np.float64(0))
        y = y + low * slope[:1] + (outside - low) * slope[1:]
    elif model.extrapolation == "error":
        y = ops.where(ops.not_(ops.equal(outside, np.float64(0))), np.float64(np.nan), y)
    return y
