"""Attention and recurrences."""

import torch
from torch import nn
from torch.nn import functional

from . import case, function, normal, whole

STEPS = {0: {0: "batch", 1: "steps"}}


@case("attention", "MultiheadAttention")
def attention_case():
    class Self(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    return Self(), torch.randn(2, 5, 8)


@case("attention", "MultiheadAttention with weights and a mask", dims=None)
def attention_case_2():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, mask):
            return self.attention(x, x, x, attn_mask=mask)

    return Masked(), torch.randn(2, 5, 8), torch.ones(5, 5, dtype=torch.bool).triu(1)


function(
    "attention",
    "scaled_dot_product_attention",
    functional.scaled_dot_product_attention,
    normal(2, 2, 5, 4),
    normal(2, 2, 5, 4),
    normal(2, 2, 5, 4),
    dims={k: {0: "batch"} for k in range(3)},
    quick=True,
)
function(
    "attention",
    "causal attention",
    lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
    normal(2, 2, 5, 4),
)
function(
    "attention",
    "attention with fewer keys",
    lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
    normal(2, 4, 5, 4),
    normal(2, 2, 5, 4),
    dims=None,
)
function(
    "attention",
    "attention without heads",
    lambda q, k, mask: functional.scaled_dot_product_attention(q, k, k, mask, scale=0.5),
    normal(2, 5, 4),
    normal(2, 3, 4),
    normal(2, 5, 3),
    dims={k: {0: "batch"} for k in range(3)},
    quick=True,
)
case("attention", "TransformerEncoderLayer")(
    lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8))
)
case("attention", "TransformerEncoderLayer, any length", dims=STEPS)(
    lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), torch.randn(2, 5, 8))
)
case("attention", "TransformerDecoderLayer", dims=None)(
    lambda: (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8), torch.randn(2, 4, 8))
)


PADDED = {"x": {0: "batch", 1: "steps"}, "padding": {0: "batch", 1: "steps"}}


@case("attention", "TransformerEncoder with padding", dims=PADDED, quick=True)
def attention_case_quick():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x, padding):
            return self.encoder(x, src_key_padding_mask=padding)

    return Padded(), torch.randn(2, 6, 8), torch.arange(6) >= torch.tensor([[6], [4]])


@case("attention", "Transformer with masks", dims={**PADDED, "y": {0: "batch", 1: "more"}})
def attention_case_3():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

        def forward(self, x, y, padding):
            mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
            return self.inner(x, y, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding)

    return Translator(), torch.randn(2, 6, 8), torch.randn(2, 5, 8), torch.arange(6) >= torch.tensor([[6], [4]])


@case("attention", "rotary embedding", dims=STEPS)
def attention_case_4():
    def rotate(x):
        angles = torch.arange(x.shape[1])[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack(
            [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1
        ).flatten(-2)

    return rotate, torch.randn(2, 5, 8)


@case("attention", "embedding and positions", dims=STEPS, quick=True)
def attention_case_quick_2():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(11, 6, padding_idx=0), nn.Embedding(16, 6)

        def forward(self, tokens):
            return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))

    return Embedded(), whole(11, 2, 5)()


@case("attention", "embedding bag", dims=None)
def attention_case_5():
    return nn.EmbeddingBag(7, 4, mode="mean"), whole(7, 2, 3)()


for _cell, _kind in (("LSTM", nn.LSTM), ("GRU", nn.GRU), ("RNN", nn.RNN)):
    case("recurrences", _cell, quick=_cell == "GRU")(
        lambda kind=_kind: (kind(3, 4, batch_first=True), torch.randn(2, 5, 3))
    )
case("recurrences", "LSTM both ways in two layers")(
    lambda: (nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), torch.randn(2, 5, 3))
)
case("recurrences", "LSTM of any length", dims=STEPS, quick=True)(
    lambda: (nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3))
)
case("recurrences", "GRU both ways of any length", dims={0: {0: "steps", 1: "batch"}}, quick=True)(
    lambda: (nn.GRU(3, 4, bidirectional=True), torch.randn(5, 2, 3))
)
case("recurrences", "RNN of any length", dims=STEPS, quick=True)(
    lambda: (nn.RNN(3, 4, batch_first=True), torch.randn(2, 5, 3))
)
case("recurrences", "RNN by ReLU both ways in two layers, any length", dims={0: {0: "steps"}})(
    lambda: (nn.RNN(3, 4, 2, nonlinearity="relu", bias=False, bidirectional=True), torch.randn(5, 2, 3))
)
case("recurrences", "LSTM with projections", dims={0: {1: "batch"}})(
    lambda: (nn.LSTM(3, 4, 2, proj_size=2), torch.randn(5, 2, 3))
)
case("recurrences", "LSTMCell", dims=None)(lambda: (nn.LSTMCell(3, 4), torch.randn(2, 3)))
case("recurrences", "LSTM with a state", dims=None)(
    lambda: (nn.LSTM(3, 4), torch.randn(5, 2, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)))
)


@case("recurrences", "cell in a Python loop")
def recurrences_case():
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(3, 4)

        def forward(self, x):
            h = x.new_zeros(x.shape[0], 4)
            for step in range(x.shape[1]):
                h = self.cell(x[:, step], h)
            return h

    return Unrolled(), torch.randn(2, 5, 3)
