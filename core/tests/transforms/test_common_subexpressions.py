"""Common subexpression elimination: equal nodes and lengths are merged, all else is unchanged."""

import numpy as np

import tenonnx as tx
from tenonnx.extend import ArrayConstant, dims
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions
from tenonnx_standard.activation import leaky_relu
from tenonnx_standard.constants import constant_of_shape
from tenonnx_standard.math import add, exp, mul
from tenonnx_standard.random import random_uniform_like
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import reshape


def ops_of(graph):
    return [node.op_type for node in graph.nodes]


def test_equal_nodes_are_one():
    graph = tx.Graph("g")
    x = graph.input("x", "float32", ("n", 3))
    graph.output("y", add(mul(exp(x), exp(x)), reduce_sum(exp(x), [1])))
    graph.output("z", mul(exp(x), x))
    shared = merge_common_subexpressions(graph)
    assert ops_of(graph).count("Exp") == 4
    assert ops_of(shared).count("Exp") == 1
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    expected, result = graph.run(feeds, backend="numpy"), shared.run(feeds, backend="numpy")
    assert list(result) == ["y", "z"]
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array)


def test_two_zeros_are_two_numbers(standard_operators):
    graph = tx.Graph("g")
    x = graph.input("x", "float32", (2,))
    for name, alpha in {"a": 0.0, "b": -0.0}.items():
        graph.output(name, leaky_relu(x, alpha=alpha))
    result = merge_common_subexpressions(graph).run({"x": np.float32([-1, 2])}, backend="numpy")
    assert [np.signbit(array).tolist() for array in result.values()] == [[True, False], [False, False]]


def test_attributes_and_outputs_tell_nodes_apart(standard_operators):
    graph = tx.Graph("g")
    x = graph.input("x", "float32", (4, 3))
    graph.output("a", leaky_relu(x, alpha=0.1))
    graph.output("b", leaky_relu(x, alpha=0.2))
    graph.output("c", leaky_relu(x, alpha=0.1))
    shared = merge_common_subexpressions(graph)
    assert ops_of(shared) == ["LeakyRelu", "LeakyRelu", "Identity"]
    assert [v.name for v in shared.outputs] == ["a", "b", "c"]


def test_tensor_attributes_are_distinguished_by_contents():
    graph = tx.Graph("g")
    shape = graph.input("shape", "int64", (2,))
    ones, twos = (ArrayConstant(np.float32([number])) for number in (1, 2))
    with graph.building():
        first, second, other = (constant_of_shape(shape, value=value) for value in (ones, ones, twos))
        graph.output("y", add(add(first, second), other))
    shared = merge_common_subexpressions(graph)
    assert ops_of(shared) == ["ConstantOfShape", "ConstantOfShape", "Add", "Add"]
    assert shared.run({"shape": np.int64([1, 2])}, backend="numpy")["y"].tolist() == [[4, 4]]


def test_the_length_of_an_axis_is_found_out_once(standard_operators):
    graph = tx.Graph("g")
    x, y = graph.input("x", "float32", ("n", 2, 3)), graph.input("y", "float32", ("n", 6))
    graph.output("z", add(reshape(exp(x), [dims(x)[0], 6]), reshape(mul(y, y), [dims(y)[0], 6])))
    graph.output("n", dims(y)[0] * dims(x)[0])
    assert ops_of(graph).count("Shape") > 1 == ops_of(merge_common_subexpressions(graph)).count("Shape")
    feeds = {"x": np.ones((2, 2, 3), np.float32), "y": np.ones((2, 6), np.float32)}
    assert merge_common_subexpressions(graph).run(feeds, backend="numpy")["n"] == 4


def test_random_numbers_are_drawn_as_often_as_before():
    graph = tx.Graph("g")
    x = graph.input("x", "float32", (5,))
    graph.output("y", add(random_uniform_like(x), random_uniform_like(x)))
    assert ops_of(merge_common_subexpressions(graph)).count("RandomUniformLike") == 2


def test_inputs_with_equal_defaults_are_not_one():
    graph = tx.Graph("g")
    x = graph.input("x", "float32", (2,))
    a, b = (graph.variable(name, np.float32([1, 2])) for name in "ab")
    graph.all_inputs += [a, b]
    graph.output("y", add(x, a))
    graph.output("z", add(x, b))
    shared = merge_common_subexpressions(graph)
    assert ops_of(shared) == ["Add", "Add"]
    result = shared.run({"x": np.float32([1, 1]), "b": np.float32([5, 5])}, backend="numpy")
    assert [result[name].tolist() for name in "yz"] == [[2, 3], [6, 6]]
