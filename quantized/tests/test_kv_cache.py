"""Quantized key-value caches of decoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def decoder():
    """Return a decoder with one attention head, past keys and values as inputs and present ones as outputs."""
    random = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", "n", 16))
    past = [graph.input(f"past.{name}", "float32", ("batch", 1, "past", 16)) for name in ("key", "value")]
    weights = [graph.variable(f"w{k}", random.standard_normal((16, 16)).astype(np.float32) / 4) for k in range(3)]
    q, k, v = (ops.unsqueeze(x @ each, [1]) for each in weights)
    keys, values = (ops.concat(old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
    mixed = ops.softmax(q @ ops.transpose(keys, perm=[0, 1, 3, 2]) / 4.0) @ values
    graph.output("y", ops.squeeze(mixed, [1]))
    graph.output("present.key", keys)
    graph.output("present.value", values)
    return graph


def feeds(seed, past=5, dtype=np.float32):
    random = np.random.default_rng(seed)
    arrays = {f"past.{name}": random.standard_normal((2, 1, past, 16)).astype(dtype) for name in ("key", "value")}
    return {"x": random.standard_normal((2, 3, 16)).astype(np.float32), **arrays}


def steps(graph, dtype, count=4):
    """Run several steps, starting with empty caches; the caches of each step are inputs of the next."""
    cache = {name: np.zeros((2, 1, 0, 16), dtype) for name in ("past.key", "past.value")}
    result = []
    for step in range(count):
        results = graph.run({"x": feeds(step)["x"], **cache}, backend="numpy")
        cache = {f"past.{name}": results[f"present.{name}"] for name in ("key", "value")}
        result.append(results["y"])
    return np.concatenate(result), cache


@pytest.mark.parametrize("dtype", ["int8", "float8e4m3fn", "float8e5m2"])
@pytest.mark.parametrize("mode", ["weights", "static", "dynamic"])
def test_a_decoder_runs_with_quantized_caches(mode, dtype):
    float8 = mode == "static" and dtype != "int8"
    more = {"activation_type": "float8e4m3fn", "weight_type": "float8e4m3fn"} if float8 else {"bits": 8}
    made, report = tx.quantize(decoder(), [feeds(k) for k in range(3)], mode=mode, kv_cache=dtype, **more)
    kinds = {value.name: str(value.dtype) for value in (*made.inputs, *made.outputs)}
    cached = {name for name, kind in kinds.items() if kind == dtype}
    assert cached == {"past.key", "past.value", "present.key", "present.value"}
    assert [value.name for value in made.inputs] == ["x", "past.key", "past.value"]
    expected, _ = steps(decoder(), np.float32)
    result, _ = steps(made, made["past.key"].dtype.numpy)
    assert np.linalg.norm(result - expected) < (0.12 if dtype == "float8e5m2" or float8 else 0.05) * np.linalg.norm(
        expected
    )
    assert {"past.key", "present.value"} <= {tensor.name for tensor in report.tensors}


def test_cached_values_are_not_rounded_again():
    made, _ = tx.quantize(decoder(), [feeds(k) for k in range(3)], mode="weights", kv_cache="int8")
    _, once = steps(made, np.int8, count=1)
    _, later = steps(made, np.int8, count=4)
    np.testing.assert_array_equal(later["past.key"][:, :, :3], once["past.key"])


def test_onnxruntime_gives_the_same(tmp_path):
    made, _ = tx.quantize(decoder(), [feeds(k) for k in range(3)], mode="weights", bits=8, kv_cache="int8")
    tx.export(made, path := tmp_path / "made.onnx")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = feeds(7) | {name: np.full((2, 1, 4, 16), 3, np.int8) for name in ("past.key", "past.value")}
    result, expected = session.run(["y", "present.key"], given), made.run(given, backend="numpy")
    np.testing.assert_allclose(result[0], expected["y"], rtol=0, atol=0.02)  # onnxruntime rounds to 8 bits
    assert np.abs(result[1].astype(int) - expected["present.key"].astype(int)).max() <= 1


def test_caches_of_grouped_query_attention(tmp_path):
    path = tmp_path / "made.onnx"
    folder = EXAMPLES / "decoder"
    options = ["--mode", "weights", "--bits", "8", "--kv-cache", "int8", "-q"]
    data = ["--inputs", str(folder / "samples-decode.npz")]
    assert main(["quantize", str(folder / "decoder.onnx"), "-o", str(path), *data, *options]) == 0
    made = tx.load(path)
    assert {str(v.dtype) for v in made.inputs if v.name.startswith("past")} == {"int8"}
    assert {str(v.dtype) for v in made.outputs if v.name.startswith("present")} == {"int8"}


def test_models_without_caches_or_data():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", graph.input("x", "float32", ("n", 4)) @ graph.variable("w", np.eye(4, dtype=np.float32)))
    with pytest.raises(tx.errors.InvalidCall, match="has no key and value caches"):
        tx.quantize(graph, [{"x": np.ones((2, 4), np.float32)}], mode="weights", kv_cache="int8")
    with pytest.raises(tx.errors.InvalidCall, match="quantization of caches got no calibration data"):
        tx.quantize(decoder(), mode="weights", kv_cache="int8")
    with pytest.raises(tx.errors.InvalidCall, match="unsupported kv_cache"):
        tx.quantize(decoder(), [feeds(0)], mode="weights", kv_cache="int4")
