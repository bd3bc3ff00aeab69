"""Adaptive pooling, antialiased resizing, and gradients of layers, in terms of products and basic layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnxscript import opset20 as onnx
from torch import Tensor
from torch._decomp import decompositions as known

from tenonnx_frontends.nearest import reads_as_resize
from tenonnx_torch.empty_tensors import count

aten = torch.ops.aten


def each(given: Any, rank: int) -> list[int]:
    """One number for each axis; a single number is repeated."""
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers * rank if len(numbers) == 1 else numbers


def _along(x: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Multiply by a matrix along an axis."""
    return (x.movedim(axis, -1) @ weights.to(x.dtype).transpose(0, 1)).movedim(-1, axis)


# ----- adaptive pooling -----------------------------------------------------------------------------------------------


def _bounds(length: Any, size: Any) -> tuple[Tensor, Tensor]:
    """Start and end of each window of adaptive pooling."""
    places = torch.arange(size)
    return (places * length) // size, ((places + 1) * length + size - 1) // size


def _means(length: Any, size: Any) -> Tensor:
    first, last = _bounds(length, size)
    places = torch.arange(length)
    inside = (places >= first.unsqueeze(1)) & (places < last.unsqueeze(1))
    return inside.to(torch.float32) / (last - first).unsqueeze(1)


def adaptive_average_of_any(x: Tensor, sizes: Any) -> Any:
    """Adaptive pooling of a dynamic size, where the exporter fixes the size of the examples."""
    sizes = [sizes] if isinstance(sizes, int | torch.SymInt) else sizes
    varies = any(isinstance(length, torch.SymInt) for length in x.shape[-len(sizes) :])
    return adaptive_average(x, sizes) if varies and any(size != 1 for size in sizes) else NotImplemented


def adaptive_average(x: Tensor, sizes: Sequence[Any]) -> Tensor:
    for axis, size in zip(range(-len(sizes), 0), sizes, strict=True):
        x = _along(x, _means(x.shape[axis], size), axis)
    return x


def adaptive_average_backward(slope: Tensor, x: Tensor) -> Tensor:
    for axis in (-2, -1):
        slope = _along(slope, _means(x.shape[axis], slope.shape[axis]).transpose(0, 1), axis)
    return slope


