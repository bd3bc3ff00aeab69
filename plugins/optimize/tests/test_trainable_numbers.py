"""Trainable zeros, ones and scalars are not treated as constants."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend.formats import Role
from tenonnx_optimize import fuse, simplify


def normalized(x, epsilon):
    centered = x - ops.reduce_mean(x, [-1])
    return centered / ops.sqrt(ops.reduce_mean(centered * centered, [-1]) + epsilon)


ZEROS, ONES = np.zeros(8), np.ones(8)
KINDS = {
    "slope of a gate": (lambda x, g: x * ops.sigmoid(x * g), {"g": 1.702}),
    "slope of one": (lambda x, g: x * ops.sigmoid(x * g), {"g": 1.0}),
    "slope below zero": (lambda x, g: ops.where(ops.less(x, 0.0), x * g, x), {"g": 0.25}),
    "bounds": (lambda x, low, high: ops.maximum(ops.minimum(x, high), low), {"low": 0.0, "high": 6.0}),
    "hard sigmoid": (lambda x, a, b: ops.clip(x * a + b, 0.0, 1.0), {"a": 1 / 6, "b": 0.5}),
    "within a gelu": (lambda x, a: x * 0.5 * (1.0 + ops.erf(x * a)), {"a": 0.5**0.5}),
    "in front of a gelu": (lambda x, b: ops.gelu(x + b), {"b": ZEROS}),
    "in the place of what is below zero": (lambda x, c: ops.where(ops.greater(x, 0.0), x, c), {"c": 0.0}),
    "bias": (lambda x, w, b: ops.relu(ops.matmul(x, w) + b), {"w": np.ones((8, 5)), "b": np.zeros(5)}),
    "scale": (lambda x, w, s: ops.tanh(ops.matmul(x, w) * s), {"w": np.ones((8, 5)), "s": 1.0}),
    "positions": (lambda x, p, w: ops.matmul(x + p, w), {"p": np.zeros((4, 8, 8)), "w": np.ones((8, 5))}),
    "scale of a layer": (lambda x, s: x + ops.relu(x) * s, {"s": ONES}),
    "two biases": (lambda x, a, b: ops.relu(x + a) + ops.relu(x + b), {"a": ZEROS, "b": ZEROS}),
    "two scales": (lambda x, a, b: ops.sigmoid(x * a) * ops.tanh(x * b), {"a": ONES, "b": ONES}),
    "normalization": (lambda x, s, b: normalized(x, 1e-5) * s + b, {"s": ONES, "b": ZEROS}),
    "epsilon": (lambda x, e: normalized(x, e), {"e": 1e-5}),
    "behind a convolution": (
        lambda x, w, s, b: ops.relu(ops.conv(x, w) * s + b),
        {"w": np.ones((6, 4, 3, 3)), "s": np.ones((6, 1, 1)), "b": np.zeros((6, 1, 1))},
    ),
}


def graph_of(function, role, arrays):
    graph = tx.Graph("g", opsets={"ai.onnx": 21, "com.microsoft": 1})
    x = graph.input("x", "float32", ("n", 4, 8, 8))
    variables = {name: graph.variable(name, np.asarray(array, np.float32)) for name, array in arrays.items()}
    for variable in variables.values():
        variable.role = Role(role)
    graph.output("y", function(x, **variables))
    return graph


def kept(graph):
    """The variables that nodes read, and those from which they were computed."""
    read = {value for node in graph.nodes for value in node.uses}
    roles = [(v.name, v.role) for v in graph.variables if v in read]
    return {each for name, role in roles for each in (name, *(role.made_of if role else ()))}


@pytest.mark.parametrize("role", ["parameter", "frozen"])
@pytest.mark.parametrize("made", [simplify, fuse, lambda graph: fuse(simplify(graph))])
@pytest.mark.parametrize("kind", KINDS)
def test_trainable_parameters_are_read_by_what_was_made(kind, made, role):
    function, arrays = KINDS[kind]
    graph = graph_of(function, role, arrays)
    assert kept(made(graph)) == set(arrays)


@pytest.mark.parametrize("kind", ["slope of a gate", "slope below zero", "hard sigmoid", "bias", "scale of a layer"])
def test_untrained_numbers_are_folded_into_the_op(kind):
    function, arrays = KINDS[kind]
    assert kept(fuse(simplify(graph_of(function, "buffer", arrays)))) < set(arrays)
