"""Folding of factors, shifts and padding into convolutions and products with constant weights."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

RNG = np.random.default_rng(3)


def numbers(*shape, dtype=np.float32):
    return RNG.uniform(0.5, 1.5, shape).astype(dtype)


def batch_norm(x, channels, **attributes):
    return ops.batch_normalization(x, *(numbers(channels) for _ in range(4)), **attributes)


def layers(dtype=np.float32):
    """Layers with four output channels and eight input channels each; one enlarges the image."""
    w, b = (lambda *shape: numbers(*shape, dtype=dtype)), numbers(4, dtype=dtype)
    return {
        "Conv": lambda x: ops.conv(x, w(4, 8, 3, 3), pads=[1, 1, 1, 1]),
        "Conv with a bias, of groups": lambda x: ops.conv(x, w(4, 2, 3, 3), b, group=4, strides=[2, 1]),
        "ConvTranspose": lambda x: ops.conv_transpose(x, w(8, 4, 2, 2), b, strides=[2, 2]),
        "ConvTranspose of groups": lambda x: ops.conv_transpose(x, w(8, 2, 2, 2), group=2),
    }


BEHIND = {
    "BatchNormalization": lambda y: batch_norm(y, 4),
    "Mul": lambda y: y * numbers(4, 1, 1),
    "Mul by one number": lambda y: 0.5 * y,
    "Div": lambda y: y / numbers(1, 4, 1, 1),
    "Add": lambda y: numbers(4, 1, 1) + y,
    "Sub": lambda y: y - numbers(4, 1, 1),
    "Sub from": lambda y: numbers(4, 1, 1) - y,
    "several": lambda y: (batch_norm(y * 2.0, 4) + numbers(4, 1, 1)) * 0.25,
}


def graph_of(build, shape, opset=17, dtype="float32"):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    with graph.building():
        graph.output("y", build(graph.input("x", dtype, shape)))
    return graph


def simplified(graph, shape, dtype=np.float32):
    simple = tx.simplify(graph)
    x = RNG.standard_normal(shape).astype(dtype)
    result = tx.verify(graph, simple, feeds={"x": x})
    assert result.equal, str(result)
    return [node.op_type for node in simple.nodes]


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("layer", layers())
def test_a_convolution_absorbs_the_op_after_it(layer, behind):
    graph = graph_of(lambda x: BEHIND[behind](layers()[layer](x)), ("batch", 8, 5, 6))
    assert simplified(graph, (2, 8, 5, 6)) == [layer.split()[0]]


@pytest.mark.parametrize("opset", [8, 12, 14, 21])
def test_batch_normalization_of_every_version_is_taken_in(opset):
    graph = graph_of(lambda x: batch_norm(layers()["Conv"](x), 4), (2, 8, 5, 6))
    moved = tx.retarget(graph, opset_version=opset)
    assert [node.op_type for node in moved.nodes] == ["Conv", "BatchNormalization"]
    assert simplified(moved, (2, 8, 5, 6)) == ["Conv"]


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [None, (1,), (4,), (1, 4)])
def test_a_matrix_product_absorbs_the_op_after_it(turned, bias):
    weight, shift = numbers(*((4, 8) if turned else (8, 4))), None if bias is None else numbers(*bias)
    graph = graph_of(
        lambda x: batch_norm(ops.gemm(x, weight, shift, transB=turned, alpha=0.5, beta=2.0), 4) * 3.0, (2, 8)
    )
    assert simplified(graph, (2, 8)) == ["Gemm"]


def test_a_convolution_absorbs_the_op_before_it():
    conv = lambda x, **attributes: ops.conv(x, numbers(4, 4, 3, 3), numbers(4), group=2, **attributes)  # noqa: E731
    scale, shift = numbers(8, 1, 1), numbers(8, 1, 1)
    scaled = graph_of(lambda x: conv(x * scale, pads=[1, 1, 1, 1]), (2, 8, 5, 6))
    assert simplified(scaled, (2, 8, 5, 6)) == ["Conv"]
    shifted = graph_of(lambda x: conv((x - shift) / scale), (2, 8, 5, 6))
    assert simplified(shifted, (2, 8, 5, 6)) == ["Conv"]
    around = graph_of(lambda x: conv((x - shift) / scale, auto_pad="SAME_UPPER"), (2, 8, 5, 6))
    assert simplified(around, (2, 8, 5, 6)) == ["Sub", "Conv"]  # padding zeros are not shifted


@pytest.mark.parametrize("opset", [9, 13, 19])
def test_zeros_around_an_image_are_padding_of_the_convolution(opset):
    def padded(x, around=(0, 0, 1, 0, 0, 0, 2, 3), **more):
        return ops.conv(ops.pad(x, list(around)), numbers(4, 8, 3, 3), **more)

    graph = graph_of(lambda x: padded(x, pads=[1, 1, 0, 0]), (2, 8, 5, 6))
    moved = tx.retarget(graph, opset_version=opset)
    assert simplified(moved, (2, 8, 5, 6)) == ["Conv"]
    assert tx.simplify(moved).nodes[0].attributes["pads"] == [2, 1, 2, 3]
    for kept in (
        lambda x: padded(x, auto_pad="SAME_LOWER"),
        lambda x: padded(x, around=(0, 0, -1, 0, 0, 0, 0, 0)),
        lambda x: padded(x, around=(1, 0, 0, 0, 0, 0, 0, 0)),
        lambda x: ops.conv(ops.pad(x, [0, 0, 1, 1, 0, 0, 1, 1], 1.0), numbers(4, 8, 3, 3)),
        lambda x: ops.conv(ops.pad(x, [0, 0, 1, 1, 0, 0, 1, 1], mode="edge"), numbers(4, 8, 3, 3)),
    ):
        assert simplified(graph_of(kept, (2, 8, 5, 6)), (2, 8, 5, 6)) == ["Pad", "Conv"]


def test_values_with_other_consumers_are_not_computed_twice():
    weight = numbers(4, 8, 3, 3)

    def shared(x):
        y = ops.conv(x, weight)
        return ops.identity(y) * 2.0 + ops.relu(y)

    assert simplified(graph_of(shared, (2, 8, 5, 6)), (2, 8, 5, 6)) == ["Conv", "Mul", "Relu", "Add"]
    graph = graph_of(lambda x: ops.conv(x, weight), (2, 8, 5, 6))
    with graph.building():
        graph.output("z", graph.outputs[0] * 2.0)
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["Conv", "Mul"]


def test_other_operands_than_numbers_per_channel_stay():
    for behind in (
        lambda y: y * numbers(3, 4),
        lambda y: y * numbers(2, 1, 1, 1),
        lambda y: y * numbers(1, 1, 4, 1, 1),  # the result has one more axis
        lambda y: 1.0 / y,
        lambda y: y * 1e38,  # overflows float32 in the weights, but not in the result
        lambda y: batch_norm(y, 4, training_mode=1, _outputs=3)[0],
    ):
        graph = graph_of(lambda x, behind=behind: behind(ops.conv(x, 40 * numbers(4, 8, 3, 3))), (2, 8, 5, 6))
        assert len(tx.simplify(graph).nodes) == 2


def test_weights_that_may_be_fed_stay():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, weight = graph.input("x", "float32", (1, 8, 5, 6)), graph.input("weight", "float32", (4, 8, 3, 3))
    with graph.building():
        graph.output("y", batch_norm(ops.conv(x, weight), 4))
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_weights_keep_their_element_type(dtype):
    graph = graph_of(
        lambda x: layers(np.dtype(dtype))["Conv"](x) * numbers(4, 1, 1, dtype=dtype), (2, 8, 5, 6), 17, dtype
    )
    assert simplified(graph, (2, 8, 5, 6), dtype) == ["Conv"]
    assert str(tx.simplify(graph).nodes[0].inputs[1].type) == f"{dtype}[4, 8, 3, 3]"


def test_zeros_that_are_there_without_them_are_left_out():
    zeros = lambda x, *shape: ops.expand(ops.cast_like(0.0, x), list(shape))  # noqa: E731
    conv = graph_of(lambda x: ops.conv(x, numbers(4, 8, 3, 3), zeros(x, 4)), (2, 8, 5, 6))
    assert [len(node.inputs) for node in tx.simplify(conv).nodes] == [2]
    weights = [numbers(1, 12, 5), numbers(1, 12, 3)]

    def began(x):
        state = ops.expand(ops.constant(value_float=0.0), ops.concat([1], ops.shape(x)[1:2], [3], axis=0))
        return ops.lstm(x, *weights, None, None, state, state, hidden_size=3, _outputs=3)[0]

    lstm = graph_of(began, ("steps", "batch", 5))
    assert simplified(lstm, (4, 2, 5)) == ["LSTM"]
    assert len(tx.simplify(lstm).nodes[0].inputs) == 3
    product = graph_of(lambda x: ops.gemm(x, numbers(8, 4), np.zeros(4, np.float32)), (2, 8))
    assert [len(node.inputs) for node in tx.simplify(product).nodes] == [2]


IMAGE, AROUND = (2, 4, 6, 5), [0, 0, 1, 1, 0, 0, 1, 0]
POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}


@pytest.mark.parametrize("opset", [8, 13, 21])
def test_padding_around_an_image_is_that_of_the_pool(opset):
    for pooled in (
        lambda x: ops.max_pool(ops.pad(ops.relu(x), AROUND), **POOL),
        lambda x: ops.max_pool(ops.pad(ops.sigmoid(x), AROUND), **POOL, pads=[1, 1, 1, 2]),
        lambda x: ops.max_pool(ops.pad(x * 2.0, AROUND, -np.inf), **POOL),
        lambda x: ops.average_pool(ops.pad(x * 2.0, AROUND), **POOL),
    ):
        graph = tx.retarget(graph_of(pooled, IMAGE), opset_version=opset)
        assert len(graph.nodes) == 3
        assert len(simplified(graph, IMAGE)) == 2
    bounded = graph_of(lambda x: ops.max_pool(ops.pad(ops.clip(x, -1.0, 1.0), AROUND, -1.0), **POOL), IMAGE)
    assert simplified(bounded, IMAGE) == ["Clip", "MaxPool"]


def test_padding_that_a_pool_would_see_otherwise_stays():
    for pooled in (
        lambda x: ops.max_pool(ops.pad(x, AROUND), **POOL),  # zeros may be the maximum
        lambda x: ops.max_pool(ops.pad(ops.clip(x, -1.0), AROUND), **POOL),
        lambda x: ops.max_pool(ops.pad(ops.relu(x), AROUND, 0.5), **POOL),
        lambda x: ops.max_pool(ops.pad(ops.relu(x), [0, 0, 3, 0, 0, 0, 3, 0]), **POOL),  # windows with only padding
        lambda x: ops.max_pool(ops.pad(ops.relu(x), AROUND), **POOL, ceil_mode=1),
        lambda x: ops.max_pool(ops.pad(ops.relu(x), AROUND), **POOL, auto_pad="SAME_UPPER"),
        lambda x: ops.max_pool(ops.pad(ops.relu(x), AROUND, mode="edge"), **POOL),
        lambda x: ops.average_pool(ops.pad(x, AROUND), **POOL, pads=[1, 1, 1, 1]),  # which counts only some zeros
        lambda x: ops.average_pool(ops.pad(x, AROUND, 1.0), **POOL),
    ):
        assert "Pad" in simplified(graph_of(pooled, IMAGE), IMAGE)


@pytest.mark.parametrize("opset", [9, 17])
def test_a_convolution_absorbs_the_op_before_a_transpose(opset):
    weight, scale, shift = numbers(8, 3, 3, 2), numbers(3), numbers(3)

    def convolved(x, **attributes):
        return ops.conv(ops.transpose(x, perm=[0, 3, 1, 2]), weight, **attributes)

    for before in (
        lambda x: convolved(ops.pad(x, [0, 1, 2, 0, 0, 0, 1, 0])),
        lambda x: convolved(ops.pad(x * 0.5, [0, 1, 2, 0, 0, 0, 1, 0]), pads=[1, 0, 0, 0]),
        lambda x: convolved((x - shift) / scale),
    ):
        graph = tx.retarget(graph_of(before, ("batch", 6, 5, 3)), opset_version=opset)
        assert simplified(graph, (2, 6, 5, 3)) == ["Transpose", "Conv"]
    for kept in (
        lambda x: convolved(x - shift, pads=[1, 1, 1, 1]),
        lambda x: convolved(x * numbers(5, 3)),
        lambda x: convolved(ops.pad(x, [0, 1, 1, 1, 0, 0, 0, -1])),
    ):
        assert len(simplified(graph_of(kept, (2, 6, 5, 3)), (2, 6, 5, 3))) == 3


@pytest.mark.parametrize("opset", [6, 8, 13, 21])
def test_a_factor_and_a_shift_for_each_channel_are_one_call(opset):
    scale, shift = numbers(4, 1, 1), numbers(1, 4, 1, 1)
    graph = tx.retarget(graph_of(lambda x: ops.relu(shift + x * scale), ("batch", *IMAGE[1:])), opset_version=opset)
    assert simplified(graph, IMAGE) == (["BatchNormalization", "Relu"] if opset > 6 else ["Mul", "Add", "Relu"])


def test_other_factors_and_shifts_stay_two():
    for function in (
        lambda x: x * 2.0 + numbers(4, 1, 1),
        lambda x: x * numbers(4, 6, 1) + 1.0,
        lambda x: x * numbers(6, 5) + numbers(6, 5),
    ):
        assert simplified(graph_of(function, IMAGE), IMAGE) == ["Mul", "Add"]
    table = graph_of(lambda x: x * numbers(4) + numbers(4), (3, 4))
    assert simplified(table, (3, 4)) == ["Mul", "Add"]
