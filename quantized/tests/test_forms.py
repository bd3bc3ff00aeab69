"""Conversions between QDQ, QOperator and plain floats, for models of onnxruntime's quantizer."""

from __future__ import annotations

import logging
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.formats.onnx import streaming
from tenonnx_cli import main
from tenonnx_quantized import computed
from tenonnx_quantized.blocks import matmul_nbits
from tenonnx_quantized.computed import Computed
from tenonnx_quantized.elementwise import (
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_softmax,
    qlinear_where,
)
from tenonnx_quantized.forms.dequantize import to_floats
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_quantized.pooling import qlinear_average_pool, qlinear_global_average_pool, qlinear_reduce_mean
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

CNN = Path(__file__).parents[2] / "examples" / "digits_cnn"
IMAGES = np.load(CNN / "digits.npz")["images"][:40]


class Images(CalibrationDataReader):
    def __init__(self):
        self.batches = iter([{"images": IMAGES[k : k + 10]} for k in range(0, 40, 10)])

    def get_next(self):
        return next(self.batches, None)


MODES = {
    f"{form.name}-{'channel' if per_channel else 'tensor'}-{activation.name}-{weight.name}": (form, per_channel, types)
    for form in QuantFormat
    for per_channel in (False, True)
    for types in [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8)]
    for activation, weight in [types]
} | {f"dynamic-{weight.name}": (None, True, (None, weight)) for weight in (QuantType.QInt8, QuantType.QUInt8)}


@pytest.fixture(scope="module", params=MODES)
def quantized(request, tmp_path_factory):
    """The digits CNN, quantized by onnxruntime in one of its modes."""
    form, per_channel, (activation, weight) = MODES[request.param]
    path = tmp_path_factory.mktemp("quantized") / "model.onnx"
    source = shutil.copy(CNN / "digits-cnn.onnx", path.parent)  # onnxruntime writes a temporary file next to the model
    logging.disable(logging.WARNING)
    try:
        if form is None:
            quantization.quantize_dynamic(source, path, per_channel=per_channel, weight_type=weight)
        else:
            quantization.quantize_static(
                source,
                path,
                Images(),
                quant_format=form,
                per_channel=per_channel,
                activation_type=activation,
                weight_type=weight,
            )
    finally:
        logging.disable(logging.NOTSET)
    return path


