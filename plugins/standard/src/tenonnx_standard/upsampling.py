"""Upsample, the predecessor of Resize."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import REQUIRED, TypeMismatch, constant, holds, op, static
from tenonnx_standard.resizing import resize, resize_asymmetric


@op("Upsample", before=10)
def upsample(X, scales, *, mode="nearest"):
    """Enlarge ``X`` along its axes, keeping element 0 in place."""
    return resize(X, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


upsample.until(9, attributes=["scales"], defaults={"scales": REQUIRED})


@resize_asymmetric.lower(to=upsample)
def resize_asymmetric_to_upsample(X, scales, *, mode):
    contents = static(scales)
    return upsample(X, scales, mode=mode) if contents is not None and (contents >= 1).all() else None


@upsample.until(7)
def upsample_2d(X, *, height_scale: float, mode="nearest", width_scale: float):
    """Enlarge the two axes of images; linear interpolation is called bilinear."""
    if X.ndim != 4:
        raise TypeMismatch(f"{upsample_2d.title}: shape of X is not (batch, channels, height, width)", given=repr(X))
    mode = "linear" if mode == "bilinear" else mode
    return upsample(X, constant(np.asarray([1, 1, height_scale, width_scale], np.float32)), mode=mode)


def _hold_scales(height_scale: float, width_scale: float) -> str | None:
    return None if height_scale > 0 and width_scale > 0 else "height_scale or width_scale is not greater than 0"


upsample_2d.requires(holds(_hold_scales))


@upsample.lower(to=upsample_2d)
def upsample_to_upsample_2d(X, scales, *, mode):
    contents = static(scales)
    if contents is None or contents.size != 4 or contents[0] != 1 or contents[1] != 1:
        return None
    height, width = (float(n) for n in contents[2:])
    return upsample_2d(X, height_scale=height, width_scale=width, mode="bilinear" if mode == "linear" else mode)
