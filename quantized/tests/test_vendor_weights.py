"""Conversion of contributed ops with special weight layouts to plain floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tenonnx as tx
from tenonnx_cli import main
from tenonnx_quantized.blocks import gather_block_quantized
from tenonnx_quantized.forms.dequantize import to_floats
from tenonnx_quantized.fourbit import matmul_bnb4, matmul_fpq4
from tenonnx_quantized.recurrent import dynamic_quantize_lstm

OPSETS = {"ai.onnx": 21, "com.microsoft": 1}
RNG = np.random.default_rng(0)


def held(graph, **contents):
    return [None if array is None else graph.variable(name, array) for name, array in contents.items()]


def agree(graph, feeds, op_types, tolerance=1e-5, backend="numpy"):
    """Check that the float form gives the outputs of the quantized one, and return it."""
    made = to_floats(graph)
    assert [node.op_type for node in made.nodes] == op_types
    assert {node.domain for node in made.nodes} == {"ai.onnx"}
    for name, expected in graph.run(feeds, backend="numpy").items():
        np.testing.assert_allclose(made.run(feeds, backend=backend)[name], expected, tolerance, tolerance)
    return made


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(("transB", "rows"), [(1, 40), (0, 5)])
def test_matmul_bnb4(quant_type, transB, rows, backend):
    graph = tx.Graph(opsets=OPSETS)
    packed = RNG.integers(0, 256, 100, np.uint8)
    given = held(graph, B=packed, absmax=RNG.uniform(0.5, 2, 13).astype(np.float32))
    x = graph.input("x", "float32", ("n", rows))
    sizes = {"K": 40, "N": 5, "block_size": 16}
    graph.output("y", matmul_bnb4(x, *given, **sizes, quant_type=quant_type, transB=transB))
    agree(graph, {"x": RNG.normal(size=(3, rows)).astype(np.float32)}, ["MatMul"], backend=backend)


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_fpq4(kind):
    graph = tx.Graph(opsets=OPSETS)
    blob = RNG.integers(0, 256, (5, 2, 20 + kind), np.uint8)
    blob[:, :, :4] = RNG.uniform(-1, 1, (5, 2, 1)).astype(np.float32).view(np.uint8)
    given = held(graph, B=blob.reshape(-1), B_shape=np.int64([40, 5]))
    graph.output("y", matmul_fpq4(graph.input("x", "float32", ("n", 40)), *given, blk_quant_type=kind))
    agree(graph, {"x": RNG.normal(size=(3, 40)).astype(np.float32)}, ["MatMul"])


def tables():
    for bits in (2, 4, 8):
        for zero in (False, True):
            shift = RNG.integers(0, 256, (6, -(-4 * bits // 8)), np.uint8) if zero else None
            yield RNG.integers(0, 256, (6, 64 * bits // 8), np.uint8), (6, 4), shift, {"bits": bits, "quantize_axis": 1}
    for name in ("int4", "uint4"):
        data = RNG.integers(0, 8, (40, 33)).astype(getattr(ml_dtypes, name))
        for axis, sizes in ((0, (3, 33)), (1, (40, 3))):
            shift = RNG.integers(0, 8, sizes).astype(data.dtype)
            for gather_axis in (0, 1):
                yield data, sizes, shift, {"quantize_axis": axis, "gather_axis": gather_axis}


@pytest.mark.parametrize(("data", "sizes", "zero_points", "attributes"), list(tables()))
def test_gather_block_quantized(data, sizes, zero_points, attributes):
    graph = tx.Graph(opsets=OPSETS)
    scales = RNG.uniform(0.1, 1, sizes).astype(np.float32)
    table, scale, shift = held(graph, data=data, scales=scales, zero_points=zero_points)
    places = graph.input("places", "int64", ("n", 2))
    graph.output("y", gather_block_quantized(table, places, scale, shift, block_size=16, **attributes))
    agree(graph, {"places": np.int64([[0, 5], [-1, 2], [3, 3]])}, ["Gather"])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_dynamic_quantize_lstm(direction, by_column, kind):
    count = 2 if direction == "bidirectional" else 1
    graph = tx.Graph(opsets=OPSETS)
    least = 0 if kind == "uint8" else -100
    shape = (count, 12) if by_column else (count,)

    def weights(name, rows):
        return {
            name: RNG.integers(least, 127, (count, rows, 12)).astype(kind),
            f"{name}_scale": RNG.uniform(0.001, 0.005, shape).astype(np.float32),
            f"{name}_zero": RNG.integers(0, 4, shape).astype(kind),
        }

    w, w_scale, w_zero, r, r_scale, r_zero = held(graph, **weights("W", 4), **weights("R", 3))
    (bias,) = held(graph, B=RNG.normal(size=(count, 24)).astype(np.float32))
    x = graph.input("x", "float32", ("time", "batch", 4))
    scales = w_scale, w_zero, r_scale, r_zero
    results = dynamic_quantize_lstm(
        x, w, r, bias, None, None, None, None, *scales, hidden_size=3, direction=direction, clip=3.0
    )
    for name, value in zip(("y", "h", "c"), results, strict=True):
        graph.output(name, value)
    agree(graph, {"x": RNG.normal(size=(5, 2, 4)).astype(np.float32)}, ["LSTM"], 0.03, "onnxruntime")


def test_computed_weights_are_not_converted(tmp_path):
    graph = tx.Graph(opsets=OPSETS)
    packed, largest = graph.input("B", "uint8", (100,)), graph.input("absmax", "float32", (13,))
    x = graph.input("x", "float32", ("n", 40))
    graph.output("y", matmul_bnb4(x, packed, largest, K=40, N=5, block_size=16, quant_type=1))
    assert [node.op_type for node in to_floats(graph).nodes] == ["MatMulBnb4"]


def test_the_command_writes_plain_floats(tmp_path):
    graph = tx.Graph(opsets=OPSETS)
    given = held(graph, B=RNG.integers(0, 256, 100, np.uint8), absmax=RNG.uniform(0.5, 2, 13).astype(np.float32))
    x = graph.input("x", "float32", ("n", 40))
    graph.output("y", matmul_bnb4(x, *given, K=40, N=5, block_size=16, quant_type=1))
    graph.save(str(tmp_path / "m.onnx"))
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "f.onnx"), "--dequantize", "--verify"]) == 0
    assert [node.op_type for node in tx.load(tmp_path / "f.onnx").nodes] == ["MatMul"]
