"""Float32 rounding: tolerances from PyTorch's own difference between float32 and float64."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Allowed multiple of PyTorch's own rounding error, for another order of summation.
TIMES = 4


def assert_within_rounding(found: Any, theirs: Any, exact: Any, what: str = "") -> None:
    """Check that ``found`` is at most ``TIMES`` as far from the float64 result ``exact`` as PyTorch's float32
    ``theirs``.

    Numbers that happen to be exact in float32 may be off by their last bits, or by those of the largest number.
    """
    found, theirs, exact = (np.asarray(each, np.float64) for each in (found, theirs, exact))
    assert found.shape == exact.shape, what
    if not exact.size:
        return
    own, last = np.abs(theirs - exact).max(), np.spacing(np.float32(np.abs(exact).max()))
    allowed = TIMES * max(own, float(last))
    off = np.abs(found - exact).max()
    assert off <= allowed, f"{what}: off by {off:.2e}, where PyTorch in float32 is off by {own:.2e}"
