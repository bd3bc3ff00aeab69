"""Convolutions of volumes."""

import numpy as np
import pytest
from litert_graphs import check, operators

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx.extend import constant
from tenonnx_litert.format import write
from tenonnx_litert.lowerings import LOWERINGS

VOLUMES = np.random.default_rng(0).standard_normal((2, 4, 6, 7, 5)).astype(np.float32)


def weights(*shape):
    return constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


CONVOLUTIONS = {
    "same": lambda x: ops.conv(x, weights(8, 4, 3, 3, 3), weights(8), pads=[1] * 6),
    "strides": lambda x: ops.conv(x, weights(8, 4, 3, 2, 1), pads=[1] * 6, strides=[2, 1, 2]),
    "dilations": lambda x: ops.conv(x, weights(8, 4, 2, 2, 2), dilations=[2, 3, 1]),
    "relu": lambda x: ops.relu(ops.conv(x, weights(8, 4, 3, 3, 3), weights(8))),
}
TRANSPOSED = {
    "plain": lambda x: ops.conv_transpose(x, weights(4, 3, 2, 2, 2), weights(3), strides=[2] * 3),
    "pads": lambda x: ops.conv_transpose(x, weights(4, 3, 3, 3, 3), strides=[2, 1, 2], pads=[1] * 6),
    "further": lambda x: ops.conv_transpose(
        x, weights(4, 3, 3, 3, 3), strides=[2] * 3, pads=[1] * 6, output_padding=[1] * 3
    ),
    "small kernels": lambda x: ops.conv_transpose(x, weights(4, 3, 1, 2, 2), strides=[2] * 3),
}


@pytest.mark.parametrize("dims", [None, {0: "batch"}])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_has_a_kernel(name, dims, tmp_path):
    lowered = check(CONVOLUTIONS[name], VOLUMES, folder=tmp_path, dims=dims)
    assert set(operators(lowered)) <= {"TRANSPOSE", "PAD", "CONV_3D"}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_has_a_kernel(name, tmp_path):
    assert "CONV_3D_TRANSPOSE" in operators(check(TRANSPOSED[name], VOLUMES, folder=tmp_path))


def test_groups_are_computed_by_other_operators(tmp_path):
    names = operators(check(lambda x: ops.conv(x, weights(4, 1, 2, 2, 2), group=4), VOLUMES, folder=tmp_path))
    assert "CONV_3D" not in names


def test_a_file_is_read_as_convolutions(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", VOLUMES.shape)
    with graph.building():
        graph.output("y", CONVOLUTIONS["same"](x))
    write(graph, tmp_path / "m.tflite")
    read = tx.load(tmp_path / "m.tflite")
    assert "Conv" in [node.op_type for node in read.nodes]


@pytest.mark.parametrize("rank", [4, 5])
def test_convolutions_of_images_and_volumes_are_refused_for_the_same_reasons(rank):
    shape = (1, 2, *(4,) * (rank - 2))
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", shape)
    with graph.building():
        result = LOWERINGS[ops.conv_transpose][0 if rank == 4 else -1]
        attributes = dict.fromkeys(("dilations", "strides", "output_padding", "output_shape"))
        pads = [-1] * 2 * (rank - 2)
        with pytest.raises(NotRepresentable, match="a padding is negative"):
            result(x, weights(2, 3, *(3,) * (rank - 2)), None, group=1, pads=pads, auto_pad="NOTSET", **attributes)
