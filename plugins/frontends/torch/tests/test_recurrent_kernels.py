"""Recurrent layers on PyTorch: fused kernels for standard layers, step by step for others."""

import numpy as np
import pytest
import torch

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_torch
from tenonnx.extend import find_rule
from tenonnx.extend.transforms import bind

LENGTH, BATCH, SIZE, HIDDEN = 6, 3, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(name, *, direction="forward", layout=0, states=True, bias=True, lengths=False, peepholes=False, **attributes):
    """A graph of one layer with random weights, and feeds."""
    random, gates = np.random.default_rng(7), GATES[name]
    count = 2 if direction == "bidirectional" else 1

    def drawn(*shape):
        return random.normal(size=shape).astype(np.float32) * 0.4

    held = (BATCH, count, HIDDEN) if layout else (count, BATCH, HIDDEN)
    inputs = {"x": drawn(*(BATCH, LENGTH, SIZE) if layout else (LENGTH, BATCH, SIZE))}
    inputs |= {"h": drawn(*held)} if states else {}
    inputs |= {"c": drawn(*held)} if states and name == "LSTM" else {}
    graph = tx.Graph()
    given = {key: graph.input(key, tx.TensorType(tx.DType.float32, a.shape)) for key, a in inputs.items()}
    w, r, b = (
        graph.variable(key, drawn(*shape))
        for key, shape in (
            ("w", (count, gates * HIDDEN, SIZE)),
            ("r", (count, gates * HIDDEN, HIDDEN)),
            ("b", (count, 2 * gates * HIDDEN)),
        )
    )
    arguments = [given["x"], w, r, b if bias else None, np.array([6, 2, 4], np.int32) if lengths else None]
    arguments += [given.get("h"), *([given.get("c")] if name == "LSTM" else [])]
    arguments += [drawn(count, 3 * HIDDEN)] if peepholes else []
    made = getattr(ops, name.lower())
    y, *_ = made(*arguments, direction=direction, layout=layout, hidden_size=HIDDEN, **attributes)
    graph.output("y", y)
    return graph, inputs


USUAL = [
    ("LSTM", {}),
    ("GRU", {"linear_before_reset": 1}),
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"]}),
]
UNUSUAL = [
    ("LSTM", {"clip": 0.2}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"lengths": True}),
    ("LSTM", {"peepholes": True}),
    ("LSTM", {"activations": ["Tanh", "Tanh", "Tanh"]}),
    ("GRU", {}),
    ("RNN", {"activations": ["Sigmoid"]}),
    ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
]


@pytest.mark.parametrize(("name", "attributes"), [*USUAL, *UNUSUAL])
def test_a_layer_agrees_with_numpy(name, attributes):
    ways = [("forward", 0, True), ("reverse", 0, False), ("bidirectional", 1, True), ("reverse", 1, True)]
    for direction, layout, states in ways:
        given = {"direction": direction, "layout": layout, "states": states, "bias": states} | attributes
        if direction == "bidirectional" and len(attributes.get("activations", ())) in (1, 3):
            given["activations"] = attributes["activations"] * 2
        graph, feeds = layer(name, **given)
        expected = graph.run(feeds, backend="numpy")["y"]
        result = graph.compile(backend="torch", strict=True)(feeds)["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=str(given))


@pytest.mark.parametrize(("name", "attributes"), USUAL)
def test_the_gradient_by_a_kernel_is_ours(name, attributes):
    graph, feeds = layer(name, **attributes)
    total = ops.reduce_sum(graph.outputs[0] * graph.outputs[0], keepdims=0)
    graph.output("total", total)
    expected = tx.grad(graph, "total", ["w", "r", "b"]).run(feeds, backend="numpy")
    network = tenonnx_torch.module(graph)
    network(**{key: torch.from_numpy(array) for key, array in feeds.items()})[-1].backward()
    for key, parameter in network.named_parameters():
        np.testing.assert_allclose(parameter.grad, expected[f"{key}/grad"], rtol=1e-4, atol=1e-5, err_msg=key)


def test_kernels_accept_the_usual_layers_and_no_others():
    cases = [*((*case, True) for case in USUAL), *((*case, False) for case in UNUSUAL)]
    for name, attributes, usual in cases:
        graph, _ = layer(name, **attributes)
        node = next(node for node in graph.nodes if node.op_type == name)
        inputs, bound = bind(node)
        assert bool(find_rule(node.op, "torch").takes(*inputs, **bound)) is usual, (name, attributes)
