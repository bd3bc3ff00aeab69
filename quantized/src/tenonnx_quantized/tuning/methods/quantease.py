"""QuantEase: coordinate descent on the error of a layer's output."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_quantized.tuning.methods.gptq import gptq
from tenonnx_quantized.tuning.methods.layer import Layer
from tenonnx_quantized.tuning.quantized_tensor import round_units

Array = np.ndarray[Any, Any]

#: Maximum passes over all rows.
_PASSES = 20


def quantease(layer: Layer) -> Array:
    """Round by cyclic coordinate descent (Behdin et al. 2023, arXiv:2309.01885), from the result of GPTQ on.

    Each row in turn is set to the quantized values that minimize the error of the layer's output, given all other
    rows. The error never grows."""
    quantized = gptq(layer)
    moment = layer.moment.astype(np.float64)
    scale, zero = layer.spread(layer.scale), layer.spread(layer.zero_point).astype(np.float64)
    change = layer.numbers(quantized).astype(np.float64) - layer.weights
    slope = moment @ change
    for _ in range(_PASSES):
        moved = 0
        for row, curvature in enumerate(np.diagonal(moment)):
            if curvature <= 0:
                continue
            wanted = layer.weights[row] + change[row] - slope[row] / curvature
            near = round_units(wanted / scale[row], zero[row], layer.dtype)
            step = (near - quantized[row]) * scale[row]
            if not step.any():
                continue
            moved += int(np.count_nonzero(step))
            quantized[row] = near
            change[row] += step
            slope += moment[:, row, None] * step
        if not moved:
            break
    return quantized
