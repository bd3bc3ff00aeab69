"""Ops of a domain that the graph's opset imports lack."""

import io

import numpy as np
import onnx
import onnx.parser
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op

X = np.float32([[1, -2]])
MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[n,2] x) => (float[n,2] y) { h = Relu(x) y = Neg(h) }'
)


@op("Twice", domain="com.acme", since=1)
def twice(x):
    return ops.add(x, x)


def by_rule():
    return tx.load(MODEL, rules={"Relu": lambda node, x: twice(ops.relu(x))})


def by_editing():
    graph = tx.load(MODEL)
    graph.insert_after("h", twice)
    return graph


@pytest.mark.parametrize("made", [by_rule, by_editing])
def test_the_file_names_the_version(made):
    graph = made()
    stream = io.BytesIO()
    tx.export(graph, stream)
    np.testing.assert_array_equal(graph.run({"x": X}, backend="numpy")["y"], [[-2, 0]])
    for model in (graph.to_proto(), onnx.load_from_string(stream.getvalue())):
        assert {each.domain: each.version for each in model.opset_import} == {"": 17, "com.acme": 1}


def test_a_graph_made_by_rules_names_the_version():
    assert by_rule().opsets == {"ai.onnx": 17, "com.acme": 1}


def test_the_structure_of_such_a_graph_passes_the_checker():
    assert tx.verify(by_editing(), by_rule()).equal
