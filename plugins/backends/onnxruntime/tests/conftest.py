"""Graphs for the tests of the backend."""

import pytest
from onnx import helper

import tenonnx as tx


@pytest.fixture
def single():
    """Build a graph of one node; inputs and output are given as (dtype, shape)."""

    def made(name, inputs, output, opset=22, **attributes):
        infos = [helper.make_tensor_value_info(f"x{k}", tx.DType.of(d), s) for k, (d, s) in enumerate(inputs)]
        node = helper.make_node(name, [i.name for i in infos], ["y"], **attributes)
        result = helper.make_tensor_value_info("y", tx.DType.of(output[0]), output[1])
        graph = helper.make_graph([node], "g", infos, [result])
        return tx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))

    return made
