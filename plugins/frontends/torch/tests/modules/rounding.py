"""Rounding of float32: the distance of PyTorch itself from the same in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

#: By how much the rounding of another order of sums may be larger than PyTorch's own.
TIMES = 4


def assert_within_rounding(found: Any, theirs: Any, exact: Any, what: str = "") -> None:
    """``found`` is as close to ``exact``, PyTorch's in float64, as ``theirs``, PyTorch's in float32, but for ``TIMES``.

    A number that happens to be right in float32 may be off by its last bits, as may one of the size of the largest.
    """
    found, theirs, exact = (np.asarray(each, np.float64) for each in (found, theirs, exact))
    assert found.shape == exact.shape, what
    if not exact.size:
        return
    own, last = np.abs(theirs - exact).max(), np.spacing(np.float32(np.abs(exact).max()))
    allowed = TIMES * max(own, float(last))
    off = np.abs(found - exact).max()
    assert off <= allowed, f"{what}: off by {off:.2e}, where PyTorch in float32 is off by {own:.2e}"
