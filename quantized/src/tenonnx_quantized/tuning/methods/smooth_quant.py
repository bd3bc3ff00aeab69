"""SmoothQuant: outliers of activations are moved into the weights."""

from __future__ import annotations

import numpy as np

from tenonnx_quantized.tuning.config import QuantizeConfig
from tenonnx_quantized.tuning.methods.rescale import Rescaling


def smooth_quant(rescaling: Rescaling, chosen: QuantizeConfig) -> None:
    """Divide each input channel by max|x|^a / max|w|^(1 - a) (Xiao et al. 2022, arXiv:2211.10438)."""
    assert rescaling.moments is not None
    strength = chosen.smoothing
    for group in rescaling.groups():
        inputs = np.max(
            [rescaling.by_channel(k, rescaling.moments.of(k).greatest, np.max) for k in group.layers.values()], axis=0
        )
        weights = np.max([rescaling.greatest_weights(node) for node in group.layers], axis=0)
        scale = np.maximum(inputs, 1e-5) ** strength / np.maximum(weights, 1e-5) ** (1 - strength)
        rescaling.apply(group, np.clip(scale, 1e-5, 1e5))
