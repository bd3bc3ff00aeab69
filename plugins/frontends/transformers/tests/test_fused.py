"""Fused operators of onnxruntime: attention with cache and rotary embedding, and skip norms."""

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_transformers
from tenonnx.extend import DType
from tenonnx_transformers import writing
from tenonnx_transformers.decoders import decoder_part, decoder_states
from tenonnx_transformers.fused import _tables, fused
from tenonnx_transformers.sources import quiet

POSITIONS = 32


def model_of(**fields):
    """A decoder with one layer, four query heads of size 16 and two key heads."""
    usual = {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**usual, **heads, **fields}, attn_implementation="eager")
    return transformers.LlamaForCausalLM(config).eval()


def traced(**fields):
    """The graph of this decoder."""
    model = model_of(**fields)
    with quiet():
        return decoder_part(model, decoder_states(model)).graph()


@pytest.fixture(scope="module")
def llama():
    return traced()


def feeds_of(new, past, batch=2, size=16):
    generator = np.random.default_rng(0)
    arrays = generator.standard_normal((2, batch, 2, past, size), np.float32)
    mask = np.ones((batch, past + new), np.int64)
    mask[-1, -1 if past == 0 else 1] = 0
    return {
        "input_ids": generator.integers(0, 40, (batch, new)),
        "attention_mask": mask,
        "position_ids": np.arange(past, past + new)[None].repeat(batch, 0),
        "past_key_values.0.key": arrays[0],
        "past_key_values.0.value": arrays[1],
    }


def nodes_of(graph):
    return {node.op_type: node for node in graph.nodes}


def test_attention_includes_cache_and_rotary_embedding(llama, tmp_path):
    result = fused(llama, POSITIONS)
    nodes = nodes_of(result)
    attention = nodes["GroupQueryAttention"]
    assert (attention.attributes["num_heads"], attention.attributes["kv_num_heads"]) == (4, 2)
    assert attention.attributes["do_rotary"] == 1
    assert [attention.inputs[place].shape for place in (7, 8)] == [(POSITIONS, 8)] * 2
    assert "SkipSimplifiedLayerNormalization" in nodes
    assert not {"Softmax", "Cos", "Attention"} & nodes.keys()
    assert [value.name for value in result.outputs] == [value.name for value in llama.outputs]

    path = tmp_path / "model.onnx"
    tx.export(result, path, opset_version=17, domains=["ai.onnx", "com.microsoft"])
    session = onnxruntime.InferenceSession(str(path))
    for new, past in ((5, 0), (1, 6)):
        given = feeds_of(new, past)
        expected = llama.run(given, backend="numpy")
        actual = dict(zip(expected, session.run(list(expected), given), strict=True))
        seen = given["attention_mask"][:, past:] == 1
        assert np.allclose(actual["logits"][seen], expected["logits"][seen], atol=1e-4)
        assert np.allclose(actual["present.0.value"], expected["present.0.value"], atol=1e-5)


def test_a_graph_that_differs_is_written_without_fused_operators(tmp_path, monkeypatch):
    """Attention that ignores its scale simulates a wrong kernel of the runtime."""

    def wrong(graph, positions):
        result = fused(graph, positions)
        for node in result.nodes:
            if node.op_type == "GroupQueryAttention":
                node.attributes["scale"] = 9.0
        return result

    monkeypatch.setattr(writing, "fused", wrong)
    report = tenonnx_transformers.export(model_of(), tmp_path, target="onnxruntime-cpu")
    assert report.notes == ['written without fused operators: output "logits" of model differs from the model']
    assert "note: written without" in str(report)
    assert report.compared
    assert "GroupQueryAttention" not in nodes_of(tx.load(tmp_path / "model.onnx"))


def test_small_heads_are_rotated_outside():
    """onnxruntime rotates only heads whose size is a multiple of 16."""
    nodes = nodes_of(fused(traced(head_dim=8), POSITIONS))
    assert nodes["GroupQueryAttention"].attributes.get("do_rotary", 0) == 0
    assert "RotaryEmbedding" in nodes


@pytest.mark.parametrize(("other", "found"), [(None, True), ("past", False), ("input_ids", False)])
def test_tables_depend_only_on_the_position(other, found):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    names = ["position_ids"] if other is None else ["position_ids", other]
    angles, *factors = (ops.cast(graph.input(n, "int64", ("batch", "length")), to=DType.float32) for n in names)
    angles = ops.unsqueeze(angles, [2])
    for factor in factors:
        angles = angles * ops.reduce_sum(factor)
    graph.output("cos", ops.cos(angles))
    graph.output("sin", ops.sin(angles))
    tables = _tables(graph, ("cos", "sin"), 20)
    assert (tables is not None) == found
    if tables is not None:
        assert np.allclose(tables.cosines[:, 0], np.cos(np.arange(20)), atol=1e-6)


def test_other_graphs_have_nothing_to_fuse():
    graph = tx.load(torch.nn.Linear(4, 4), torch.randn(1, 4), verify=False)
    assert fused(graph, POSITIONS) is None
