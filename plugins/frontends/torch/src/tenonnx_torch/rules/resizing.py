"""Resize by scales, as PyTorch's upsampling."""

from __future__ import annotations

import math
from typing import Any

import torch

import tenonnx_standard as ops
from tenonnx_torch.rules import rule
from tenonnx_torch.shape_numbers import Numbers

#: Modes of linear interpolation by the number of resized axes.
_LINEAR = {
    1: torch.ops.aten.upsample_linear1d.default,
    2: torch.ops.aten.upsample_bilinear2d.default,
    3: torch.ops.aten.upsample_trilinear3d.default,
}

#: Nearest modes that agree for integer scales.
_NEAREST = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")}


@rule(ops.resize, numbers=[2, 3])
def resize_rule(x: Any, roi: Any, scales: Any, sizes: Any, **given: Any) -> Any:
    """Linear interpolation with half-pixel centers, and repetition of elements, for known scales or sizes."""
    spatial = x.ndim - 2
    is_plain = not given["antialias"] and not given["exclude_outside"] and given["axes"] is None
    if not is_plain or spatial not in _LINEAR or not x.is_floating_point():
        return NotImplemented
    if isinstance(sizes, Numbers) and given["keep_aspect_ratio_policy"] == "stretch":
        return _to_sizes(x, sizes.ints, given)
    if not isinstance(scales, Numbers):
        return NotImplemented
    factors = [float(factor) for factor in scales.array.reshape(-1)]
    if factors[:2] != [1.0, 1.0] or min(factors) <= 0:
        return NotImplemented
    way = given["coordinate_transformation_mode"]
    if given["mode"] == "linear" and way == "half_pixel":
        lengths = [
            math.floor(length * factor) if isinstance(length, int) else length * int(factor)
            for length, factor in zip(x.shape[2:], factors[2:], strict=True)
        ]
        if any(not isinstance(n, int) and not f.is_integer() for n, f in zip(x.shape[2:], factors[2:], strict=True)):
            return NotImplemented
        return _LINEAR[spatial](x, lengths, False, *factors[2:])
    if given["mode"] == "nearest" and all(factor.is_integer() for factor in factors):
        return _repeated(x, [int(factor) for factor in factors], given)
    return NotImplemented


def _repeated(x: Any, factors: list[int], given: dict[str, Any]) -> Any:
    """Nearest elements where each axis becomes a multiple of its length."""
    if (given["coordinate_transformation_mode"], given["nearest_mode"]) not in _NEAREST:
        return NotImplemented
    for axis, factor in enumerate(factors):
        x = x if factor == 1 else torch.repeat_interleave(x, factor, dim=axis)
    return x


def _to_sizes(x: Any, sizes: list[Any], given: dict[str, Any]) -> Any:
    """Interpolation to sizes whose batch and channels, symbolic or not, equal those of ``x``."""
    if [str(n) for n in sizes[:2]] != [str(n) for n in x.shape[:2]]:
        return NotImplemented
    if given["mode"] == "linear" and given["coordinate_transformation_mode"] == "half_pixel":
        return _LINEAR[x.ndim - 2](x, sizes[2:], False)
    pairs = list(zip(sizes[2:], x.shape[2:], strict=True))
    if given["mode"] != "nearest" or any(not isinstance(n, int) or not isinstance(m, int) or n % m for n, m in pairs):
        return NotImplemented
    return _repeated(x, [1, 1, *(n // m for n, m in pairs)], given)
