"""Positions of the nearest elements in a resized tensor, computed like in frameworks and by ``Resize``."""

from __future__ import annotations

import numpy as np


def reads_as_resize(before: int, after: int, offset: float) -> bool:
    """Whether ``Resize`` reads the same elements along an axis as a framework.

    ``before`` and ``after`` are lengths. A framework reads element ``floor((k + offset) * (before / after))`` for the
    element ``k`` of the result, in float32. Runtimes of ONNX divide by ``after / before``, in float32 or float64; an
    ``offset`` of 0.5 is the mode ``half_pixel`` of ``Resize``, with the nearest mode ``round_prefer_ceil``, and 0 is
    ``asymmetric`` with ``floor``.
    """
    steps = np.arange(after) + offset
    wanted = np.floor(steps.astype(np.float32) * (np.float32(before) / np.float32(after)))
    return all(_reads(wanted, steps.astype(kind), before, after, offset) for kind in (np.float32, np.float64))


def _reads(wanted: np.ndarray, steps: np.ndarray, before: int, after: int, offset: float) -> bool:
    """Whether a runtime that computes in the dtype of ``steps`` reads the ``wanted`` elements."""
    factor = np.array(after, steps.dtype) / np.array(before, steps.dtype)
    places = np.floor(steps / factor - offset + offset)  # coordinates, rounded half up at an offset of 0.5
    return bool((np.minimum(places, before - 1) == np.minimum(wanted, before - 1)).all())
