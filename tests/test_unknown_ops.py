"""Models with an op that no package provides: all other nodes are lowered and quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tenonnx as tx
from tenonnx_cli import main

WEIGHTS = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
VENDOR = helper.make_opsetid("com.vendor", 1)


def _saved(path: Path, nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> str:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 64]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(WEIGHTS, "w")])
    opsets = [helper.make_opsetid("", 21), VENDOR, helper.make_opsetid("my", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10), path)
    return str(path)


@pytest.fixture
def between(tmp_path: Path) -> str:
    """A product, an unknown op, and a product with its output, whose type is unknown."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Frob", ["a"], ["b"], domain="com.vendor"),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    return _saved(tmp_path / "between.onnx", nodes)


@pytest.fixture
def inside(tmp_path: Path) -> str:
    """A product, and a local function that calls an unknown op."""
    body = [
        helper.make_node("Frob", ["p"], ["q"], domain="com.vendor"),
        helper.make_node("Relu", ["q"], ["r"]),
    ]
    function = helper.make_function("my", "F", ["p"], ["r"], body, [helper.make_opsetid("", 21), VENDOR])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("F", ["a"], ["y"], domain="my")]
    return _saved(tmp_path / "inside.onnx", nodes, function)


def _ops(path: Path) -> list[str]:
    model = onnx.load(path)
    onnx.checker.check_model(model)
    return [node.op_type for node in model.graph.node]


def test_a_product_after_it_stays_float(between: str, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    assert main(["quantize", between, "-o", str(out), "--mode", "dynamic"]) == 0
    assert _ops(out).count("DynamicQuantizeLinear") == 1
    assert _ops(out)[-2:] == ["Frob", "MatMul"]


@pytest.mark.parametrize("mode", ["dynamic", "weights"])
def test_a_function_that_calls_it_is_not_quantized(mode: str, inside: str, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    assert main(["quantize", inside, "-o", str(out), "--mode", mode]) == 0
    assert _ops(out)[-1] == "F"
    assert not {"MatMulInteger", "DequantizeLinear", "MatMulNBits"}.isdisjoint(_ops(out))


def test_a_function_that_calls_it_names_it_at_another_opset(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.onnx"
    assert main(["convert", inside, "-o", str(out), "--opset", "13"]) == 2
    message = capsys.readouterr().err
    assert "my::F@1" in message
    assert "com.vendor::Frob@1" in message
    assert not out.exists()


def test_a_function_that_calls_it_stays_float32_in_half_precision(inside: str, tmp_path: Path) -> None:
    out = tmp_path / "h.onnx"
    assert main(["convert", inside, "-o", str(out), "--float16"]) == 0
    assert "F" in _ops(out)
    assert onnx.load(out).graph.initializer[0].data_type == onnx.TensorProto.FLOAT16
    assert [key[:2] for key in tx.load(out).functions] == [("my", "F")]
