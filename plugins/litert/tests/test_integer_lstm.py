"""The integer LSTM equals the interpreter's kernel, integer by integer."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from lstm_files import drawn, integer_lstm

import tenonnx as tx
from tenonnx.errors import NotRepresentable
from tenonnx_litert.reading.fixed_point import sigmoid_table, tanh_table

KINDS = {
    "plain": {},
    "a fine cell": {"cell": -15},
    "a coarse cell": {"cell": -9},
    "peepholes": {"peephole": True},
    "normalized": {"normalized": True},
    "coupled": {"coupled": True},
    "clipped": {"clip": 0.5},
    "all": {"peephole": True, "normalized": True, "coupled": True, "clip": 2.0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_integer_equals_that_of_the_kernel(kind, tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(integer_lstm(0, **KINDS[kind]))
    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    graph = tx.load(path, verify=False)
    states = {f"{v.name}_next": v.name for v in graph.variables if f"{v.name}_next" in {o.name for o in graph.outputs}}
    program = graph.compile("numpy", state={name: after for after, name in states.items()})
    for call in range(2):  # the second call continues from the states of the first
        feeds = drawn(call)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feeds)
        interpreter.invoke()
        expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        result = program({graph.inputs[0].name: feeds})[graph.outputs[0].name]
        np.testing.assert_array_equal(result, expected)
        assert np.ptp(expected.astype(int)) > 50


def test_the_comparison_with_the_interpreter_passes(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(integer_lstm(2))
    graph = tx.load(path)
    assert {node.op_type for node in graph.nodes} & {"Loop"}


def test_a_scale_of_the_cell_without_a_kernel_is_refused(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(integer_lstm(0, cell=-8))
    with pytest.raises(NotRepresentable, match=r"2\*\*-15 to 2\*\*-9"):
        tx.load(path, verify=False)


def test_tables_are_near_the_functions():
    x = np.arange(-(2**15), 2**15) * 2.0**-12
    np.testing.assert_allclose(sigmoid_table(3) * 2.0**-15, 1 / (1 + np.exp(-x)), atol=7 * 2.0**-15)
    for bits in range(7):
        numbers = x * 2.0 ** (bits - 3)
        np.testing.assert_allclose(tanh_table(bits) * 2.0**-15, np.tanh(numbers), atol=13 * 2.0**-15)
