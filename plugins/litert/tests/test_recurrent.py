"""LSTM as the builtin layer UNIDIRECTIONAL_SEQUENCE_LSTM."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from litert_graphs import check, graph_of, operators

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import constant
from tenonnx_litert.conversion import builtin_graph

DRAW = np.random.default_rng(0)
ROWS = DRAW.standard_normal((5, 2, 4)).astype(np.float32)


def weights(*shape):
    return constant((DRAW.standard_normal(shape) * 0.4).astype(np.float32))


def lstm(ways=1, *, bias=False, states=False, peepholes=False, outputs=2, **attributes):
    """A function of a sequence: an LSTM with hidden size 3."""

    def network(x):
        result = ops.lstm(
            x,
            weights(ways, 12, 4),
            weights(ways, 12, 3),
            weights(ways, 24) if bias else None,
            None,
            *((weights(ways, 2, 3), weights(ways, 2, 3)) if states else (None, None)),
            weights(ways, 9) if peepholes else None,
            hidden_size=3,
            **attributes,
        )
        return tuple(result)[:outputs]

    return network


KINDS = {
    "plain": {},
    "bias": {"bias": True},
    "states": {"bias": True, "states": True},
    "peepholes": {"peepholes": True},
    "reverse": {"direction": "reverse", "bias": True},
    "both ways": {"ways": 2, "direction": "bidirectional", "bias": True, "states": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_lstm_is_a_layer(kind, tmp_path):
    lowered = check(lstm(**KINDS[kind]), ROWS, folder=tmp_path)
    result = operators(lowered)
    assert result.count("UNIDIRECTIONAL_SEQUENCE_LSTM") == KINDS[kind].get("ways", 1)
    assert "WHILE" not in result


def test_sequences_of_any_length_are_one_layer(tmp_path):
    for rows in (ROWS, ROWS[:1]):
        lowered = check(lstm(bias=True), rows, folder=tmp_path, dims={0: "time"})
        assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in operators(lowered)


@pytest.mark.parametrize(
    ("network", "dims"),
    [
        (lstm(outputs=3), None),
        (lstm(clip=1.0), None),
        (lstm(input_forget=1), None),
        (lstm(activations=["Sigmoid", "Relu", "Relu"]), None),
        (lstm(), {1: "batch"}),
    ],
)
def test_an_lstm_without_a_kernel_becomes_a_loop(network, dims, tmp_path):
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" not in operators(check(network, ROWS, folder=tmp_path, dims=dims))


@pytest.mark.parametrize("kernels", [OpResolverType.BUILTIN, OpResolverType.BUILTIN_REF])
def test_no_state_is_kept_between_runs(kernels, tmp_path):
    path = tmp_path / "m.tflite"
    tx.convert(graph_of(lstm(bias=True), ROWS), path)
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kernels)
    run = interpreter.get_signature_runner("serving_default")
    first, _, third = run(x0=ROWS), run(x0=ROWS[::-1].copy()), run(x0=ROWS)
    np.testing.assert_array_equal(first["y0"], third["y0"])


def test_a_layer_becomes_a_layer_again(tmp_path):
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    tx.convert(graph_of(lstm(bias=True, states=True), ROWS), first)
    graph = tx.load(first)
    assert [node.op_type for node in graph.nodes].count("LSTM") == 1
    assert ([v.name for v in graph.all_inputs], [v.name for v in graph.outputs]) == (["x0"], ["y0", "y1"])
    assert tx.convert(graph, second).verification.equal
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in operators(builtin_graph(graph))