def by_onnxruntime(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact products on every CPU
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def written(graph, folder, feeds, **config):
    """Save a graph and return its outputs in onnxruntime."""
    tx.export(graph, folder / "written.onnx", **config)
    return by_onnxruntime(folder / "written.onnx", feeds)


def kinds(graph):
    return Counter(node.op_type for node in graph.walk())


def there_and_back(graph):
    return to_qdq(to_qoperator(graph))


def back_and_there(graph):
    return to_qoperator(to_qdq(graph))


@pytest.mark.parametrize("form", [to_qdq, to_qoperator, there_and_back, back_and_there])
def test_every_form_gives_the_same_outputs(quantized, form, tmp_path, record_property):
    feeds = {"images": IMAGES}
    (expected,), (result,) = by_onnxruntime(quantized, feeds), written(form(tx.load(quantized)), tmp_path, feeds)
    difference = np.abs(result - expected)
    record_property("largest difference / range", f"{difference.max() / np.ptp(expected):.2g}")
    assert difference.max() < 0.07, "more than one step of the scores"
    assert (difference > 2e-5).mean() <= 0.01, "a code in a hundred may be rounded the other way"


def test_qdq_has_no_integer_ops_and_qoperator_has_them(quantized):
    graph = tx.load(quantized)
    assert not {"QLinearConv", "QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger"} & set(kinds(to_qdq(graph)))
    if "DynamicQuantizeLinear" not in kinds(graph):
        result = kinds(to_qoperator(graph))
        assert (result["QLinearConv"], result["QGemm"], result["Conv"], result["Gemm"]) == (2, 1, 0, 0)
        assert kinds(back_and_there(graph))["QLinearConv"] == 2


@pytest.mark.parametrize(("form", "opset"), [(to_qdq, 13), (to_qdq, 19), (to_qdq, 21), (to_floats, 9)])
def test_forms_convert_to_older_opsets(quantized, form, opset, tmp_path):
    graph, feeds = form(tx.load(quantized)), {"images": IMAGES}
    result = written(graph, tmp_path, feeds, opset_version=opset, domains=["ai.onnx"])
    np.testing.assert_allclose(result, by_onnxruntime(quantized, feeds), rtol=0.05, atol=0.3)


def test_the_float_form_has_no_quantized_values_and_similar_outputs(quantized):
    graph = to_floats(tx.load(quantized))
    assert not [node for node in graph.walk() if "Quantize" in node.op_type]
    assert not [v for v in graph.values() if v.dtype.is_integer and v.dtype.bits <= 8]
    expected = tx.load(CNN / "digits-cnn.onnx").run({"images": IMAGES}, backend="numpy")["scores"]
    assert np.abs(graph.run({"images": IMAGES}, backend="numpy")["scores"] - expected).max() < 0.5


def test_flags_of_convert(quantized, tmp_path, capsys):
    assert main(["convert", str(quantized), "-o", str(tmp_path / "plain.onnx"), "--dequantize", "--no-verify"]) == 0
    assert "QuantizeLinear" not in kinds(tx.load(tmp_path / "plain.onnx"))
    assert main(["plan", str(quantized), "--qdq"]) == 0
    capsys.readouterr()


EXAMPLES = CNN.parent / "quantized"
BERT = EXAMPLES / "bert.onnx"


@pytest.mark.parametrize("name", ["resnet-qoperator", "bert-dynamic", "llama-4bit"])
def test_dequantized_to_half_floats_in_one_command(name, tmp_path, capsys):
    source, path = BERT.with_name(f"{name}.onnx"), tmp_path / "half.onnx"
    assert main(["convert", str(source), "-o", str(path), "--dequantize", "--float16", "--no-verify"]) == 0
    capsys.readouterr()
    graph, feeds = tx.load(path), dict(np.load(BERT.with_name(f"{name.split('-')[0]}.npz")))
    weights = [v for v in graph.variables if v.dtype.is_float and v.rank and v.rank > 1]
    assert weights
    assert {v.dtype.name for v in weights} == {"float16"}
    assert not [kind for kind in kinds(graph) if "Quantize" in kind or "Integer" in kind or "NBits" in kind]
    (output, *_) = tx.load(source).outputs
    expected = tx.load(source).run(feeds, backend="numpy")[output.name]
    result = graph.run(feeds, backend="numpy")[output.name]
    assert result.dtype == expected.dtype
    assert np.abs(result - expected).max() < 0.1 * np.ptp(expected)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.onnx")), ids=lambda path: path.stem)
def test_half_floats_around_quantized_values(path, tmp_path):
    """Scales, and other values that have to be float32, stay float32."""
    feeds = dict(np.load(path.with_name(f"{path.stem.split('-')[0]}.npz")))
    graph = tx.load(path)
    (expected, *_), (result, *_) = (
        written(each, tmp_path, feeds) for each in (graph, tx.lower_precision(graph, "float16").graph)
    )
    assert np.abs(result - expected).max() < 0.1 * np.ptp(expected)


WEIGHTS = {
    f"{form.name}-{bits}-{'symmetric' if symmetric else 'shifted'}": (form, bits, symmetric)
    for form in QuantFormat
    for bits in (4, 8)
    for symmetric in (True, False)
    if form is QuantFormat.QOperator or bits == 4
}


@pytest.mark.parametrize("mode", WEIGHTS)
@pytest.mark.parametrize("form", [to_qdq, to_qoperator, there_and_back, back_and_there, to_floats])
def test_blockwise_weights_of_onnxruntime(mode, form, tmp_path, record_property):
    """All forms of weight-only quantization give equal results, up to the order of summation."""
    kind, bits, symmetric = WEIGHTS[mode]
    made = MatMulNBitsQuantizer(str(BERT), bits=bits, block_size=32, is_symmetric=symmetric, quant_format=kind)
    logging.disable(logging.WARNING)
    try:
        made.process()
        made.model.save_model_to_file(str(tmp_path / "blocks.onnx"))
    finally:
        logging.disable(logging.NOTSET)
    graph = tx.load(tmp_path / "blocks.onnx")
    feeds = dict(np.load(BERT.with_suffix(".npz")))
    (wanted,), (result,) = by_onnxruntime(tmp_path / "blocks.onnx", feeds), written(form(graph), tmp_path, feeds)
    difference = np.abs(result - wanted).max() / np.ptp(wanted)
    record_property("largest difference / range", f"{difference:.2g}")
    assert difference < 1e-5
    expected = {to_qdq: "DequantizeLinear", there_and_back: "DequantizeLinear", to_floats: "MatMul"}
    assert expected.get(form, "MatMulNBits") in kinds(form(graph))


# ----- single ops -----------------------------------------------------------------------------------------------------

U8, F32 = np.uint8, np.float32


def drawn(*shape):
    return np.random.default_rng(0).integers(0, 256, shape).astype(U8)


CALLS = {
    "Add": lambda g, x: qlinear_add(x, F32(0.1), U8(9), x, F32(0.2), U8(8), F32(0.3), U8(7)),
    "LeakyRelu": lambda g, x: qlinear_leaky_relu(x, F32(0.1), U8(99), F32(0.1), U8(9), alpha=0.1),
    "Where": lambda g, x: qlinear_where(
        g.variable("c", np.array([True, False] * 4)), x, F32(0.1), U8(9), x, F32(0.2), U8(3), F32(0.2), U8(1)
    ),
    "Softmax": lambda g, x: qlinear_softmax(x, F32(0.05), U8(9), F32(0.004), U8(0), opset=13),
    "Concat": lambda g, x: qlinear_concat(F32(0.2), U8(0), x, F32(0.1), U8(9), x, F32(0.2), U8(3), axis=1),
    "AveragePool": lambda g, x: qlinear_average_pool(x, F32(0.1), U8(9), F32(0.1), U8(9), kernel_shape=[2, 2]),
    "GlobalAveragePool": lambda g, x: qlinear_global_average_pool(x, F32(0.1), U8(9), F32(0.1), U8(9)),
    "ReduceMean": lambda g, x: qlinear_reduce_mean(x, F32(0.1), U8(9), F32(0.1), U8(9), axes=[2], keepdims=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_op_between_quantized_values_becomes_one_op_again(name):
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    graph.output("y", CALLS[name](graph, graph.input("x", "uint8", (1, 2, 8, 8))))
    between = to_qdq(graph)
    assert set(kinds(between)) == {"DequantizeLinear", name, "QuantizeLinear"}
    again = to_qoperator(between)
    no_kernel = name == "ReduceMean"  # onnxruntime has no QLinearReduceMean
    assert set(kinds(again)) == (set(kinds(between)) if no_kernel else {f"QLinear{name}"})
    x = drawn(1, 2, 8, 8)
    np.testing.assert_array_equal(again.run({"x": x}, backend="numpy")["y"], graph.run({"x": x}, backend="numpy")["y"])


@pytest.mark.parametrize("form", [to_floats, to_qdq, to_qoperator])
@pytest.mark.parametrize("fed", ["c", "s", "t"])
def test_initializers_that_are_also_inputs_are_not_constants(form, fed):
    held = {"c": np.arange(6, dtype=U8).reshape(2, 3), "s": F32(0.5), "t": F32(0.5)}
    graph = tx.Graph(opsets={"ai.onnx": 21})
    c, s, t = (graph.variable(name, contents) for name, contents in held.items())
    graph.all_inputs += [c, s, t]
    weights = dequantize_linear(c, s, U8(0))
    graph.output("y", ops.matmul(graph.input("x", "float32", (1, 2)), weights))
    graph.output("z", quantize_linear(ops.transpose(weights), t, U8(0)))
    feeds = {"x": np.ones((1, 2), F32), fed: held[fed] * 2}
    expected, result = graph.run(feeds, backend="numpy"), form(graph).run(feeds, backend="numpy")
    assert {name: array.tolist() for name, array in result.items()} == {n: a.tolist() for n, a in expected.items()}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("shifted", [True, False])
def test_blockwise_weights_keep_their_bit_width(bits, shifted, tmp_path):
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (5, 3, 32 * bits // 8)).astype(U8)
    scales = random.uniform(0.01, 0.1, (5, 3)).astype(F32)
    zero_points = random.integers(0, 256, (5, -(-3 * bits // 8))).astype(U8) if shifted else None
    graph = tx.Graph(opsets={"ai.onnx": 25, "com.microsoft": 1})
    given = [
        None if v is None else graph.variable(n, v) for n, v in zip("Bsz", (packed, scales, zero_points), strict=True)
    ]
    x = graph.input("x", "float32", ("n", 80))
    graph.output("y", matmul_nbits(x, *given, K=80, N=5, bits=bits, block_size=32))
    feeds = {"x": random.normal(size=(3, 80)).astype(F32)}
    expected = graph.run(feeds, backend="numpy")["y"]
    near = {"rtol": 1e-5, "atol": 1e-6 * np.abs(expected).max()}
    between = to_qdq(graph)
    assert kinds(between) == {"DequantizeLinear": 1, "MatMul": 1}
    (weights,) = (v for v in between.values() if v.name.endswith("quantized"))
    assert weights.dtype.bits == bits
    np.testing.assert_allclose(between.run(feeds, backend="numpy")["y"], expected, **near)
    again = to_qoperator(between)
    assert kinds(again) == {"MatMulNBits": 1}
    np.testing.assert_allclose(again.run(feeds, backend="numpy")["y"], expected, **near)
    plain = to_floats(graph)
    assert kinds(plain) == {"MatMul": 1}
    np.testing.assert_allclose(written(plain, tmp_path, feeds, opset_version=9)[0], expected, rtol=1e-4, atol=1e-4)


def test_contents_are_computed_on_access():
    held = []

    def contents(start, stop):
        held.append((start, stop))
        return np.zeros((stop - start, 4), np.float32)

    constant = Computed(tx.DType.float32, (4, 4), contents)
    assert (constant.nbytes, held) == (64, [])
    assert not constant.array().flags.writeable
    constant.rows(1, 3)
    assert held == [(0, 4), (1, 3)]
    assert Computed(tx.DType.int4, (3, 3), contents).nbytes == 5


@pytest.mark.parametrize("form", [to_qdq, to_floats, back_and_there])
@pytest.mark.parametrize("external", [True, False])
def test_unpacking_runs_in_chunks(form, external, tmp_path, monkeypatch):
    """Conversion in chunks writes the same file as conversion at once, with a fraction of the memory."""
    random = np.random.default_rng(0)
    columns, inner = 1030, 2072  # the last block is incomplete, and chunks end within blocks
    packed = random.integers(0, 256, (columns, 65, 16)).astype(U8)
    scales = random.uniform(0.01, 0.1, (columns, 65)).astype(F32)
    zero_points = random.integers(0, 256, (columns, 33)).astype(U8)
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    given = [graph.variable(n, v) for n, v in zip("Bsz", (packed, scales, zero_points), strict=True)]
    graph.output(
        "y", matmul_nbits(graph.input("x", "float32", ("n", inner)), *given, K=inner, N=columns, block_size=32)
    )
    config = {"external_data_threshold": 1024 if external else None}
    tx.export(graph, tmp_path / "packed.onnx", **config)
    tx.export(form(tx.load(tmp_path / "packed.onnx")), tmp_path / "whole.onnx", **config)
    monkeypatch.setattr(streaming, "_PIECE", 100_000)
    monkeypatch.setattr(computed, "_AT_ONCE", 100_000)
    made = form(tx.load(tmp_path / "packed.onnx"))
    tracemalloc.start()
    try:
        tx.export(made, tmp_path / "pieces.onnx", **config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    whole, pieces = (tx.load(tmp_path / f"{name}.onnx") for name in ("whole", "pieces"))
    for one, other in zip(whole.variables, pieces.variables, strict=True):
        np.testing.assert_array_equal(one.data.array(), other.data.array())
    feeds = {"x": random.normal(size=(2, inner)).astype(F32)}
    np.testing.assert_allclose(
        pieces.run(feeds, backend="numpy")["y"], graph.run(feeds, backend="numpy")["y"], rtol=1e-4, atol=1e-3
    )
    if external:
        assert peak < 5e6, "the weights are 1 MB packed and 8.5 MB as floats"


@pytest.mark.parametrize(("bits", "opset", "packed"), [(4, 21, True), (8, 21, True), (2, 25, True), (4, 19, False)])
def test_packed_weights_stay_packed_if_the_opset_supports_them(bits, opset, packed, tmp_path):
    random = np.random.default_rng(0)
    graph = tx.Graph(opsets={"com.microsoft": 1})
    contents = {
        "B": random.integers(0, 256, (96, 7, 4 * bits)).astype(U8),
        "scales": random.uniform(0.01, 0.1, (96, 7)).astype(F32),
        "bias": np.ones(96, F32),
    }
    given = {name: graph.variable(name, array) for name, array in contents.items()}
    x = graph.input("x", "float32", ("n", 200))
    graph.output("y", matmul_nbits(x, **given, K=200, N=96, bits=bits, block_size=32))
    feeds = {"x": random.normal(size=(3, 200)).astype(F32)}
    moved = tx.retarget(graph, opset, domains=["ai.onnx"])
    assert ("DequantizeLinear" in kinds(moved)) is packed
    assert any(v.dtype.bits == bits and v.is_constant for v in moved.values()) is packed
    expected = graph.run(feeds, backend="numpy")["y"]
    np.testing.assert_allclose(moved.run(feeds, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
    if bits > 2:  # onnxruntime has no 2-bit DequantizeLinear
        (result,) = written(moved, tmp_path, feeds, opset_version=opset)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
