"""AWQ: input channels with large activations are scaled up before quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_quantized.tuning.config import QuantizeConfig, WeightSettings
from tenonnx_quantized.tuning.methods.layer import Layer, clipping_moment, grid
from tenonnx_quantized.tuning.methods.rescale import Group, Rescaling

Array = np.ndarray[Any, Any]

#: Candidate exponents of the activations' mean magnitudes.
_POWERS = np.linspace(0.0, 1.0, 11)


def awq(rescaling: Rescaling, chosen: QuantizeConfig) -> None:
    """Scale input channels by a power of their mean magnitude (Lin et al. 2023, arXiv:2306.00978).

    The power minimizes the error of all layers that read the value, rounded to nearest. It is tried with and without
    a division by the opposite power of the weights' mean magnitude."""
    for group in rescaling.groups():
        scale = awq_scale(rescaling, group, chosen)
        if np.ptp(scale) > 0:
            rescaling.apply(group, scale)


def awq_scale(rescaling: Rescaling, group: Group, chosen: QuantizeConfig) -> Array:
    """The scale of each channel of a group."""
    assert rescaling.moments is not None
    magnitudes = np.max(
        [rescaling.by_channel(k, rescaling.moments.of(k).magnitude, np.mean) for k in group.layers.values()], axis=0
    )
    weights = np.mean([rescaling.mean_weights(node) for node in group.layers], axis=0)
    sizes, opposite = np.maximum(magnitudes, 1e-6), np.maximum(weights, 1e-6)
    tried = [_normalized(sizes**power) for power in _POWERS]
    tried += [_normalized(sizes**power / opposite ** (1 - power)) for power in _POWERS]
    return min(tried, key=lambda each: _error(rescaling, group, each, chosen))


def _normalized(scale: Array) -> Array:
    return np.clip(scale / np.sqrt(scale.max() * scale.min()), 1e-4, 1e4)  # type: ignore[no-any-return]


def _error(rescaling: Rescaling, group: Group, scale: Array, chosen: QuantizeConfig) -> float:
    """The error of a group's outputs with scaled weights, relative to the outputs."""
    assert rescaling.moments is not None
    total = 0.0
    for node, key in group.layers.items():
        rows, moment = rescaling.by_row(key, scale), rescaling.moments.of(key).moment
        for part, by, weighting in zip(rescaling.matrices(node), rows, moment, strict=True):
            layer = _scaled_layer(part * by[:, None], weighting / np.outer(by, by), chosen.of(node))
            total += float(layer.errors(layer.nearest()).sum())
    return total


def _scaled_layer(weights: Array, moment: Array, settings: WeightSettings) -> Layer:
    size = settings.block_size if settings.granularity == "block" else len(weights)
    clipped_by = clipping_moment(moment, settings)
    options: dict[str, Any] = {"symmetric": settings.symmetric, "scale_type": settings.scale_type}
    found = grid(weights, settings.dtype, size, moment=clipped_by, **options)
    return Layer(weights, found.scale, found.zero_point.astype(np.float32), settings.dtype, size, moment)
