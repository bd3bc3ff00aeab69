"""Architectures that are too large for the tests: ResNet-18, an LSTM, and ``transformers`` with random weights."""

import itertools

import torch
import transformers
from sides import modules
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        down = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.downsample = nn.Sequential(*(down if stride != 1 else []))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.downsample(x)).relu()


def resnet18():
    widths = [64, 64, 128, 256, 512]
    blocks = [nn.Sequential(Block(a, b, 1 + (a != b)), Block(b, b, 1)) for a, b in itertools.pairwise(widths)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Tensors(nn.Module):
    """A model of ``transformers`` that returns only tensors, without caches."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return [y for y in self.model(x).to_tuple() if isinstance(y, torch.Tensor)]


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(50, 16), nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0][:, -1])


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 99}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}


def register():
    """Add these modules to ``modules.CASES``."""
    from transformers import AutoModel

    def model(kind, **settings):
        return Tensors(AutoModel.from_config(transformers.AutoConfig.for_model(kind, **settings)))

    tokens, pixels = torch.arange(14).reshape(2, 7), torch.randn(2, 3, 32, 32)
    batch = {0: {0: "batch"}}
    made = {
        "ResNet-18": (resnet18, pixels),
        "LSTM both ways": (Lstm, tokens),
        "BERT of transformers": (lambda: model("bert", **TEXT), tokens),
        "GPT-2 of transformers": (lambda: model("gpt2", n_embd=32, n_layer=2, n_head=4, vocab_size=99), tokens),
        "DistilBERT": (
            lambda: model("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=99),
            tokens,
        ),
        "RoBERTa": (lambda: model("roberta", **TEXT), tokens),
        "ELECTRA": (lambda: model("electra", embedding_size=32, **TEXT), tokens),
        "Llama of transformers": (lambda: model("llama", num_key_value_heads=2, **TEXT), tokens),
        "Qwen2": (lambda: model("qwen2", num_key_value_heads=2, **TEXT), tokens),
        "OPT": (
            lambda: model(
                "opt",
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=64,
                vocab_size=99,
                word_embed_proj_dim=32,
            ),
            tokens,
        ),
        "ViT of transformers": (lambda: model("vit", **IMAGE), pixels),
        "DeiT": (lambda: model("deit", **IMAGE), pixels),
        "ConvNeXt of transformers": (
            lambda: model("convnext", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], num_stages=4),
            pixels,
        ),
        "ResNet-50 of transformers": (
            lambda: model("resnet", embedding_size=8, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1]),
            pixels,
        ),
    }
    for name, (build, x) in made.items():
        modules.case("larger", name, dims=batch)(lambda build=build, x=x: (build(), x))
