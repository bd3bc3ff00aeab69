"""Ops of onnxruntime in the default domain that ONNX added later, in files of onnxruntime's optimizer."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

import tenonnx as tx
from tenonnx_cli import main
from tenonnx_convert.convert import to_proto

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 8)).astype("f4")


def single(op_type, opset, shapes, *, kinds=None, **attributes):
    """A single-node model with inputs of these shapes."""
    kinds = kinds or [onnx.TensorProto.FLOAT] * len(shapes)
    value = onnx.helper.make_tensor_value_info
    given = [value(name, kind, shape) for (name, shape), kind in zip(shapes.items(), kinds, strict=True)]
    made = [value("y", kinds[-1], shapes["x"])]
    node = onnx.helper.make_node(op_type, list(shapes), ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "single", given, made)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=6)


def options():
    result = onnxruntime.SessionOptions()
    result.intra_op_num_threads = 1
    result.log_severity_level = 4
    return result


def run(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def optimized(folder, opset, rms=False):
    """A normalization in elementary ops, after onnxruntime's optimizer."""
    lines = ["mean = ReduceMean <axes=[-1]> (x)", "d = Sub (x, mean)"] if not rms else ["d = Identity (x)"]
    text = f"""<ir_version: 7, opset_import: ["" : {opset}]>
    normalized (float[b, 3, 8] x) => (float[b, 3, 8] y)
    <float[8] weight = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[8] bias = {{8, 7, 6, 5, 4, 3, 2, 1}}> {{
        {chr(10).join(lines)}
        two = Constant <value = float {{2}}> ()
        small = Constant <value = float {{0.00001}}> ()
        square = Pow (d, two)
        variance = ReduceMean <axes=[-1]> (square)
        shifted = Add (variance, small)
        root = Sqrt (shifted)
        standard = Div (d, root)
        scaled = Mul (weight, standard)
        y = Add (scaled, bias)
    }}"""
    path, settings = folder / "optimized.onnx", options()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(path)
    model = onnx.parser.parse_model(text)
    onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return model, path


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("opset", range(11, 17))
def test_output_of_the_optimizer_is_loaded_run_checked_retargeted_and_differentiated(opset, rms, tmp_path, capfd):
    plain, path = optimized(tmp_path, opset, rms)
    name = "SimplifiedLayerNormalization" if rms else "LayerNormalization"
    graph = tx.load(path)
    assert name in {node.op_type for node in graph.nodes}
    assert {node.version for node in graph.nodes} == {opset}
    (expected,) = run(plain, {"x": X})
    assert str(graph.outputs[0].type) == "float32[b, 3, 8]"
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(graph.run({"x": X}, backend=backend)["y"], expected, rtol=1e-4, atol=1e-5)
    assert main(["check", str(path)]) == 0
    assert f"supported by some runtimes: {name}@{opset}, 1 node" in capfd.readouterr().out

    slopes = [tx.grad(each, of="y", wrt="x", seeds={"y": "g"}) for each in (graph, tx.load(plain))]
    a, b = (each.run({"x": X, "g": X[::-1].copy()}, backend="numpy")["x/grad"] for each in slopes)
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    for target in ({"opset_version": opset}, {"opset_version": 9}, {"opset_version": 17}, {"target": "tensorrt-8"}):
        moved = tx.retarget(graph, **target)
        onnx.checker.check_model(to_proto(moved), full_check=True)
        tx.verify(graph, moved, feeds={"x": X}).raise_if_failed()
        assert ("LayerNormalization" in {n.op_type for n in moved.nodes}) == (
            target == {"opset_version": 17} and not rms
        )
    kept = tx.retarget(graph, target="onnxruntime-1.18")
    assert name in {node.op_type for node in kept.nodes}


def test_a_runtime_with_a_kernel_gets_the_node_at_lower_opsets(tmp_path):
    graph = tx.load(single("LayerNormalization", 17, {"x": X.shape, "scale": [8]}))
    path = tmp_path / "moved.onnx"
    tx.export(graph, path, opset_version=13, target="onnxruntime-1.18")
    assert [(n.op_type, n.version) for n in tx.load(path).nodes] == [("LayerNormalization", 13)]
    tx.export(graph, path, opset_version=13)
    assert "LayerNormalization" not in {n.op_type for n in tx.load(path).nodes}


def test_scale_and_shift_may_be_of_another_type():
    """As in models for GPUs: the optimizer fuses the casts around the normalization."""
    kinds = [onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT]
    graph = tx.load(single("LayerNormalization", 12, {"x": X.shape, "scale": [8], "shift": [8]}, kinds=kinds))
    scale, shift = np.arange(8, dtype="f4"), np.ones(8, "f4")
    result = graph.run({"x": X.astype("f2"), "scale": scale, "shift": shift}, backend="numpy")["y"]
    wide = X.astype("f2").astype("f4")
    deviation = wide - wide.mean(-1, keepdims=True)
    expected = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4), (2, 3, 4, 5, 2)])
@pytest.mark.parametrize("attributes", [{}, {"across_channels": 1}, {"normalize_variance": 0}])
def test_mean_and_variance_by_channel(shape, attributes):
    if len(shape) == 3 and attributes.get("across_channels"):
        pytest.skip("onnxruntime refuses three axes where channels are normalized together")
    model, x = single("MeanVarianceNormalization", 8, {"x": shape}, **attributes), RANDOM.random(shape).astype("f4")
    (expected,) = run(model, {"x": x})
    graph = tx.load(model)
    for moved in (graph, tx.retarget(graph, 8), tx.retarget(graph, 13)):
        np.testing.assert_allclose(moved.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 9])
def test_thresholded_relu_before_it_was_specified(opset):
    model = single("ThresholdedRelu", opset, {"x": ["b", 3, 8]}, alpha=0.5)
    graph = tx.load(model)
    plain = tx.retarget(graph, 9)  # below 9 there is no Where
    assert "ThresholdedRelu" not in {n.op_type for n in plain.nodes}
    for each in (graph, plain):
        for backend in ("numpy", "onnxruntime"):
            np.testing.assert_array_equal(each.run({"x": X}, backend=backend)["y"], run(model, {"x": X})[0])


#: Schemas without a kernel in any CPU build: remnants of Caffe2, and TensorRT layers.
WITHOUT_KERNEL = {
    "DisentangledAttention_TRT",
    "EfficientNMS_TRT",
    "GRUUnit",
    "GivenTensorFill",
    "MultilevelCropAndResize_TRT",
    "PyramidROIAlign_TRT",
}


def test_every_version_that_the_runtime_has_a_kernel_for_has_a_meaning():
    kernels = {}
    for kernel in runtime.get_all_opkernel_def():
        if not kernel.domain and kernel.provider == "CPUExecutionProvider":
            kernels.setdefault(kernel.op_name, []).append(kernel.version_range)
    registry = tx.default_registry()
    missing = {
        (schema.name, schema.since_version)
        for schema in runtime.get_all_operator_schema()
        if not schema.domain
        and any(first <= schema.since_version <= last for first, last in kernels.get(schema.name, ()))
        and not schema.deprecated
        and registry.lookup("ai.onnx", schema.name, schema.since_version) is None
    }
    assert missing == set()
    assert not WITHOUT_KERNEL & kernels.keys()
