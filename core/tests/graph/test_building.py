"""Scopes of graph building, and cleanup after an error."""

import contextlib

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx.errors import TypeMismatch
from tenonnx.extend import DType, TensorType, constant, subgraph


def graph_of_one_node():
    graph = tx.Graph(opsets={tiny.DOMAIN: 5})
    graph.registry = tiny.registry()
    graph.output("y", tiny.exp(graph.input("x", "float32", (2,))))
    return graph


def parts(graph):
    return graph.nodes, graph.all_inputs, graph.variables, graph.outputs, dict(graph.names())


def test_after_an_error_the_block_is_rolled_back():
    graph = graph_of_one_node()
    before = [part.copy() for part in parts(graph)]

    def build_and_fail():
        with graph.building():
            graph.variable("w", np.ones(2, np.float32))
            graph.output("z", tiny.exp(graph.input("more", "float32", (2,))))
            tiny.add(graph["x"], constant(np.float64([1, 2])))

    for _ in range(2):  # the names are free again
        with pytest.raises(TypeMismatch, match="different dtypes"):
            build_and_fail()
        assert list(parts(graph)) == before


def test_after_an_error_values_get_their_names_back():
    graph = graph_of_one_node()
    (hidden,) = tiny.exp(graph["y"]).producer.outputs
    name = hidden.name
    with contextlib.suppress(ZeroDivisionError), graph.building():
        graph.output("z", hidden)
        subgraph(lambda: 1 / 0)
    assert graph[name] is hidden
    assert [value.name for value in graph.outputs] == ["y"]


def test_an_inner_block_may_fail_separately():
    graph = graph_of_one_node()
    with graph.building():
        first = tiny.exp(graph["x"])
        with contextlib.suppress(ZeroDivisionError), graph.building():
            tiny.round_(first)
            subgraph(lambda: 1 / 0)
        graph.output("z", tiny.add(first, first))
    assert [node.op_type for node in graph.nodes] == ["Exp", "Exp", "Add"]
    assert list(graph.run({"x": np.zeros(2, np.float32)}, backend="numpy")["z"]) == [2, 2]


@pytest.mark.parametrize("result", [1, None, np.ones(2)])
def test_a_subgraph_returns_values(result):
    with graph_of_one_node().building(), pytest.raises(TypeMismatch, match="output 1 of body is not a value"):
        subgraph(lambda x: (x, result), [("x", TensorType(DType.float32, (2,)))])
