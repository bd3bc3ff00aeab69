"""Decision trees as flat arrays, with one kind of comparison for all modes.

A row is at a *slot* of each tree. A branch moves it to the slot ``following`` if its feature is greater than the
threshold or missing, else to the next one after that. A leaf compares with NaN, which is never true, and thus keeps the
row. All comparisons of the specification reduce to this one:

- ``x < t`` is ``x <= p``, where ``p`` is the number before ``t``; ``>`` and ``>=`` swap the two children;
- ``x == t`` is ``x <= t`` and not ``x <= p``; a set is searched by bisection for its least member not below ``x``;
- if a missing value goes the other way, the branch reads a copy of the feature in which NaN is minus infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import TypeMismatch

Array = np.ndarray[Any, Any]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """The inner nodes of all trees, in any order.

    A child is a branch ``k``, or a leaf ``j`` encoded as ``-1 - j``. ``members`` are the sets of the branches with mode
    MEMBER, in order.
    """

    features: Array
    thresholds: Array
    modes: Array
    yes: Array
    no: Array
    missing_is_yes: Array
    roots: Array
    members: Sequence[Array] = ()

    @property
    def least_features(self) -> int:
        """Minimum number of features of a row."""
        return int(self.features.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Slots of all trees, the roots first; ``leaves`` has the leaf of each slot.

    ``lowered`` is the number of features that have a copy with minus infinity for missing values; the copies come
    first. ``heights`` are the maximum steps below each slot; ``depth`` is their maximum.
    """

    features: Array
    thresholds: Array
    following: Array
    leaves: Array
    heights: Array
    count: int
    depth: int
    lowered: int


def planted(branches: Branches, dtype: Any) -> Trees:
    """Build trees that compare in ``dtype``. Raises ``TypeMismatch`` if a branch leads back to itself."""
    features, thresholds, below, above, low = _as_less_or_equal(branches, dtype)
    levels = _levels(below, above)
    order = np.concatenate([np.zeros(0, np.intp), *levels])
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    count = len(branches.roots)
    nodes = np.concatenate([branches.roots, np.stack([above[order], below[order]], axis=1).reshape(-1)])
    slots = np.arange(len(nodes), dtype=np.int32)
    if not len(order):
        zeros = np.zeros(len(nodes), np.int32)
        return Trees(zeros, np.full(len(nodes), np.nan, dtype), slots, -1 - nodes, zeros, count, 0, 0)
    inner = nodes >= 0
    branch = np.where(inner, nodes, 0)
    heights = np.zeros(len(order) + 1, np.int32)  # the last entry is that of leaves, for index -1
    for level in reversed(levels):
        ways = np.stack([below[level], above[level]])
        heights[level] = 1 + heights[np.where(ways >= 0, ways, -1)].max(axis=0)
    lowered = branches.least_features if low.any() else 0
    split_values = features + np.where(low, 0, lowered)
    return Trees(
        np.where(inner, split_values[branch], 0).astype(np.int32),
        np.where(inner, thresholds[branch], np.nan).astype(dtype),
        np.where(inner, count + 2 * place[branch], slots).astype(np.int32),
        np.where(inner, 0, -1 - nodes).astype(np.int32),
        heights[np.where(inner, nodes, -1)],
        count,
        len(levels),
        lowered,
    )


def _as_less_or_equal(branches: Branches, dtype: Any) -> tuple[Array, Array, Array, Array, Array]:
    """Reduce all branches to ``<=``: features, thresholds, and the children for lower and for greater values.

    The last array marks branches that treat a missing value as minus infinity.
    """
    modes, t = branches.modes, branches.thresholds.astype(dtype)
    yes, no = branches.yes, branches.no
    turned = ((modes == GTE) | (modes == GT)) & ~np.isnan(t)
    below, above = np.where(turned, no, yes), np.where(turned, yes, no)
    low = branches.missing_is_yes != turned
    thresholds = np.where((modes == LT) | (modes == GTE), _before(t), t)
    if modes.max(initial=LEQ) <= GT:
        return branches.features, thresholds, below, above, low
    unequal = modes == NEQ
    yes, no = np.where(unequal, no, yes), np.where(unequal, yes, no)
    tests = _Tests(branches.features, yes, no)
    equal = np.flatnonzero((modes == EQ) | unequal)
    above[equal], low[equal] = no[equal], branches.missing_is_yes[equal] ^ unequal[equal]
    below[equal] = tests.add(equal, _before(t[equal]), no[equal], yes[equal])
    for k, members in zip(np.flatnonzero(modes == MEMBER), branches.members, strict=True):
        members = np.unique(members.astype(dtype))
        if members.size:
            thresholds[k], below[k] = members[-1], tests.search(k, members)
        else:
            thresholds[k], below[k] = -np.inf, no[k]
    more = tests.arrays()
    return (
        np.concatenate([branches.features, branches.features[more[0]]]),
        np.concatenate([thresholds, more[1].astype(dtype)]),
        np.concatenate([below, more[2]]),
        np.concatenate([above, more[3]]),
        np.concatenate([low, np.zeros(len(more[0]), bool)]),
    )


class _Tests:
    """Additional branches, which test for equality after ``<=`` has succeeded."""

    def __init__(self, features: Array, yes: Array, no: Array) -> None:
        self.first = self.next = len(features)
        self.yes, self.no = yes, no
        self.added: list[tuple[Any, Any, Any, Any]] = []

    def add(self, asking: Any, threshold: Any, below: Any, above: Any) -> Array:
        """Add tests of the features of the branches ``asking``; returns their indices."""
        count = np.size(asking)
        self.added.append((asking, threshold, below, above))
        self.next += count
        return np.arange(self.next - count, self.next)

    def search(self, k: int, members: Array) -> int:
        """Add a bisection that tests whether the feature of branch ``k``, at most the last member, is a member."""
        if len(members) == 1:
            return int(self.add(k, _before(members[0]), self.no[k], self.yes[k])[0])
        middle = len(members) // 2
        below, above = self.search(k, members[:middle]), self.search(k, members[middle:])
        return int(self.add(k, members[middle - 1], below, above)[0])

    def arrays(self) -> tuple[Array, Array, Array, Array]:
        columns = zip(*self.added, strict=True)
        asking, thresholds, below, above = (np.concatenate([np.ravel(c) for c in column]) for column in columns)
        return asking, thresholds, below, above


def _before(numbers: Array) -> Array:
    """The next smaller number of the dtype; NaN for minus infinity, since nothing is <= NaN."""
    with np.errstate(over="ignore"):
        before = np.nextafter(numbers, numbers.dtype.type(-np.inf))
    return np.where(np.isneginf(numbers), np.nan, before)


def _levels(below: Array, above: Array) -> list[Array]:
    """The branches by the maximum number of steps to them."""
    ways = np.stack([below, above], axis=1)
    waiting = np.bincount(ways[ways >= 0], minlength=len(below))
    levels, ready, seen = [], np.flatnonzero(waiting == 0), 0
    while ready.size:
        levels.append(ready)
        seen += ready.size
        children = ways[ready]
        children = children[children >= 0]
        np.subtract.at(waiting, children, 1)
        ready = np.unique(children[waiting[children] == 0])
    if seen < len(below):
        raise TypeMismatch(
            "nodes_truenodeids and nodes_falsenodeids form a cycle",
            given=f"a cycle with what it leads to, {len(below) - seen} in all",
            do="make every path end at a leaf",
        )
    return levels
