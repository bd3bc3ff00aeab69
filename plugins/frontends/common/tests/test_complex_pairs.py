"""Complex numbers as pairs, against numpy."""

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_frontends import complex_pairs

PARTS = [0.0, 1.0, -2.5, 3e-20, -7e18]
NUMBERS = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
A, B = (each.ravel() for each in np.meshgrid(NUMBERS, NUMBERS))

EXPECTED = {
    "conjugate": lambda a, b: a.conj(),
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / b,
    "magnitude": lambda a, b: np.abs(a),
    "exponential": lambda a, b: np.exp(a),
    "equal": lambda a, b: a == b,
}


def computed(name, a, b):
    """Compute a function of two complex numbers, or of the first only, in a float32 graph."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    with graph.building():
        pairs = [[graph.input(f"{z}{part}", "float32", ("n",)) for part in ("r", "i")] for z in "ab"]
        takes = 2 if name in ("product", "quotient", "equal") else 1
        result = getattr(complex_pairs, name)(*pairs[:takes])
        for k, part in enumerate(result if isinstance(result, tuple) else [result]):
            graph.output(f"y{k}", part)
    feeds = {"ar": a.real.copy(), "ai": a.imag.copy(), "br": b.real.copy(), "bi": b.imag.copy()}
    parts = list(graph.run({value.name: feeds[value.name] for value in graph.inputs}, "numpy").values())
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_agrees_with_numpy(name):
    chosen = (np.abs(A) < 80) & (np.abs(B) < 80) if name == "exponential" else np.abs(B) > 0
    a, b = A[chosen], B[chosen]
    with np.errstate(all="ignore"):
        expected = EXPECTED[name](a.astype(np.complex128), b.astype(np.complex128))
        known = np.abs(expected) < 3e38
        result = computed(name, a, b)
    assert known.sum() > 200
    np.testing.assert_allclose(result[known], expected[known], rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize(("name", "value"), [("quotient", 3e30 + 4e30j), ("magnitude", 3e30 + 4e30j)])
def test_squares_do_not_overflow(name, value):
    z = np.array([value], np.complex64)
    (result,) = computed(name, z, z)
    assert result == pytest.approx({"quotient": 1, "magnitude": 5e30}[name], rel=1e-6)
