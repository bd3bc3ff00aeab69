"""What the conformance kit does not draw: gradients through codes, whole models, and the edges of the ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx_quantized.matrix import exact_product, matmul_integer, qlinear_matmul
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from tenonnx_standard.reduction import reduce_sum

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def fake_quantised(shape, scale_shape, **attributes):
    """The graph of ``dequantise(quantise(x))`` to int8, and its gradients."""
    graph = tx.Graph("fake")
    x, scale = graph.input("x", "float32", shape), graph.input("scale", "float32", scale_shape)
    codes = quantize_linear(x, scale, output_dtype=int(tx.DType.int8), **attributes)
    graph.output("y", reduce_sum(dequantize_linear(codes, scale, **attributes), keepdims=0))
    return tx.grad(graph, of="y", wrt=["x", "scale"])


@pytest.mark.parametrize(
    ("scale_shape", "scale", "attributes"),
    [
        ((), 0.02, {}),
        ((3,), [0.02, 0.03, 0.05], {"axis": 1}),
        ((2, 2), [[0.02, 0.03], [0.03, 0.05]], {"axis": 1, "block_size": 2}),
    ],
)
@pytest.mark.parametrize("dims", [(2, 3), ("n", "m")])
def test_gradient_goes_straight_through(scale_shape, scale, attributes, dims):
    x = np.array([[0.511, -0.3, 9], [-9, 0.013, 1.1]], np.float32)
    s = np.asarray(scale, np.float32)
    outputs = fake_quantised(dims, scale_shape, **attributes).run({"x": x, "scale": s}, backend="numpy")
    *_, to_x, to_scale = outputs.values()
    wide = s if s.ndim < 2 else np.repeat(s, 2, axis=1)[:, :3]
    units = x / wide
    inside = np.abs(np.rint(units) + 0.5) <= 127.5
    np.testing.assert_array_equal(to_x, inside.astype(np.float32))
    each = np.where(inside, np.rint(units) - units, np.clip(np.rint(units), -128, 127))
    wanted = {0: lambda: each.sum(), 1: lambda: each.sum(0), 2: lambda: np.stack([each[:, :2].sum(1), each[:, 2]], 1)}
    np.testing.assert_allclose(to_scale, wanted[s.ndim](), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 11, 21])
def test_digits_in_eight_bits(opset):
    feeds = {"pixels": np.load(DIGITS / "samples.npz")["pixels"]}
    session = onnxruntime.InferenceSession(DIGITS / "digits-int8.onnx", providers=["CPUExecutionProvider"])
    graph = tx.retarget(tx.load(DIGITS / "digits-int8.onnx"), opset, domains=["ai.onnx"])
    names = [output.name for output in session.get_outputs()]
    actual = graph.run(feeds, backend="numpy")
    for name, wanted in zip(names, session.run(None, feeds), strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(actual[name], wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(actual[name], wanted)


def test_zeros_have_a_scale():
    codes, scale, zero_point = dynamic_quantize_linear(np.zeros((2, 3), np.float32))
    assert not codes.any()
    assert (scale, zero_point) == (1, 0)


def test_codes_saturate():
    x = np.array([np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5], np.float32)
    expected = [127, -128, 127, -128, 0, 2, 2, 0]
    np.testing.assert_array_equal(quantize_linear(x, np.float32(1), np.int8(0)), np.array(expected, np.int8))


@pytest.mark.parametrize("inner", [1, 255, 259, 1000])
def test_products_are_exact(inner):
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 256, shape).astype(np.uint8) for shape in ((3, inner), (inner, 4)))
    expected = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(matmul_integer(a, b), expected)
    np.testing.assert_array_equal(exact_product(a.astype(np.float32), b.astype(np.float32)), expected)


@pytest.mark.parametrize(("scale", "zero_point"), [([1, 1], [0]), ([1], [0, 0]), ([[[1], [1]]], [0])])
def test_parameters_of_a_product_do_not_enlarge_it(scale, zero_point):
    codes, one, zero = np.ones((2, 1), np.uint8), np.ones(1, np.float32), np.zeros(1, np.uint8)
    y = np.float32(scale), np.uint8(zero_point)
    with pytest.raises(tx.TypeMismatch, match="parameters of y"):
        qlinear_matmul(codes, one, zero, codes[:1], one, zero, *y)
