"""Caches of ``transformers`` as inputs and outputs, layer by layer."""

import numpy as np
import pytest
import torch

import tenonnx as tx
import tenonnx_torch

transformers = pytest.importorskip("transformers", reason="these are caches of transformers")


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_decoder_step_has_its_cache_as_inputs_and_outputs(decoder):
    tokens = torch.arange(8).reshape(2, 4)
    before = decoder(tokens, use_cache=True).cache
    names = [f"cache_{layer}_{kind}" for layer in (0, 1) for kind in ("keys", "values")]
    dims = {"input_ids": {0: "batch"}} | {name: {0: "batch", 2: "past"} for name in names}
    keywords = {"cache": before, "use_cache": True}
    graph = tx.load(decoder, torch.tensor([[3], [4]]), keywords=keywords, dims=dims)
    assert {value.name for value in graph.inputs} == {"input_ids", *names}
    assert [value.name for value in graph.outputs] == ["logits", *(f"output_{name}" for name in names)]
    feeds = {
        f"cache_{k}_{kind}": getattr(layer, kind)
        for k, layer in enumerate(before.layers)
        for kind in ("keys", "values")
    }
    assert before.layers[0].keys.shape[2] == 4  # loading does not append to the cache
    result = graph.run({"input_ids": np.array([[5], [6]]), **{n: t.detach().numpy() for n, t in feeds.items()}})
    whole = decoder(torch.cat([tokens, torch.tensor([[5], [6]])], 1)).logits[:, -1:]
    assert np.allclose(result["logits"], whole.detach(), atol=1e-5)
    assert result["output_cache_1_values"].shape[2] == 5


def test_a_cache_that_begins_empty_comes_out(decoder):
    graph = tx.load(decoder, torch.arange(4).reshape(1, 4), keywords={"use_cache": True}, verify=False)
    assert [value.name for value in graph.outputs][:2] == ["logits", "cache_0_keys"]


def test_a_cache_of_other_layers_is_refused(decoder):
    cache = transformers.StaticCache(config=decoder.config, max_cache_len=8)
    with pytest.raises(tx.TenonnxError):
        tx.load(decoder, torch.arange(4).reshape(1, 4), keywords={"cache": cache, "use_cache": True})


# ----- T5 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=31, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def tokens():
    """Inputs of two texts, the second one padded, and decoder inputs."""
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    return torch.arange(14).reshape(2, 7), mask, torch.arange(10).reshape(2, 5)


class Whole(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, text, mask, said):
        return self.model(input_ids=text, attention_mask=mask, decoder_input_ids=said, use_cache=False).logits


def test_encoder_and_decoder_of_any_lengths(translator, tmp_path):
    dims = {"text": ["batch", "source"], "mask": ["batch", "source"], "said": ["batch", "target"]}
    done = tenonnx_torch.export(Whole(translator), tokens(), tmp_path / "m.onnx", opset_version=13, dims=dims)
    assert done.passed


class Step(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, said, mask, hidden, past):
        encoded = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=hidden)
        result = self.model(
            attention_mask=mask, encoder_outputs=encoded, decoder_input_ids=said, cache=past, use_cache=True
        )
        return result.logits, result.cache


def test_a_decoder_step_with_an_encoder_has_both_caches_as_inputs_and_outputs(translator, tmp_path):
    text, mask, said = tokens()
    with torch.no_grad():
        first = translator(input_ids=text, attention_mask=mask, decoder_input_ids=said, use_cache=True)
    kinds = ("keys", "values")
    dims = {"said": {0: "batch"}, "mask": {0: "batch", 1: "source"}, "hidden": {0: "batch", 1: "source"}}
    dims |= {f"past_self_attention_cache_0_{kind}": {0: "batch", 2: "past"} for kind in kinds}
    dims |= {f"past_cross_attention_cache_0_{kind}": {0: "batch", 2: "source"} for kind in kinds}
    examples = said[:, :1], mask, first.encoder_last_hidden_state, first.cache
    done = tenonnx_torch.export(Step(translator), examples, tmp_path / "m.onnx", opset_version=17, dims=dims)
    assert done.passed
    names = {output.name for output in done.verification.outputs}
    assert names == {
        "output_0",
        *(f"output_1_{part}_attention_cache_0_{kind}" for part in ("self", "cross") for kind in kinds),
    }
