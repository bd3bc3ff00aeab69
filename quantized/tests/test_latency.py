"""Latency budgets, based on a table of layer times."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

FEEDS = [{"x": np.random.default_rng(k).standard_normal((40, 32)).astype(np.float32)} for k in range(2)]

#: Layer times in milliseconds: 8 bits are slower than floats, as on a machine without 8-bit kernels.
TIMES = {2: 1.0, 4: 1.0, 8: 5.0, 32: 3.0}
FIRST, SECOND = "MatMul 40x32 32x48", "MatMul 40x48 48x16"


def perceptron():
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    first, second = (random.standard_normal(shape).astype(np.float32) / 6 for shape in ((32, 48), (48, 16)))
    hidden = ops.relu(graph.input("x", "float32", ("n", 32)) @ graph.variable("first", first))
    graph.output("y", hidden @ graph.variable("second", second))
    return graph


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "times.json"
    times = {f"{layer} {bits} bits": ms / 1000 for layer in (FIRST, SECOND) for bits, ms in TIMES.items()}
    path.write_text(json.dumps(times), "utf-8")
    return path


@pytest.mark.parametrize(("budget", "bits"), [("2ms", [4, 4]), ("3ms", [4, 4]), ("4.5 ms", [4, 32]), ("6ms", [32, 32])])
def test_the_most_accurate_bits_within_the_budget(table, budget, bits):
    made, report = tx.quantize(perceptron(), FEEDS, mode="weights", budget=budget, op_times=table, backend="numpy")
    assert sorted(layer.bits for layer in report.layers) == bits
    assert len(report.quantized) == bits.count(4)
    assert sum(node.op_type == "DequantizeLinear" for node in made.nodes) == bits.count(4)
    assert [point.seconds for point in report.pareto] == pytest.approx([0.002, 0.004, 0.006])


def test_an_unreachable_budget_is_rejected(table):
    with pytest.raises(tx.errors.InvalidCall, match=r"do not fit into the budget[\s\S]*give 0.002 s"):
        tx.quantize(perceptron(), FEEDS, mode="weights", budget="1ms", op_times=table)


@pytest.mark.parametrize("mode", ["weights", "static", "dynamic"])
def test_missing_times_are_measured_and_added(mode, tmp_path):
    path = tmp_path / "times.json"
    tx.quantize(perceptron(), FEEDS, mode=mode, budget="10s", op_times=path)
    result = json.loads(path.read_text("utf-8"))
    assert {f"{FIRST} 8 bits", f"{SECOND} 32 bits"} <= set(result)
    assert all(seconds > 0 for seconds in result.values())


@pytest.mark.parametrize("text", ["[1]", '{"MatMul": "fast"}', '{"MatMul": -1}', "{", '{"MatMul": true}'])
def test_invalid_tables_are_rejected(text, tmp_path):
    path = tmp_path / "times.json"
    path.write_text(text, "utf-8")
    with pytest.raises(tx.errors.InvalidCall, match="op times"):
        tx.quantize(perceptron(), FEEDS, mode="weights", budget="3ms", op_times=path)


def test_an_unwritable_table_is_reported(tmp_path):
    with pytest.raises(tx.errors.InvalidCall, match="cannot write the op times"):
        tx.quantize(perceptron(), FEEDS, mode="weights", budget="3s", op_times=tmp_path / "none" / "times.json")


def test_the_command_prints_and_draws_the_times(table, tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    tx.export(perceptron(), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", **FEEDS[0])
    table.write_text(table.read_text("utf-8").replace("40x", "32x"), "utf-8")  # the batch size
    given = ["--inputs", str(tmp_path / "x.npz"), "--plot", str(tmp_path / "report.svg"), "--op-times", str(table)]
    files = [str(tmp_path / "model.onnx"), "-o", str(tmp_path / "made.onnx")]
    assert main(["quantize", *files, "--mode", "weights", "--budget", "4ms", *given]) == 0
    printed = capsys.readouterr().out
    assert "ms at 32 bits" in printed
    assert "4 ms" in printed
    assert (tmp_path / "report.svg").is_file()
