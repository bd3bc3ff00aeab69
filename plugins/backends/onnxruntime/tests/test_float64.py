"""Calls in float64 for which onnxruntime has only float32 kernels."""

import math

import numpy as np
import pytest

#: Calls in float64 with only float32 kernels: input shape, shapes of weights, attributes.
FLOAT64 = {
    "Erf": ([["L"]], {}),
    "Gelu": ([["L"]], {}),
    "Tan": ([["L"]], {}),
    "Conv of groups": ([["N", 4, "H", "W"], [6, 2, 3, 3], [6]], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "Conv of dilated kernels": ([["N", 4, 9, 8], [6, 4, 3, 2]], {"dilations": [2, 1], "auto_pad": "SAME_UPPER"}),
    "Conv of one axis": ([["N", 4, "W"], [5, 4, 3]], {"pads": [1, 1]}),
    "AveragePool": ([["N", 4, "H", "W"]], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1] * 4}),
    "AveragePool of padding": ([["N", 4, "H", "W"]], {"kernel_shape": [3, 2], "count_include_pad": 1, "pads": [1] * 4}),
}


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_without_a_kernel_is_lowered_to_ops_of_float64(name, single):
    shapes, attributes = FLOAT64[name]
    lowered = single(name.split()[0], [("float64", s) for s in shapes], ("float64", None), **attributes)
    sizes = {"L": 201, "N": 2, "H": 9, "W": 8}
    filled = [[sizes.get(n, n) for n in shape] for shape in shapes]
    feeds = {f"x{k}": np.random.default_rng(k).uniform(-1.5, 1.5, shape) for k, shape in enumerate(filled)}
    result = lowered.compile("onnxruntime", strict=True)(feeds)["y"]
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, lowered.compile("numpy")(feeds)["y"], rtol=1e-12, atol=1e-13)


def test_erf_of_float64_keeps_signs_and_ends(single):
    ends = np.array([-np.inf, -6.0, -5.9, -0.0, 0.0, 1e-300, 5.9, 6.0, 1e200, np.inf, np.nan])
    lowered = single("Erf", [("float64", ["N"])], ("float64", ["N"]))
    result = lowered.compile("onnxruntime", strict=True)({"x0": ends})["y"]
    expected = np.array([math.erf(number) for number in ends])
    np.testing.assert_allclose(result, expected, rtol=1e-14)
    assert np.signbit(result[:-1]).tolist() == np.signbit(expected[:-1]).tolist()
    assert np.nanmax(np.abs(result)) == 1