def _widest(length: Any, size: Any) -> Any:
    """The maximum number of elements of a window in adaptive pooling; an upper bound for dynamic sizes."""
    if isinstance(length, torch.SymInt) or isinstance(size, torch.SymInt):
        return (length + size - 1) // size + 1
    return max((k + 1) * length // size + ((k + 1) * length % size > 0) - k * length // size for k in range(size))


def adaptive_maximum(x: Tensor, sizes: Any) -> tuple[Tensor, Tensor]:
    """Adaptive maximum: windows padded to the size of the largest one, with the padding ignored."""
    sizes = [sizes] if isinstance(sizes, int | torch.SymInt) else list(sizes)
    rank = len(sizes)
    shape = x.shape[-rank:]
    place: Any = torch.zeros((), dtype=torch.int64)
    inside: Any = torch.ones((), dtype=torch.bool)
    for axis, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        first, last = _bounds(length, size)
        widest = _widest(length, size)
        along = first.unsqueeze(1) + torch.arange(widest)
        view = [size if k == axis else widest if k == axis + rank else 1 for k in range(2 * rank)]
        inside = inside & (along < last.unsqueeze(1)).reshape(view)
        place = place * length + along.clamp(max=length - 1).reshape(view)
    place, inside = place.flatten(rank), inside.flatten(rank)
    maxima = x.flatten(-rank)[..., place]
    maxima = torch.where(inside, maxima, -torch.inf)
    result = torch.where(maxima.isnan().any(-1), torch.nan, maxima.amax(-1))
    same = ((maxima == result.unsqueeze(-1)) | maxima.isnan()).to(torch.int64).argmax(-1, keepdim=True)
    return result, place.expand(maxima.shape).gather(-1, same).squeeze(-1)


def fractional_maximum(x: Tensor, kernel: Any, sizes: Any, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Fractional pooling: windows of equal size at random offsets for each image, channel and axis."""
    rank = samples.shape[-1]
    kernel, sizes = each(kernel, rank), each(sizes, rank)
    shape, batch = x.shape[-rank:], x.shape[:-rank]
    shifts = samples.reshape([*batch, rank])
    place: Any = torch.zeros((), dtype=torch.int64)
    for axis, (length, size, count) in enumerate(zip(shape, sizes, kernel, strict=True)):
        shift = shifts[..., axis if rank == 3 else rank - 1 - axis].unsqueeze(-1)
        step = (length - count) / max(size - 1, 1)
        first = ((torch.arange(size) + shift) * step).to(torch.int64) - (shift * step).to(torch.int64)
        first = torch.where(torch.arange(size) == size - 1, length - count, first)
        along = first.unsqueeze(-1) + torch.arange(count)
        view = [size if k == axis else count if k == axis + rank else 1 for k in range(2 * rank)]
        place = place * length + along.reshape([*batch, *view])
    place = place.flatten(-rank)
    maxima = x.flatten(-rank).gather(-1, place.flatten(len(batch))).reshape(place.shape)
    result = torch.where(maxima.isnan().any(-1), torch.nan, maxima.amax(-1))
    same = ((maxima == result.unsqueeze(-1)) | maxima.isnan()).to(torch.int64).argmax(-1, keepdim=True)
    return result, place.gather(-1, same).squeeze(-1)


# ----- sampling -------------------------------------------------------------------------------------------------------


def _grid_sampled(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    return onnx.GridSample(
        x,
        grid,
        align_corners=int(corners),
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
    )


#: Function that writes 3-D sampling, since the exporter supports only two axes.
TRANSLATIONS = {aten.grid_sampler_3d.default: _grid_sampled}


# ----- edges and blocks -----------------------------------------------------------------------------------------------


def padded(x: Tensor, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> Any:
    """Edge padding with negative pads at the other end: ONNX crops first, so elements are gathered by index."""
    if mode != "replicate" or not any(isinstance(size, int) and size < 0 for size in pad):
        return NotImplemented
    for k, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.ndim - 1 - k
        places = torch.arange(x.shape[axis] + before + behind) - before
        x = x.index_select(axis, places.clamp(0, x.shape[axis] - 1))
    return x


def blocks(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """Blocks of an empty tensor, whose size the exporter cannot infer."""
    if count(x.shape) != 0:
        return NotImplemented
    sizes = zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    found = math.prod((length + 2 * edge - step * (size - 1) - 1) // by + 1 for length, size, step, edge, by in sizes)
    return x.new_zeros([*x.shape[:-3], x.shape[-3] * math.prod(kernel), found])


# ----- resizing with antialiasing -------------------------------------------------------------------------------------


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    """Cubic kernel of R. Keys (1981) with a = -0.5."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _antialiased(kernel: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def resized(x: Tensor, size: Any, corners: bool, *scales: Any) -> Tensor:
        factors = _factors(scales)
        for axis, length in enumerate(_lengths(x, size, factors), 2):
            size_before, step = x.shape[axis], _step(x.shape[axis], length, factors, axis)
            if corners:
                step = (size_before - 1) / (length - 1) if length > 1 else 0.0
            center = (torch.arange(length) + 0.5) * step
            width = torch.sym_max(step, 1.0)
            weights = kernel((torch.arange(size_before) + 0.5 - center.unsqueeze(1)) / width)
            x = _along(x, weights / weights.sum(1, keepdim=True), axis)
        return x

    return resized


def _nearest(x: Tensor, size: Any, *scales: Any) -> Any:
    """Resizing to the nearest elements, by ``Resize`` where it reads the same elements."""
    factors = _factors(scales)
    pairs = list(zip(x.shape[2:], _lengths(x, size, factors), strict=True))
    if factors and all(float(factor).is_integer() for factor in factors):
        return NotImplemented
    is_static = not factors and all(isinstance(n, int) and isinstance(length, int) for n, length in pairs)
    if is_static and all(reads_as_resize(n, length, 0.0) for n, length in pairs):
        return NotImplemented
    return _at_positions(x, size, factors, 0.0)


def _nearest_exact(x: Tensor, size: Any, *scales: Any) -> Tensor:
    return _at_positions(x, size, _factors(scales), 0.5)


def _at_positions(x: Tensor, size: Any, factors: Sequence[float], offset: float) -> Tensor:
    """Elements at the positions of a resized tensor, which PyTorch computes in float32."""
    for axis, length in enumerate(_lengths(x, size, factors), 2):
        step = _step(x.shape[axis], length, factors, axis)
        places = ((torch.arange(length, dtype=torch.float32) + offset) * step).to(torch.int64)
        x = x.index_select(axis, places.clamp(max=x.shape[axis] - 1))
    return x


def _factors(scales: Sequence[Any]) -> Sequence[float]:
    """Scale factors of a resize, which are given in a list or one by one; none if only sizes are given."""
    listed = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    return [factor for factor in listed if factor is not None]


def _lengths(x: Tensor, size: Any, factors: Sequence[float]) -> Any:
    return known.upsample_compute_output_size(x.shape, size, factors if size is None else None)


def _step(before: Any, length: Any, factors: Sequence[float], axis: int) -> Any:
    """The distance of two elements of the result in the resized tensor: by the given factor, else by the lengths."""
    return 1 / factors[axis - 2] if factors else before / length


# ----- gradients of layers --------------------------------------------------------------------------------------------

_CONVOLUTIONS: Sequence[Any] = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
_TRANSPOSED: Sequence[Any] = (
    torch.nn.functional.conv_transpose1d,
    torch.nn.functional.conv_transpose2d,
    torch.nn.functional.conv_transpose3d,
)


def convolution_backward(
    slope: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    rank = x.ndim - 2
    stride, padding, dilation = (each(given, rank) for given in (stride, padding, dilation))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    of_x = of_weight = of_bias = None
    if output_mask[0] and transposed:
        of_x = _CONVOLUTIONS[rank - 1](slope, weight, None, **options)
    elif output_mask[0]:
        sizes = zip(x.shape[2:], slope.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        missing = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in sizes]
        of_x = _TRANSPOSED[rank - 1](slope, weight, None, output_padding=missing, **options)
    if output_mask[1]:
        longer, shorter = (slope, x) if transposed else (x, slope)
        swapped = longer.unflatten(1, (groups, -1)).transpose(0, 2).flatten(1, 2)
        by = shorter.transpose(0, 1)
        found = _CONVOLUTIONS[rank - 1](
            swapped, by, None, stride=dilation, padding=padding, dilation=stride, groups=groups
        )
        for axis, length in enumerate(weight.shape[2:], 2):
            found = found.narrow(axis, 0, length)
        of_weight = found.transpose(0, 1)
    if output_mask[2]:
        of_bias = slope.sum([0, *range(2, slope.ndim)])
    return of_x, of_weight, of_bias


def average_backward(
    slope: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Along each axis, multiply by the transposed matrix of the averages."""
    for axis, size, step, edge in zip(
        (-2, -1), *(each(g, 2) for g in (kernel, stride or kernel, padding)), strict=True
    ):
        length, count = x.shape[axis], slope.shape[axis]
        first = torch.arange(count) * step - edge
        inside = (torch.arange(length) >= first.unsqueeze(1)) & (torch.arange(length) < (first + size).unsqueeze(1))
        last = (first + size).clamp(max=length + edge)
        counts = last - first if count_include_pad else last.clamp(max=length) - first.clamp(min=0)
        share = inside.to(torch.float32) if divisor_override else inside / counts.unsqueeze(1)
        slope = _along(slope, share.transpose(0, 1), axis)
    return slope / divisor_override if divisor_override else slope


#: Functions by operator.
WINDOWS: Mapping[Any, Callable[..., Any]] = {
    aten._adaptive_avg_pool3d.default: adaptive_average,
    aten.adaptive_avg_pool1d.default: adaptive_average_of_any,
    aten.adaptive_avg_pool2d.default: adaptive_average_of_any,
    aten._adaptive_avg_pool2d.default: adaptive_average_of_any,
    aten.adaptive_max_pool1d.default: adaptive_maximum,
    aten._adaptive_avg_pool2d_backward.default: adaptive_average_backward,
    aten.adaptive_max_pool2d.default: adaptive_maximum,
    aten.adaptive_max_pool3d.default: adaptive_maximum,
    aten.fractional_max_pool2d.default: fractional_maximum,
    aten.fractional_max_pool3d.default: fractional_maximum,
    **dict.fromkeys((getattr(aten, f"upsample_nearest{n}d").default for n in (1, 2, 3)), _nearest),
    **dict.fromkeys((getattr(aten, f"upsample_nearest{n}d").vec for n in (1, 2, 3)), _nearest),
    **dict.fromkeys((getattr(aten, f"_upsample_nearest_exact{n}d").default for n in (1, 2, 3)), _nearest_exact),
    **dict.fromkeys((getattr(aten, f"_upsample_nearest_exact{n}d").vec for n in (1, 2, 3)), _nearest_exact),
    aten._upsample_bilinear2d_aa.default: _antialiased(_triangle),
    aten._upsample_bilinear2d_aa.vec: _antialiased(_triangle),
    aten._upsample_bicubic2d_aa.default: _antialiased(_cubic),
    aten._upsample_bicubic2d_aa.vec: _antialiased(_cubic),
    aten.convolution_backward.default: convolution_backward,
    aten.avg_pool2d_backward.default: average_backward,
    aten.pad.default: padded,
    aten.im2col.default: blocks,
}
