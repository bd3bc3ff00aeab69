"""Contents that run through a network: tensors where PyTorch computes with the element type, arrays elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tenonnx.extend import DType, TensorType
from tenonnx_torch.examples import to_numpy, to_tensor

#: The element types that PyTorch has kernels for. What is of others (text, integers of 4 bits, floats of 8, unsigned
#: ones of more than 8) is computed by numpy.
NATIVE = {
    DType.float32: torch.float32, DType.float64: torch.float64, DType.float16: torch.float16,
    DType.bfloat16: torch.bfloat16, DType.complex64: torch.complex64, DType.complex128: torch.complex128,
    DType.int8: torch.int8, DType.int16: torch.int16, DType.int32: torch.int32, DType.int64: torch.int64,
    DType.uint8: torch.uint8, DType.bool: torch.bool,
}  # fmt: skip


def is_native(kind: Any) -> bool:
    """Whether contents of a type are tensors; those of containers and of unknown types are looked at one by one."""
    return not isinstance(kind, TensorType) or kind.dtype in NATIVE


def to_contents(held: Any) -> Any:
    """What numpy gave, as it runs through a network."""
    if isinstance(held, list | tuple):
        return type(held)(to_contents(each) for each in held)
    if isinstance(held, np.generic):
        held = np.asarray(held)
    if not isinstance(held, np.ndarray) or held.dtype.kind in "OUST" or DType.of(held.dtype) not in NATIVE:
        return held
    return to_tensor(held)


def to_arrays(held: Any) -> Any:
    """The same for a rule of numpy."""
    if isinstance(held, torch.Tensor):
        return to_numpy(held)
    return [to_arrays(each) for each in held] if isinstance(held, list) else held


def tensors_in(held: Any) -> list[torch.Tensor]:
    """The tensors of some contents."""
    if isinstance(held, torch.Tensor):
        return [held]
    return [tensor for each in held for tensor in tensors_in(each)] if isinstance(held, list | tuple) else []
