"""Gradients of convolutions over few positions, by matrix products over all images."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_standard import convolution_tuning

CASES = [
    ((2, 2), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((5, 4), (3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ((5, 4), (3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((6, 5), (2, 2), {"dilations": [2, 3], "strides": [1, 2]}),
    ((7,), (3,), {"pads": [2, 0], "strides": [3]}),
    ((2, 3, 2), (2, 2, 1), {"pads": [0, 1, 0, 1, 0, 0]}),
]


def gradients(sizes, kernel, attributes, batch):
    """The op types of the gradient of a convolution of three images, and its results on both backends."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (batch, 40, *sizes))
    w = graph.input("w", "float32", (60, 40, *kernel))
    graph.output("y", ops.conv(x, w, kernel_shape=list(kernel), **attributes))
    random = np.random.default_rng(0)
    feeds = {"x": random.normal(size=(3, 40, *sizes)), "w": random.normal(size=(60, 40, *kernel))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    feeds["seed"] = random.normal(size=graph.run(feeds)["y"].shape).astype(np.float32)
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "seed"})
    result = [slope.run(feeds, backend=backend)["x/grad"] for backend in ("numpy", "onnxruntime")]
    return {node.op_type for node in slope.nodes}, result


@pytest.mark.parametrize("batch", [3, "batch"])
@pytest.mark.parametrize(("sizes", "kernel", "attributes"), CASES)
def test_products_equal_the_transpose_of_the_convolution(sizes, kernel, attributes, batch, monkeypatch):
    monkeypatch.setattr(convolution_tuning, "FEW_POSITIONS_AT_ONCE", 16)
    types, result = gradients(sizes, kernel, attributes, batch)
    assert "ConvTranspose" not in types
    monkeypatch.setattr(convolution_tuning, "MANY_WEIGHTS", 1 << 30)
    types, expected = gradients(sizes, kernel, attributes, batch)
    assert "ConvTranspose" in types
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize(
    ("channels", "side", "at_once"), [(16, 2, False), (64, 2, True), (64, 7, False), (256, 4, False), (512, 7, True)]
)
def test_the_gradient_of_images_is_one_product_where_weights_outweigh_positions(channels, side, at_once):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("batch", channels, side, side))
    w = graph.input("w", "float32", (channels, channels, 3, 3))
    graph.output("y", ops.conv(x, w, pads=[1, 1, 1, 1]))
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"})
    assert ("ConvTranspose" not in {node.op_type for node in slope.nodes}) == at_once
