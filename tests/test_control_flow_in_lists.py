"""Lowering of If and Loop to lists of ops without control flow."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx.extend import TensorType, constant, subgraph
from tenonnx_targets.files import narrowed_target

NUMBER, CONDITION = TensorType(tx.DType.int64, ()), TensorType(tx.DType.bool, ())
ROW = TensorType(tx.DType.float32, (3,))
LIST = "Add,Sub,Mul,Div,Relu,Neg,Where,And,Less,Reshape,Concat,ReduceSum,Cast,Gather,Identity,Unsqueeze"


def graph_of(function, *inputs):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    values = [graph.input(*each) for each in inputs]
    with graph.building():
        results = function(*values)
        for place, result in enumerate(results if isinstance(results, tuple) else (results,)):
            graph.output(f"y{place}", result)
    return graph


def lowered(graph, feeds, listed=LIST):
    """Retarget the graph to the list of ops and compare outputs; returns the new graph."""
    moved = tx.retarget(graph, target=narrowed_target(None, graph.opsets, listed.split(","), (), "rounding"))
    assert {node.op_type for node in moved.walk()} <= {*listed.split(","), "Constant"}
    for given in feeds:
        expected, result = (each.run(given, backend="numpy") for each in (graph, moved))
        for name, array in expected.items():
            np.testing.assert_array_equal(result[name], array)
            assert (result[name].dtype, result[name].shape) == (array.dtype, array.shape)
    return moved


def branches(then, other):
    return {"then_branch": subgraph(then, name="then"), "else_branch": subgraph(other, name="else")}


X, COND = ("x", "float32", (3,)), ("cond", "bool", ())
FEEDS = [
    {"x": np.float32(row), "cond": np.array(truth)}
    for truth in (True, False)
    for row in ([1, -2, 3], [1e30, np.nan, 0])
]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_branch_is_chosen_by_where(shape):
    def function(x, cond):
        return ops.if_(cond, **branches(lambda: (ops.relu(x), x + 1.0), lambda: (x * 2.0, ops.neg(x))))

    graph = graph_of(function, X, ("cond", "bool", shape))
    lowered(graph, [{**each, "cond": each["cond"].reshape(shape)} for each in FEEDS])


@pytest.mark.parametrize("truth", [True, False])
def test_a_known_condition_leaves_one_branch(truth):
    def function(x):
        return ops.if_(constant(np.array(truth)), **branches(lambda: x / 0.5, lambda: ops.gather(x, [2])))

    moved = lowered(graph_of(function, X), [{"x": np.float32([1, 2, 3])}])
    assert ("Gather" in {node.op_type for node in moved.nodes}) is not truth
    assert "Where" not in {node.op_type for node in moved.nodes}


def test_branches_in_branches():
    def function(x, cond, other):
        def inner():
            return ops.if_(other, **branches(lambda: x + 1.0, lambda: x - 1.0))

        return ops.if_(cond, **branches(inner, lambda: x * x))

    feeds = [{**each, "other": np.array(truth)} for each in FEEDS for truth in (True, False)]
    lowered(graph_of(function, X, COND, ("other", "bool", ())), feeds)


def loop(x, count, step, *, cond=None, outputs=2):
    body = subgraph(step, [("number", NUMBER), ("going_on", CONDITION), ("state", ROW)])
    return ops.loop(count, cond, x, body=body, _outputs=outputs)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_of_known_length_is_unrolled(count):
    def function(x, weight):
        def step(number, going_on, state):
            state = state * weight + ops.cast(number, to=tx.DType.float32)
            return going_on, state, state * state

        return loop(x, constant(np.int64(count)), step)

    graph = graph_of(function, X, ("weight", "float32", (3,)))
    moved = lowered(graph, [{"x": np.float32([1, -2, 3]), "weight": np.float32([2, 0.5, -1])}])
    assert sum(node.op_type == "Mul" for node in moved.nodes) == 2 * count


def test_a_loop_whose_condition_counts_is_unrolled():
    def function(x):
        def step(number, going_on, state, counter):
            return ops.less(counter + 1, 3), state + 1.0, counter + 1, state

        formals = [("number", NUMBER), ("going_on", CONDITION), ("state", ROW), ("counter", NUMBER)]
        start = constant(np.int64(0))
        state, _, stacked = ops.loop(None, None, x, start, body=subgraph(step, formals), _outputs=3)
        return state, stacked

    assert len(lowered(graph_of(function, X), [{"x": np.float32([1, 2, 3])}]).nodes) < 12


def test_a_loop_with_a_data_dependent_end_is_masked():
    def function(x, cond):
        def step(number, going_on, state):
            return ops.less(ops.reduce_sum(state, keepdims=0), 9.0), state + state

        return loop(x, constant(np.int64(5)), step, cond=cond, outputs=1)

    rows = [[1, 1, 1], [20, 0, 0], [-1, -1, -1], [np.nan, 1, 1]]
    lowered(
        graph_of(function, X, COND), [{"x": np.float32(r), "cond": np.array(c)} for r in rows for c in (True, False)]
    )


def gathers(x, cond):
    index = ops.cast(ops.reduce_sum(x, keepdims=0), to=tx.DType.int64)
    return ops.if_(cond, **branches(lambda: ops.gather(x, index), lambda: ops.gather(x, 0)))


def divides(x, cond):
    number = ops.cast(x, to=tx.DType.int32)
    return ops.if_(cond, **branches(lambda: number / number, lambda: number))


def other_shapes(x, cond):
    return ops.if_(cond, **branches(lambda: x, lambda: ops.gather(x, [0])))


def any_number(x, cond):
    return loop(x, ops.cast(cond, to=tx.DType.int64), lambda number, on, state: (on, state + 1.0), outputs=1)


def too_many(x, cond):
    count = constant(np.int64(1 << 40))
    return loop(x, count, lambda number, on, state: (on, state + 1.0), outputs=1)


def stacks_so_many(x, cond):
    def step(number, going_on, state):
        return ops.less(ops.reduce_sum(state, keepdims=0), 9.0), state + state, state

    return loop(x, constant(np.int64(5)), step)


@pytest.mark.parametrize("function", [gathers, divides, other_shapes, any_number, too_many, stacks_so_many])
def test_other_control_flow_is_refused(function):
    graph = graph_of(function, X, COND)
    with pytest.raises(NotRepresentable):
        lowered(graph, [])


def test_a_target_without_control_flow_is_lowered_to(tmp_path):
    file = tmp_path / "no_loops.toml"
    file.write_text("control_flow = false\n")

    def function(x, cond):
        return ops.if_(cond, **branches(lambda: ops.softmax(x), lambda: ops.log_softmax(x)))

    graph = graph_of(function, X, COND)
    moved = tx.retarget(graph, target=str(file))
    assert not any(node.subgraphs for node in moved.nodes)
    for truth in (True, False):
        feeds = {"x": np.float32([1, -2, 3]), "cond": np.array(truth)}
        np.testing.assert_array_equal(*(each.run(feeds, backend="numpy")["y0"] for each in (graph, moved)))
