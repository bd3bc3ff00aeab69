"""Random distributions that the exporter lacks, from uniform or normal numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    return torch.rand_like(x) * (high - low) + low


def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    return torch.randn_like(x) * std + mean


def exponential(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    return -torch.log1p(-torch.rand_like(x)) / lambd


def geometric(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    return (torch.log1p(-torch.rand_like(x)) / math.log1p(-p)).ceil().clamp(min=1)


def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    return torch.tan(math.pi * (torch.rand_like(x) - 0.5)) * sigma + median


def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    return (torch.randn_like(x) * std + mean).exp()


def bernoulli(x: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
    drawn = torch.rand_like(x if x.is_floating_point() else x.to(torch.float32))
    return (drawn < (x if p is None else p)).to(x.dtype)


def randperm(n: Any, *, dtype: torch.dtype = torch.int64, **options: Any) -> Tensor:
    return torch.rand(n).argsort().to(dtype)


def multinomial(x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Sample by the Gumbel trick: all at once without replacement, or one draw at a time with it."""
    scores = x.log().unsqueeze(-2)
    if not replacement:
        noise = -torch.log(-torch.log(torch.rand_like(x)))
        return (x.log() + noise).topk(num_samples, -1).indices
    noise = -torch.log(-torch.log(torch.rand_like(scores.expand(*x.shape[:-1], num_samples, x.shape[-1]))))
    return (scores + noise).argmax(-1)


def rrelu(
    x: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    slope: Any = uniform(x, lower, upper) if training else (lower + upper) / 2
    return torch.where(x <= 0, x * slope, x)


def rrelu_with_noise(x: Tensor, noise: Tensor, *options: Any, **named: Any) -> Tensor:
    return rrelu(x, *options, **named)


def rrelu_and_noise(x: Tensor, noise: Tensor, *options: Any, **named: Any) -> tuple[Tensor, Tensor]:
    result = rrelu(x, *options, **named)
    return result, torch.where(x < 0, result / torch.where(x < 0, x, 1.0), 1.0)


#: Functions by operator.
DRAWING: Mapping[Any, Callable[..., Any]] = {
    aten.uniform.default: uniform,
    aten.normal_functional.default: normal,
    aten.exponential.default: exponential,
    aten.geometric.default: geometric,
    aten.cauchy.default: cauchy,
    aten.log_normal.default: log_normal,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli,
    aten.bernoulli.Tensor: bernoulli,
    aten.randperm.default: randperm,
    aten.multinomial.default: multinomial,
    aten.rrelu.default: rrelu,
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten.rrelu_with_noise_functional.default: rrelu_and_noise,
}
