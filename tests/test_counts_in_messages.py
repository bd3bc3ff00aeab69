"""Singular and plural in messages about the number of inputs."""

import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops

MESSAGES = {
    "Relu (x, x)": ("takes exactly 1 input", "2 inputs"),
    "Add (x)": ("takes exactly 2 inputs", "1 input"),
    "Add ()": ("takes exactly 2 inputs", "0 inputs"),
    "Clip (x, x, x, x)": ("takes 1 to 3 inputs", "4 inputs"),
}


@pytest.mark.parametrize("call", MESSAGES)
def test_of_a_file(call):
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {{ y = {call} }}'
    )
    with pytest.raises(tx.InvalidModel) as caught:
        tx.load(model)
    what, given = MESSAGES[call]
    assert caught.value.what.endswith(what)
    assert caught.value.given == given


def test_of_a_call():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2,))
    with pytest.raises(tx.InvalidCall, match="got more than 1 input\n") as caught:
        ops.relu(x, x)
    assert caught.value.given == "2 inputs"


def test_of_an_input_that_is_missing():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.relu(graph.input("x", "float32", (2,))))
    with pytest.raises(tx.InvalidCall, match="are missing, unknown or given twice") as caught:
        graph([1.0], [2.0])
    assert caught.value.given == "2 inputs in order, none by name"
