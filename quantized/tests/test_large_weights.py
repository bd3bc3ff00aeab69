"""Quantization of large matrices in chunks, and of large models without running them needlessly."""

import tracemalloc

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import errors
from tenonnx.extend import transforms
from tenonnx_cli import main
from tenonnx_quantized.tuning import quantize as tuning
from tenonnx_quantized.tuning.quantize import quantize
from tenonnx_quantized.tuning.quantized_tensor import in_blocks
from tenonnx_quantized.tuning.weights import LARGE

ROWS, COLUMNS = 2063, 2100


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A product with a large matrix in external data, whose last block is incomplete."""
    weight = np.random.default_rng(3).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    weight[:40, :40] = 0
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", ROWS)), graph.variable("weight", weight)))
    path = tmp_path_factory.mktemp("large") / "product.onnx"
    tx.export(graph, path, external_data_threshold=1)
    return path, weight


@pytest.mark.parametrize("settings", [{}, {"bits": 8, "block_size": 64}, {"symmetric": True}])
def test_chunks_give_the_same_values_as_the_whole_matrix(model, settings, tmp_path):
    path, weight = model
    assert weight.nbytes > LARGE
    made, report = quantize(tx.load(path), mode="weights", **settings)
    tx.export(made, tmp_path / "made.onnx")
    written = onnx.load(tmp_path / "made.onnx").graph.initializer
    quantized = next(onnx.numpy_helper.to_array(each) for each in written if each.name.endswith("/quantized"))
    size = settings.get("block_size", 32)
    symmetric = settings.get("symmetric", False)
    expected = in_blocks(weight, settings.get("bits", 4), size, 0, symmetric=symmetric, search="rtn")
    np.testing.assert_array_equal(quantized.astype(int), expected.quantized.astype(int))
    lost = np.linalg.norm(expected.numbers() - weight) / np.linalg.norm(weight)
    assert report.tensors[0].error == pytest.approx(lost, rel=1e-4)


def test_only_a_chunk_of_the_matrix_is_in_memory(model, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "LARGEST_MEASURED", 0)
    path, weight = model
    tracemalloc.start()
    made, report = quantize(tx.load(path), mode="weights")
    tx.export(made, tmp_path / "made.onnx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.outputs == {}
    assert peak < 2 * weight.nbytes  # the whole matrix at once takes more than six times as much


def test_a_large_model_runs_on_given_data_only(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "LARGEST_MEASURED", 0)
    path, _ = model
    assert main(["quantize", str(path), "-o", str(tmp_path / "a.onnx"), "--mode", "weights"]) == 0
    output = capsys.readouterr()
    assert "not run" in output.err
    assert "SQNR" not in output.out
    assert "not verified" in output.out
    np.save(tmp_path / "x.npy", np.ones((2, ROWS), np.float32))
    given = ["--input", f"x={tmp_path / 'x.npy'}"]
    assert main(["quantize", str(path), "-o", str(tmp_path / "b.onnx"), "--mode", "weights", *given]) == 0
    assert 'of output "y"' in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_without_verification_runs_no_large_model(model, dtype, tmp_path, monkeypatch):
    pytest.importorskip("tenonnx_optimize.steps", reason="half precision is of tenonnx-optimize")
    path, weight = model
    monkeypatch.setattr(transforms, "LARGEST_MEASURED", 0)
    monkeypatch.setattr("tenonnx_optimize.half_budget.lower_within", lambda *_, **__: pytest.fail("the model was run"))
    report = tx.convert(path, tmp_path / "half.onnx", **{dtype: True}, verify=False)
    assert "budget" in report.findings["half_precision"].notes[0]
    expected = weight.astype(tx.DType.of(dtype).numpy)
    result = tx.load(tmp_path / "half.onnx")["weight"]
    assert str(result.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), expected.astype(np.float32))


def test_half_precision_keeps_weights_with_overflows_in_the_last_rows(model, tmp_path, monkeypatch):
    pytest.importorskip("tenonnx_optimize.steps", reason="half precision is of tenonnx-optimize")
    monkeypatch.setattr(transforms, "LARGEST_MEASURED", 0)
    weight = np.ones((1 << 10, 1 << 10), np.float32)
    weight[-1, -1] = 1e5
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 1 << 10)), graph.variable("weight", weight)))
    tx.export(graph, tmp_path / "wide.onnx", external_data_threshold=1)
    report = tx.convert(tmp_path / "wide.onnx", tmp_path / "half.onnx", float16=True, verify=False)
    assert "beyond the range" in str(report.findings["half_precision"].float32_nodes)


def test_onnxruntime_runs_large_4_bit_weights(model):
    made, _ = quantize(tx.load(model[0]), mode="weights")
    feeds = {"x": np.random.default_rng(0).normal(size=(2, ROWS)).astype(np.float32)}
    program = made.compile("onnxruntime", strict=True)
    assert program.backend == "onnxruntime"
    np.testing.assert_allclose(program(feeds)["y"], made.compile("numpy")(feeds)["y"], rtol=1e-4, atol=1e-2)


def test_a_budget_holds_for_large_weights(model, monkeypatch):
    monkeypatch.setattr(tuning, "LARGEST_MEASURED", 0)
    made, report = quantize(tx.load(model[0]), mode="weights", budget=1e-6)
    assert report.floats
    assert report.outputs["y"] <= 1e-6
    with pytest.raises(errors.InvalidCall, match="budget"):
        quantize(made, mode="weights", budget=-1.0)
