"""Contents of values in a network: tensors for element types that PyTorch supports, else arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from tenonnx.extend import DType, TensorType
from tenonnx_torch.examples import to_numpy, to_tensor

#: Element types with PyTorch kernels. Numpy computes the others: strings, 4-bit integers, 8-bit floats, and unsigned
#: integers above 8 bits.
NATIVE = {
    DType.float32: torch.float32,
    DType.float64: torch.float64,
    DType.float16: torch.float16,
    DType.bfloat16: torch.bfloat16,
    DType.complex64: torch.complex64,
    DType.complex128: torch.complex128,
    DType.int8: torch.int8,
    DType.int16: torch.int16,
    DType.int32: torch.int32,
    DType.int64: torch.int64,
    DType.uint8: torch.uint8,
    DType.bool: torch.bool,
}


def is_native(kind: Any) -> bool:
    """Whether contents of a type are tensors; containers and unknown types need a look at their elements."""
    return not isinstance(kind, TensorType) or kind.dtype in NATIVE


def is_unsigned(kind: Any) -> bool:
    """Whether contents of a type are tensors or arrays of uint32."""
    return isinstance(kind, TensorType) and kind.dtype is DType.uint32


def to_contents(content: Any) -> Any:
    """Convert a numpy result to contents of a network."""
    if isinstance(content, list | tuple):
        return type(content)(to_contents(each) for each in content)
    if isinstance(content, np.generic):
        content = np.asarray(content)
    if not isinstance(content, np.ndarray) or content.dtype.kind in "OUST" or DType.of(content.dtype) not in NATIVE:
        return content
    return to_tensor(content)


def to_arrays(content: Any) -> Any:
    """Convert contents of a network to arguments of a numpy rule."""
    if isinstance(content, torch.Tensor):
        return to_numpy(content)
    return [to_arrays(each) for each in content] if isinstance(content, list) else content


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is traced, so that its contents are unknown."""
    return isinstance(tensor, FakeTensor | FunctionalTensor) or detect_fake_mode([tensor]) is not None


def is_traced(*tensors: Any) -> bool:
    """Whether a program is traced, by ``torch.jit`` or another tracer."""
    return torch.jit.is_tracing() or any(isinstance(each, torch.Tensor) and is_fake(each) for each in tensors)


def tensors_in(content: Any) -> list[torch.Tensor]:
    """The tensors in contents, which may be nested lists."""
    if isinstance(content, torch.Tensor):
        return [content]
    return [tensor for each in content for tensor in tensors_in(each)] if isinstance(content, list | tuple) else []


@dataclass
class Place:
    """Device of the tensors of a plan, the CPU where ``device`` is None."""

    device: torch.device | None = None

    def __call__(self, content: Any) -> Any:
        """Move the result of a rule to the device."""
        content = to_contents(content)
        if self.device is None:
            return content
        if isinstance(content, list | tuple):
            return type(content)(map(self, content))
        return to_device(content, self.device) if isinstance(content, torch.Tensor) else content


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device; to a GPU asynchronously from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
