"""Blocked convolutions: used where they apply, with numpy's results."""

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.messages import message_of
from tenonnx.graph.constants import ArrayConstant
from tenonnx_onnxruntime.blocked import DOMAIN, block_size, in_blocks, layout
from tenonnx_standard.convolution import conv, conv_transpose

FORMS = {
    "plain": (conv, (32, 64, 3, 3), 64, {}),
    "padded": (conv, (64, 32, 3, 3), 32, {"pads": [1, 0, 2, 1]}),
    "strided": (conv, (32, 32, 3, 2), 32, {"strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "dilated": (conv, (32, 32, 2, 3), 32, {"dilations": [2, 1]}),
    "transposed": (conv_transpose, (64, 32, 3, 3), 64, {"pads": [1, 1, 1, 1]}),
    "transposed, padded": (conv_transpose, (32, 32, 2, 3), 32, {"pads": [0, 1, 1, 2], "dilations": [2, 1]}),
}
LEFT = {
    "in groups": (conv, (64, 32, 3, 3), 64, {"group": 2}),
    "of few channels": (conv, (64, 3, 3, 3), 3, {}),
    "small": (conv, (16, 16, 1, 1), 16, {}),
    "automatically padded": (conv, (32, 32, 3, 3), 32, {"auto_pad": "SAME_UPPER"}),
    "transposed, strided": (conv_transpose, (32, 32, 3, 3), 32, {"strides": [2, 2]}),
    "transposed, cut": (conv_transpose, (32, 32, 3, 3), 32, {"pads": [3, 3, 3, 3]}),
}


def made(op, kernel, channels, attributes, dtype="float32", bias=True):
    graph = tx.Graph("g")
    x, w = graph.input("x", dtype, ("n", channels, 9, 8)), graph.input("w", dtype, kernel)
    results = kernel[0] if op is conv else kernel[1]
    inputs = [x, w, graph.input("b", dtype, (results,))] if bias else [x, w]
    graph.output("y", op(*inputs, **attributes))
    return graph


def changed(graph):
    return any(node.domain == DOMAIN for node in in_blocks(graph).nodes)


@pytest.mark.skipif(not block_size(), reason="the runtime has no such layout on this processor")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_blocked_convolutions_have_equal_results(form, bias):
    graph = made(*FORMS[form], bias=bias)
    assert changed(graph)
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.standard_normal([d if isinstance(d, int) else 2 for d in v.shape], np.float32)
        for v in graph.inputs
    }
    result = graph.compile("onnxruntime", strict=True)(feeds)["y"]
    np.testing.assert_allclose(result, graph.run(feeds, backend="numpy")["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", LEFT)
def test_other_convolutions_are_unchanged(form):
    assert not changed(made(*LEFT[form]))


def test_kernels_that_are_constants_and_other_dtypes_are_left_to_the_runtime():
    assert not changed(made(*FORMS["plain"], dtype="float64"))
    graph = made(*FORMS["plain"])
    kernel = next(v for v in graph.all_inputs if v.name == "w")
    kernel.data = ArrayConstant(np.zeros(FORMS["plain"][1], np.float32))
    assert not changed(graph)


@pytest.mark.skipif(not block_size(), reason="the runtime has no such layout on this processor")
def test_the_operators_mean_what_the_runtime_computes():
    result = layout(block_size())
    graph = tx.Graph(opsets={"ai.onnx": 18, DOMAIN: 1})
    x, w = graph.input("x", "float32", (2, 32, 5, 4)), graph.input("w", "float32", (64, 32, 2, 3))
    blocks = result.reorder_input(x)
    for name, value in {
        "blocks": blocks,
        "y": result.conv(blocks, w),
        "z": result.reorder_output(x, channels=32),
    }.items():
        graph.output(name, value)
    random = np.random.default_rng(0)
    feeds = {value.name: random.standard_normal(value.shape, np.float32) for value in graph.inputs}
    model, _ = message_of(graph)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    computed = graph.run(feeds, backend="numpy")
    for value, y in zip(graph.outputs, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(y, computed[value.name], rtol=1e-4, atol=1e-4)
