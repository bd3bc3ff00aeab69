"""Caches of ``transformers`` go in and come out, layer by layer."""

import numpy as np
import pytest
import torch

import tenonnx as tx

transformers = pytest.importorskip("transformers", reason="these are caches of transformers")


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_step_of_a_decoder_takes_and_gives_its_cache(decoder):
    tokens = torch.arange(8).reshape(2, 4)
    before = decoder(tokens, use_cache=True).past_key_values
    names = [f"past_key_values_{layer}_{kind}" for layer in (0, 1) for kind in ("keys", "values")]
    dims = {"input_ids": {0: "batch"}} | {name: {0: "batch", 2: "past"} for name in names}
    keywords = {"past_key_values": before, "use_cache": True}
    graph = tx.load(decoder, torch.tensor([[3], [4]]), keywords=keywords, dims=dims)
    assert {value.name for value in graph.inputs} == {"input_ids", *names}
    assert [value.name for value in graph.outputs] == ["logits", *(f"output_{name}" for name in names)]
    feeds = {f"past_key_values_{k}_{kind}": getattr(layer, kind) for k, layer in enumerate(before.layers)
             for kind in ("keys", "values")}  # fmt: skip
    assert before.layers[0].keys.shape[2] == 4  # loading adds nothing to it
    found = graph.run({"input_ids": np.array([[5], [6]]), **{n: t.detach().numpy() for n, t in feeds.items()}})
    whole = decoder(torch.cat([tokens, torch.tensor([[5], [6]])], 1)).logits[:, -1:]
    assert np.allclose(found["logits"], whole.detach(), atol=1e-5)
    assert found["output_past_key_values_1_values"].shape[2] == 5


def test_a_cache_that_begins_empty_comes_out(decoder):
    graph = tx.load(decoder, torch.arange(4).reshape(1, 4), keywords={"use_cache": True}, verify=False)
    assert [value.name for value in graph.outputs][:2] == ["logits", "past_key_values_0_keys"]


def test_a_cache_of_other_layers_is_refused(decoder):
    cache = transformers.StaticCache(config=decoder.config, max_cache_len=8)
    with pytest.raises(tx.TenonnxError):
        tx.load(decoder, torch.arange(4).reshape(1, 4), keywords={"past_key_values": cache, "use_cache": True})
