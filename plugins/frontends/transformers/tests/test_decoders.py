"""Export of text decoders: logits, greedy tokens, and files of each layout."""

import functools
import json

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from configurations import make

import tenonnx as tx
import tenonnx_transformers
from tenonnx_cli import REFUSED, main
from tenonnx_transformers import Report, exporting
from tenonnx_transformers.genai import check_states
from tenonnx_transformers.generation import compare_tokens, prompts_for
from tenonnx_transformers.states import BATCH, PAST, State
from tenonnx_transformers.verification import check, takes_inner_padding

ROUNDING = tx.extend.checks.Tolerance(1e-5, 1e-5, "rounding")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A transformers folder with sharded weights, and the folder that the command exports from it."""
    folder = tmp_path_factory.mktemp("llama")
    make("llama").save_pretrained(folder / "model", max_shard_size="40KB")
    (folder / "model" / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert len(list((folder / "model").glob("*.safetensors"))) > 1
    command = ["convert", str(folder / "model"), "-o", str(folder / "out"), "--layout", "genai", "--opset", "18"]
    assert main(command) == 0
    return folder


def test_a_folder_is_exported_for_genai(llama):
    config = json.loads((llama / "out" / "genai_config.json").read_text())
    assert config["model"]["type"] == "llama"
    assert config["model"]["decoder"]["head_size"] == 8
    assert config["model"]["decoder"]["num_key_value_heads"] == 2
    assert config["model"]["decoder"]["inputs"]["past_key_names"] == "past_key_values.%d.key"
    assert (config["model"]["eos_token_id"], config["search"]["max_length"]) == (2, 256)
    assert (llama / "out" / "tokenizer_config.json").is_file()
    graph = tx.load(llama / "out" / "model.onnx")
    assert graph.opsets == {"ai.onnx": 18, "com.microsoft": 1}
    assert [node.op_type for node in graph.nodes].count("GroupQueryAttention") == 2
    names = [f"past_key_values.{layer}.{kind}" for layer in (0, 1) for kind in ("key", "value")]
    assert [v.name for v in graph.inputs] == ["input_ids", "attention_mask", "position_ids", *names]
    assert str(graph["past_key_values.1.value"].type) == "float32[batch_size, 2, past_sequence_length, 8]"
    assert [v.name for v in graph.outputs][:2] == ["logits", "present.0.key"]
    assert "model.layers.0.mlp.gate_proj.weight" in {v.name for v in graph.variables}


def test_a_beam_is_followed_by_reordering_the_states(llama):
    """Rows of the states are hypotheses of beam search, which can be reordered."""
    session = onnxruntime.InferenceSession(str(llama / "out" / "model.onnx"))
    model = make("llama")
    tokens = np.array([[5, 6, 7, 8], [9, 10, 11, 12]])
    ones = np.ones((2, 4), np.int64)
    empty = {i.name: np.zeros((2, 2, 0, 8), np.float32) for i in session.get_inputs()[3:]}
    first = session.run(
        None, {"input_ids": tokens, "attention_mask": ones, "position_ids": np.tile(np.arange(4), (2, 1)), **empty}
    )
    arrays = {name: state[[1, 1]] for name, state in zip(empty, first[1:], strict=True)}
    step = {
        "input_ids": np.array([[3], [4]]),
        "attention_mask": np.ones((2, 5), np.int64),
        "position_ids": np.full((2, 1), 4),
    }
    result = session.run(["logits"], {**step, **arrays})[0][:, 0]
    whole = torch.tensor([[9, 10, 11, 12, 3], [9, 10, 11, 12, 4]])
    with torch.no_grad():
        expected = model(whole).logits[:, -1].numpy()
    assert np.allclose(result, expected, atol=1e-4)


def test_a_model_that_fails_by_itself_is_refused(tmp_path):
    model = make("llama")
    model.model.layers[1].mlp.up_proj = torch.nn.Linear(32, 5)
    with pytest.raises(tx.InvalidCall, match="LlamaMLP: The size of tensor a") as caught:
        tenonnx_transformers.export(model, tmp_path / "out")
    assert "modeling_llama.py" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_sliding_window_attention_of_a_module_in_memory(tmp_path):
    """The past is longer than the window, so that the model masks older states."""
    done = tenonnx_transformers.export(make("gemma3_text"), tmp_path / "out")
    (generated,) = done.generated
    assert (generated.equal, generated.tokens, generated.ties) == (192, 192, 0)
    assert {each.call for each in done.compared} >= {"batch 3, past 9, new 1", "batch 1, past 0, new 1"}
    assert done.max_difference < 1e-4
    assert done.files == ["config.json", "generation_config.json", "model.onnx"]
    assert str(done).startswith(f"{tmp_path / 'out'}: text-generation for onnxruntime")


# ----- invalid input --------------------------------------------------------------------------------------------------


def state(layer, kind, *shape):
    return State(layer, kind, {0: BATCH, 2: PAST} if kind in ("key", "value") else {0: BATCH}, shape, torch.float32)


@pytest.mark.parametrize(
    ("model_type", "states", "said"),
    [
        ("bert", [], "bert"),
        ("mamba", [state(3, "recurrent_state", 2, 8, 4)], 'layer 3 of "mamba": recurrent_state'),
        ("deepseek", [state(0, "key", 2, 4, 4, 12), state(0, "value", 2, 4, 4, 8)], "layer 0 value"),
    ],
)
def test_genai_refuses_states_by_layer(model_type, states, said):
    with pytest.raises(tx.NotRepresentable, match="onnxruntime-genai") as error:
        check_states(model_type, states)
    assert said in str(error.value)


def test_recurrent_states_need_two_graphs(tmp_path):
    """The prompt runs a loop over its tokens; each later token continues the states."""
    done = tenonnx_transformers.export(make("mamba"), tmp_path / "out")
    (generated,) = done.generated
    assert (generated.equal, generated.tokens, generated.ties) == (192, 192, 0)
    assert done.graphs == ["decoder_model.onnx", "decoder_with_past_model.onnx"]
    assert {each.call for each in done.compared} >= {"batch 1, past 0, new 1", "batch 3, past 9, new 1"}
    begin, step = (tx.load(tmp_path / "out" / name) for name in done.graphs)
    assert "Scan" in {node.op_type for node in begin.nodes}
    assert "past_key_values.1.recurrent_state" in {value.name for value in step.inputs}


def test_recurrent_states_are_refused_by_layer(tmp_path):
    with pytest.raises(tx.NotRepresentable, match="does not keep this state") as error:
        tenonnx_transformers.export(make("mamba"), tmp_path / "out", layout="genai")
    assert 'layer 0 of "mamba": conv_state' in str(error.value)


def test_different_tokens_are_an_error_except_for_ties():
    expected = np.array([[1, 2, 3], [1, 2, 3]])
    actual = np.array([[1, 2, 3], [1, 0, 3]])
    result = compare_tokens("x", actual, expected, lambda row, step: np.array([4.0, 0.0, 4.00001]), ROUNDING)
    assert (result.equal, result.tokens, result.ties) == (4, 6, 1)
    with pytest.raises(tx.VerificationFailed, match="generated tokens that differ") as error:
        compare_tokens("x", actual, expected, lambda row, step: np.array([3.9, 0.0, 4.0]), ROUNDING)
    assert "prompt 2, token 2: 0 instead of 2" in str(error.value)


def test_different_logits_are_an_error():
    with pytest.raises(tx.VerificationFailed, match='"logits" of model differs'):
        check("model", "logits", "batch 1", np.float32([1, 2.1]), np.float32([1, 2]), ROUNDING)


@pytest.fixture
def folder(tmp_path):
    """A folder with a small model, for tests that damage it."""
    config = transformers.GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1, n_positions=80)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


def change(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _code(folder):
    change(folder, auto_map={"AutoConfig": "code.Config"}, architectures=["Own"], model_type="own")
    (folder / "code.py").write_text("raise SystemExit('ran')")


def _pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def _shards(name):
    def write(folder):
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        index = {"metadata": {}, "weight_map": {"transformer.wte.weight": name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return write


@pytest.mark.parametrize("kernel", ["kernels-community/none", "flash_attention_2"])
def test_kernels_named_in_a_config_are_not_downloaded(folder, kernel):
    """transformers raises an error if it tries to download."""
    for key in ("attn_implementation", "_attn_implementation"):
        change(folder, **{key: kernel})
        assert tx.load(folder).nodes


def test_an_end_token_may_be_outside_of_the_vocabulary(folder):
    change(folder, eos_token_id=50)
    (folder / "generation_config.json").unlink()
    tenonnx_transformers.export(folder, folder / "out", layout="onnxruntime")
    assert list((folder / "out").rglob("*.onnx"))


def _text(text):
    return lambda folder: (folder / "config.json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (_code, tx.InvalidCall, "contains Python code of its own"),
        (_pickle, tx.InvalidCall, "has no weights in safetensors files"),
        (lambda f: (f / "model.safetensors").unlink(), tx.InvalidCall, "no weights"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 40), tx.InvalidModel, "cannot read the weights"),
        (lambda f: change(f, n_layer=2), tx.InvalidModel, "are not those of GPT2LMHeadModel"),
        (lambda f: change(f, n_embd=8), tx.InvalidModel, "weights"),
        (lambda f: change(f, architectures=[]), tx.InvalidCall, "lists no model class"),
        (lambda f: change(f, architectures=["GPT2DoubleHeadsModel"]), tx.InvalidCall, "task of the model is unknown"),
        (lambda f: change(f, model_type="gpt3"), tx.InvalidModel, "transformers cannot read"),
        (lambda f: change(f, quantization_config={"quant_method": "gptq"}), tx.NotRepresentable, "are quantized"),
        (lambda f: (f / "config.json").unlink(), tx.InvalidCall, "has no config.json"),
        (_text("{"), tx.InvalidModel, "cannot read"),
        (_text("[1]"), tx.InvalidModel, "not a JSON object"),
        (_text("[" * 100_000), tx.InvalidModel, "cannot read"),
        (_shards("../other/model.safetensors"), tx.UnsafePath, "outside of the folder"),
        (_shards(5), tx.UnsafePath, "outside of the folder"),
    ],
)
def test_invalid_folders_are_rejected(folder, tmp_path, damage, kind, said):
    damage(folder)
    with pytest.raises(kind, match=said):
        tenonnx_transformers.export(folder, folder / "out")
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "vllm"}, "unknown layout"),
        ({"task": "poetry"}, "unknown task"),
        ({"task": "image-classification"}, "have no head for the task"),
    ],
)
def test_invalid_options_are_rejected(folder, options, said):
    with pytest.raises(tx.InvalidCall, match=said):
        tenonnx_transformers.export(folder, folder / "out", **options)


def test_other_modules_are_rejected(tmp_path):
    with pytest.raises(tx.InvalidCall, match="not a model of the transformers library"):
        tenonnx_transformers.export(torch.nn.Linear(2, 2), tmp_path / "out")


def test_the_command_reports_unsupported_options(folder, capsys):
    assert main(["convert", str(folder), "-o", str(folder / "out"), "--layout", "genai", "--simplify"]) == REFUSED
    assert "the layout genai does not take the option --simplify" in capsys.readouterr().err
    assert main(["convert", str(folder), "-o", str(folder / "out.onnx"), "--layout", "genai"]) == REFUSED
    assert "the output of a model folder is not a folder" in capsys.readouterr().err
    assert main(["convert", str(folder), "-o", str(folder / "out"), "--layout", "gena"]) == REFUSED
    assert "unknown layout: gena" in capsys.readouterr().err


def test_the_command_passes_options_to_the_layout(folder, monkeypatch):
    def export(model, out, **options):
        given.update(options)
        return Report(folder, "text-generation", "onnxruntime", [], [])

    given = {}
    monkeypatch.setattr(exporting, "export", functools.wraps(exporting.export)(export))
    options = ["--adapter", "poems", "--adapter", "recipes", "--max-shard", "2000", "--cache", "static=24"]
    assert main(["convert", str(folder), "-o", str(folder / "out"), "--layout", "onnxruntime", *options]) == 0
    expected = {"layout": "onnxruntime", "adapters": ("poems", "recipes"), "max_shard": 2000, "cache": "static=24"}
    assert {name: tuple(x) if name == "adapters" else x for name, x in given.items()} == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--adapter", "none"], "adapter_config.json"),
        (["--max-shard", "0"], "not in the range"),
        (["--cache", "none"], "unknown cache"),
    ],
)
def test_the_command_rejects_invalid_options(folder, options, reason, capsys):
    assert main(["convert", str(folder), "-o", str(folder / "out"), "--layout", "onnxruntime", *options]) == REFUSED
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(("name", "ignored"), [("gpt2", True), ("llama", True), ("gpt_neo", False), ("mpt", False)])
def test_windows_and_distances_count_padding_between_tokens(name, ignored):
    model = make(name).eval()
    assert takes_inner_padding(model, prompts_for(model.config)) is ignored
