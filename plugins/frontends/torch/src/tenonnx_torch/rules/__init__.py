"""Rules ``torch``: ops as functions of tensors and attributes.

Importing a module of this package registers its rules; ``tenonnx_torch.module`` imports them all. Packages register
rules of their ops by ``op.rule("torch", function)``. A rule returns ``NotImplemented`` for arguments that PyTorch does
not support; then numpy computes the op, with the gradient by its vjp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tenonnx.extend import NotRepresentable, Op, add_rule, rule_kind
from tenonnx_torch.shape_numbers import Numbers
from tenonnx_torch.values import is_fake

TORCH = rule_kind("torch", "tensors, then attributes; a tensor, a tuple, or NotImplemented")

#: Rules for calls with uint32 tensors, or with numpy arrays of uint32.
UNSIGNED = rule_kind("torch.unsigned", "as torch, but with tensors or numpy arrays of uint32")


def rule(
    *ops: Op, takes: Callable[..., bool] | None = None, moves: bool = False, numbers: Sequence[int] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for ops. Calls for which ``takes(*values, **attributes)`` is False are expanded to the op's body.

    ``moves``: the ops only move elements, so that they accept floats in place of quantized values, for gradients.
    ``numbers``: positions at which the rule accepts ``Numbers`` or tensors; ``ints`` reads both.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:

            def held(*args: Any, **attributes: Any) -> Any:
                return function(*args, **attributes)

            held.takes, held.moves, held.numbers = takes, moves, numbers  # type: ignore[attr-defined]
            add_rule(op, TORCH.name, held)
        return function

    return register


def ints(numbers: torch.Tensor | Numbers) -> list[Any]:
    """Sizes, indices or axes, each an ``int`` or a ``torch.SymInt``.

    Raises ``NotRepresentable`` where a trace would need the contents of a tensor.
    """
    if isinstance(numbers, Numbers):
        return numbers.ints
    if is_fake(numbers):
        raise NotRepresentable("sizes or positions depend on the contents of tensors, which a trace does not know")
    return [int(n) for n in numbers.reshape(-1).tolist()]


def is_empty(x: torch.Tensor) -> bool:
    """Whether a tensor certainly has no elements; symbolic sizes are assumed to be positive."""
    return any(isinstance(n, int) and not n for n in x.shape)


def axes_of(axes: torch.Tensor | Numbers | None, rank: int) -> list[int]:
    """Non-negative axes; all axes by default."""
    return list(range(rank) if axes is None else dict.fromkeys(axis % rank if rank else 0 for axis in ints(axes)))


def wrapped(indices: torch.Tensor, length: Any) -> torch.Tensor:
    """Non-negative indices."""
    indices = indices.long()
    return torch.where(indices < 0, indices + length, indices)


def filled(value: Sequence[int] | None, number: int, rank: int) -> list[int]:
    """An attribute with one number for each axis, or its default."""
    return [number] * rank if value is None else list(value)
