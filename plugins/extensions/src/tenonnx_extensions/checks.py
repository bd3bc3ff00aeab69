"""Requirements and array helpers that the ops of this package share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, Op, TensorType, TypeMismatch, import_optional, limits

Array = np.ndarray[Any, Any]

DOMAIN = "ai.onnx.contrib"


def strings(items: Sequence[str], shape: tuple[int, ...] | None = None) -> Array:
    """An array of strings, a vector without ``shape``. Raises ``LimitExceeded`` if it needs too much memory."""
    limits.check_memory(limits.text_bytes(items), "text")
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array if shape is None else array.reshape(shape)


def mapped(function: Callable[[str], Any], array: Array, dtype: Any = object) -> Array:
    """Apply a function to each string, keeping the shape of ``array``."""
    found = [function(text) for text in array.reshape(-1).tolist()]
    return strings(found, array.shape) if dtype is object else np.asarray(found, dtype=dtype).reshape(array.shape)


def single(op: Op, name: str, array: Array) -> Any:
    """The only element of an input. Raises ``TypeMismatch`` if it has several or none."""
    if array.size != 1:
        raise TypeMismatch(f'{op.title}: "{name}" does not have one element', given=f"shape {list(array.shape)}")
    return array.reshape(-1)[0].item() if array.dtype != object else array.reshape(-1)[0]


def padded(rows: Sequence[Sequence[int]], fill: int, length: int | None = None) -> Array:
    """Rows as an int64 matrix, truncated or padded to ``length``, or to the longest."""
    width = max(map(len, rows), default=0) if length is None else length
    matrix = np.full(limits.sized((len(rows), width), "the ids"), fill, dtype=np.int64)
    for line, row in zip(matrix, rows, strict=True):
        line[: len(row)] = row[:width]
    return matrix


def vector(dtype: DType) -> TensorType:
    """The type of a vector whose length depends on the data."""
    return TensorType(dtype, (None,))


def module(name: str, extra: str) -> Any:
    """Import an optional package. Raises ``TypeMismatch`` with installation advice if it is missing."""
    try:
        return import_optional(name, "compute the op", install=f"tenonnx-extensions[{extra}]")
    except InvalidCall as error:
        raise error.as_a(TypeMismatch) from error


def table(op: Op, text: str) -> dict[str, str]:
    """The key-value pairs of an attribute with a pair per line, separated by a tab; the last of equal keys is used."""
    lines = [line for line in text.split("\n") if line]
    broken = next((line for line in lines if "\t" not in line), None)
    if broken is not None:
        raise TypeMismatch(f'{op.title}: a line of "map" has no tab', given=broken)
    return {key: value for key, _, value in (line.partition("\t") for line in lines)}


def integers(op: Op, name: str, texts: Iterable[str]) -> list[int]:
    """Parse integers of an attribute. Raises ``TypeMismatch`` for other text."""
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise TypeMismatch(f'{op.title}: "{name}" holds something other than integers', given=str(error)) from error


def parsed(op: Op, name: str, text: str) -> Any:
    """Parse an attribute as a JSON object. Raises ``TypeMismatch`` for other text."""
    try:
        result = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TypeMismatch(f'{op.title}: "{name}" is not JSON', given=str(error)) from error
    if not isinstance(result, dict):
        raise TypeMismatch(f'{op.title}: "{name}" is not a JSON object', given=type(result).__name__)
    return result
