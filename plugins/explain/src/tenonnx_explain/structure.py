"""Edges of trees, level by level, for TreeSHAP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import limits
from tenonnx_explain.trees import Forest

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Level:
    """Edges of one depth: those to ``inner`` inner nodes first, then those to leaves.

    ``parent`` is the position of the edge above among the edges of the level above, and ``children`` are the positions
    of the two edges below each inner node in the level below. ``votes`` is ``float[leaves, columns]``.
    """

    parent: Array
    inner: int
    children: Array
    votes: Array


@dataclass(frozen=True, eq=False)
class Edges:
    """All edges of some trees, in the order of their levels.

    A row passes an edge where its ``column`` is at most the ``threshold``, or where it is not, as ``is_below`` says.
    ``feature`` is the feature that the column belongs to. ``above`` is the last edge of the same feature on the way
    from the root, or the number of edges where there is none. ``share`` is the share of training rows that pass an edge
    and the edges above it with the same feature; None where it is not known. A path has at most ``chain`` edges of one
    feature, and ``features`` different features.
    """

    levels: list[Level]
    column: Array
    threshold: Array
    is_below: Array
    feature: Array
    above: Array
    share: Array | None
    chain: int
    features: int

    @property
    def count(self) -> int:
        return len(self.column)

    @property
    def columns(self) -> int:
        return self.levels[-1].votes.shape[1]


def edges_of(forest: Forest, groups: Array, roots: Array, columns: Array, cover: Array | None) -> Edges:
    """The edges of the trees with these roots, with the votes for these columns.

    ``groups`` are the features of the columns of rows; ``cover`` holds the training rows of each slot.
    """
    leaf = forest.leaf
    votes = forest.votes[:, columns].astype(float)
    slots = roots[~leaf[roots]]
    way = np.zeros((len(slots), 0), np.int64)  # the edges from the root to each node
    parts: dict[str, list[Array]] = {name: [] for name in ("column", "threshold", "below", "above", "share")}
    levels: list[Level] = []
    feature = np.zeros(0, np.int64)
    chain = most = 1
    while len(slots):
        limits.check("elements", len(feature) + 2 * len(slots), "the edges of trees")
        parent, below = np.tile(np.arange(len(slots)), 2), np.repeat([False, True], len(slots))
        children = forest.following[slots[parent]] + below
        order = np.argsort(leaf[children], kind="stable")
        parent, below, children = parent[order], below[order], children[order]
        if levels:
            levels[-1].children = np.argsort(parent, kind="stable").reshape(-1, 2)
        asked = forest.features[slots[parent]]
        here = groups[asked % forest.lowered if forest.lowered else asked]
        way = way[parent]
        same = feature[way] == here[:, None]
        last = np.where(same, way, -1).max(axis=1, initial=-1)
        chain = max(chain, int(same.sum(axis=1).max(initial=0)) + 1)
        way = np.concatenate([way, len(feature) + np.arange(len(children))[:, None]], axis=1)
        feature = np.concatenate([feature, here])
        names = np.sort(feature[way], axis=1)
        most = max(most, int((np.diff(names, axis=1) != 0).sum(axis=1).max(initial=0)) + 1)
        parts["column"].append(asked)
        parts["threshold"].append(forest.thresholds[slots[parent]])
        parts["below"].append(below)
        parts["above"].append(last)
        if cover is not None:
            parts["share"].append(_share(cover[children], cover[slots[parent]]))
        inner = int((~leaf[children]).sum())
        levels.append(Level(parent, inner, np.zeros((0, 2), np.int64), votes[children[inner:]]))
        slots, way = children[:inner], way[:inner]
    joined = {name: np.concatenate(found) if found else np.zeros(0) for name, found in parts.items()}
    above = joined["above"].astype(np.int64)
    return Edges(
        levels,
        joined["column"].astype(np.int64),
        joined["threshold"],
        joined["below"].astype(bool),
        feature,
        np.where(above < 0, len(feature), above),
        _chained(joined["share"], above) if cover is not None else None,
        chain,
        most,
    )


def with_inner(forest: Forest, cover: Array) -> Array:
    """Training rows of all slots, from those of leaves."""
    found = np.where(forest.leaf, cover, np.nan)
    waiting = np.flatnonzero(~forest.leaf)
    while len(waiting):  # trees have no cycles, so that each round finds some
        found[waiting] = found[forest.following[waiting]] + found[forest.following[waiting] + 1]
        waiting = waiting[np.isnan(found[waiting])]
    return found


def mean_votes(forest: Forest, cover: Array) -> Array:
    """The sum over trees of the mean vote of their training rows, ``float[columns]``."""
    slots, weights = np.arange(forest.roots), np.ones(forest.roots)
    total = np.zeros(forest.votes.shape[1])
    while len(slots):
        ends = forest.leaf[slots]
        total += weights[ends] @ forest.votes[slots[ends]]
        slots, weights = slots[~ends], weights[~ends]
        below = np.concatenate([forest.following[slots], forest.following[slots] + 1])
        weights = np.tile(weights, 2) * _share(cover[below], np.tile(cover[slots], 2))
        slots = below
    return total


def _share(part: Array, whole: Array) -> Array:
    """A part of a whole; 0 of nothing."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _chained(share: Array, above: Array) -> Array:
    """Shares times those of all edges above of the same feature."""
    found, steps = share.copy(), above.copy()
    while (going := np.flatnonzero(steps >= 0)).size:
        found[going] *= share[steps[going]]
        steps[going] = above[steps[going]]
    return found
