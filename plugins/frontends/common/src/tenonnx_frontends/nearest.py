"""Resizing to the nearest elements, whose positions frameworks and ``Resize`` round in different ways."""

from __future__ import annotations

import numpy as np


def reads_as_resize(before: int, after: int, offset: float) -> bool:
    """Whether ``Resize`` reads the same elements along an axis as a framework.

    ``before`` and ``after`` are lengths. A framework reads element ``floor((k + offset) * (before / after))`` for the
    element ``k`` of the result, in float32. Runtimes of ONNX divide by ``after / before``, in float32 or float64; an
    ``offset`` of 0.5 is the mode ``half_pixel`` of ``Resize``, with the nearest mode ``round_prefer_ceil``, and 0 is
    ``asymmetric`` with ``floor``.
    """
    steps = np.arange(after, dtype=np.float32) + np.float32(offset)
    wanted = np.minimum(np.floor(steps * (np.float32(before) / np.float32(after))), before - 1)
    for kind in (np.float32, np.float64):
        places = steps.astype(kind) / (kind(after) / kind(before)) - kind(offset)
        if not np.array_equal(np.minimum(np.floor(places + kind(offset)), before - 1), wanted):
            return False
    return True
