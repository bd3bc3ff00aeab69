"""Pooling with windows that reach beyond the end, that lie in the padding, or that have a divisor of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tenonnx_torch.windows import each

aten = torch.ops.aten

_MAXIMA = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_AVERAGES = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def _count(length: Any, size: int, step: int, edge: int, ceil_mode: bool) -> Any:
    """Number of windows; with ``ceil_mode`` none of them begins after the last element."""
    if not ceil_mode:
        return (length + 2 * edge - size) // step + 1
    return torch.sym_min((length + 2 * edge - size + step - 1) // step, (length + edge - 1) // step) + 1


def _ends_late(length: Any, size: int, step: int, edge: int) -> bool:
    """Whether ONNX counts a window that begins after the last element, which PyTorch leaves out."""
    return isinstance(length, int) and _count(length, size, step, edge, True) < (
        (length + 2 * edge - size + step - 1) // step + 1
    )


def _may_be_empty(length: Any, size: int, taps: int, step: int, edge: int, ceil_mode: bool) -> bool:
    """Whether a window may lie in the padding alone."""
    apart = (size - 1) // max(taps - 1, 1)
    if not edge or apart < 2:
        return False
    if not isinstance(length, int):
        return True
    starts = [k * step - edge for k in range(_count(length, size, step, edge, ceil_mode))]
    return not all(any(0 <= start + k * apart < length for k in range(taps)) for start in starts)


def _spread(x: Tensor, places: list[bool], windows: list[Any], ceil_mode: bool, value: float) -> Tensor:
    """Pad the last axes that ``places`` marks to the elements that their windows cover."""
    around: list[Any] = []
    for axis, (marked, (size, step, edge)) in enumerate(zip(places, windows, strict=True), x.ndim - len(windows)):
        if not marked:
            around = [0, 0, *around]
            continue
        length = x.shape[axis]
        covered = (_count(length, size, step, edge, ceil_mode) - 1) * step + size
        around = [edge, torch.sym_max(covered - length - edge, 0), *around]
    x = functional.pad(x, around, value=value)
    for axis, (marked, (size, step, _)) in enumerate(zip(places, windows, strict=True), x.ndim - len(windows)):
        if marked:
            length = x.shape[axis]
            x = x.narrow(axis, 0, length - (length - size) % step)
    return x


def _maximum(rank: int, indexed: bool) -> Callable[..., Any]:
    plain = _MAXIMA[rank - 1]

    def pooled(
        x: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        taps, steps, edges, apart = (each(g, rank) for g in (kernel_size, stride or kernel_size, padding, dilation))
        sizes = [(tap - 1) * way + 1 for tap, way in zip(taps, apart, strict=True)]
        windows, lengths = list(zip(sizes, steps, edges, strict=True)), x.shape[-rank:]
        late = [ceil_mode and _ends_late(n, *window) for n, window in zip(lengths, windows, strict=True)]
        empty = x.is_floating_point() and any(
            _may_be_empty(n, size, tap, step, edge, ceil_mode)
            for n, (size, step, edge), tap in zip(lengths, windows, taps, strict=True)
        )
        if not any(late) and not empty:
            return NotImplemented
        places = [True] * rank if empty else late
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        whole = _spread(x, places, windows, ceil_mode, lowest)
        rest = [0 if marked else edge for marked, edge in zip(places, edges, strict=True)]
        result = plain(whole, taps, steps, rest, apart, ceil_mode and not all(places), return_indices=indexed)
        found, indices = result if indexed else (result, None)
        if empty:  # runtimes return the lowest finite number
            found = torch.where(found <= torch.finfo(x.dtype).min, -math.inf, found)
        if indices is None:
            return found
        first = [edge if marked else 0 for marked, edge in zip(places, edges, strict=True)]
        return found, _places(indices, whole.shape[-rank:], lengths, first)

    return pooled


def _places(indices: Tensor, padded: Any, lengths: Any, first: list[int]) -> Tensor:
    """Flat indices into the padded axes as such into the axes without their padding."""
    result, factor = torch.zeros_like(indices), 1
    for size, length, begin in zip(reversed(padded), reversed(lengths), reversed(first), strict=True):
        whole = indices // size
        result = result + (indices - whole * size - begin) * factor
        indices, factor = whole, factor * length
    return result


def _averages(rank: int) -> Callable[..., Any]:
    """Average pooling with a divisor, which the exporter ignores, or with windows that PyTorch leaves out."""
    plain = _AVERAGES[rank - 1]

    def pooled(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        sizes, steps, edges = (each(given, rank) for given in (kernel, stride or kernel, padding))
        windows = list(zip(sizes, steps, edges, strict=True))
        if divisor_override is not None:
            whole = plain(_spread(x, [True] * rank, windows, ceil_mode, 0), sizes, steps)
            return whole * (math.prod(sizes) / divisor_override)
        late = [ceil_mode and _ends_late(n, *window) for n, window in zip(x.shape[-rank:], windows, strict=True)]
        if not any(late):
            return NotImplemented
        rest = [0 if marked else edge for marked, edge in zip(late, edges, strict=True)]

        def averaged(values: Tensor) -> Tensor:
            given = _spread(values, late, windows, ceil_mode, 0)
            return plain(given, sizes, steps, rest, ceil_mode and not all(late), count_include_pad)

        return averaged(x) if count_include_pad else averaged(x) / averaged(torch.ones_like(x))

    return pooled


#: Functions by operator.
POOLING: Mapping[Any, Callable[..., Any]] = {
    aten.max_pool1d.default: _maximum(1, False),
    aten.max_pool2d.default: _maximum(2, False),
    aten.max_pool3d.default: _maximum(3, False),
    aten.max_pool1d_with_indices.default: _maximum(1, True),
    aten.max_pool2d_with_indices.default: _maximum(2, True),
    aten.max_pool3d_with_indices.default: _maximum(3, True),
    aten.avg_pool1d.default: _averages(1),
    aten.avg_pool2d.default: _averages(2),
    aten.avg_pool3d.default: _averages(3),
}
