"""Decoders with a cache of fixed length."""

import pytest
import torch
import transformers
from configurations import make

import tenonnx as tx
import tenonnx_transformers
from tenonnx_transformers.decoders import decoder_states
from tenonnx_transformers.static_cache import StaticCache, static_parts


def test_a_static_cache_is_written_in_place(tmp_path):
    """Prompts are chunks of 6 tokens, so that the last chunk of a prompt has padding."""
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 64}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=19, eos_token_id=2, **sizes))
    done = tenonnx_transformers.export(model, tmp_path / "out", cache="static=24,prefill=6")
    (generated,) = done.generated
    assert generated.tokens == 39  # 24 positions less the longest prompt, for 3 prompts
    assert generated.equal == 39 or generated.ties
    assert {each.call for each in done.compared} >= {"batch 3, past 9, new 1", "batch 1, past 1, new 3"}
    assert done.graphs == ["prefill_model.onnx", "decode_model.onnx"]
    prefill, decode = (tx.load(tmp_path / "out" / name) for name in done.graphs)
    for graph, new in ((prefill, 6), (decode, 1)):
        types = {value.name: str(value.type) for value in graph.inputs}
        assert types["past_key_values.0.key"] == "float32[1, 2, 24, 4]" == str(graph["present.0.key"].type)
        assert (types["cache_position"], types["attention_mask"]) == (f"int64[{new}]", "int64[1, 24]")


def test_a_static_cache_has_any_batch_and_prompt():
    """Recurrent states, of fixed size anyway, are states of both graphs if the model continues them."""
    model = make("lfm2")
    model.set_attn_implementation("eager")
    (prefill, decode), _ = static_parts(model, decoder_states(model), StaticCache(24))
    assert prefill.dims["input_ids"] == {0: "batch_size", 1: "sequence_length"}
    assert prefill.dims["past_key_values.1.key"] == {0: "batch_size"}
    assert tuple(prefill.examples["past_key_values.1.key"].shape)[1:] == (2, 24, 8)
    assert set(prefill.examples) == set(decode.examples) >= {"past_key_values.0.conv_state", "cache_position"}


@pytest.mark.parametrize(
    ("name", "cache", "reason"),
    [
        ("mamba", "static=24", "no state of MambaForCausalLM grows"),
        ("gpt_neo", "static=24", "does not support a cache of fixed length"),
        ("lfm2", "static=24,prefill=6", "recurrent states count as tokens"),
        ("llama", "static=300", "longer than the context of LlamaForCausalLM"),
    ],
)
def test_other_caches_are_refused_by_name(name, cache, reason):
    model = make(name)
    model.set_attn_implementation("eager")
    with pytest.raises(tx.NotRepresentable, match=reason):
        static_parts(model, decoder_states(model), StaticCache.of(cache))


@pytest.mark.parametrize("cache", ["static", "static=", "dynamic=24", "static=4", "static=24,prefill=1", 24])
def test_invalid_caches_are_rejected(cache, tmp_path):
    with pytest.raises(tx.InvalidCall, match="cache"):
        tenonnx_transformers.export(torch.nn.Linear(2, 2), tmp_path / "out", cache=cache)


@pytest.mark.parametrize("layout", ["genai", "transformers.js"])
def test_other_layouts_take_no_static_cache(layout, tmp_path):
    with pytest.raises(tx.NotRepresentable, match="does not take a static cache"):
        tenonnx_transformers.export(make("gpt2"), tmp_path / "out", layout=layout, cache="static=24")
