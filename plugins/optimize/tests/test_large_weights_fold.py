"""Simplification of ops on large weights: folded unless the file would grow."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops

#: above the limit below which any result is folded
W = np.random.default_rng(0).standard_normal((520, 520)).astype(np.float32)
NODES = {
    "Transpose": ("k = Transpose (w) y = MatMul (x, k)", ["MatMul"]),
    "Neg": ("k = Neg (w) y = MatMul (x, k)", ["MatMul"]),
    "a chain": ("t = Transpose (w) k = Neg (t) y = MatMul (x, k)", ["MatMul"]),
    "of two readers": ("k = Neg (w) a = MatMul (x, w) y = MatMul (a, k)", ["Neg", "MatMul", "MatMul"]),
    "a wider type": (
        "c = Cast <to = 11> (w) k = Cast <to = 11> (x) d = MatMul (k, c) y = Cast <to = 1> (d)",
        ["Cast", "Cast", "MatMul", "Cast"],
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_an_op_on_a_large_weight(name):
    nodes, left = NODES[name]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 520] x) => (float[n, 520] y) {{ {nodes} }}""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    graph = tx.load(model)
    simple = tx.simplify(graph)
    assert sorted(node.op_type for node in simple.nodes) == sorted(left)
    assert simple.to_proto().ByteSize() < model.ByteSize() + 1000
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 520)).astype(np.float32)}
    np.testing.assert_allclose(*(g.run(feeds, backend="numpy")["y"] for g in (simple, graph)), atol=1e-2)


def test_arithmetic_on_constants_has_a_budget():
    """All products of 500 rows and columns would take 2e10 multiplications, although each result is small."""
    nodes = "".join(f"s{k + 1} = MatMul (s{k}, s0) " for k in range(160))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 500] x) => (float[n, 500] y) {{ {nodes} y = MatMul (x, s160) }}""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(500, dtype=np.float32), "s0"))
    left = [node.op_type for node in tx.simplify(tx.load(model)).nodes]
    assert 10 < len(left) < 161


def test_parts_that_are_read_twice_stay_parts():
    """Each node concatenates the previous result with itself: merging all would give 2^30 operands."""
    nodes = "".join(f"s{k + 1} = Concat <axis = 0> (s{k}, s{k}) " for k in range(30))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[n] x) => (float[m] y) {{ s0 = Neg (x) {nodes} y = Neg (s30) }}""")
    assert [node.op_type for node in tx.simplify(tx.load(model)).nodes].count("Concat") == 30


def test_a_large_transposed_weight_is_a_view_that_is_written_by_rows(tmp_path):
    weight = np.random.default_rng(0).standard_normal((700, 2000), np.float32)
    graph = tx.Graph()
    x = graph.input("x", "float32", ("n", 2000))
    graph.output("y", ops.matmul(x, ops.transpose(graph.variable("w", weight), perm=[1, 0])))
    made = tx.simplify(graph)
    assert [node.op_type for node in made.nodes] == ["MatMul"]
    assert np.shares_memory(made["w"].data.array(), weight)
    np.testing.assert_array_equal(made["w"].data.rows(3, 5), weight.T[3:5])
    tx.export(made, tmp_path / "y.onnx")
    written = tx.load(tmp_path / "y.onnx")["w"].data.array()
    assert written.flags.c_contiguous
    np.testing.assert_array_equal(written, weight.T)
