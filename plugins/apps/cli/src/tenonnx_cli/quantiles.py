"""Quantiles of the differences between outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx_cli.output import say, say_table

#: Reported quantiles.
SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def quantiles(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Quantiles of absolute differences, by output and share of elements. NaN equals NaN."""
    import numpy as np

    result = {}
    for name, ours in expected.items():
        theirs: Any = actual.get(name)
        if not all(isinstance(each, np.ndarray) and each.dtype.kind not in "OUSb" for each in (ours, theirs)):
            continue
        if ours.shape != theirs.shape or not ours.size:
            continue
        kind = np.complex128 if "c" in (ours.dtype.kind, theirs.dtype.kind) else np.float64
        one, two = theirs.astype(kind), ours.astype(kind)
        with np.errstate(invalid="ignore"):
            difference = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0.0, np.abs(one - two))
        difference = np.nan_to_num(difference, nan=np.finfo(np.float64).max, posinf=np.finfo(np.float64).max)
        numbers = np.quantile(difference, SHARES, method="higher")
        result[name] = {f"{share:g}": float(number) for share, number in zip(SHARES, numbers, strict=True)}
    return result


def say_quantiles(found: Mapping[str, Mapping[str, float]]) -> None:
    """Print a row for each output."""
    rows = [(name, *(f"{number:.3g}" for number in row.values())) for name, row in found.items()]
    if rows:
        say()
        say_table(rows, ("differences (numpy)", *(f"{share:.4g}%" for share in (100 * each for each in SHARES))))
