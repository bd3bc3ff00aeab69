"""Cross-layer equalization: channels between two layers get ranges of equal size in both."""

from __future__ import annotations

import numpy as np

from tenonnx_quantized.tuning.config import QuantizeConfig
from tenonnx_quantized.tuning.methods.rescale import Rescaling

#: Maximum passes over all pairs.
_ROUNDS = 20


def equalize(rescaling: Rescaling, chosen: QuantizeConfig) -> None:
    """Scale the channels between pairs of layers so that the ranges of both layers' weights are equal, channel by
    channel (Nagel et al. 2019, arXiv:1906.04721, section 4.1). Needs no data."""
    pairs = [group for group in rescaling.groups() if group.before is not None]
    for _ in range(_ROUNDS):
        furthest = 0.0
        for group in pairs:
            assert group.before is not None
            weights, axis = next(fold for fold in group.folds if fold[0] is group.before.inputs[1])
            size = np.abs(rescaling.contents(weights))
            before = size.max(tuple(k for k in range(size.ndim) if k != axis % size.ndim))
            after = np.max([rescaling.greatest_weights(node) for node in group.layers], axis=0)
            known = (before > 0) & (after > 0)
            scale = np.sqrt(np.where(known, before, 1.0) / np.where(known, after, 1.0))
            furthest = max(furthest, float(np.abs(np.log(scale)).max(initial=0.0)))
            rescaling.apply(group, scale)
        if furthest < 1e-3:
            break
