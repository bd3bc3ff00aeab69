"""Memoized decisions for identical nodes."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.transforms import retarget as module


def graph_of(build):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", build(graph, graph.input("x", "float32", (2, 6))))
    return graph


def reshaped(graph, x):
    for k, shape in enumerate([(3, 4), (4, 3), (12, 1)]):
        x = ops.reshape(x, graph.variable(f"shape{k}", np.int64(shape)))
    return x


def passed_on(graph, x):
    shapes = [ops.identity(graph.variable(f"shape{k}", np.int64(shape))) for k, shape in enumerate([(3, 4), (12, 1)])]
    return ops.reshape(ops.reshape(x, shapes[0]), shapes[1])


def softmaxes(graph, x):
    return ops.softmax(ops.softmax(ops.transpose(x), axis=0), axis=1)


@pytest.mark.parametrize("build", [reshaped, passed_on, softmaxes])
def test_types_equal_those_inferred_node_by_node(build):
    graph = graph_of(build)
    moved = tx.retarget(graph, 13)
    expected = {value.name: value.type for value in graph.copy().infer().values()}
    assert {value.name: value.type for value in moved.values()} == expected


def test_identical_nodes_are_inferred_once(monkeypatch):
    def build(graph, x):
        for k in range(20):
            x = ops.add(ops.relu(x), graph.variable(f"w{k}", np.full(6, k, np.float32)))
        return x

    calls = []
    infer_call = module.infer_call
    monkeypatch.setattr(module, "infer_call", lambda op, *rest: calls.append(op) or infer_call(op, *rest))
    moved = tx.retarget(graph_of(build), 13)
    assert [op.name for op in calls] == ["Relu", "Add"]
    assert {str(value.type) for node in moved.nodes for value in node.outputs} == {"float32[2, 6]"}
