"""A layer as a product of matrices, and the protocol of methods that round its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType
from tenonnx_quantized.tuning.config import WeightSettings
from tenonnx_quantized.tuning.quantized_tensor import QuantizationParameters, parameters, round_units

Array = np.ndarray[Any, Any]

#: Candidate fractions of a range for the least square error, and finer ones around the best.
_PARTS, _NEAR = np.linspace(1.0, 0.6, 9), (-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04)


@dataclass(slots=True)
class Layer:
    """``x @ weights`` with the grid of its quantized values.

    ``weights`` have shape ``[rows, columns]``; ``scale`` and ``zero_point`` have shape ``[blocks, columns]``, for
    blocks of ``block_size`` rows. With ``one_scale`` for all columns, methods may not change them. ``moment``,
    ``[rows, rows]``, is the mean of x xᵀ over the inputs of the layer. The mean square error of the outputs is the
    trace of Dᵀ · moment · D, where D is the change of the weights.
    """

    weights: Array
    scale: Array
    zero_point: Array
    dtype: DType
    block_size: int
    moment: Array
    one_scale: bool = False

    def spread(self, parameter: Array) -> Array:
        """The parameter for each weight."""
        return parameter.repeat(self.block_size, axis=0)[: len(self.weights)]

    def nearest(self, weights: Array | None = None) -> Array:
        """Weights rounded to the nearest quantized values, as integers."""
        given = self.weights if weights is None else weights
        return round_units(given / self.spread(self.scale), self.spread(self.zero_point), self.dtype)

    def numbers(self, quantized: Array) -> Array:
        """Dequantize integers."""
        return (quantized - self.spread(self.zero_point)) * self.spread(self.scale)

    def errors(self, quantized: Array) -> Array:
        """The mean square error of the layer's output, per column."""
        change = self.numbers(quantized) - self.weights
        return np.einsum("rc,rc->c", change, self.moment @ change)

    def damped(self, share: float = 0.01) -> Array:
        """The moment plus a fraction of its mean diagonal, which makes it invertible."""
        diagonal = np.diagonal(self.moment)
        mean = float(diagonal.mean()) or 1.0
        return self.moment + np.eye(len(self.moment)) * (share * mean)


#: Rounds the weights of a layer to whole numbers ``[rows, columns]``; it may replace the layer's scale and zero point.
Rounding = Callable[[Layer], Array]


def grid(
    weights: Array,
    dtype: DType,
    block_size: int,
    *,
    symmetric: bool,
    moment: Array | None = None,
    scale_type: DType = DType.float32,
) -> QuantizationParameters:
    """Scales and zero points ``[blocks, columns]`` of a matrix.

    With the ``moment`` of a layer's input, each range is clipped to minimize the mean square error of its block's
    contribution to the output, as in AWQ (Lin et al. 2023, arXiv:2306.00978). Scales that are powers of two are the
    better of two candidates even without a moment.
    """
    missing = -len(weights) % block_size
    parts = np.pad(weights, [(0, missing), (0, 0)], mode="edge").reshape(-1, block_size, weights.shape[1])
    low, high = parts.min(1), parts.max(1)
    result = parameters(low, high, dtype, symmetric=symmetric)
    unit = float(result.scale.max()) / 448 if scale_type is DType.float8e4m3fn else 1.0
    result = result.with_scale_type(scale_type, unit)
    doubling = scale_type is DType.float8e8m0
    if moment is None and not doubling:
        return result
    among = None
    if moment is not None:
        padded = np.pad(moment, (0, missing)).astype(np.float32)
        among = np.stack(
            [padded[at : at + block_size, at : at + block_size] for at in range(0, len(padded), block_size)]
        )
    scale, zero = result.scale.copy(), result.zero_point.copy()
    least, best = np.full(low.shape, np.inf), np.ones(low.shape)

    def attempt(part: Any) -> None:
        tried = parameters(low * part, high * part, dtype, symmetric=symmetric).with_scale_type(scale_type, unit)
        step, shift = tried.scale[:, None], tried.zero_point.astype(np.float32)[:, None]
        near = round_units(parts / step, shift, dtype)
        change = ((near - shift) * step - parts).astype(np.float32)
        lost = (change * (change if among is None else among @ change)).sum(1)
        better = lost < least * (1 - 1e-6)
        for kept, new in ((scale, tried.scale), (zero, tried.zero_point), (least, lost), (best, part)):
            np.copyto(kept, new, where=better)

    for part in (1.0, 0.5) if doubling else _PARTS:
        attempt(part)
    center = best.copy()
    for off in () if doubling else _NEAR:
        attempt(np.minimum(center + off, 1.0))
    return QuantizationParameters(scale, zero, dtype, scale_type, unit)


def clipping_moment(moment: Array, settings: WeightSettings) -> Array | None:
    """The moment by which ranges are clipped, or None: its diagonal for methods that compensate errors."""
    if settings.search != "mse":
        return None
    return moment if settings.rounding in ("rtn", "hqq") else np.diag(np.diagonal(moment))
