"""Memory mapping and streaming of weights."""

import numpy as np
import pytest
import torch
import transformers
from configurations import make

import tenonnx as tx
import tenonnx_transformers
from tenonnx_transformers import mapped_weights, writing
from tenonnx_transformers.decoders import decoder_part, decoder_states
from tenonnx_transformers.sources import quiet, source_of


@pytest.fixture
def large(tmp_path):
    """A folder of a decoder in bfloat16, in several files."""
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=1,
        num_attention_heads=4,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="2MB")
    return tmp_path / "model"


def weights_of(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def test_weights_become_float32_in_files(large, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_weights, "LARGE", 0)
    monkeypatch.setattr(mapped_weights, "_PIECE", 1000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = weights_of(source_of(large, scratch=scratch).model)
    expected = weights_of(source_of(large).model)
    assert len(list(scratch.glob("*.safetensors"))) > 1
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected[name])


def test_small_weights_are_converted_in_memory(large, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source_of(large, scratch=scratch)
    assert not list(scratch.iterdir())


def test_a_broken_file_of_weights_is_refused(large, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_weights, "LARGE", 0)
    next(large.glob("*.safetensors")).write_bytes(b"\0" * 100)
    with pytest.raises(tx.InvalidModel, match="is not a safetensors file"):
        tenonnx_transformers.export(large, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_graph_has_views_of_the_weights(large):
    model = source_of(large).model
    with quiet(), writing.plain_attention(model):
        graph = decoder_part(model, decoder_states(model)).graph()
    held = weights_of(model)
    big = [value for value in graph.variables if value.data.nbytes >= 1 << 20]
    assert len(big) == 9  # embeddings, the last product, four of attention, three of the gated layers
    for value in big:
        assert np.shares_memory(value.data.array(), held[value.name]), value.name


def test_a_fused_decoder_is_written_once(tmp_path, monkeypatch):
    written = []
    write = writing._write_graph
    monkeypatch.setattr(writing, "_write_graph", lambda *given: (written.append(given[1]), write(*given)))
    report = tenonnx_transformers.export(make("llama"), tmp_path / "out", layout="genai", verify=False)
    assert [path.name for path in written] == list(report.graphs)
