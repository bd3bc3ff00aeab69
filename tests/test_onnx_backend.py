"""``tenonnx.backend``, called by the runner of the onnx package and directly."""

import unittest
import warnings

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper

import tenonnx as tx
import tenonnx.backend
from tenonnx.backend import with_backend

BACKENDS = {"numpy": tenonnx.backend, "onnxruntime": with_backend("onnxruntime")}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request):
    return BACKENDS[request.param]


@pytest.fixture(scope="module")
def runners():
    """The runners of the onnx package, which writes the data of real models into a folder."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {name: onnx.backend.test.BackendTest(module, __name__) for name, module in BACKENDS.items()}


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_the_runner_of_onnx_works_unchanged(runners, name, tmp_path, monkeypatch):
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))
    chosen = (
        "test_relu_cpu",
        "test_gemm_default_no_bias_cpu",
        "test_Conv1d_cpu",
        "test_sequence_model5_cpu",
        "test_operator_exp_cpu",
        "test_shufflenet_cpu",
        "test_single_relu_model_cpu",
    )
    cases = [case(test) for case in runners[name].test_cases.values() for test in chosen if hasattr(case, test)]
    assert len(cases) == len(chosen)
    result = unittest.TestResult()
    unittest.TestSuite(cases).run(result)
    assert result.testsRun == len(chosen)
    assert not [*result.failures, *result.errors, *result.skipped]


def test_other_devices_are_skipped_by_the_runner(backend):
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:1")
    with pytest.raises(tx.InvalidCall, match="device"):
        backend.prepare(onnx.ModelProto(), "CUDA")


def linear(ir=8):
    text = f"""
    <ir_version: {ir}, opset_import: ["" : 18]>
    linear (float[N, 3] x, float[3] scale, float[3] shift) => (float[N, 3] y, float[N, 3] scaled)
    <float[3] shift = {{1, 2, 3}}>
    {{ scaled = Mul(x, scale)  y = Add(scaled, shift) }}"""
    return onnx.parser.parse_model(text)


def test_inputs_go_by_position_or_by_name(backend):
    prepared = backend.prepare(linear(), rtol=1e-3)
    scale, shift = np.full(3, 2, np.float32), np.array([1, 2, 3], np.float32)
    for inputs in ([X, scale], (X, scale), {"scale": scale, "x": X}):
        y, scaled = prepared.run(inputs)
        np.testing.assert_array_equal(y, X * 2 + shift)
        np.testing.assert_array_equal(scaled, X * 2)
    y, _ = prepared.run([X, scale, np.zeros(3, np.float32)])
    np.testing.assert_array_equal(y, X * 2)
    y, _ = backend.run_model(linear(), [X, scale])
    np.testing.assert_array_equal(y, X * 2 + shift)


def test_the_number_of_inputs_must_fit(backend):
    prepared = backend.prepare(linear())
    with pytest.raises(tx.InvalidCall, match="got more than its 3 inputs"):
        prepared.run([X] * 4)
    with pytest.raises(tx.InvalidFeed, match="scale"):
        prepared.run([X])


def test_a_single_node_runs(backend):
    (relu,) = backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [X - 2])
    np.testing.assert_array_equal(relu, np.maximum(X - 2, 0))
    clip = helper.make_node("Clip", ["x", "", "most"], ["y"])
    (clipped,) = backend.run_node(clip, {"x": X, "most": np.float32(2)})
    np.testing.assert_array_equal(clipped, np.minimum(X, 2))
    old = helper.make_node("Clip", ["x"], ["y"], max=2.0)
    (clipped,) = backend.run_node(old, [X], opset_version=6)
    np.testing.assert_array_equal(clipped, np.minimum(X, 2))
    top = helper.make_node("TopK", ["x", "k"], ["values", "places"])
    values, places = backend.run_node(top, [X, np.array([1])], outputs_info=[(np.float32, (2, 1)), (np.int64, (2, 1))])
    assert values.ravel().tolist() == [2, 5]
    assert places.ravel().tolist() == [2, 2]


def test_options_go_to_the_backend():
    prepared = BACKENDS["onnxruntime"].prepare(linear(), session_options={"intra_op_num_threads": 1}, strict=True)
    assert prepared.program.backend == "onnxruntime"
    with pytest.raises(tx.InvalidCall):
        BACKENDS["numpy"].prepare(linear(), cores=1)
