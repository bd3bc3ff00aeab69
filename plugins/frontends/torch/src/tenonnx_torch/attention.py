"""Scaled dot-product attention with PyTorch's semantics: a query without any allowed key results in 0.

The exporter masks by the lowest finite number, with which such a query attends to all keys equally. It gives NaN where
a float mask is -inf, and supports only four axes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    missing = 4 - query.ndim
    if missing > 0:
        wide = [x.reshape([1] * missing + list(x.shape)) for x in (query, key, value)]
        joined = torch.nn.functional.scaled_dot_product_attention(
            *wide, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return joined.reshape(joined.shape[missing:])
    factor = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale
    if attn_mask is None or dropout_p or factor <= 0:
        return NotImplemented
    if enable_gqa and query.shape[1] != key.shape[1]:
        key, value = (_repeated(each, query.shape[1]) for each in (key, value))
    if attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, query.new_zeros(()), query.new_full((), -torch.inf))
    root = math.sqrt(factor)
    weights = ((query * root) @ (key.transpose(-2, -1) * root) + attn_mask).softmax(-1)
    return torch.where(weights.isnan(), query.new_zeros(()), weights) @ value


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Repeat each key or value head for the query heads that share it."""
    repeated = x.unsqueeze(2).expand(-1, -1, heads // x.shape[1], -1, -1)
    return repeated.reshape(x.shape[0], heads, *x.shape[2:])
