"""Replacements of functions that PyTorch traces only for example sizes, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from onnx_ir import DataType
from onnxscript import opset18 as onnx
from torch import Tensor
from torch.nn import functional


def _varies(x: Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in x.shape)


# ----- pooling and padding --------------------------------------------------------------------------------------------


def max_pool1d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """For a dynamic length: pooling of an image with one row."""
    if not _varies(x):
        return functional.max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    stride = kernel_size if stride is None or stride == () else stride
    sizes = [(usual, *_one(given)) for usual, given in ((1, kernel_size), (1, stride), (0, padding), (1, dilation))]
    found = functional.max_pool2d(x.unsqueeze(-2), *sizes, ceil_mode, return_indices)
    return tuple(each.squeeze(-2) for each in found) if return_indices else found.squeeze(-2)


def max_pool1d_with_indices(*args: Any, **keywords: Any) -> Any:
    return max_pool1d(*args, **{**keywords, "return_indices": True})


def _one(given: Any) -> tuple[int]:
    return (given,) if isinstance(given, int) else (given[0],)


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pad sequences of dynamic lengths, taking the maximum symbolically."""
    longest: Any = sequences[0].shape[0]
    for each in sequences[1:]:
        longest = torch.sym_max(longest, each.shape[0])
    padded, places = [], torch.arange(longest)
    for each in sequences:
        length = each.shape[0]
        filled = torch.cat([each, each.new_full([1, *each.shape[1:]], padding_value)])
        place = places.clamp(max=length)
        if padding_side == "left":
            place = torch.where(places < longest - length, length, places - (longest - length))
        padded.append(filled.index_select(0, place))
    return torch.stack(padded, 0 if batch_first else 1)


# ----- quantization ---------------------------------------------------------------------------------------------------

#: Ranges that QuantizeLinear supports.
_RANGES = {(0, 255): DataType.UINT8, (-128, 127): DataType.INT8}


@torch.library.custom_op("tenonnx::fake_quantize", mutates_args=())  # type: ignore[untyped-decorator]
def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int) -> Tensor:
    raise NotImplementedError("an operation for the exporter is traced, and not computed")


@fake_quantize.register_fake  # type: ignore[untyped-decorator]
def fake_quantize_fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _quantized(x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int) -> Any:
    zero = onnx.Cast(zero_point, to=DataType.INT8 if quant_min else DataType.UINT8)
    return onnx.DequantizeLinear(onnx.QuantizeLinear(x, scale, zero, axis=axis), scale, zero, axis=axis)


#: Functions that write custom operations as ONNX nodes.
TRANSLATIONS = {torch.ops.tenonnx.fake_quantize.default: _quantized}


def fake_quantize_per_tensor(x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    if not _varies(x) and _is_written(quant_min, quant_max):
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max)
    scale = scale.reshape(()) if isinstance(scale, Tensor) else torch.full((), scale)
    zero_point = zero_point.reshape(()) if isinstance(zero_point, Tensor) else torch.full((), zero_point)
    return _rounded(x, scale, zero_point, 0, quant_min, quant_max)


def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    if not _varies(x) and _is_written(quant_min, quant_max) and not zero_point.is_floating_point():
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, quant_min, quant_max)
    return _rounded(x, scale, zero_point, axis % x.ndim, quant_min, quant_max)


def _is_written(quant_min: int, quant_max: int) -> bool:
    """Whether the exporter supports the range."""
    return (quant_min, quant_max) in {*_RANGES, (0, 127)}


def _rounded(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """Quantize and dequantize: by ONNX ops where they support the range, else by arithmetic."""
    if (quant_min, quant_max) in _RANGES and x.dtype is torch.float32 and not zero_point.is_floating_point():
        return torch.ops.tenonnx.fake_quantize(x, scale, zero_point, axis, quant_min)
    shape = [-1 if k == axis else 1 for k in range(x.ndim)] if scale.ndim else []
    scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    if zero_point.is_floating_point():
        steps = torch.round(x * (1 / scale) + zero_point)
    else:
        steps = torch.round(x * (1 / scale)) + zero_point.to(x.dtype)
    return (steps.clamp(quant_min, quant_max) - zero_point.to(x.dtype)) * scale.to(x.dtype)


@contextlib.contextmanager
def fixed_observers(module: torch.nn.Module) -> Iterator[None]:
    """Replace observers that no longer observe by fixed quantization: they branch on a tensor, which breaks tracing."""
    from torch.ao.quantization import FakeQuantizeBase

    changed = [
        inner
        for inner in module.modules()
        if isinstance(inner, FakeQuantizeBase) and not int(inner.observer_enabled[0]) and "forward" not in vars(inner)
    ]
    for inner in changed:
        vars(inner)["forward"] = _with_fixed_range(inner) if int(inner.fake_quant_enabled[0]) else lambda x: x
    try:
        yield
    finally:
        for inner in changed:
            del vars(inner)["forward"]


def _with_fixed_range(module: Any) -> Callable[[Tensor], Tensor]:
    ends = module.activation_post_process.quant_min, module.activation_post_process.quant_max
    if module.is_per_channel:
        axis = module.ch_axis
        return lambda x: fake_quantize_per_channel(x, module.scale, module.zero_point, axis, *ends)
    return lambda x: fake_quantize_per_tensor(x, module.scale, module.zero_point, *ends)


#: Replacements of PyTorch's functions.
TRACEABLE: Mapping[Any, Callable[..., Any]] = {
    torch.max_pool1d: max_pool1d,
    torch.max_pool1d_with_indices: max_pool1d_with_indices,
    functional.max_pool1d: max_pool1d,
    functional.max_pool1d_with_indices: max_pool1d_with_indices,
    torch._C._nn.pad_sequence: pad_sequence,
    torch.fake_quantize_per_tensor_affine: fake_quantize_per_tensor,
    torch.fake_quantize_per_channel_affine: fake_quantize_per_channel,
}
