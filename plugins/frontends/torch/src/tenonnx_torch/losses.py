"""Losses with data-dependent sizes in a traceable form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._higher_order_ops.scan import scan
from torch.overrides import TorchFunctionMode

from tenonnx_torch import statistics
from tenonnx_torch.nonzero_loops import NONZERO
from tenonnx_torch.polynomials import POLYNOMIALS
from tenonnx_torch.traceable import TRACEABLE


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """CTC loss by the forward variables of A. Graves et al., "Connectionist Temporal Classification" (2006).

    A scan over the time steps, in log space; targets are padded, or concatenated if their lengths are numbers.
    """
    if log_probs.ndim == 2:
        return ctc_loss(
            log_probs.unsqueeze(1),
            targets.reshape(1, -1),
            _numbers(input_lengths).reshape(1),
            _numbers(target_lengths).reshape(1),
            blank,
            reduction,
            zero_infinity,
        ).reshape(() if reduction != "none" else (1,))[() if reduction != "none" else 0]
    if targets.ndim == 1:
        parts = targets.split([int(each) for each in target_lengths])
        targets = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
    steps, lengths = _numbers(input_lengths), _numbers(target_lengths)
    labels = torch.stack([torch.full_like(targets, blank), targets], -1).flatten(1)
    labels = torch.nn.functional.pad(labels, [0, 1], value=blank)
    skips = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    skips = torch.nn.functional.pad(skips, [2, 0])
    scores = log_probs.gather(2, labels.unsqueeze(0).expand(log_probs.shape[0], -1, -1))
    places = torch.arange(labels.shape[1])
    begin = torch.where((places < 2) & (places <= 2 * lengths.unsqueeze(1)), scores[0], -torch.inf)

    def step(forward: Tensor, given: Any) -> Any:
        score, number = given
        one = torch.nn.functional.pad(forward[:, :-1], [1, 0], value=-torch.inf)
        two = torch.nn.functional.pad(forward[:, :-2], [2, 0], value=-torch.inf)
        reached = _log_sum(forward, one, torch.where(skips, two, -torch.inf)) + score
        after = torch.where((number < steps).unsqueeze(1), reached, forward)
        return after, number.clone()

    last, _ = scan(step, begin, (scores[1:], torch.arange(1, log_probs.shape[0])))
    at_end = last.gather(1, 2 * lengths.unsqueeze(1)).squeeze(1)
    before = last.gather(1, (2 * lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    before = torch.where(lengths > 0, before, -torch.inf)
    losses = -_log_sum(at_end, before)
    losses = torch.where(losses.isinf(), 0.0, losses) if zero_infinity else losses
    if reduction == "mean":
        return (losses / lengths.clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


def _numbers(lengths: Any) -> Tensor:
    return lengths.to(torch.int64) if isinstance(lengths, Tensor) else torch.tensor(lengths, dtype=torch.int64)


def _log_sum(*terms: Tensor) -> Tensor:
    """The logarithm of the sum of exponentials, -inf where all terms are."""
    stacked = torch.stack(terms)
    most = stacked.amax(0)
    most = torch.where(most.isinf(), 0.0, most)
    return (stacked - most).exp().sum(0).log() + most


#: Replacements of PyTorch's functions.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.nn.functional.ctc_loss: ctc_loss,
    torch.cov: statistics.cov,
    torch.Tensor.cov: statistics.cov,
    torch.corrcoef: statistics.corrcoef,
    torch.Tensor.corrcoef: statistics.corrcoef,
    torch.combinations: statistics.combinations,
    torch.nn.functional.gaussian_nll_loss: statistics.gaussian_nll_loss,
    torch.take_along_dim: statistics.take_along_dim,
    torch.Tensor.take_along_dim: statistics.take_along_dim,
    torch.linspace: statistics.linspace,
    **NONZERO,
    **POLYNOMIALS,
    **TRACEABLE,
}


class WithoutOperation(TorchFunctionMode):
    """Replaces PyTorch's functions by those of this module, of statistics and of polynomials during tracing.

    ``has_levels``: whether anything was computed inside of ``torch.func``.
    """

    has_levels = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.compiler.is_dynamo_compiling() and not self.has_levels:  # inside of cond Dynamo reads this
            self.has_levels = any(isinstance(x, Tensor) and is_functorch_wrapped_tensor(x) for x in args)
        return _FUNCTIONS.get(function, function)(*args, **(kwargs or {}))
