"""AdaRound: learned rounding of each weight up or down, by gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_quantized.tuning.methods.gptq import better_of
from tenonnx_quantized.tuning.methods.layer import Layer

Array = np.ndarray[Any, Any]

#: Steps of the descent, the fraction without regularization, Adam's learning rate and the regularizer's weight.
STEPS, _WARM, _RATE, _WEIGHT = 600, 0.2, 1e-2, 3.0

#: The stretch of the sigmoid, and the exponents of the regularizer at the beginning and at the end.
_ZETA, _GAMMA, _FIRST, _LAST = 1.1, -0.1, 20.0, 2.0


def ada_round(layer: Layer) -> Array:
    """Train whether to round up or down (Nagel et al. 2020, arXiv:2004.10568): Adam on the mean square error of the
    layer's output, with a rectified sigmoid for each weight and the regularizer that drives it to 0 or 1."""
    scale, zero = layer.spread(layer.scale).astype(np.float64), layer.spread(layer.zero_point)
    below = np.floor(layer.weights / scale)
    rest = layer.weights / scale - below
    # normalize the error so that the regularizer has equal weight in every layer
    moment = layer.moment / (float(np.diagonal(layer.moment).mean() * np.square(scale).mean()) or 1.0)
    logits = -np.log((_ZETA - _GAMMA) / (np.clip(rest, 1e-4, 1 - 1e-4) - _GAMMA) - 1)
    first, second = np.zeros_like(logits), np.zeros_like(logits)
    for step in range(STEPS):
        soft = 1 / (1 + np.exp(-logits))
        stretched = soft * (_ZETA - _GAMMA) + _GAMMA
        up = np.clip(stretched, 0, 1)
        quantized = below + up + zero
        inside = (stretched > 0) & (stretched < 1)
        slope = 2 * (moment @ ((np.clip(quantized, *layer.dtype.bounds) - zero) * scale - layer.weights)) * scale
        slope *= (quantized >= layer.dtype.bounds[0]) & (quantized <= layer.dtype.bounds[1])
        done = (step / STEPS - _WARM) / (1 - _WARM)
        if done > 0:
            power = _LAST + (_FIRST - _LAST) * (1 - done)
            off = 2 * up - 1
            slope -= _WEIGHT * 2 * power * np.sign(off) * np.abs(off) ** (power - 1)
        slope *= inside * soft * (1 - soft) * (_ZETA - _GAMMA)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * np.square(slope)
        corrected = np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-12
        logits -= _RATE * first / (1 - 0.9 ** (step + 1)) / corrected
    up = logits > np.log(-(_GAMMA - 0.5) / (_ZETA - 0.5))
    return better_of(layer, np.clip(below + up + zero, *layer.dtype.bounds), layer.nearest())
