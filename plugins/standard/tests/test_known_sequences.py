"""Lowering of sequences of known length to tensors, and their gradients."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7


def made(build, opset=17):
    graph = tx.Graph(opsets={"ai.onnx": opset})
    with graph.building():
        graph.output("y", build(graph.input("x", "float32", (2, 3, 4))))
    return graph


def pieces(x, *lengths, **attributes):
    sequence = ops.split_to_sequence(x, *lengths, **attributes)
    return [ops.sequence_at(sequence, place) for place in (0, -1)]


def edited(x):
    sequence = ops.sequence_construct(x, x * 2.0)
    sequence = ops.sequence_insert(sequence, x * 3.0)
    sequence = ops.sequence_insert(sequence, x * 4.0, 0)
    sequence = ops.sequence_erase(ops.sequence_erase(sequence), -2)  # 4 and 2 remain
    return ops.concat_from_sequence(sequence, axis=1) * ops.cast(ops.sequence_length(sequence), to=1)


def grown(x):
    sequence = ops.sequence_empty()
    for factor in (1.0, 2.0, 3.0):
        sequence = ops.sequence_insert(sequence, x * factor)
    return ops.concat_from_sequence(sequence, axis=-1, new_axis=1)


CASES = {
    "lengths": (lambda x: ops.mul(*(ops.reduce_sum(p, [2]) for p in pieces(x, [1, 3], axis=2))), 2 + 3),
    "one length, a shorter last": (lambda x: ops.concat(*pieces(x, np.int64(3), axis=-1), axis=2), 2),
    "single slices": (lambda x: ops.mul(*pieces(x, axis=1)), 2),
    "single slices without the axis": (lambda x: ops.mul(*pieces(x, axis=1, keepdims=0)), 4),
    "edits": (edited, 4),
    "from nothing, joined along a new axis": (grown, 6),
}


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("name", CASES)
def test_consumers_of_a_sequence_of_known_length_read_tensors(name, opset):
    build, most = CASES[name]
    graph = made(build, opset)
    simple = tx.simplify(graph)
    assert not [node for node in simple.nodes if "Sequence" in node.op_type]
    assert len(simple.nodes) <= most
    assert tx.verify(graph, simple, feeds={"x": X}).equal


@pytest.mark.parametrize("name", CASES)
def test_gradients_go_through_sequences_of_known_length(name):
    graph = made(CASES[name][0])
    simple = tx.simplify(graph)
    slopes = []
    for source in (graph, simple):
        slope = tx.grad(source, of="y", wrt="x", seeds={"y": "g"})
        g = np.random.default_rng(0).standard_normal(graph.run({"x": X})["y"].shape).astype(np.float32)
        slopes.append(slope.run({"x": X, "g": g})["x/grad"])
        step = 1e-2
        moved = [source.run({"x": X + k * step * np.float32(1)})["y"].astype(np.float64) for k in (-1, 1)]
        along = ((moved[1] - moved[0]) / (2 * step) * g).sum()
        assert np.isclose(slopes[-1].sum(), along, rtol=1e-3)
    assert np.allclose(*slopes, atol=1e-5)


def test_pieces_that_have_names_keep_them_in_a_gradient():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    first, last = pieces(graph.input("x", "float32", (2, 3, 4)), [1, 3], axis=2)
    first.name, last.name = "first", "last"
    graph.output("y", ops.reduce_sum(first) * ops.reduce_sum(last))
    slope = tx.grad(graph, of="y", wrt=["first", "last"])
    result = slope.run({"x": X})
    assert np.allclose(result["first/grad"], X[..., 1:].sum())
    assert np.allclose(result["last/grad"], X[..., :1].sum())


def test_a_sequence_of_unknown_length_stays_and_has_no_gradient():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, place = graph.input("x", "float32", ("n", 3)), graph.input("place", "int64", ())
    graph.output("y", ops.reduce_sum(ops.sequence_at(ops.split_to_sequence(x), place)))
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["SplitToSequence", "SequenceAt", "ReduceSum"]
    with pytest.raises(tx.NotDifferentiable, match="SequenceAt") as caught:
        tx.grad(graph, of="y", wrt="x")
    assert caught.value.names == ("x",)


def test_a_position_outside_is_left_to_who_runs_it():
    graph = made(lambda x: ops.sequence_at(ops.split_to_sequence(x, [2, 2], axis=2), 2))
    assert [node.op_type for node in tx.simplify(graph).nodes] == ["SplitToSequence", "SequenceAt"]
    with pytest.raises(tx.InvalidCall, match="the position lies outside the sequence"):
        graph.run({"x": X}, backend="numpy")
