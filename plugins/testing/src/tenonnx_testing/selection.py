"""Selection of drawn calls that cover most features."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import numpy as np

from tenonnx_testing.cases import Call

#: Maximum number of combinations of attribute values; beyond it, none are listed.
COMBINATIONS = 64

#: Axis lengths from this one on count as the same feature.
MANY = 3

Item = TypeVar("Item")


def features(drawn: Call) -> tuple[frozenset[Hashable], frozenset[Hashable]]:
    """Features of a call, and pairs of features.

    Features are dtypes, ranks and axis lengths of the inputs, absent inputs, and attribute values.
    """
    found: set[Hashable] = set()
    lengths: set[Hashable] = set()
    for place, contents in enumerate(drawn.inputs):
        if isinstance(contents, np.ndarray):
            found |= {(place, contents.dtype.name), (place, "rank", contents.ndim)}
            found |= {(place, "axis", axis - contents.ndim, min(n, MANY)) for axis, n in enumerate(contents.shape)}
            lengths |= {(place, axis - contents.ndim, n) for axis, n in enumerate(contents.shape)}
        else:
            found.add((place, type(contents).__name__))
    kinds = [(place, v.dtype.name) for place, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray)]
    given = [(place, v is None) for place, v in enumerate(drawn.inputs)]
    values = [(name, _hashable(value)) for name, value in drawn.attributes.items()]
    return frozenset([*found, *values]), frozenset(
        [*combinations(values, 2), *product(values, lengths), *product(kinds[:1], given)]
    )


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return len(value)
    return value if isinstance(value, int | float | str) or value is None else type(value).__name__


def undrawn_combinations(drawn: Sequence[Call]) -> list[dict[str, Any]]:
    """Combinations of drawn attribute values that no call has."""
    plain = [{n: v for n, v in call.attributes.items() if isinstance(v, int | float | str)} for call in drawn]
    values: dict[str, dict[Any, None]] = {}
    for attributes in plain:
        for name, value in attributes.items():
            values.setdefault(name, {})[value] = None
    if len(values) < 2 or math.prod(map(len, values.values())) > COMBINATIONS:
        return []
    combined = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    return [attributes for attributes in combined if attributes not in plain]


def by_coverage(drawn: Sequence[Item], count: int, call_of: Callable[[Item], Call]) -> list[Item]:
    """Choose ``count`` items greedily by coverage of features, beginning with the first.

    Once all features are covered, coverage starts again. Ties are decided by new pairs of features.
    """
    if len(drawn) <= count:
        return list(drawn)
    known = [features(call_of(item)) for item in drawn]
    chosen, covered, pairs = [0], set(known[0][0]), set(known[0][1])
    left = list(range(1, len(drawn)))
    while len(chosen) < count:
        best = max(left, key=lambda k: (len(known[k][0] - covered), len(known[k][1] - pairs)))
        if not known[best][0] - covered and covered:
            covered = set()
            continue
        covered |= known[best][0]
        pairs |= known[best][1]
        chosen.append(best)
        left.remove(best)
    return [drawn[k] for k in chosen]
