"""Arithmetic of uint32, used by random numbers in training, for which PyTorch has few kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, add_rule
from tenonnx_torch.rules import UNSIGNED
from tenonnx_torch.values import NATIVE


def _wide(content: Any) -> torch.Tensor:
    """Contents as int64; the lower 32 bits of results of modular arithmetic are correct."""
    tensor = torch.from_numpy(content.copy()) if isinstance(content, np.ndarray) else content
    return tensor.to(torch.int64) if tensor.dtype is torch.uint32 else tensor


def _both(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operands on one device; constants are numpy arrays."""
    x, y = _wide(a), _wide(b)
    return (x.to(y.device), y) if isinstance(a, np.ndarray) else (x, y.to(x.device))


def _modular(op: Op, function: Any) -> None:
    add_rule(op, UNSIGNED.name, lambda a, b: function(*_both(a, b)).to(torch.uint32))


_modular(ops.add, torch.add)
_modular(ops.mul, torch.mul)


def _divided(a: Any, b: Any) -> Any:
    if not isinstance(b, np.ndarray) or not b.all():
        return NotImplemented  # a divisor that may be zero
    x, y = _both(a, b)
    return torch.div(x, y, rounding_mode="trunc").to(torch.uint32)


def _shifted(a: Any, b: Any, *, direction: str) -> torch.Tensor:
    x, count = _both(a, b)
    shift = torch.bitwise_left_shift if direction == "LEFT" else torch.bitwise_right_shift
    return torch.where(count < 32, shift(x, count.clamp(max=31)), 0).to(torch.uint32)


def _cast(x: Any, *, to: int, saturate: int, round_mode: str) -> Any:
    wide = _wide(x)
    if wide.is_floating_point() or wide.is_complex():
        return NotImplemented
    return wide.to(torch.uint32 if to == DType.uint32.value else NATIVE[DType(to)])


add_rule(ops.div, UNSIGNED.name, _divided)
add_rule(ops.bitshift, UNSIGNED.name, _shifted)
add_rule(ops.cast, UNSIGNED.name, _cast)
