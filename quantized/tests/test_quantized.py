"""Gradients through quantization, quantized models, and the limits of ranges."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx_quantized.blocks import matmul_nbits
from tenonnx_quantized.convolution import conv_integer
from tenonnx_quantized.elementwise import qlinear_add
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.matrix import exact_product, matmul_integer, qlinear_matmul
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from tenonnx_standard.reduction import reduce_sum

U8, F32 = np.uint8, np.float32
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def fake_quantized(shape, scale_shape, **attributes):
    """Return the graph of ``dequantize(quantize(x))`` in int8, with its gradients."""
    graph = tx.Graph("fake")
    x, scale = graph.input("x", "float32", shape), graph.input("scale", "float32", scale_shape)
    quantized = quantize_linear(x, scale, output_dtype=int(tx.DType.int8), **attributes)
    graph.output("y", reduce_sum(dequantize_linear(quantized, scale, **attributes), keepdims=0))
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
    outputs = fake_quantized(dims, scale_shape, **attributes).run({"x": x, "scale": s}, backend="numpy")
    *_, to_x, to_scale = outputs.values()
    wide = s if s.ndim < 2 else np.repeat(s, 2, axis=1)[:, :3]
    units = x / wide
    inside = np.abs(np.rint(units) + 0.5) <= 127.5
    np.testing.assert_array_equal(to_x, inside.astype(np.float32))
    each = np.where(inside, np.rint(units) - units, np.clip(np.rint(units), -128, 127))
    expected = {0: lambda: each.sum(), 1: lambda: each.sum(0), 2: lambda: np.stack([each[:, :2].sum(1), each[:, 2]], 1)}
    np.testing.assert_allclose(to_scale, expected[s.ndim](), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 11, 21])
def test_digits_in_eight_bits(opset):
    feeds = {"pixels": np.load(DIGITS / "samples.npz")["pixels"]}
    session = onnxruntime.InferenceSession(DIGITS / "digits-int8.onnx", providers=["CPUExecutionProvider"])
    graph = tx.retarget(tx.load(DIGITS / "digits-int8.onnx"), opset, domains=["ai.onnx"])
    names = [output.name for output in session.get_outputs()]
    actual = graph.run(feeds, backend="numpy")
    for name, expected in zip(names, session.run(None, feeds), strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(actual[name], expected)


def test_zeros_have_a_scale():
    quantized, scale, zero_point = dynamic_quantize_linear(np.zeros((2, 3), np.float32))
    assert not quantized.any()
    assert (scale, zero_point) == (1, 0)


def test_quantized_values_saturate():
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


@pytest.mark.parametrize(("channels", "group", "size"), [(64, 1, 3), (300, 1, 3), (600, 2, 3), (1, 1, 25), (2, 2, 25)])
def test_convolutions_are_exact(channels, group, size, tmp_path):
    """Sums are exact even beyond 2**24; so are they in the oldest opset, by convolutions that runtimes support."""
    x = np.full((1, channels, size, size + 1), 255, U8)
    w = np.random.default_rng(0).integers(-128, -100, (2, channels // group, size, size)).astype(np.int8)
    window = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (size, size), (2, 3))
    parts = zip(np.split(window, group, 1), np.split(w.astype(np.int64), group), strict=True)
    expected = np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)
    assert np.abs(expected).max() > 1 << 23
    graph = tx.Graph(opsets={"ai.onnx": 21})
    quantized = graph.input("x", "uint8", x.shape)
    graph.output("y", conv_integer(quantized, graph.variable("w", w), group=group))
    np.testing.assert_array_equal(graph.run({"x": x}, backend="numpy")["y"], expected)
    tx.export(graph, tmp_path / "old.onnx", opset_version=9, domains=["ai.onnx"])
    if size < 25:  # larger kernels exceed exact float32 sums, and onnxruntime has float convolutions only
        session = onnxruntime.InferenceSession(tmp_path / "old.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize(("scale", "zero_point"), [([1, 1], [0]), ([1], [0, 0]), ([[[1], [1]]], [0])])
def test_parameters_of_a_product_do_not_enlarge_it(scale, zero_point):
    quantized, one, zero = np.ones((2, 1), np.uint8), np.ones(1, np.float32), np.zeros(1, np.uint8)
    y = np.float32(scale), np.uint8(zero_point)
    with pytest.raises(tx.TypeMismatch, match="scale or zero point does not broadcast to y"):
        qlinear_matmul(quantized, one, zero, quantized[:1], one, zero, *y)


# ----- bad input ------------------------------------------------------------------------------------------------------

BLOCKS = {"K": 32, "N": 2, "block_size": 16}


def scaled(kind, scale, code):
    """Return a single-node model with a constant scale and zero point 3."""
    tensor = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8, "float": onnx.TensorProto.FLOAT}
    taken, given = ("float", code) if kind == "QuantizeLinear" else (code, "float")
    x, y = (onnx.helper.make_tensor_value_info(n, tensor[t], [8]) for n, t in (("x", taken), ("y", given)))
    held = [
        onnx.numpy_helper.from_array(np.array(scale, F32), "scale"),
        onnx.numpy_helper.from_array(np.array(3, code), "zero"),
    ]
    node = onnx.helper.make_node(kind, ["x", "scale", "zero"], ["y"])
    body = onnx.helper.make_graph([node], "scaled", [x], [y], held)
    return onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("code", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["QuantizeLinear", "DequantizeLinear"])
def test_any_scale_gives_the_results_of_onnxruntime(kind, code, scale):
    """Quantizing a mask of -inf gives an infinite scale; NaN becomes the lowest value."""
    model = scaled(kind, scale, code)
    x = np.array([-np.inf, np.inf, np.nan, 0, -0.0, 1.5, -3, 1e30], F32)
    if kind == "DequantizeLinear":
        x = np.arange(8).astype(code)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    graph = tx.load(model)
    graph.infer()
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_array_equal(graph.run({"x": x}, backend=backend)["y"], expected)
    tx.verify(graph, tx.retarget(graph, 17), feeds={"x": x}).raise_if_failed()


@pytest.mark.parametrize("scale", [-0.1, np.inf])
def test_any_scale_of_a_vendor_op_is_accepted(scale):
    one = np.array(0.5, F32), np.array(2, U8)
    x = np.arange(0, 250, 25).astype(U8)
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    taken = graph.input("x", "uint8", x.shape)
    graph.output("y", qlinear_add(taken, *one, taken, *one, graph.variable("scale", np.array(scale, F32)), one[1]))
    np.testing.assert_array_equal(*(graph.run({"x": x}, backend=b)["y"] for b in ("numpy", "onnxruntime")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": np.zeros((2, 2, 9), U8)}, '"B" does not have 32 elements'),
        ({"scales": np.ones((2, 3), F32)}, '"scales" does not have 4 elements'),
        ({"zero_points": np.zeros((2, 3), U8)}, '"zero_points" does not have 2 elements'),
        ({"block_size": 24}, "block_size is not a power of two"),
        ({"block_size": 8}, "block_size is less than 16"),
        ({"bits": 9}, "unknown bits"),
        ({"weight_prepacked": 1}, "device-specific layout"),
    ],
)
def test_packed_weights_that_do_not_fit(change, message):
    given = {"B": np.zeros((2, 2, 8), U8), "scales": np.ones((2, 2), F32), "zero_points": None, **BLOCKS} | change
    names = ("B", "scales", "zero_points")
    inputs = [given.pop(name) for name in names]
    with pytest.raises(tx.TypeMismatch, match=message):
        matmul_nbits(np.ones((1, 32), np.float32), *inputs, **given)


@pytest.mark.parametrize("rows", [1, 8])
def test_weights_of_four_bits_stay_packed_in_numpy(rows):
    """A call dequantizes a few columns at a time, and the program does not store them."""
    columns, inner = 2048, 2048
    packed = np.full((columns, inner // 32, 16), 0x9A, U8)  # 10 and 9: 2 and 1 above half the range
    graph = tx.Graph(opsets={"com.microsoft": 1})
    given = graph.variable("B", packed), graph.variable("s", np.full((columns, inner // 32), 0.5, F32))
    x = graph.input("x", "float32", (rows, inner))
    graph.output("y", matmul_nbits(x, *given, K=inner, N=columns, block_size=32))
    feeds = {"x": np.ones((rows, inner), F32)}
    tracemalloc.start()
    try:
        result = graph.compile("numpy")(feeds)["y"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(result, np.full((rows, columns), inner / 32 * 16 * 3 * 0.5, F32))
    assert peak < columns * inner * 4 / 2, "less than half of the weights as floats"


def test_zero_points_have_the_type_of_their_quantized_values():
    quantized = np.ones((2, 3), U8)
    with pytest.raises(tx.TypeMismatch, match='"B_zero_point" has another element type than "B"'):
        qlinear_add(quantized, F32(1), U8(0), quantized, F32(1), np.int8(0), F32(1), U8(0))


# ----- gradients ------------------------------------------------------------------------------------------------------


def test_gradients_pass_through_a_frozen_four_bit_model():
    """LoRA needs gradients of adapters parallel to frozen weights, and of earlier layers."""
    random = np.random.default_rng(0)
    packed, scales = random.integers(0, 256, (4, 2, 8)).astype(U8), random.uniform(0.1, 1, (4, 2)).astype(F32)
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    x, low = graph.input("x", "float32", (3, 32)), graph.variable("low", np.ones((32, 1), F32))
    h = x @ low @ graph.variable("high", np.ones((1, 32), F32)) + x
    y = matmul_nbits(h, graph.variable("B", packed), graph.variable("s", scales), K=32, N=4, block_size=16)
    graph.output("y", reduce_sum(y, keepdims=0))
    slope = tx.grad(graph, of="y", wrt=["x", "low"])
    feeds = {"x": random.normal(size=(3, 32)).astype(F32)}
    result = slope.run(feeds, backend="numpy")
    quantized = np.stack([packed & 15, packed >> 4], -1).reshape(4, 2, 16).astype(F32) - 8
    to_h = np.broadcast_to((quantized * scales[..., None]).reshape(4, 32).sum(0), (3, 32))
    np.testing.assert_allclose(result["low/grad"][:, 0], feeds["x"].T @ to_h.sum(1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(result["x/grad"], to_h + to_h.sum(1, keepdims=True), rtol=1e-4, atol=1e-3)


def test_a_qoperator_model_has_a_gradient_in_qdq():
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    x = graph.input("x", "float32", (2, 3))
    scale, zero = F32(0.1), U8(100)
    quantized = quantize_linear(x, scale, zero)
    weights = graph.variable("w", np.int8([[1, -2], [3, 4], [-5, 6]]))
    quantized = qlinear_matmul(quantized, scale, zero, weights, F32(0.5), np.int8(0), F32(1), U8(128))
    graph.output("y", reduce_sum(dequantize_linear(quantized, F32(1), U8(128)), keepdims=0))
    slope = tx.grad(to_qdq(graph), of="y", wrt="x")
    result = slope.run({"x": np.ones((2, 3), np.float32)}, backend="numpy")["x/grad"]
    np.testing.assert_allclose(result, np.broadcast_to(np.float32([-0.5, 3.5, 0.5]), (2, 3)), rtol=1e-5)
