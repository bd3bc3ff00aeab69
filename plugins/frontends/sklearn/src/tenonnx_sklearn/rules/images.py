"""Patches of images."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.conversion import Outputs, converts, refusal


@converts("sklearn.PatchExtractor")
def patch_extractor(model: Any, X: Value) -> Outputs:
    """All patches of images in row-major order: ``[images * patches, height, width, ...]``."""
    if model.max_patches is not None:
        raise refusal(model, f"max_patches={model.max_patches}, by which patches are drawn at random")
    height, width, channels = int(X.shape[1]), int(X.shape[2]), [int(size) for size in X.shape[3:]]
    high, wide = (height // 10, width // 10) if model.patch_size is None else model.patch_size
    if not high or not wide:
        raise refusal(model, f"patches of {high} x {wide}, a tenth of the images")
    down, across = np.arange(height - high + 1)[:, None] + np.arange(high), np.arange(width - wide + 1)[:, None]
    patches = ops.gather(ops.gather(X, down, axis=1), across + np.arange(wide), axis=3)
    order = [0, 1, 3, 2, 4, *range(5, 5 + len(channels))]
    sizes = np.array([-1, high, wide, *channels], np.int64)
    return {"transform": ops.reshape(ops.transpose(patches, perm=order), sizes)}
