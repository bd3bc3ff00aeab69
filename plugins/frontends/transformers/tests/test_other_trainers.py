"""Scripts of the page on other trainers give the same numbers as the rewritten ones."""

from __future__ import annotations

import os
import re
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

import tenonnx as tx
import tenonnx_training as tt

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks emit warnings of their own

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "how-to" / "other-trainers.md"


def scripts(title: str) -> tuple[str, str]:
    """Original and rewritten script of a section."""
    section = PAGE.read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    original, rewritten = re.findall(r"```python(?: no-run)?\n(.*?)```", section, re.DOTALL)
    return original, rewritten


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names defined by the first script of the page, which runs in a temporary folder without shuffling."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tt, "fit", partial(tt.fit, shuffle=False), raising=False)
    result: dict[str, Any] = {}
    first = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert first is not None
    exec(first[1], result)
    return result


def digits_without_dropout(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names of the example file, with the model loaded without dropout, since frameworks draw different noise."""
    load = tx.load

    def loaded(path: str) -> tx.Graph:
        graph = load(path)
        if any(value.name == "dropout.ratio" for value in graph.variables):
            graph.assign({"dropout.ratio": np.asarray(0, np.float32)})
        return graph

    monkeypatch.setattr(tx, "load", loaded)
    graph = load("examples/digits_cnn/digits-cnn.onnx")
    return {value.name: value.data.array() for value in graph.variables if value.data is not None}


def test_keras(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="the scripts of Keras need it")
    held = digits_without_dropout(monkeypatch)
    layers: list[Any] = [keras.Input((1, 8, 8))]
    first = {"data_format": "channels_first"}
    for filters in (16, 32):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same", use_bias=False, **first),
            keras.layers.BatchNormalization(axis=1, momentum=0.9, epsilon=1e-5),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(2, **first),
        ]
    model = keras.Sequential([*layers, keras.layers.Reshape((128,)), keras.layers.Dense(10, activation="softmax")])
    weights = []
    for block in ("block1", "block2"):
        weights.append(held[f"{block}.conv.weight"].transpose(2, 3, 1, 0))
        weights += [held[f"{block}.norm.{name}"] for name in ("scale", "shift", "mean", "variance")]
    model.set_weights([*weights, held["classifier.weight"].T, held["classifier.bias"]])
    model.save("digits.keras")
    monkeypatch.setattr(keras.Model, "fit", partialmethod(keras.Model.fit, shuffle=False, verbose=0))
    monkeypatch.setattr(tt, "fit", partial(tt.fit, unbiased_statistics=False))
    original, rewritten = scripts("Keras")
    exec(original, names)
    theirs = names["model"].history.history
    exec(rewritten, names)
    ours = names["history"].epochs
    for name, other in (("loss", "loss"), ("accuracy", "accuracy"), ("validation_accuracy", "val_accuracy")):
        np.testing.assert_allclose([epoch[name] for epoch in ours], theirs[other], rtol=1e-3, err_msg=name)
    assert Path("tuned.onnx").exists()


def test_lightning(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightning", reason="the scripts of Lightning need it")
    held = digits_without_dropout(monkeypatch)
    layers: list[nn.Module] = []
    for channels, filters in ((1, 16), (16, 32)):
        convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))
    kept = {}
    for at, block in ((0, "block1"), (4, "block2")):
        kept[f"{at}.weight"] = held[f"{block}.conv.weight"]
        places = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "variance"}
        kept |= {f"{at + 1}.{ours}": held[f"{block}.norm.{name}"] for ours, name in places.items()}
    kept |= {f"9.{name}": held[f"classifier.{name}"] for name in ("weight", "bias")}
    module.load_state_dict({name: torch.tensor(array) for name, array in kept.items()}, strict=False)
    torch.save(module, "digits.pt")
    images, labels = torch.tensor(names["images"]), torch.tensor(names["labels"])
    for name, part in (("train_loader", slice(640)), ("validation_loader", slice(640, None))):
        names[name] = DataLoader(TensorDataset(images[part], labels[part]), batch_size=32)
    original, rewritten = scripts("Lightning")
    exec(original, names)
    theirs = names["trainer"].lightning_module.model.state_dict()
    exec(rewritten, names)
    graph = names["graph"]
    np.testing.assert_allclose(graph["classifier.weight"].data.array(), theirs["9.weight"].numpy(), atol=1e-4)
    np.testing.assert_allclose(graph["block2.norm.mean"].data.array(), theirs["5.running_mean"].numpy(), atol=1e-4)
    assert Path("best.onnx").exists()
    assert tx.load("last.safetensors").training_state is not None


def test_the_trainer_of_hugging_face(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="the scripts of its Trainer need it")
    pytest.importorskip("accelerate", reason="the Trainer needs it")
    tokenizers = pytest.importorskip("tokenizers", reason="transformers brings it along")
    graph = tx.load("examples/exports/gpt2-dynamo.onnx")
    config = transformers.GPT2Config(
        vocab_size=32,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=4,
        n_inner=32,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    start = "model."
    held = {v.name[len(start) :]: v.data.array() for v in graph.variables if v.name.startswith(start)}
    missing, unknown = model.load_state_dict({n: torch.tensor(a) for n, a in held.items()}, strict=False)
    assert set(missing) <= {"transformer.wte.weight"}, missing
    assert not unknown
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 99}, unk_token="[PAD]"))
    tokens = np.random.default_rng(0).integers(0, 32, (64, 12))
    names |= {
        "model": model,
        "tokenizer": transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]"),
        "dataset": [{"input_ids": row.tolist(), "attention_mask": [1] * 12} for row in tokens],
    }
    monkeypatch.setattr(
        transformers.Trainer, "_get_train_sampler", lambda self, dataset=None: SequentialSampler(self.train_dataset)
    )
    original, rewritten = scripts("Hugging Face Trainer")
    exec(original, names)
    theirs = [entry for entry in names["trainer"].state.log_history if "train_loss" in entry][-1]["train_loss"]
    exec(rewritten, names)
    np.testing.assert_array_equal(names["tokens"], tokens)
    ours = np.mean(names["history"].losses)  # the mean of 11 counted positions; the Trainer divides by all 12
    assert ours * 11 / 12 == pytest.approx(theirs, rel=2e-3)
