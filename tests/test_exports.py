"""Fusion of the exports of PyTorch in ``examples/exports``."""

from collections import Counter
from pathlib import Path

import pytest

import tenonnx as tx

FOLDER = Path(__file__).parents[1] / "examples" / "exports"
PAST = {f"past_{kind}_{layer}": (2, 4, 3, 4) for kind in ("key", "value") for layer in (0, 1)}
SHAPES = {"gpt2": {"input_ids": (2, 5), "attention_mask": (2, 8), **PAST}}

#: Fused ops per architecture in both exports, at ai.onnx 24, and at ai.onnx 17 with com.microsoft.
STANDARD = {
    "bert": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "gpt2": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "llama": {"Attention": 2, "RMSNormalization": 5, "RotaryEmbedding": 4, "Swish": 2},
    "t5": {"Attention": 6, "RMSNormalization": 12, "Gelu": 4},
    "vit": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "whisper": {"Attention": 6, "LayerNormalization": 12, "Gelu": 6},
    "diffusion": {"Attention": 2, "LayerNormalization": 3, "Gelu": 1, "Swish": 3},
}
FUSED = {
    "bert": {"MultiHeadAttention": 2, "SkipLayerNormalization": 5, "BiasGelu": 2},
    "gpt2": {"MultiHeadAttention": 2, "SkipLayerNormalization": 5, "FastGelu": 2},
    "vit": {"MultiHeadAttention": 2, "SkipLayerNormalization": 5, "BiasGelu": 2},
}
STYLES = "script", "dynamo"


def fused(name, style, version, domains):
    graph = tx.load(FOLDER / f"{name}-{style}.onnx")
    moved = tx.retarget(tx.simplify(graph), version)
    moved.opsets = {**dict.fromkeys(domains, 1), **moved.opsets}
    result = tx.fuse(moved)
    tx.verify(graph, result, input_shapes=SHAPES.get(name)).raise_if_failed()
    return Counter(node.op_type for node in result.nodes)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", STANDARD)
def test_standard_ops_are_found(name, style):
    assert fused(name, style, 24, []).items() >= STANDARD[name].items()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", FUSED)
def test_ops_of_another_domain_are_found(name, style):
    assert fused(name, style, 17, ["com.microsoft"]).items() >= FUSED[name].items()


@pytest.mark.parametrize("style", STYLES)
def test_group_normalizations_are_found_on_request(style):
    """They are on request, since onnxruntime has no CPU kernel for them."""
    graph = tx.retarget(tx.simplify(tx.load(FOLDER / f"diffusion-{style}.onnx")), 24)
    result = tx.fuse(graph, ["GroupNormalization"])
    assert Counter(node.op_type for node in result.nodes)["GroupNormalization"] == 3
    assert "GroupNormalization" not in {node.op_type for node in tx.fuse(graph).nodes}


@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_fused_in_a_resnet(style):
    pooled = {"script": "GlobalAveragePool", "dynamo": "ReduceMean"}
    assert set(fused("resnet", style, 24, [])) == {"Conv", "Relu", "Add", "MaxPool", pooled[style]}
