"""Functions of PyTorch that look at contents while they run, so that they cannot be traced; here they do not."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def cov(
    given: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance of variables in rows. That weights are not negative is not checked."""
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
    centred = x - mean
    floor = norm.clamp(min=0) if isinstance(norm, Tensor) else max(norm, 0)
    products = (centred if weights is None else centred * weights) @ centred.conj().T
    return (products / floor).squeeze()


def corrcoef(given: Tensor) -> Tensor:
    """The correlation of variables in rows."""
    found = cov(given)
    if not found.ndim:
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def combinations(given: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of ``r`` elements of a vector whose length does not vary, in order."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(given.shape[0]), r))
    if not r or not chosen:
        return given.new_zeros((0,) if not r else (0, r))
    return given[torch.tensor(chosen)]
