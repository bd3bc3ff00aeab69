"""Rules ``torch``: ops as functions of tensors and attributes.

Importing a module of this package registers its rules; ``tenonnx_torch.module`` imports them all. A package gives its
own ops such rules by ``op.rule("torch", function)``. A rule returns ``NotImplemented`` where PyTorch has no form for
its arguments; then numpy computes, and the gradient is that of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tenonnx.extend import Op, add_rule, rule_kind

TORCH = rule_kind("torch", "tensors, then attributes; a tensor, a tuple, or NotImplemented")

#: The same where some of the tensors are uint32, or arrays of it.
UNSIGNED = rule_kind("torch.unsigned", "as torch, but some tensors are uint32, or arrays of numpy of it")


def rule(
    *ops: Op, takes: Callable[..., bool] | None = None, moves: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give ops a rule. Calls for which ``takes``, called with values and attributes, is False go by the body.

    Ops that only move elements take floats in place of quantized values, through which gradients pass then.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:

            def held(*args: Any, **attributes: Any) -> Any:
                return function(*args, **attributes)

            held.takes, held.moves = takes, moves  # type: ignore[attr-defined]
            add_rule(op, TORCH.name, held)
        return function

    return register


def ints(tensor: torch.Tensor) -> list[int]:
    """The contents of a small tensor of sizes, positions or axes."""
    known: list[int] | None = getattr(tensor, _INTS, None)
    return [int(n) for n in tensor.reshape(-1).tolist()] if known is None else known


#: What a constant on a device is known to hold, so that a rule need not wait for that.
_INTS = "_tenonnx_ints"


def remember_ints(tensor: torch.Tensor, held: torch.Tensor) -> None:
    """Let ``ints`` know what a constant holds, of which ``held`` is a copy that can be read at once."""
    if held.numel() <= LONGEST and not held.is_floating_point() and not held.is_complex():
        setattr(tensor, _INTS, ints(held))


#: Constants of more elements are no sizes.
LONGEST = 64


def axes_of(axes: torch.Tensor | None, rank: int) -> list[int]:
    """Axes counted from the front, all of them where none are given."""
    return list(range(rank) if axes is None else dict.fromkeys(axis % rank if rank else 0 for axis in ints(axes)))


def wrapped(indices: torch.Tensor, length: int) -> torch.Tensor:
    """Indices counted from the front."""
    indices = indices.long()
    return torch.where(indices < 0, indices + length, indices)


def filled(value: Sequence[int] | None, number: int, rank: int) -> list[int]:
    """An attribute with a number for each axis, or its default."""
    return [number] * rank if value is None else list(value)
