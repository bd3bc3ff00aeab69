"""Generator of small models of well-known architectures, written by PyTorch's two exporters.

Run ``python make.py [folder] [--hidden 16] [--layers 2] [--noise 0.05] [--only bert]`` with torch, transformers and
onnxscript. The weights are random numbers of a fixed seed. ``NAME-script.onnx`` is traced by TorchScript, with eager
attention; ``NAME-dynamo.onnx`` comes from ``torch.export``, which decomposes scaled dot-product attention.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from torch import nn

HEADS, VOCABULARY, POSITIONS = 4, 32, 32
OPSETS = {"script": 17, "dynamo": 18}


@dataclass
class Size:
    hidden: int
    layers: int

    @property
    def inner(self) -> int:
        return 2 * self.hidden

    @property
    def head(self) -> int:
        return self.hidden // HEADS


@dataclass
class Export:
    """A module, its inputs by name, and their dynamic axes."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: list[str]
    free: dict[str, dict[int, str]]


class Wrapped(nn.Module):
    """A module that calls a function of a model on tensors."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self.model, *inputs)


def ids(*shape: int, below: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(1, below, shape)


TEXT = {0: "batch", 1: "length"}


def bert(size: Size, attention: str) -> Export:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        intermediate_size=size.inner,
        max_position_embeddings=POSITIONS,
        attn_implementation=attention,
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    module = Wrapped(model, lambda m, i, a: m(input_ids=i, attention_mask=a).last_hidden_state)
    inputs = {"input_ids": ids(2, 7), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    return Export(module, inputs, ["hidden"], {"input_ids": TEXT, "attention_mask": TEXT})


def gpt2(size: Size, attention: str) -> Export:
    """A decoder with past keys and values as inputs and outputs."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=size.hidden,
        n_layer=size.layers,
        n_head=HEADS,
        n_positions=POSITIONS,
        n_inner=size.inner,
        attn_implementation=attention,
    )
    names = [f"{kind}_{layer}" for layer in range(size.layers) for kind in ("key", "value")]

    def forward(model: Any, tokens: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = transformers.DynamicCache()
        for layer in range(size.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
        layers = found.past_key_values.layers
        return found.logits, *(part for layer in layers for part in (layer.keys, layer.values))

    past = {f"past_{name}": torch.randn(2, HEADS, 3, size.head) for name in names}
    inputs = {"input_ids": ids(2, 5), "attention_mask": torch.ones(2, 8, dtype=torch.int64), **past}
    free = {"input_ids": TEXT, "attention_mask": {0: "batch", 1: "total"}}
    free |= {name: {0: "batch", 2: "past"} for name in past}
    outputs = ["logits", *(f"present_{name}" for name in names)]
    return Export(Wrapped(transformers.GPT2LMHeadModel(config), forward), inputs, outputs, free)


def llama(size: Size, attention: str) -> Export:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=size.inner,
        max_position_embeddings=POSITIONS,
        attn_implementation=attention,
    )
    module = Wrapped(
        transformers.LlamaForCausalLM(config),
        lambda m, i, a: m(input_ids=i, attention_mask=a, use_cache=False).logits,
    )
    inputs = {"input_ids": ids(2, 7), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    return Export(module, inputs, ["logits"], {"input_ids": TEXT, "attention_mask": TEXT})


def t5(size: Size, attention: str) -> Export:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=size.hidden,
        d_kv=size.head,
        d_ff=size.inner,
        num_layers=size.layers,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        feed_forward_proj="gated-gelu",
        attn_implementation="eager",
    )
    module = Wrapped(
        transformers.T5Model(config),
        lambda m, i, d: m(input_ids=i, decoder_input_ids=d, use_cache=False).last_hidden_state,
    )
    free = {"input_ids": TEXT, "decoder_input_ids": {0: "batch", 1: "answer"}}
    return Export(module, {"input_ids": ids(2, 7), "decoder_input_ids": ids(2, 5)}, ["hidden"], free)


def vit(size: Size, attention: str) -> Export:
    config = transformers.ViTConfig(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        intermediate_size=size.inner,
        image_size=16,
        patch_size=4,
        attn_implementation=attention,
    )
    module = Wrapped(
        transformers.ViTModel(config, add_pooling_layer=False), lambda m, x: m(pixel_values=x).last_hidden_state
    )
    return Export(module, {"image": torch.randn(2, 3, 16, 16)}, ["hidden"], {"image": {0: "batch"}})


def whisper(size: Size, attention: str) -> Export:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=size.hidden,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=size.inner,
        decoder_ffn_dim=size.inner,
        num_mel_bins=8,
        max_source_positions=12,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation=attention,
    )
    module = Wrapped(
        transformers.WhisperModel(config),
        lambda m, f, d: (
            m(
                input_features=f, decoder_input_ids=d, decoder_attention_mask=torch.ones_like(d), use_cache=False
            ).last_hidden_state
        ),
    )
    inputs = {"features": torch.randn(2, 8, 24), "decoder_input_ids": ids(2, 5)}
    free = {"features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "answer"}}
    return Export(module, inputs, ["hidden"], free)


def resnet(size: Size, attention: str) -> Export:
    config = transformers.ResNetConfig(
        embedding_size=size.hidden // 2,
        hidden_sizes=[size.hidden // 2, size.hidden],
        depths=[size.layers] * 2,
        layer_type="basic",
    )
    model = transformers.ResNetModel(config)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 2.0)
    return Export(
        Wrapped(model, lambda m, x: m(pixel_values=x).pooler_output),
        {"image": torch.randn(2, 3, 32, 32)},
        ["pooled"],
        {"image": {0: "batch"}},
    )


class DiffusionBlock(nn.Module):
    """A block of a latent-diffusion UNet: residual block with time embedding, self- and cross-attention."""

    def __init__(self, width: int, written_out: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, width, eps=1e-6) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(width, width)
        self.layer_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.projections = nn.ModuleList(nn.Linear(width, width, bias=number % 4 == 3) for number in range(8))
        self.gate, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.written_out = written_out

    def attend(self, x: torch.Tensor, y: torch.Tensor, first: int) -> torch.Tensor:
        query, key, value, out = self.projections[first : first + 4]
        batch, length, width = x.shape
        shape = batch, -1, HEADS, width // HEADS
        q, k, v = (part.view(shape).transpose(1, 2) for part in (query(x), key(y), value(y)))
        if self.written_out:
            scores = torch.matmul(q, k.transpose(-1, -2)) * (width // HEADS) ** -0.5
            seen = torch.matmul(scores.softmax(dim=-1), v)
        else:
            seen = nn.functional.scaled_dot_product_attention(q, k, v)
        return out(seen.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        silu = nn.functional.silu
        inner = self.convs[0](silu(self.norms[0](x))) + self.time(silu(time))[:, :, None, None]
        x = x + self.convs[1](silu(self.norms[1](inner)))
        batch, width, height, breadth = x.shape
        y = self.norms[2](x).permute(0, 2, 3, 1).reshape(batch, height * breadth, width)
        norm = self.layer_norms[0](y)
        y = y + self.attend(norm, norm, 0)
        y = y + self.attend(self.layer_norms[1](y), text, 4)
        left, right = self.gate(self.layer_norms[2](y)).chunk(2, dim=-1)
        y = y + self.out(left * nn.functional.gelu(right))
        return x + y.reshape(batch, height, breadth, width).permute(0, 3, 1, 2)


def diffusion(size: Size, attention: str) -> Export:
    module = Wrapped(DiffusionBlock(size.hidden, attention == "eager"), lambda m, *inputs: m(*inputs))
    inputs = {"latent": torch.randn(2, size.hidden, 8, 8), "time": torch.randn(2, size.hidden)}
    inputs["text"] = torch.randn(2, 5, size.hidden)
    free = {"latent": {0: "batch"}, "time": {0: "batch"}, "text": TEXT}
    return Export(module, inputs, ["latent_out"], free)


MODELS = {function.__name__: function for function in (bert, gpt2, llama, t5, vit, whisper, resnet, diffusion)}


def exported(export: Export, style: str, path: Path) -> None:
    shared: dict[str, Any] = {
        "input_names": list(export.inputs),
        "output_names": export.outputs,
        "opset_version": OPSETS[style],
        "external_data": False,
    }
    arguments = tuple(export.inputs.values())
    if style == "script":
        torch.onnx.export(
            export.module, arguments, path, dynamo=False, dynamic_axes=export.free, do_constant_folding=True, **shared
        )
    else:
        named = {symbol: torch.export.Dim(symbol) for axes in export.free.values() for symbol in axes.values()}
        shapes = [{axis: named[name] for axis, name in export.free.get(key, {}).items()} for key in export.inputs]
        torch.onnx.export(export.module, arguments, path, dynamo=True, dynamic_shapes=(tuple(shapes),), **shared)


def bare(path: Path) -> None:
    """Remove source locations and long names, which make up most of a file."""
    model = onnx.load(path)
    del model.metadata_props[:]
    for message in [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output]:
        message.doc_string = ""
        del message.metadata_props[:]
    del model.graph.value_info[:]
    kept = {message.name for message in [*model.graph.output, *model.graph.input, *model.graph.initializer]}
    short = {name: name for name in kept}
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{place}"
        for names in (node.input, node.output):
            names[:] = [short.setdefault(name, f"value_{len(short)}") if name else "" for name in names]
    onnx.checker.check_model(model)
    onnx.save(model, path)


def wanted(only: str | None) -> Iterator[tuple[str, str]]:
    for name in MODELS:
        for style in OPSETS:
            if only is None or f"{name}-{style}".startswith(only):
                yield name, style


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--noise", type=float, default=0.05, help="what parameters are changed by, as biases begin as zeros"
    )
    parser.add_argument("--only", help="the beginning of a file's name")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, style in wanted(chosen.only):
        torch.manual_seed(0)
        export = MODELS[name](Size(chosen.hidden, chosen.layers), "eager" if style == "script" else "sdpa")
        export.module.eval()
        for parameter in export.module.parameters():  # every tool would fold zeros away
            parameter.data += chosen.noise * torch.randn_like(parameter)
        path = chosen.folder / f"{name}-{style}.onnx"
        with torch.no_grad():
            exported(export, style, path)
        bare(path)
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
