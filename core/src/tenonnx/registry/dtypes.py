"""Which types an op takes at which version: data files that packages ship, and how types are numbered in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from tenonnx.graph.types import OptionalType, SequenceType, TensorType, Type


def load_dtypes(package: str, name: str = "dtypes.json") -> Mapping[str, Any]:
    """The table of a package's data file: op to version to ``{"inputs": [...], "outputs": [...]}``.

    Each entry is the set of type codes that are allowed there, or None for any; the last one holds for all further
    (variadic) positions.
    """
    data = json.loads(resources.files(package).joinpath(name).read_text("utf-8"))
    sets = [None if codes is None else frozenset(codes) for codes in data["sets"]]
    return {
        op: {
            version: {"inputs": [sets[k] for k in inputs], "outputs": [sets[k] for k in outputs]}
            for version, (inputs, outputs) in versions.items()
        }
        for op, versions in data["ops"].items()
    }


def type_code(kind: Type | None) -> int | None:
    """The number of a type: the code of the element type, plus 100 in a sequence and 200 in an optional."""
    if isinstance(kind, TensorType):
        return int(kind.dtype)
    if isinstance(kind, SequenceType | OptionalType):
        inner = type_code(kind.element)
        return None if inner is None else inner + (100 if isinstance(kind, SequenceType) else 200)
    return None
