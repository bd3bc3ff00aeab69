"""Layers: matrix products, convolutions, pooling, normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_standard.convolution import conv_weight_gradient
from tenonnx_torch.rules import filled, rule
from tenonnx_torch.shape_numbers import larger
from tenonnx_torch.values import is_traced


@rule(ops.matmul)
def matmul_rule(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b)


@rule(ops.gemm)
def gemm_rule(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Any:
    if not a.is_floating_point() and not is_traced(a):
        return NotImplemented
    a, b = a.T if transA else a, b.T if transB else b
    if c is None:
        return a @ b * alpha if alpha != 1.0 else a @ b
    return torch.addmm(c.expand(a.shape[0], b.shape[1]), a, b, alpha=alpha, beta=beta)


@rule(ops.einsum)
def einsum_rule(*inputs: torch.Tensor, equation: str) -> Any:
    return torch.einsum(equation, *inputs) if inputs[0].is_floating_point() or is_traced(*inputs) else NotImplemented


@rule(ops.softmax)
def softmax_rule(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    return torch.softmax(x, axis)


@rule(ops.log_softmax)
def log_softmax_rule(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    return torch.log_softmax(x, axis)


# ----- windows --------------------------------------------------------------------------------------------------------


def _is_image(x: Value) -> bool:
    return x.rank is not None and 3 <= x.rank <= 5 and x.dtype.is_float


def _pads(
    x: torch.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[int]:
    """Padding before and after each axis of an image, last axis first as in PyTorch."""
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        both = []
        for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            missing = larger(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
            less = missing // 2
            both.append((less, missing - less) if auto_pad == "SAME_UPPER" else (missing - less, less))
    else:
        numbers = filled(None if auto_pad == "VALID" else pads, 0, 2 * rank)
        both = list(zip(numbers[:rank], numbers[rank:], strict=True))
    return [n for pair in reversed(both) for n in pair]


def _symmetric(flat: Sequence[int]) -> list[int] | None:
    if not all(isinstance(n, int) for n in flat):
        return None
    before, behind = list(flat[0::2])[::-1], list(flat[1::2])[::-1]
    return before if before == behind and min(before, default=0) >= 0 else None


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    """An image in channels-last layout, which convolutions on the CPU prefer; elementwise ops keep the layout."""
    if x.ndim != 4 or x.device.type != "cpu" or is_traced(x):
        return x
    return x.contiguous(memory_format=torch.channels_last)


@rule(ops.conv, takes=lambda x, w, b=None, **attributes: _is_image(x))
def conv_rule(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *, auto_pad: str, group: int, **given: Any
) -> Any:
    rank = x.ndim - 2
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    flat = _pads(x, w.shape[2:], strides, dilations, given["pads"], auto_pad)
    padding = _symmetric(flat)
    if padding is None:
        x, padding = functional.pad(x, flat), [0] * rank
    return torch.convolution(_channels_last(x), w, b, strides, padding, dilations, False, [0] * rank, group)


def _plain_transpose(x: Value, w: Value, b: Value | None = None, **given: Any) -> bool:
    return _is_image(x) and given["auto_pad"] in ("NOTSET", "VALID") and given["output_shape"] is None


@rule(ops.conv_transpose, takes=_plain_transpose)
def conv_transpose_rule(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *, group: int, **given: Any
) -> torch.Tensor:
    rank = x.ndim - 2
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    extra, pads = filled(given["output_padding"], 0, rank), filled(given["pads"], 0, 2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    beyond = [begin - end + more for begin, end, more in zip(begins, ends, extra, strict=True)]
    if min(begins) >= 0 and all(0 <= n < max(s, d) for n, s, d in zip(beyond, strides, dilations, strict=True)):
        return torch.convolution(_channels_last(x), w, b, strides, begins, dilations, True, beyond, group)
    full = torch.convolution(x, w, b, strides, [0] * rank, dilations, True, [0] * rank, group)
    more = [(-before, add - behind) for before, behind, add in zip(begins, ends, extra, strict=True)]
    cut = functional.pad(full, [n for pair in reversed(more) for n in pair])
    if b is None or not any(behind > 0 for _, behind in more):
        return cut
    bias = b.reshape(-1, *[1] * rank)
    return functional.pad(full - bias, [n for pair in reversed(more) for n in pair]) + bias


@rule(conv_weight_gradient, takes=lambda X, dY, **attributes: _is_image(X))
def conv_weight_gradient_rule(
    x: torch.Tensor, dy: torch.Tensor, *, kernel_shape: list[int], auto_pad: str, group: int, **given: Any
) -> Any:
    rank = x.ndim - 2
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    flat = _pads(x, kernel_shape, strides, dilations, given["pads"], auto_pad)
    padding = _symmetric(flat)
    if padding is None:
        x, padding = functional.pad(x, flat), [0] * rank
    w = x.new_empty([dy.shape[1], x.shape[1] // group, *kernel_shape])  # only the shape is read
    window = [strides, padding, dilations, False, [0] * rank, group]
    images = _channels_last(dy), _channels_last(x)
    return torch.ops.aten.convolution_backward(*images, w, None, *window, [False, True, False])[1].contiguous()


def _plain_pool(x: Value, *, ceil_mode: int, **given: Any) -> bool:
    return _is_image(x) and not ceil_mode and given.get("_outputs", 1) == 1


_MAX_POOL = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE_POOL: dict[int, Any] = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@rule(ops.max_pool, takes=_plain_pool)
def max_pool_rule(x: torch.Tensor, *, kernel_shape: list[int], auto_pad: str, **given: Any) -> torch.Tensor:
    rank = len(kernel_shape)
    strides, dilations = filled(given["strides"], 1, rank), filled(given["dilations"], 1, rank)
    flat = _pads(x, kernel_shape, strides, dilations, given["pads"], auto_pad)
    x = functional.pad(x, flat, value=float("-inf")) if any(flat) else x
    return _MAX_POOL[rank](x, kernel_shape, strides, 0, dilations)


@rule(ops.average_pool, takes=lambda x, **given: _plain_pool(x, **given) and set(given["dilations"] or [1]) == {1})
def average_pool_rule(
    x: torch.Tensor, *, kernel_shape: list[int], auto_pad: str, count_include_pad: int, **given: Any
) -> torch.Tensor:
    rank, dtype = len(kernel_shape), x.dtype
    strides = filled(given["strides"], 1, rank)
    flat = _pads(x, kernel_shape, strides, [1] * rank, given["pads"], auto_pad)
    if rank == 3 and dtype is torch.float16:  # no half-precision kernel on the CPU
        x = x.float()
    means = _AVERAGE_POOL[rank](functional.pad(x, flat), kernel_shape, strides)
    if not count_include_pad and any(flat):
        means = means / _AVERAGE_POOL[rank](functional.pad(torch.ones_like(x[:1, :1]), flat), kernel_shape, strides)
    return means.to(dtype)


@rule(ops.global_average_pool)
def global_average_pool_rule(x: torch.Tensor) -> torch.Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True) if x.ndim > 2 else x


# ----- normalization --------------------------------------------------------------------------------------------------


def _evaluates(*inputs: Value, training_mode: int, **attributes: Any) -> bool:
    return not training_mode and len({v.dtype for v in inputs}) == 1 and (inputs[0].rank or 0) > 1


@rule(ops.batch_normalization, takes=_evaluates)
def batch_normalization_rule(
    x: torch.Tensor, *parameters: torch.Tensor, epsilon: float, **attributes: Any
) -> torch.Tensor:
    scale, bias, mean, variance = parameters
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


@rule(ops.instance_normalization)
def instance_normalization_rule(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, *, epsilon: float
) -> torch.Tensor:
    return functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


def _plain_norm(x: Value, scale: Value, bias: Value | None = None, **given: Any) -> bool:
    """Whether statistics are in float32, and scale and bias cover the normalized axes, as PyTorch requires."""
    rank, axis = x.rank, given["axis"]
    of_axes = rank is not None and scale.rank == (-axis if axis < 0 else rank - axis)
    return (
        of_axes and x.dtype is DType.float32 and given["stash_type"] == 1 and (bias is None or bias.rank == scale.rank)
    )


@rule(ops.layer_normalization, takes=_plain_norm)
def layer_normalization_rule(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, *, axis: int, epsilon: float, **_: Any
) -> Any:
    shape = x.shape[axis:]
    bias = bias if bias is None else bias.expand(shape).contiguous()
    return torch.native_layer_norm(x, shape, scale.expand(shape).contiguous(), bias, epsilon)
