"""The edges of tree ensembles by level, for TreeSHAP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import limits
from tenonnx_explain.trees import Forest

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Level:
    """Edges of one depth: first the edges to inner nodes, of which there are ``inner``, then the edges to leaves.

    ``parent`` has for each edge the index of its parent edge in the previous level. ``children`` ``[inner, 2]`` has the
    indices of the child edges in the next level. ``votes`` is ``float[leaves, columns]``.
    """

    parent: Array
    inner: int
    children: Array
    votes: Array


@dataclass(frozen=True, eq=False)
class Edges:
    """All edges of a set of trees, level by level.

    A row passes an edge if ``row[column] <= threshold`` equals ``is_below``. ``feature`` is the feature of the column.
    ``above`` is the nearest ancestor edge with the same feature, or the number of edges if there is none. ``share`` is
    the fraction of training rows that pass the edge and all ancestor edges of its feature; None if unknown. A path has
    at most ``chain`` edges of one feature, and ``features`` different features.
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
    """The edges of the trees with these roots, with the votes for these score columns.

    ``groups`` maps columns of the rows to features; ``cover`` is the number of training rows of each slot. Raises
    ``LimitExceeded`` for too many edges.
    """
    leaf = forest.leaf
    votes = forest.votes[:, columns].astype(float)
    slots = roots[~leaf[roots]]
    path = np.zeros((len(slots), 0), np.int64)  # the edges from the root to each node
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
        column = forest.features[slots[parent]]
        here = groups[column % forest.lowered if forest.lowered else column]
        path = path[parent]
        same = feature[path] == here[:, None]
        last = np.where(same, path, -1).max(axis=1, initial=-1)
        chain = max(chain, int(same.sum(axis=1).max(initial=0)) + 1)
        path = np.concatenate([path, len(feature) + np.arange(len(children))[:, None]], axis=1)
        feature = np.concatenate([feature, here])
        names = np.sort(feature[path], axis=1)
        most = max(most, int((np.diff(names, axis=1) != 0).sum(axis=1).max(initial=0)) + 1)
        parts["column"].append(column)
        parts["threshold"].append(forest.thresholds[slots[parent]])
        parts["below"].append(below)
        parts["above"].append(last)
        if cover is not None:
            parts["share"].append(_share(cover[children], cover[slots[parent]]))
        inner = int((~leaf[children]).sum())
        levels.append(Level(parent, inner, np.zeros((0, 2), np.int64), votes[children[inner:]]))
        slots, path = children[:inner], path[:inner]
    joined = {name: np.concatenate(arrays) if arrays else np.zeros(0) for name, arrays in parts.items()}
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
    """The number of training rows of all slots, summed up from the leaves."""
    counts = np.where(forest.leaf, cover, np.nan)
    waiting = np.flatnonzero(~forest.leaf)
    while len(waiting):  # terminates, since trees have no cycles
        counts[waiting] = counts[forest.following[waiting]] + counts[forest.following[waiting] + 1]
        waiting = waiting[np.isnan(counts[waiting])]
    return counts


def mean_votes(forest: Forest, cover: Array) -> Array:
    """The sum over trees of the mean vote over the training rows, ``float[columns]``."""
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


def _share(part: Array, total: Array) -> Array:
    """The fraction ``part / total``; 0 if the total is 0."""
    return np.divide(part, total, out=np.zeros(len(part)), where=total > 0)


def _chained(share: Array, above: Array) -> Array:
    """Multiply the share of each edge by the shares of all ancestor edges of the same feature."""
    products, ancestors = share.copy(), above.copy()
    while (going := np.flatnonzero(ancestors >= 0)).size:
        products[going] *= share[ancestors[going]]
        ancestors[going] = above[ancestors[going]]
    return products
