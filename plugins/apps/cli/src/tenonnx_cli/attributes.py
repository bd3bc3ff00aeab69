"""Attributes of nodes as text and JSON, and statistics of weights."""

from __future__ import annotations

from typing import Any

#: Maximum length of an attribute's text.
LONGEST = 60

#: Maximum number of list items and tensor elements shown.
ITEMS = 20


def attribute_text(value: Any) -> str:
    """An attribute as short text."""
    if hasattr(value, "array"):
        array = value.array()
        text = f"{value.type} {array.tolist()}" if array.size <= ITEMS else str(value.type)
    elif hasattr(value, "nodes"):
        text = f'graph "{value.name}"'
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, float):
        text = f"{value:.7g}"
    elif isinstance(value, list | tuple):
        more = f" and {len(value) - ITEMS:,} more" if len(value) > ITEMS else ""
        text = f"[{', '.join(map(attribute_text, value[:ITEMS]))}{more}]"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def attribute_json(value: Any) -> Any:
    """An attribute as JSON: numbers, strings and lists unchanged, tensors as their type and some values."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and value - value == 0:
        return value
    if isinstance(value, list | tuple):
        return [attribute_json(each) for each in value]
    return attribute_text(value)


def statistics(array: Any) -> dict[str, float | None]:
    """Minimum, maximum, mean and share of zeros of the finite numbers; None if there are none."""
    import numpy as np

    numbers = np.asarray(array)
    if numbers.dtype.kind in "OUTSc" or numbers.size == 0:
        return dict.fromkeys(("minimum", "maximum", "mean", "zeros"))
    zeros = float(1 - np.count_nonzero(numbers) / numbers.size)
    wide = numbers.astype(np.float64) if numbers.dtype.kind != "f" or numbers.itemsize < 8 else numbers
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return {"minimum": None, "maximum": None, "mean": None, "zeros": zeros}
    return {
        "minimum": float(finite.min()),
        "maximum": float(finite.max()),
        "mean": float(finite.mean()),
        "zeros": zeros,
    }
