"""Functions in terms of ops against scipy, in all float types."""

import numpy as np
import pytest
from scipy import special

import tenonnx as tx
from tenonnx_frontends import numerics

ENDS = [np.inf, -np.inf, np.nan, 0.0, -0.0]
AROUND_ZERO = [s * 10.0**k for k in range(-12, 2) for s in (1, -1)]
CASES = {
    "log1p": [*AROUND_ZERO[:24], -1.0, -0.9999, 1e30, *ENDS],
    "expm1": [*AROUND_ZERO, 80.0, -80.0, 0.4999, 0.5, 0.5001, *ENDS],
    "erfc": [*np.linspace(-6, 9, 61), 0.4999, 0.5001, 3.9999, 4.0001, *ENDS],
    "erfinv": [*np.linspace(-0.999, 0.999, 41), 1 - 1e-6, 1e-6 - 1, 1.0, -1.0, 1.5, np.nan, 0.0],
    "ndtri": [*np.linspace(0.001, 0.999, 41), 1e-6, 0.0, 1.0, np.nan],
}
TOLERANCES = {"float64": 4e-14, "float32": 3e-6, "float16": 2e-3}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_a_function_agrees_with_scipy(name, dtype):
    if (name, dtype) in {("log1p", "float16"), ("expm1", "float16"), ("ndtri", "float16")}:
        x = np.array([0.25, 0.5, 0.75], dtype)
    else:
        x = np.array(CASES[name], dtype)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        graph.output("y", getattr(numerics, name)(graph.input("x", dtype, ("n",))))
    with np.errstate(all="ignore"):
        (result,) = graph.run({"x": x}, "numpy").values()
        expected = getattr(special, name)(x.astype(np.float64))
        assert result.dtype == dtype
        expected = expected.astype(dtype)
    least = float(np.finfo(dtype).tiny) if dtype != "float16" else 1e-3
    np.testing.assert_allclose(result, expected, rtol=TOLERANCES[dtype], atol=least)


def test_a_polynomial_begins_with_the_highest_power():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        graph.output("y", numerics.polynomial([2.0, 0.0, -1.0], graph.input("x", "float64", ("n",))))
    np.testing.assert_array_equal(graph.run({"x": np.array([0.0, 1.0, 3.0])}, "numpy")["y"], [-1, 1, 17])


@pytest.mark.parametrize("equation", ["...ij,...j->...i", "...ij,...j", "...ij,j->...i", "i...j,...j->...i"])
def test_an_einsum_broadcasts_ellipses_of_different_ranks(equation):
    a, b = np.arange(24.0).reshape(2, 3, 4), np.arange(4.0)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        graph.output(
            "y",
            numerics.einsum(equation, *(graph.input(n, "float64", x.shape) for n, x in zip("ab", (a, b), strict=True))),
        )
    expected = np.einsum(equation, a, b)
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(graph.run({"a": a, "b": b}, backend)["y"], expected)
