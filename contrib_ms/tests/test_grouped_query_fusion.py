"""Fusion of grouped attention into GroupQueryAttention, for pasts that onnxruntime supports."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

HEADS, GROUPS, SIZE, PAST = 4, 2, 8, 5


def apart(x, count, size=SIZE):
    return ops.transpose(ops.reshape(x, [0, -1, count, size]), perm=[0, 2, 1, 3])


def repeated(x, times):
    wide = ops.expand(ops.unsqueeze(x, [2]), [1, 1, times, 1, 1])
    return ops.reshape(wide, [0, x.shape[1] * times, -1, x.shape[3]])


def graph_of(batch, length, *, past=None, masked=True, rows=False, size=SIZE, groups=GROUPS, repeat=repeated):
    """Return grouped attention with split and merged heads, as exporters write it."""
    graph = tx.Graph(opsets={"ai.onnx": 17, "com.microsoft": 1})
    wide, thin = HEADS * size, groups * size
    flat = [graph.input(name, "float32", (batch, length, n)) for name, n in (("q", wide), ("k", thin), ("v", thin))]
    q, k, v = (apart(x, count, size) for x, count in zip(flat, (HEADS, groups, groups), strict=True))
    total = length
    if past is not None:
        total = f"{past} + {length}"
        held = (graph.input(name, "float32", (batch, groups, past, size)) for name in ("past_k", "past_v"))
        k, v = (ops.concat(before, x, axis=2) for before, x in zip(held, (k, v), strict=True))
    scores = ops.matmul(q, ops.transpose(repeat(k, HEADS // groups), perm=[0, 1, 3, 2])) / np.float32(size**0.5)
    if masked:
        scores = scores + graph.input("mask", "float32", (batch, 1, length, total))
    y = ops.transpose(ops.matmul(ops.softmax(scores), repeat(v, HEADS // groups)), perm=[0, 2, 1, 3])
    graph.output("y", ops.reshape(y, [-1, wide] if rows else [0, -1, wide]))
    if past is not None:
        graph.output("present_k", k)
        graph.output("present_v", v)
    return graph


def fused(graph):
    result = tx.fuse(graph, ["com.microsoft::GroupQueryAttention"])
    sizes = {"batch": 2, "length": 3, "past": PAST}
    shapes = {
        value.name: tuple(tx.extend.symbolic.evaluate(dim, sizes) for dim in value.type.shape) for value in graph.inputs
    }
    tx.verify(graph, result, input_shapes=shapes).raise_if_failed()
    return [node for node in result.nodes if node.op_type == "GroupQueryAttention"], result


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("batch", "length"), [("batch", "length"), (2, 3)])
def test_without_a_past(batch, length, masked):
    graph = graph_of(batch, length, masked=masked)
    (node,), result = fused(graph)
    assert [None if value is None else value.name for value in node.inputs[:3]] == ["q", "k", "v"]
    assert len(result.nodes) < len(graph.nodes) / 2
    assert node.attributes == {"num_heads": 4, "kv_num_heads": 2, "scale": pytest.approx(8**-0.5), "causal": 0}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("batch", "length"), [(1, "length"), ("batch", 1), (2, 1), (1, 4)])
def test_with_a_past(batch, length, masked):
    graph = graph_of(batch, length, past="past", masked=masked)
    (node,), result = fused(graph)
    assert node.attributes.get("causal", 1) == (length == 1), "one query sees all keys, which older onnxruntimes take"
    assert "GroupQueryAttention" not in {each.op_type for each in tx.fuse(graph).nodes}, "by name alone"
    assert [value.name for value in node.inputs[3:5]] == ["past_k", "past_v"]
    assert [value.name for value in node.outputs] == ["y", "present_k", "present_v"]
    assert not {"Concat", "MatMul", "Softmax"} & {each.op_type for each in result.nodes}


def test_the_output_may_be_flattened_to_rows():
    (_,), result = fused(graph_of(1, "length", past="past", rows=True))
    assert result.nodes[-1].op_type == "Reshape"


def in_turns(x, times):
    """Repeat key heads so that heads of a group are not adjacent."""
    wide = ops.expand(ops.unsqueeze(x, [1]), [1, times, 1, 1, 1])
    return ops.reshape(wide, [0, x.shape[1] * times, -1, x.shape[3]])


MISSED = {
    "onnxruntime takes no past of several queries of several sequences": {"past": "past"},
    "onnxruntime takes no heads of this size": {"size": 4},
    "each head has its own": {"groups": HEADS},
    "heads in turns": {"repeat": in_turns},
}


@pytest.mark.parametrize("options", MISSED.values(), ids=MISSED)
def test_similar_patterns_are_not_fused(options):
    assert not fused(graph_of("batch", "length", **options))[0]
