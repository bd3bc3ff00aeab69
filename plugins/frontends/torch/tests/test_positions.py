"""Attention with relative position bias as in T5, at dynamic sizes."""

import pytest
import torch
from torch import nn

import tenonnx_torch


class Attention(nn.Module):
    """With a bias for each distance added to a mask."""

    def __init__(self, heads=4, size=8):
        super().__init__()
        self.heads, self.size = heads, size
        self.q, self.k, self.v, self.o = (nn.Linear(heads * size, heads * size, bias=False) for _ in range(4))
        self.bias = nn.Embedding(9, heads)

    def forward(self, x, mask):
        shape = x.shape[:-1]
        q, k, v = (f(x).view(*shape, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        places = torch.arange(x.shape[1])
        distances = (places - places.unsqueeze(1)).clamp(-4, 4) + 4
        bias = self.bias(distances).permute(2, 0, 1).unsqueeze(0)
        bias = bias + (1.0 - mask[:, None, None, :].to(bias.dtype)) * -1e9
        joined = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return self.o(joined.transpose(1, 2).contiguous().reshape(*shape, -1).contiguous())


@pytest.mark.parametrize("opset", [17, 23])
def test_of_any_length(opset, tmp_path):
    torch.manual_seed(0)
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    sizes = {0: {0: "batch", 1: "length"}, 1: {0: "batch", 1: "length"}}
    done = tenonnx_torch.export(
        Attention().eval(), (torch.randn(2, 7, 32), mask), tmp_path / "m.onnx", dims=sizes, opset_version=opset
    )
    assert done.passed
    assert len({output.run for output in done.verification.outputs}) > 1
