"""MoE of few tokens, which see the layers of their own experts alone."""

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_contrib_ms.experts import mixture_of_experts


@pytest.mark.parametrize("activation", ["silu", "swiglu"])
@pytest.mark.parametrize("sparse", [0, 1])
def test_few_tokens_see_their_own_experts_alone(activation, sparse):
    """What is known to be one token gives the numbers that it has among others, in a graph without the other layers."""
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
        found = lowered.run({"x": x[:1], "logits": logits[:1]}, backend="onnxruntime")["y"]
        np.testing.assert_allclose(found, together[:1], rtol=1e-4, atol=1e-5)
        sizes[count] = {v.type.shape for v in lowered.infer().values()}
    assert [(2, 4, 7) in found for found in sizes.values()] == [True, False], "of one token, two experts are copied"
