"""Traceable versions of functions that read contents or fix sizes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor


def cov(
    given: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Covariance of variables in rows, without the check that weights are non-negative."""
    x = given.reshape(1, -1) if given.ndim < 2 else given
    weights: Tensor | None = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        total: Tensor | int = x.shape[1]
        mean = x.sum(1, keepdim=True) / total
        norm: Tensor | int = total - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1, keepdim=True) / total
        norm = total - correction * ((weights * aweights).sum() / total if aweights is not None else 1)
    centered = x - mean
    floor = norm.clamp(min=0) if isinstance(norm, Tensor) else max(norm, 0)
    products = (centered if weights is None else centered * weights) @ centered.conj().T
    return (products / floor).squeeze()


def corrcoef(given: Tensor) -> Tensor:
    """Correlation of variables in rows."""
    found = cov(given)
    if not found.ndim:
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def combinations(given: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of ``r`` elements of a vector of static length, in order."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(given.shape[0]), r))
    if not r or not chosen:
        return given.new_zeros((0,) if not r else (0, r))
    return given[torch.tensor(chosen)]


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Gaussian loss, without the check that variances are non-negative."""
    if not isinstance(var, Tensor):
        var = torch.full_like(input, var)
    if var.ndim == input.ndim - 1:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (var.log() + (input - target).square() / var) + (0.5 * math.log(2 * math.pi) if full else 0.0)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Take along an axis; sizes are compared only with 1."""
    if dim is None:
        return input.flatten().gather(0, indices.flatten())
    dim %= input.ndim
    pairs = list(zip(input.shape, indices.shape, strict=True))
    wide = [b if isinstance(a, int) and a == 1 and k != dim else a for k, (a, b) in enumerate(pairs)]
    places = [a if isinstance(b, int) and b == 1 and k != dim else b for k, (a, b) in enumerate(pairs)]
    return input.expand(wide).gather(dim, indices.expand(places))


def linspace(start: Any, end: Any, steps: Any, **options: Any) -> Tensor:
    """For a dynamic number of steps: computed from both ends towards the middle."""
    if not isinstance(steps, torch.SymInt):
        return torch.linspace(start, end, steps, **options)
    dtype = options.get("dtype") or torch.get_default_dtype()
    places, last = torch.arange(steps).to(dtype), torch.sym_max(steps - 1, 1)
    step = (end - start) / torch.full((), last, dtype=dtype)
    return torch.where(
        places < torch.sym_max(steps // 2, 1), start + places * step, end - (steps - 1 - places) * step
    ).to(dtype)
