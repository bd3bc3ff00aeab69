"""AutoRound: offsets of rounding and the clipping of ranges, by signed gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_quantized.tuning.methods.layer import Layer

Array = np.ndarray[Any, Any]

#: Steps of the descent, whose learning rate falls linearly from 1 / STEPS.
STEPS = 200

#: Lower bound of the trainable factor of a scale.
_LEAST = 0.5


def auto_round(layer: Layer) -> Array:
    """Round with trained offsets (AutoRound, Cheng et al. 2023, arXiv:2309.05516): signed gradient descent on the mean
    square error of the layer's output, with straight-through gradients of an offset in [-0.5, 0.5] for each weight and,
    unless there is a single scale, of a factor in [0.5, 1] for each scale. Each column keeps the best step."""
    weights, moment = layer.weights.astype(np.float64), layer.moment.astype(np.float64)
    zero = layer.spread(layer.zero_point).astype(np.float64)
    original = layer.scale.astype(np.float64)
    offset, part = np.zeros_like(weights), np.ones_like(original)
    kept, scales, least = layer.nearest(), original, layer.errors(layer.nearest())
    low, high = layer.dtype.bounds
    starts = np.arange(0, len(weights), layer.block_size)
    for step in range(STEPS):
        scale = layer.spread((original * part).astype(np.float32)).astype(np.float64)
        raw = weights / scale
        whole = np.rint(raw + offset) + zero
        quantized = np.clip(whole, low, high)
        slope = moment @ ((quantized - zero) * scale - weights)
        errors = np.einsum("rc,rc->c", (quantized - zero) * scale - weights, slope)
        better = errors < least
        kept, least = np.where(better, quantized, kept), np.where(better, errors, least)
        scales = np.where(better, original * part, scales)
        rate = (1 - step / STEPS) / STEPS
        inside = whole == quantized
        by_scale = slope * ((quantized - zero) - np.where(inside, raw, 0.0))
        offset = np.clip(offset - rate * np.sign(slope * inside), -0.5, 0.5)
        if not layer.one_scale:
            part = np.clip(part - rate * np.sign(np.add.reduceat(by_scale, starts, axis=0)), _LEAST, 1.0)
    layer.scale = scales.astype(np.float32)
    return kept
