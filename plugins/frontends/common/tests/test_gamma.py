"""Gamma and related functions against scipy, in all float types."""

import numpy as np
import pytest
from scipy import special

import tenonnx as tx
from tenonnx_frontends import gamma

BELOW_ZERO = [-0.25, -0.5, -0.999, -1.5, -2.75, -7.3, -20.5]
ABOVE_ZERO = [1e-6, 1e-3, 0.1, 0.4999, 0.5, 0.75, 1.0, 1.25, 1.75, 2.0, 3.5, 9.999, 10.0, 25.0, 1e4]
SIZES = [0.0, 1e-8, 0.1, 1.0, 3.74, 3.76, 7.9, 8.1, 11.99, 12.0, 12.01, 29.99, 30.0, 30.01, 80.0, 700.0, 1e4]
X = np.array(BELOW_ZERO + ABOVE_ZERO)
BESSEL = np.array(SIZES + [-size for size in SIZES] + [np.nan])
S, Q = (each.ravel() for each in np.meshgrid([1.0, 1.1, 1.5, 2.0, 3.0, 5.5, 12.0], [0.1, 0.5, 1.0, 2.5, 10.0, 50.0]))
M, Z = (each.ravel() for each in np.meshgrid([0.0, 1.0, 2.0, 3.0, 4.0], [0.25, 0.5, 1.0, 2.5, 10.0, 50.0]))
CASES = {
    "lgamma": (special.gammaln, [np.append(X, [0.0, -0.0, -3.0, np.inf, np.nan])]),
    "digamma": (special.digamma, [np.append(X, [-3.0, np.inf, np.nan])]),
    "zeta": (special.zeta, [S, Q]),
    "polygamma": (lambda m, x: special.polygamma(m.astype(int), x), [M, Z]),
    "bessel_i0e": (special.i0e, [BESSEL]),
    "bessel_i1e": (special.i1e, [BESSEL]),
}
TOLERANCES = {"float64": 1e-13, "float32": 5e-6, "float16": 2e-3}


def computed(function, *arrays):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    names = [f"x{k}" for k in range(len(arrays))]
    with graph.building():
        inputs = [graph.input(name, str(x.dtype), ("n",)) for name, x in zip(names, arrays, strict=True)]
        graph.output("y", function(*inputs))
    with np.errstate(all="ignore"):
        return graph.run(dict(zip(names, arrays, strict=True)), "numpy")["y"]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_a_function_agrees_with_scipy(name, dtype):
    reference, arrays = CASES[name]
    arrays = [x.astype(dtype) for x in arrays]
    result = computed(getattr(gamma, name), *arrays)
    assert result.dtype == dtype
    with np.errstate(all="ignore"):
        expected = reference(*(x.astype(np.float64) for x in arrays)).astype(dtype)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance if "gamma" in name else 0)


@pytest.mark.parametrize(("q", "expected"), [(-1.0, np.inf), (0.0, np.inf), (-1.5, np.nan)])
def test_zeta_has_poles(q, expected):
    np.testing.assert_equal(computed(gamma.zeta, np.array([2.5]), np.array([q])), [expected])


def test_there_is_no_zeta_below_one():
    np.testing.assert_equal(computed(gamma.zeta, np.array([0.5, 1.0]), np.array([2.0, 2.0])), [np.nan, np.inf])


def test_lgamma_of_minus_infinity_is_that_of_c():
    np.testing.assert_equal(computed(gamma.lgamma, np.array([-np.inf])), [np.inf])
