"""MoE with few tokens computes only the layers of their experts."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_contrib_ms.experts import mixture_of_experts


@pytest.mark.parametrize("activation", ["silu", "swiglu"])
@pytest.mark.parametrize("sparse", [0, 1])
def test_few_tokens_compute_only_their_own_experts(activation, sparse):
    """A single token gives the same results as in a batch, in a graph without the other experts."""
    random = np.random.default_rng(0)
    x, logits, first, second, third = (
        random.normal(size=size).astype(np.float32) for size in ((5, 4), (5, 6), (6, 7, 4), (6, 4, 7), (6, 7, 4))
    )
    bias = random.normal(size=(6, 7)).astype(np.float32)
    how = {"activation_type": activation, "k": 2, "use_sparse_mixer": sparse, "normalize_routing_weights": 1}

    def mixed(x, logits):
        return mixture_of_experts(x, logits, first, bias, second, None, third, **how)

    together, alone = mixed(x, logits), np.concatenate([mixed(x[[k]], logits[[k]]) for k in range(5)])
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    sizes = {}
    for count in (1, "n"):
        graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
        x_, logits_ = graph.input("x", "float32", (count, 4)), graph.input("logits", "float32", (count, 6))
        graph.output("y", mixed(x_, logits_))
        lowered = tx.retarget(graph, 21, domains=["ai.onnx"])
        result = lowered.run({"x": x[:1], "logits": logits[:1]}, backend="onnxruntime")["y"]
        np.testing.assert_allclose(result, together[:1], rtol=1e-4, atol=1e-5)
        sizes[count] = {v.type.shape for v in lowered.infer().values()}
    assert [(2, 4, 7) in result for result in sizes.values()] == [True, False], "of one token, two experts are copied"


def test_the_number_of_tokens_may_be_unknown_before_run_time():
    """Two branches, for few and for many tokens, give the same results and gradients."""
    random = np.random.default_rng(0)
    first, second = (random.normal(size=size).astype(np.float32) for size in ((6, 7, 4), (6, 4, 7)))
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    x, logits = graph.input("x", "float32", ("n", 4)), graph.input("logits", "float32", ("n", 6))
    weights = graph.variable("first", first), graph.variable("second", second)
    y = mixture_of_experts(x, logits, weights[0], None, weights[1], k=2, activation_type="silu")
    graph.output("loss", ops.reduce_sum(y * y, [1], keepdims=0))
    lowered = tx.retarget(graph, 21, domains=["ai.onnx"])
    assert [node.op_type for node in lowered.nodes].count("If") == 1
    slope = tx.retarget(tx.grad(graph, of="loss", wrt=["x"], seeds={"loss": "g"}), 21, domains=["ai.onnx"])
    feeds = {
        "x": random.normal(size=(5, 4)).astype(np.float32),
        "logits": random.normal(size=(5, 6)).astype(np.float32),
    }
    for program, given in ((lowered, feeds), (slope, {**feeds, "g": np.ones(5, np.float32)})):
        together = program.run(given, backend="onnxruntime")
        alone = [program.run({n: v[[k]] for n, v in given.items()}, backend="numpy") for k in range(5)]
        for name, expected in together.items():
            result = np.concatenate([each[name] for each in alone])
            np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
