"""Simplification with an older opset: nothing is left to simplify after the last lowering."""

from __future__ import annotations

import onnx
import pytest

import tenonnx as tx

NODES = {
    "GroupNormalization": "y = GroupNormalization <num_groups = 2> (x, s, s)",
    "LayerNormalization": "y = LayerNormalization <axis = 1> (x, t)",
    "HardSwish": "y = HardSwish (x)",
    "Gelu": "y = Gelu (x)",
}


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("name", NODES)
def test_a_second_run_finds_nothing(name, opset, tmp_path):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1, 4, 2, 2] x) => (float[1, 4, 2, 2] y)
        <float[4] s = {{1, 2, 1, 1}}, float[4, 2, 2] t = {{1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}>
        {{ {NODES[name]} }}""")
    tx.convert(tx.load(model), tmp_path / "m.onnx", opset_version=opset, transforms=["simplify"])
    graph = tx.load(tmp_path / "m.onnx")
    assert graph.opsets["ai.onnx"] == opset
    again = tx.simplify(graph)
    assert sorted(n.op_type for n in again.nodes) == sorted(n.op_type for n in graph.nodes)
    assert not any(n.op_type == "Shape" for n in graph.nodes)
