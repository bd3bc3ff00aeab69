"""Files with variables and with several signatures."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall, NotRepresentable, VerificationFailed
from tenonnx.extend import constant
from tenonnx_litert import convert_signatures
from tenonnx_litert.reading.reader import read_file
from tenonnx_litert.state import state_of

ONES = np.ones((2, 3), np.float32)


def average(*, default=2 * ONES, metadata=None, step=0.5, after="mean_next"):
    """A running mean of the inputs."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x, mean = graph.input("x", "float32", (2, 3)), graph.input("mean", "float32", (2, 3))
    if default is not None:
        mean.data = default
    with graph.building():
        result = mean * step + x * (1 - step)
        graph.output("y", ops.relu(result))
        graph.output(after, result)
    if metadata is not None:
        graph.metadata["tenonnx.state"] = metadata
    return graph


def runner(path, key="serving_default"):
    return Interpreter(str(path)).get_signature_runner(key)


def test_a_state_is_kept_from_call_to_call(tmp_path):
    path = tmp_path / "m.tflite"
    report = tx.convert(average(), path)
    assert {each.name for each in report.verification.outputs} == {"y", "mean_next"}
    interpreter = Interpreter(str(path))
    run = interpreter.get_signature_runner("serving_default")
    assert [float(run(x=0 * ONES)["y"][0, 0]) for _ in range(3)] == [1.0, 0.5, 0.25]
    assert interpreter.get_signature_runner("read_state")()["mean"][0, 0] == 0.25
    interpreter.get_signature_runner("write_state")(mean=8 * ONES)
    assert list(run(x=0 * ONES)) == ["y"]
    assert run(x=0 * ONES)["y"][0, 0] == 2.0


def test_a_state_written_before_the_first_call_is_kept(tmp_path):
    tx.convert(average(), tmp_path / "m.tflite")
    interpreter = Interpreter(str(tmp_path / "m.tflite"))
    interpreter.get_signature_runner("write_state")(mean=4 * ONES)
    assert interpreter.get_signature_runner("serving_default")(x=0 * ONES)["y"][0, 0] == 2.0


def test_metadata_makes_an_input_a_state_of_zeros(tmp_path):
    graph = average(default=None, metadata='{"mean": "after"}', after="after")
    assert tx.convert(graph, tmp_path / "m.tflite").verification.equal
    run = runner(tmp_path / "m.tflite")
    assert [float(run(x=ONES)["y"][0, 0]) for _ in range(2)] == [0.5, 0.75]
    assert read_file(tmp_path / "m.tflite").metadata.keys() == {"tenonnx.verification"}


def test_a_file_with_variables_becomes_the_same_operators(tmp_path):
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    tx.convert(average(), first)
    graph = tx.load(first)
    assert ([v.name for v in graph.all_inputs], [v.name for v in graph.outputs]) == (
        ["x", "mean"],
        ["y", "mean_next"],
    )
    np.testing.assert_array_equal(graph["mean"].data.array(), 2 * ONES)
    assert tx.convert(first, second).verification.equal
    operators = [
        [[each.name for each in subgraph.operators] for subgraph in read_file(path).subgraphs]
        for path in (first, second)
    ]
    assert operators[0] == operators[1]
    assert operators[0][0].count("ASSIGN_VARIABLE") == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"metadata": "{"}, InvalidCall, "no JSON"),
        ({"metadata": "[1]"}, InvalidCall, "does not map"),
        ({"metadata": '{"maen": "mean_next"}'}, InvalidCall, "did you mean mean"),
        ({"metadata": '{"mean": "nowhere"}'}, InvalidCall, 'no graph output "nowhere"'),
    ],
)
def test_wrong_metadata_is_refused(changes, error, words):
    with pytest.raises(error, match=words):
        state_of(average(**changes))


def test_states_of_types_without_variables_are_refused():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    a, b = graph.input("a", "float64", (2,)), graph.input("b", "float32", (2,))
    with graph.building():
        graph.output("a_next", ops.identity(a))
        graph.output("b_next", ops.cast(b, to=tx.DType.int32))
    for state, words in (('{"a": "a_next"}', "no variables of the type"), ('{"b": "b_next"}', "of another type")):
        graph.metadata["tenonnx.state"] = state
        with pytest.raises(NotRepresentable, match=words):
            state_of(graph)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", '{"mean": 1}'])
def test_a_damaged_state(text):
    with pytest.raises(InvalidCall, match="metadata"):
        state_of(average(metadata=text))


def test_a_state_of_open_shape_without_contents_is_refused(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    s = graph.input("s", "float32", ("n", 3))
    with graph.building():
        graph.output("t", ops.relu(s))
    graph.metadata["tenonnx.state"] = '{"s": "t"}'
    with pytest.raises(NotRepresentable, match="dynamic dims"):
        tx.convert(graph, tmp_path / "m.tflite")


# ----- several signatures ---------------------------------------------------------------------------------------------

WEIGHTS = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def coder(name, *, back=False):
    graph = tx.Graph(name, opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 64))
    with graph.building():
        weights = constant(WEIGHTS)
        graph.output("y", ops.tanh(x) - ops.matmul(x, weights) if back else ops.matmul(x, weights))
    return graph


def test_signatures_share_weights_and_are_compared(tmp_path):
    path = tmp_path / "both.tflite"
    coder("decode", back=True).save(tmp_path / "decode.onnx")
    result = convert_signatures({"encode": coder("encode"), "decode": tmp_path / "decode.onnx"}, path)
    assert all(each.equal for each in result.values())
    assert any("batch=3" in run.covers for run in result["decode"].runs)
    assert path.stat().st_size < 1.3 * WEIGHTS.nbytes
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    x = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    interpreter = Interpreter(str(path))
    assert list(interpreter.get_signature_list()) == ["encode", "decode"]
    for key in result:
        graph = tx.load(path, signature=key)
        expected = coder(key, back=key == "decode").run({"x": x}, backend="numpy")["y"]
        np.testing.assert_allclose(graph.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(interpreter.get_signature_runner(key)(x=x)["y"], expected, rtol=1e-4, atol=1e-4)


def test_signatures_share_their_state(tmp_path):
    reader = tx.Graph(opsets={"ai.onnx": 21})
    mean = reader.input("mean", "float32", (2, 3))
    mean.data = 2 * ONES
    with reader.building():
        reader.output("total", ops.reduce_sum(mean, keepdims=0))
        reader.output("mean_next", ops.identity(mean))
    result = convert_signatures({"update": average(), "total": reader}, tmp_path / "m.tflite")
    assert all(each.equal for each in result.values())
    interpreter = Interpreter(str(tmp_path / "m.tflite"))
    interpreter.get_signature_runner("update")(x=0 * ONES)
    assert interpreter.get_signature_runner("total")()["total"] == 6.0


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({}, "no signatures"),
        ({"read_state": coder("c")}, "cannot have this name"),
        ({"a": average(), "b": average(default=ONES)}, "different first contents"),
    ],
)
def test_invalid_signatures_are_refused(sources, words, tmp_path):
    with pytest.raises(InvalidCall, match=words):
        convert_signatures(sources, tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_wrong_outputs_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("tenonnx_litert.signatures.opened_signature", lambda *_: lambda feeds: {"y": 2 * feeds["x"]})
    with pytest.raises(VerificationFailed):
        convert_signatures({"encode": coder("encode")}, tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []
