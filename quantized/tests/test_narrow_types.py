"""Narrow integer and float types in opsets that lack them."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

RANDOM = np.random.default_rng(0)
F32 = np.float32
X = RANDOM.normal(size=(2, 96)).astype(F32)
DOWN = [20, 17, 13, 10, 7]


def decoder(k, block_size, symmetric, folder):
    """Two products with a normalization in between, quantized by onnxruntime in QDQ form."""
    from onnxruntime.quantization import QuantFormat, matmul_nbits_quantizer

    weights = [RANDOM.standard_normal(shape).astype(F32) for shape in ((k, 64), (64, k))]
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    decoder (float[b, {k}] x) => (float[b, {k}] y) {{
        up = MatMul (x, w0)
        gate = Sigmoid (up)
        held = Mul (up, gate)
        y = MatMul (held, w1)
    }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights))
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        model, block_size=block_size, is_symmetric=symmetric, quant_format=QuantFormat.QDQ
    )
    quantizer.process()
    path = folder / "decoder.onnx"
    onnx.save(quantizer.model.model, path)
    return path


def run(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


@pytest.mark.parametrize("version", DOWN)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("k", "block_size"), [(96, 32), (80, 32), (64, 16)])
def test_four_bit_decoders_keep_quantized_weights_in_older_opsets(k, block_size, symmetric, version, tmp_path):
    path, moved = decoder(k, block_size, symmetric, tmp_path), tmp_path / "moved.onnx"
    assert main(["convert", str(path), "-o", str(moved), "--opset", str(version), "--domains", "ai.onnx"]) == 0
    onnx.checker.check_model(moved, full_check=True)
    x = RANDOM.standard_normal((3, k)).astype(F32)
    np.testing.assert_allclose(run(moved, {"x": x}), run(path, {"x": x}), rtol=1e-5, atol=1e-5)
    quantized = [t for t in onnx.load(moved).graph.initializer if len(t.dims) > 1 and t.data_type != 1]
    eight_bits = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    assert {t.data_type for t in quantized} <= set(eight_bits)
    assert sum(int(np.prod(t.dims)) == 64 * k for t in quantized) == 2


def weights(dtype, block_size):
    graph = tx.Graph(opsets={"ai.onnx": 25})
    quantized = graph.variable("quantized", RANDOM.integers(0, 2, (96, 300)).astype(tx.DType[dtype].numpy))
    scale = RANDOM.uniform(0.1, 1, (96 // block_size, 300) if block_size else 300).astype(F32)
    y = graph.input("x", "float32", ("b", 96)) @ dequantize_linear(
        quantized, graph.variable("scale", scale), axis=1 - bool(block_size), block_size=block_size
    )
    graph.output("y", y)
    return graph


@pytest.mark.parametrize("version", DOWN)
@pytest.mark.parametrize("block_size", [0, 32])
@pytest.mark.parametrize(
    "dtype", ["int2", "uint2", "int4", "uint4", "float4e2m1", "float8e4m3fn", "float8e5m2", "int16", "uint16", "int8"]
)
def test_weights_of_every_type_convert_to_older_opsets(dtype, block_size, version, tmp_path):
    graph, path = weights(dtype, block_size), tmp_path / "moved.onnx"
    tx.export(graph, path, opset_version=version)
    onnx.checker.check_model(path, full_check=True)
    np.testing.assert_allclose(run(path, {"x": X}), graph.run({"x": X}, backend="numpy")["y"], rtol=1e-4, atol=1e-4)
    kept = dtype in ("int16", "uint16", "int8") or (dtype.startswith("float8") and version > 18)
    assert ("quantized" in {v.name for v in tx.load(path).variables}) == kept


def test_shared_quantized_values_are_widened_once():
    graph = weights("int4", 0)
    again = dequantize_linear(graph["quantized"], graph["scale"], axis=1)
    graph.output("z", ops.reduce_sum(again))
    moved = tx.retarget(graph, 17)
    assert [v.name for v in moved.variables] == ["scale", "quantized/int8"]
    tx.verify(graph, moved, feeds={"x": X}).raise_if_failed()


@pytest.mark.parametrize("version", [17, 13])
@pytest.mark.parametrize("code", ["int16", "uint16"])
def test_sixteen_bit_activations_convert_to_older_opsets(code, version):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    scale, zero = F32(0.001), tx.DType[code].numpy.type(3)
    quantized = quantize_linear(graph.input("x", "float32", X.shape), scale, zero)
    graph.output("y", dequantize_linear(quantized, scale, zero))
    moved = tx.retarget(graph, version)
    np.testing.assert_array_equal(
        moved.run({"x": X * 50}, backend="numpy")["y"], graph.run({"x": X * 50}, backend="numpy")["y"]
    )


def test_quantized_graph_inputs_cannot_be_converted():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", dequantize_linear(graph.input("quantized", "int4", ("n",)), F32(0.1)))
    with pytest.raises(tx.NotRepresentable, match="does not take int4"):
        tx.retarget(graph, 17)


def test_results_of_quantization_are_never_widened():
    """An int4 zero point limits the range of quantized values; an int8 one would not."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    zero = graph.variable("zero", np.zeros((), tx.DType.int4.numpy))
    graph.output("y", dequantize_linear(quantize_linear(graph.input("x", "float32", ("n",)), F32(0.1), zero), F32(0.1)))
    with pytest.raises(tx.NotRepresentable):
        tx.retarget(graph, 17)
    assert graph.run({"x": F32([5])})["y"] == pytest.approx(0.7)
