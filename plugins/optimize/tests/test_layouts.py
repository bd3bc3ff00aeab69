"""Pushing Transpose nodes through graphs."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend.formats import Role
from tenonnx_cli import main
from tenonnx_optimize import channels_first
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

RANDOM = np.random.default_rng(0)
FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def array(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def graph_of(build, *shapes):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    inputs = [graph.input(f"x{k}", "float32", shape) for k, shape in enumerate(shapes)]
    with graph.building():
        graph.output("y", build(graph, *inputs))
    return graph


def op_types(graph):
    return [node.op_type for node in graph.nodes]


def same_numbers(before, after, *arrays):
    feeds = dict(zip([v.name for v in before.inputs], arrays, strict=True))
    expected, result = before.run(feeds, backend="numpy")["y"], after.run(feeds, backend="numpy")["y"]
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def convolved(graph, x, channels, name):
    """A layer as in Keras and Flax: channels last, with a bias for each channel."""
    kernel, bias = graph.variable(f"{name}.kernel", array(channels, x.shape[-1], 3, 3)), array(channels)
    y = ops.conv(ops.transpose(x, perm=FIRST), kernel, pads=[1, 1, 1, 1])
    return ops.add(ops.transpose(y, perm=LAST), graph.variable(f"{name}.bias", bias))


def network(graph, x):
    y = ops.relu(convolved(graph, x, 4, "first"))
    z = ops.add(y, ops.gelu(convolved(graph, y, 4, "second")))  # a residual connection
    z = ops.concat(z, y, axis=3)
    return ops.softmax(ops.reduce_mean(z, [1, 2], keepdims=0), axis=-1)


def test_a_network_with_channels_last_has_one_transposition_left():
    before = graph_of(network, ("batch", 8, 6, 3))
    after = channels_first(before)
    assert op_types(before).count("Transpose") == 4
    assert op_types(after).count("Transpose") == 1
    assert [str(v.type) for v in (*after.inputs, *after.outputs)] == ["float32[batch, 8, 6, 3]", "float32[batch, 8]"]
    same_numbers(before, after, array(2, 8, 6, 3))
    same_numbers(before, after, array(1, 8, 6, 3))


def test_no_transpose_is_left_if_the_interface_is_transposed_too(tmp_path):
    path = tmp_path / "model.onnx"
    tx.export(graph_of(network, (2, 8, 6, 3)), path)
    after = tx.simplify(channels_first(tx.transpose_interface(tx.load(path), {"x0": FIRST})))
    assert "Transpose" not in op_types(after)
    assert str(after.inputs[0].type) == "float32[2, 3, 8, 6]"


def test_a_bias_that_is_computed_becomes_that_of_the_convolution():
    def build(graph, x, bias):
        y = ops.transpose(ops.conv(ops.transpose(x, perm=FIRST), graph.variable("w", array(4, 3, 3, 3))), perm=LAST)
        return ops.transpose(ops.add(y, bias), perm=FIRST)

    before = graph_of(build, (1, 5, 5, 3), (4,))
    after = tx.simplify(channels_first(before))
    assert op_types(after) == ["Transpose", "Conv"]
    assert len(after.nodes[1].inputs) == 3
    same_numbers(before, after, array(1, 5, 5, 3), array(4))


@pytest.mark.parametrize(
    ("middle", "left"),
    [
        (lambda x: ops.clip(ops.sigmoid(x), 0.2, 0.8), 0),
        (lambda x: ops.cast(ops.cast(x, to=11), to=1), 0),
        (lambda x: ops.where(ops.greater(x, 0.0), x, ops.mul(x, array(4))), 0),
        (lambda x: ops.div(x, ops.reduce_sum(x, [3])), 0),
        (lambda x: ops.sub(x, ops.unsqueeze(ops.reduce_max(x, [1, 2], keepdims=0), [1, 2])), 0),
        (lambda x: ops.add(x, array(3, 5, 4)), 0),
        (lambda x: ops.layer_normalization(x, array(4))[0], 2),  # the last axes differ
        (lambda x: ops.matmul(x, array(4, 4)), 2),
        (lambda x: ops.cumsum(x, 3), 2),
    ],
)
def test_ops_that_commute_with_transpose_and_ops_that_do_not(middle, left):
    before = graph_of(
        lambda graph, x: ops.transpose(middle(ops.transpose(x, perm=LAST)), perm=FIRST), ("batch", 4, 3, 5)
    )
    after = tx.simplify(channels_first(before))
    assert op_types(after).count("Transpose") == left
    same_numbers(before, after, array(2, 4, 3, 5))


def test_axes_of_one_element_move_as_others_do():
    def build(graph, x):
        y = ops.reshape(ops.transpose(ops.unsqueeze(x, [1]), perm=[2, 1, 0]), [4, 3])
        return ops.transpose(ops.tanh(y), perm=[1, 0])

    before = graph_of(build, (3, 4))
    assert op_types(tx.simplify(channels_first(before))) == ["Tanh"]
    same_numbers(before, channels_first(before), array(3, 4))


def test_a_graph_without_a_gain_is_unchanged():
    before = graph_of(lambda graph, x: ops.transpose(ops.relu(x), perm=[1, 0]), (3, 4))
    assert channels_first(before) is before
    before = graph_of(lambda graph, x: ops.add(ops.transpose(x, perm=[1, 0]), x), (3, 3))
    assert channels_first(before) is before


def test_an_initializer_that_a_call_may_replace_moves_with_what_it_is_added_to():
    def build(graph, x):
        bias = graph.variable("bias", array(4))
        graph.all_inputs.append(bias)
        return ops.transpose(ops.add(ops.transpose(x, perm=LAST), bias), perm=FIRST)

    before = graph_of(build, (1, 4, 3, 5))
    after = channels_first(before)
    assert "Transpose" not in op_types(after)
    feeds = {"x0": array(1, 4, 3, 5), "bias": array(4)}
    np.testing.assert_allclose(after.run(feeds)["y"], before.run(feeds)["y"], rtol=1e-6)


def test_the_command_line_has_a_flag_for_it(tmp_path):
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    tx.export(graph_of(network, (2, 8, 6, 3)), before)
    assert main(["convert", str(before), "-o", str(after), "--channels-first", "--verify"]) == 0
    assert op_types(tx.load(after)).count("Transpose") == 1


def test_paddings_are_of_the_axes_that_were_moved():
    def build(graph, x):
        y = ops.pad(convolved(graph, x, 4, "first"), [0, 1, 0, 2, 0, 0, 3, 0], mode="constant")
        return convolved(graph, y, 2, "second")

    before = graph_of(build, (2, 8, 6, 3))
    after = channels_first(before)
    assert op_types(before).count("Transpose") == 4
    assert op_types(after).count("Transpose") == 2
    same_numbers(before, after, array(2, 8, 6, 3))


def test_paddings_that_are_computed_stay_where_they_are():
    def build(graph, x, pads):
        y = ops.transpose(ops.relu(ops.transpose(x, perm=FIRST)), perm=LAST)
        return ops.pad(y, ops.cast(pads, to=tx.DType.int64))

    before = graph_of(build, (1, 4, 3, 2), (8,))
    same_numbers(before, channels_first(before), array(1, 4, 3, 2), np.float32([0, 1, 0, 0, 0, 0, 2, 0]))


@pytest.mark.parametrize("opset", [13, 21, 26])
@pytest.mark.parametrize("scales", [0.1, [0.1, 0.2, 0.3]])
def test_quantized_values_are_passed_through(opset, scales):
    weight, scale = np.ones((3, 3, 1, 1), np.float32), np.asarray(scales, np.float32)
    zero, axis = np.zeros(scale.shape, np.int8), {"axis": 3} if scale.ndim else {}

    def convolved(x):
        return ops.transpose(ops.conv(ops.transpose(x, perm=[0, 3, 1, 2]), weight), perm=[0, 2, 3, 1])

    graph = tx.Graph(opsets={"ai.onnx": 26})
    with graph.building():
        y = quantize_linear(convolved(graph.input("x", "float32", (1, 4, 5, 3))), scale, zero, **axis)
        graph.output("y", convolved(dequantize_linear(y, scale, zero, **axis)))
    graph = tx.retarget(graph, opset_version=opset)
    moved = channels_first(graph)
    assert [n.op_type for n in moved.nodes].count("Transpose") == 2
    assert tx.verify(graph, moved).equal


@pytest.mark.parametrize(
    ("shape", "role"),
    [
        ((5, 4, 3), Role("parameter", permutation=(2, 0, 1))),  # channels first only
        ((1, 1, 1, 3), Role("parameter", made_of=("scale",))),
    ],
)
def test_a_transposed_weight_keeps_its_name_and_records_the_permutation(shape, role):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    scale = graph.variable("scale", array(*shape))
    scale.role = Role("parameter")
    with graph.building():
        x = ops.transpose(graph.input("x", "float32", (1, 3, 5, 4)), perm=LAST)
        graph.output("y", ops.transpose(ops.mul(x, scale), perm=FIRST))
    moved = channels_first(graph)
    same_numbers(graph, moved, array(1, 3, 5, 4))
    assert {value.name: value.role for value in moved.variables} == {"scale": role}


def test_a_number_without_a_name_gets_none():
    before = graph_of(
        lambda _, x: ops.transpose(ops.transpose(x, perm=LAST) * array(5, 4, 3), perm=FIRST), (1, 3, 5, 4)
    )
    assert channels_first(before).variables == []
