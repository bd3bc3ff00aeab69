"""Calls that onnxruntime accepts beyond the specification."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops

RANDOM = np.random.default_rng(0)


def feeds(*arrays):
    return {f"x{k}": np.asarray(array) for k, array in enumerate(arrays)}


FLOATS = RANDOM.standard_normal((3, 2)).astype("f4")
IMAGE = RANDOM.standard_normal((2, 3, 4, 5)).astype("f4")
CALLS = {
    "PRelu of a smaller tensor": ("PRelu", 16, feeds(FLOATS, RANDOM.standard_normal((3, 3, 1)).astype("f4")), {}),
    "PRelu of a scalar": ("PRelu", 9, feeds(np.float32(-2), np.float32([3, 4])), {}),
    **{f"{name} of a vector": (name, 17, feeds([5]), {}) for name in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "HannWindow of a matrix": ("HannWindow", 17, feeds([[5]]), {"periodic": 0}),
    "MelWeightMatrix of vectors": (
        "MelWeightMatrix",
        17,
        feeds([8], [16], [[8000]], np.float32([0]), np.float32(4000)),
        {},
    ),
    **{
        f"{name} over one axis twice": (name, opset, feeds(FLOATS), {"axes": [0, -2], "keepdims": opset % 2})
        for name, opset in (("ReduceSum", 11), ("ReduceMean", 13), ("ReduceMax", 12), ("ReduceLogSumExp", 17))
    },
    "Squeeze of one axis twice": ("Squeeze", 11, feeds(FLOATS[:1]), {"axes": [0, -2]}),
    **{
        f"MeanVarianceNormalization of {IMAGE.ndim - k} axes": (
            "MeanVarianceNormalization",
            13,
            feeds(IMAGE[(0,) * k]),
            {},
        )
        for k in (1, 2)
    },
    "MeanVarianceNormalization over one axis twice": (
        "MeanVarianceNormalization",
        13,
        feeds(IMAGE),
        {"axes": [0, -4, 2]},
    ),
    **{
        f"{name} whose auto_pad is empty": (name, 11, feeds(IMAGE, *more), {"auto_pad": "", **attributes})
        for name, more, attributes in (
            ("Conv", [IMAGE[:1, :, :2, :2]], {}),
            ("ConvTranspose", [IMAGE[:1, :1, :2, :2].repeat(3, 0)], {}),
            ("MaxPool", [], {"kernel_shape": [2, 2]}),
            ("AveragePool", [], {"kernel_shape": [2, 2]}),
        )
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_interpreted_as_by_onnxruntime(name):
    op_type, opset, given, attributes = CALLS[name]
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    node = onnx.helper.make_node(op_type, list(given), ["y"], **attributes)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "call", inputs, [output]),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, given)
    graph = tx.load(model)
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(graph.run(given, backend=backend)["y"], expected, rtol=1e-5, atol=1e-6)
    assert graph.infer() is None or graph.outputs[0].type is not None


@pytest.mark.parametrize("op_type", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_float64_is_normalized_in_float64(op_type):
    """The attribute stash_type is float32 by default; onnxruntime and the reference compute in float64 all the same."""
    x, scale = RANDOM.standard_normal((4, 8)) + 1000, RANDOM.standard_normal(8)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    value, weight = graph.input("x", "float64", ("n", 8)), graph.variable("scale", scale)
    op = getattr(ops, "layer_normalization" if op_type == "LayerNormalization" else "simplified_layer_normalization")
    y, *_ = op(value, weight)
    graph.output("y", y)
    stream = io.BytesIO()
    tx.export(graph, stream)
    expected = onnxruntime.InferenceSession(stream.getvalue()).run(None, {"x": x})[0]
    np.testing.assert_allclose(graph.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-9)
    body = tx.retarget(graph, opset_version=13)
    np.testing.assert_allclose(body.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-9)
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"})
    seed = RANDOM.standard_normal((4, 8))
    result = slope.run({"x": x, "g": seed}, backend="numpy")["x/grad"]
    nudged = x + 1e-5 * seed
    change = (graph.run({"x": nudged}, backend="numpy")["y"] - expected) / 1e-5
    np.testing.assert_allclose((change * seed).sum(), (result * seed).sum(), rtol=1e-3)
