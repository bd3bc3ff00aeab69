"""The gradient of MaxPool at every opset, with memory proportional to the images."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

WINDOWS = {
    "side by side": ((8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "apart": ((9, 9), {"kernel_shape": [2, 2], "strides": [3, 3]}),
    "of ResNet": ((8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "at each place": ((6, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "over other steps": ((11, 7), {"kernel_shape": [4, 3], "strides": [3, 1]}),
    "with holes": ((9, 9), {"kernel_shape": [2, 2], "dilations": [3, 2], "strides": [2, 1]}),
    "beyond the end": ((8, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "padded by rule": ((7, 6), {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    "of sound": ((12,), {"kernel_shape": [5], "strides": [2]}),
    "of volumes": ((5, 4, 6), {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2]}),
    "once": ((3, 3), {"kernel_shape": [3, 3]}),
}


def pooled(sizes, attributes, opset, shape=None):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    shape = shape or (2, 3, *sizes)
    graph.output("y", ops.max_pool(graph.input("x", "float32", shape), **attributes))
    return graph


def by_hand(x, places, g):
    expected = np.zeros(x.size, np.float64)
    np.add.at(expected, places.reshape(-1), g.reshape(-1))
    return expected.reshape(x.shape)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("opset", [10, 11, 13, 15, 16, 21])
@pytest.mark.parametrize("kind", WINDOWS)
def test_each_gradient_goes_to_the_position_of_its_maximum(kind, opset, symbolic, backend):
    sizes, attributes = WINDOWS[kind]
    shape = ("batch", 3, *(f"size{k}" for k in range(len(sizes)))) if symbolic else None
    graph = pooled(sizes, attributes, opset, shape)
    random = np.random.default_rng(0)
    x = random.permutation(6 * int(np.prod(sizes))).astype(np.float32).reshape(2, 3, *sizes)
    y, places = ops.max_pool(x, **attributes, _outputs=2)
    g = random.normal(size=y.shape).astype(np.float32)
    slope = tx.retarget(tx.grad(graph, of="y", wrt="x", seeds={"y": "g"}), opset)
    assert {node.domain for node in slope.walk()} == {"ai.onnx"}
    result = slope.run({"x": x, "g": g}, backend=backend)["x/grad"]
    np.testing.assert_allclose(result, by_hand(x, places, g), atol=1e-5)


@pytest.mark.parametrize("opset", [11, 13, 15, 16, 21])
@pytest.mark.parametrize("kind", [kind for kind, (sizes, _) in WINDOWS.items() if len(sizes) == 2])
def test_memory_grows_with_the_images(kind, opset):
    """A dense index table would have outputs times inputs elements: here over 100 MB."""
    _, attributes = WINDOWS[kind]
    slope = tx.grad(pooled((72, 72), attributes, opset), of="y", wrt="x", seeds={"y": "g"})
    costs = tx.costs(slope)
    assert all("::" not in cost.op for cost in costs.nodes)
    assert 2 * 4 * 6 * 72**2 < costs.peak < 64 * 6 * 72**2
    file = tx.retarget(slope, opset)
    assert tx.costs(file).peak == costs.peak


def test_squares_beyond_half_floats_have_a_slope():
    """300 squared overflows float16, so the body, too, computes powers in float32."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float16", (1, 1, 2))
    graph.output("y", ops.lp_pool(x, kernel_shape=[2], p=3))
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"})
    feeds = {"x": np.float16([[[300, 300]]]), "g": np.ones((1, 1, 1), np.float16)}
    np.testing.assert_allclose(slope.run(feeds, backend="numpy")["x/grad"], 2 ** (-2 / 3), rtol=2e-3)
