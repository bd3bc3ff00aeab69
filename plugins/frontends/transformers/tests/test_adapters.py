"""LoRA adapters of PEFT folders as adapter files of onnxruntime."""

import json

import onnxruntime
import pytest
import torch
from configurations import make
from safetensors.torch import save_file

import tenonnx as tx
import tenonnx_transformers
from tenonnx_transformers.adapters import read_adapter, read_adapters
from tenonnx_transformers.genai import is_installed

LAYER = "model.layers.1.self_attn"
SIZES = {f"{LAYER}.q_proj": (32, 32), f"{LAYER}.v_proj": (32, 16), "model.layers.0.mlp.down_proj": (64, 32)}


def write_peft(folder, rank, modules, **fields):
    """Write an adapter as ``save_pretrained`` of peft does, with random weights."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "bias": "none", **fields}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator, tensors = torch.Generator().manual_seed(rank), {}
    for name in modules:
        rows, columns = SIZES[name]
        key = f"base_model.model.{name}"
        tensors[f"{key}.lora_A.weight"] = torch.randn(rank, rows, generator=generator) * 0.3
        tensors[f"{key}.lora_B.weight"] = torch.randn(columns, rank, generator=generator) * 0.3
    save_file(tensors, folder / "adapter_model.safetensors")
    return tensors


def test_adapters_are_exported_with_their_base(tmp_path):
    names = list(SIZES)
    first = write_peft(tmp_path / "first", 2, names[:2])
    write_peft(tmp_path / "second", 4, names[1:], use_rslora=True)
    model = make("llama")
    done = tenonnx_transformers.export(
        model, tmp_path / "out", layout="genai", adapters=[tmp_path / "first", tmp_path / "second"]
    )
    assert {"first.onnx_adapter", "second.onnx_adapter"} <= set(done.files)
    assert all(each.equal == each.tokens or each.ties for each in done.generated)
    assert len(done.generated) == 1 + 3 * is_installed()

    tokens = torch.tensor([[5, 6, 7]])
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    feeds = {"input_ids": tokens.numpy(), "attention_mask": (tokens * 0 + 1).numpy()}
    feeds |= {"position_ids": torch.arange(3)[None].numpy()}
    feeds |= {each.name: torch.zeros(1, 2, 0, 8).numpy() for each in session.get_inputs() if each.name not in feeds}
    adapter, options = onnxruntime.LoraAdapter(), onnxruntime.RunOptions()
    adapter.Load(str(tmp_path / "out" / "first.onnx_adapter"))
    options.add_active_adapter(adapter)
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(session.run(["logits"], feeds)[0]), model(tokens).logits, atol=1e-4)
        for name in names[:2]:
            a, b = (first[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
            model.get_parameter(f"{name}.weight").add_(6 / 2 * b @ a)
        result = torch.from_numpy(session.run(["logits"], feeds, options)[0])
        assert torch.allclose(result, model(tokens).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"use_dora": True}, tx.NotRepresentable), ({"peft_type": "IA3"}, tx.NotRepresentable), ({}, tx.InvalidModel)],
)
def test_other_adapters_are_refused(fields, error, tmp_path):
    write_peft(tmp_path / "other", 2, list(SIZES)[:1], **fields)
    with pytest.raises(tx.InvalidCall, match="share a name"):
        read_adapters([tmp_path / "other", tmp_path / "other"], torch.nn.Linear(3, 3))
    with pytest.raises(error, match="other"):
        read_adapter(tmp_path / "other", torch.nn.Linear(3, 3))
