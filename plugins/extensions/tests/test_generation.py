"""Greedy generation by a Loop: equal to a loop in Python, or refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_extensions.pipelines.generation import generator

DRAWN = np.random.default_rng(0)
WORDS, SIZE = 11, 4
EMBEDDINGS = DRAWN.standard_normal((WORDS, SIZE)).astype(np.float32)
PLACES = DRAWN.standard_normal((40, SIZE)).astype(np.float32)
HEAD = DRAWN.standard_normal((SIZE, WORDS)).astype(np.float32)


def write_decoder(folder, **config):
    """Write a decoder whose logits depend on all tokens in the mask, and on the position of the last one."""
    graph = tx.Graph("decoder", opsets={"ai.onnx": 17})
    ids, places = (graph.input(name, "int64", ("batch", "new")) for name in ("input_ids", "position_ids"))
    mask = graph.input("attention_mask", "int64", ("batch", "total"))
    past = graph.input("past_key_values.0.key", "float32", ("batch", "past", SIZE))
    with graph.building():
        held = ops.concat(past, ops.gather(EMBEDDINGS, ids), axis=1)
        seen = ops.reduce_sum(held * ops.unsqueeze(ops.cast(mask, to="float32"), [2]), [1], keepdims=1)
        graph.output("logits", (seen + ops.gather(PLACES, places)) @ HEAD)
        graph.output("present.0.key", held)
    graph.save(folder / "model.onnx")
    (folder / "generation_config.json").write_text(json.dumps(config), "utf-8")


def generated(ids, mask, count, ends=(), pad=0, never=(), not_first=(), least=0, last=None):
    """Greedy tokens by the same decoder in numpy."""
    done = np.zeros(len(ids), bool)
    for step in range(count):
        seen = (EMBEDDINGS[ids] * mask[:, :, None].astype(np.float32)).sum(1)
        logits = (seen + PLACES[mask.sum(1) - 1]) @ HEAD
        logits[:, [*never, *(not_first if step == 0 else ()), *(ends if step < least else ())]] = -np.inf
        token = np.where(done, pad, logits.argmax(-1) if last is None or step < count - 1 else last)
        done |= np.isin(token, ends)
        ids, mask = np.c_[ids, token], np.c_[mask, np.ones_like(token)]
        if done.all():
            break
    return ids


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"max_new_tokens": 9}, {"count": 9}),
        ({"max_new_tokens": 1}, {"count": 1}),
        ({"max_length": 11}, {"count": 6}),
        ({"eos_token_id": [2, 3, 7], "pad_token_id": 5}, {"count": 20, "ends": (2, 3, 7), "pad": 5}),
        ({"eos_token_id": [2, 3, 7], "min_new_tokens": 6}, {"count": 20, "ends": (2, 3, 7), "pad": 2, "least": 6}),
        ({"bad_words_ids": [[1], [8]], "suppress_tokens": [9]}, {"count": 20, "never": (1, 8, 9)}),
        ({"begin_suppress_tokens": list(range(9)), "max_new_tokens": 3}, {"count": 3, "not_first": range(9)}),
        ({"forced_eos_token_id": 6, "max_new_tokens": 5}, {"count": 5, "last": 6}),
    ],
)
def test_tokens_of_a_decoder(config, options, tmp_path):
    write_decoder(tmp_path, **config)
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]])
    ids = DRAWN.integers(1, WORDS, mask.shape) * mask
    expected = generated(ids, mask, **options)
    for backend in ("numpy", "onnxruntime"):
        result = generator(tmp_path).run({"input_ids": ids, "attention_mask": mask}, backend=backend)["sequences"]
        np.testing.assert_array_equal(result, expected)


def test_a_model_without_states(tmp_path):
    graph = tx.Graph("no decoder", opsets={"ai.onnx": 17})
    graph.output("logits", ops.identity(graph.input("x", "float32", (1,))))
    graph.save(tmp_path / "model.onnx")
    with pytest.raises(tx.InvalidModel, match="not a decoder with a mask and states"):
        generator(tmp_path)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"no_repeat_ngram_size": 3}, tx.NotRepresentable, "unsupported setting of generation: no_repeat_ngram_size"),
        ({"bad_words_ids": [[1, 2]]}, tx.NotRepresentable, "unsupported setting of generation: bad_words_ids"),
        ({"eos_token_id": "end"}, tx.InvalidModel, "wrong value of eos_token_id"),
        ({"max_length": -1}, tx.InvalidModel, "wrong value of max_length"),
        ({}, tx.InvalidModel, "No such file or directory"),
    ],
)
def test_wrong_settings_of_generation(config, error, message, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(error, match=message):
        generator(tmp_path)


def test_no_new_tokens(tmp_path):
    with pytest.raises(tx.InvalidCall, match="new_tokens is not positive"):
        generator(tmp_path, new_tokens=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--new-tokens", "3"], "--new-tokens was given without --decode text"),
        (["--decode", "text"], "--decode text was given without a tokenizer"),
    ],
)
def test_wrong_options_of_the_command(options, message, tmp_path):
    write_decoder(tmp_path)
    model = str(tmp_path / "model.onnx")
    done = CliRunner().invoke(program, ["compose", model, model, "-o", str(tmp_path / "whole.onnx"), *options])
    assert done.exit_code == 2
    assert message in done.output
