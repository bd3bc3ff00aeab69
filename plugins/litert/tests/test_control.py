"""Branches and loops in files for LiteRT."""

import numpy as np
import pytest
from litert_graphs import check, graph_of, operators

import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx.extend import DType, TensorType, constant, subgraph
from tenonnx_litert.conversion import builtin_graph

ROWS = np.random.default_rng(0).standard_normal((5, 2, 4)).astype(np.float32)


def weights(*shape):
    return constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 0.3)


def int64(number):
    return constant(np.asarray(number))


def looped(limit, condition, *carried, step):
    """A loop whose body is a function of the iteration number, the condition and the carried values."""
    kinds = [("step", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ()))]
    kinds += [(f"carried_{k}", value.type) for k, value in enumerate(carried)]
    return ops.loop(limit, condition, *carried, body=subgraph(step, kinds), _outputs=None)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_networks_of_any_length(cell, direction, tmp_path):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[cell]
    ways = 2 if direction == "bidirectional" else 1

    def network(x):
        op = {"lstm": ops.lstm, "gru": ops.gru, "rnn": ops.rnn}[cell]
        result = op(x, weights(ways, 3 * gates, 4), weights(ways, 3 * gates, 3), hidden_size=3, direction=direction)
        return tuple(result)

    lowered = check(network, ROWS, folder=tmp_path, dims={0: "time", 1: "batch"})
    assert "WHILE" in operators(lowered)
    check(network, ROWS[:1, :1], folder=tmp_path, dims={0: "time", 1: "batch"})


@pytest.mark.parametrize("condition", [True, False])
def test_one_branch_is_computed(condition, tmp_path):
    def network(x, flag):
        return ops.if_(
            flag,
            then_branch=subgraph(lambda: ops.reduce_sum(x, [0], keepdims=0)),
            else_branch=subgraph(lambda: ops.relu(x)),
        )

    result = check(network, ROWS, np.asarray([condition]), folder=tmp_path)
    assert operators(result) == ["RESHAPE", "IF"]


def test_a_loop_ends_where_its_condition_fails(tmp_path):
    def network(x, limit):
        def step(count, holds, total):
            total = ops.mul(total, 2.0) + ops.cast(count, to=DType.float32)
            return ops.less(ops.reduce_max(total, keepdims=0), 50.0), total, ops.reduce_sum(total, [1], keepdims=0)

        return looped(limit, constant(np.asarray(True)), x, step=step)

    for limit in (20, 2):
        check(network, ROWS, np.asarray(limit), folder=tmp_path, dims={0: "batch"})


def test_carried_values_that_change_places(tmp_path):
    def network(x, limit):
        return looped(limit, None, x, ops.relu(x), step=lambda count, holds, a, b: (holds, b, a))

    for limit in (3, 0):
        check(network, ROWS, np.asarray(limit), folder=tmp_path)


def test_loops_in_loops_capture_values(tmp_path):
    def network(x, limit):
        def inner(count, holds, total):
            return holds, ops.add(total, x)

        def outer(count, holds, total):
            return holds, looped(limit, None, ops.mul(total, 0.5), step=inner)

        return looped(int64(300), None, x, step=outer)

    check(network, ROWS, np.asarray(2), folder=tmp_path)


def test_a_loop_that_stacks_without_a_limit_is_refused():
    def network(x, flag):
        return looped(None, flag, x, step=lambda count, holds, a: (ops.less(ops.reduce_max(a), 3.0), a + 1.0, a))

    with pytest.raises(NotRepresentable, match="Loop"):
        builtin_graph(graph_of(network, ROWS, np.asarray(True)))
