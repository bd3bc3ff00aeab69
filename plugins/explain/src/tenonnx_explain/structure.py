"""The paths of tree ensembles from roots to leaves, for TreeSHAP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import limits
from tenonnx_explain.trees import Forest

Array = np.ndarray[Any, Any]


#: Step of the numbers of features by which paths are grouped.
_STEP = 4


@dataclass(frozen=True, eq=False)
class PathGroup:
    """Paths to leaves with similar numbers of features.

    ``edges`` ``[paths, features]`` has the deepest edge of each feature of a path, and the number of edges where a path
    has fewer features; there, ``feature`` is -1. ``votes`` is ``float[paths, columns]``.
    """

    edges: Array
    feature: Array
    votes: Array


@dataclass(frozen=True, eq=False)
class Paths:
    """All edges of a set of trees, and the paths from their roots to their leaves.

    A row passes an edge if ``row[column] <= threshold`` equals ``is_below``. ``above`` is the nearest ancestor edge of
    the same feature, or the number of edges if there is none. ``share`` is the fraction of training rows that pass the
    edge and all ancestor edges of its feature; None if unknown. A path has at most ``chain`` edges of one feature.
    """

    groups: list[PathGroup]
    column: Array
    threshold: Array
    is_below: Array
    above: Array
    share: Array | None
    chain: int

    @property
    def count(self) -> int:
        """The number of edges."""
        return len(self.column)

    @property
    def columns(self) -> int:
        """The number of columns of votes."""
        return self.groups[0].votes.shape[1]


def paths_of(forest: Forest, groups: Array, roots: Array, columns: Array, cover: Array | None) -> Paths:
    """The paths of the trees with these roots, with the votes for these score columns.

    ``groups`` maps columns of the rows to features; ``cover`` is the number of training rows of each slot. Raises
    ``LimitExceeded`` for too many edges.
    """
    leaf = forest.leaf
    votes = forest.votes[:, columns].astype(float)
    slots = roots[~leaf[roots]]
    path = np.zeros((len(slots), 0), np.int64)  # the last edge of each feature from the root to each node, or -1
    parts: dict[str, list[Array]] = {name: [] for name in ("column", "threshold", "below", "above", "share")}
    ends: list[tuple[Array, Array]] = []
    feature, run = np.zeros(0, np.int64), np.zeros(0, np.int64)
    while len(slots):
        limits.check("elements", len(feature) + 2 * len(slots), "the edges of trees")
        parent, below = np.tile(np.arange(len(slots)), 2), np.repeat([False, True], len(slots))
        children = forest.following[slots[parent]] + below
        column = forest.features[slots[parent]]
        here = groups[column % forest.lowered if forest.lowered else column]
        path = path[parent]
        same = (path >= 0) & (feature[path] == here[:, None])
        last = np.where(same, path, -1).max(axis=1, initial=-1)
        run = np.concatenate([run, np.where(last >= 0, run[last], 0) + 1 if len(run) else np.ones(len(last), np.int64)])
        path = np.concatenate([np.where(same, -1, path), len(feature) + np.arange(len(children))[:, None]], axis=1)
        feature = np.concatenate([feature, here])
        parts["column"].append(column)
        parts["threshold"].append(forest.thresholds[slots[parent]])
        parts["below"].append(below)
        parts["above"].append(last)
        if cover is not None:
            parts["share"].append(_share(cover[children], cover[slots[parent]]))
        end = leaf[children]
        ends.append((path[end], votes[children[end]]))
        slots, path = children[~end], path[~end]
    joined = {name: np.concatenate(arrays) if arrays else np.zeros(0) for name, arrays in parts.items()}
    above = joined["above"].astype(np.int64)
    return Paths(
        _grouped(ends, feature),
        joined["column"].astype(np.int64),
        joined["threshold"],
        joined["below"].astype(bool),
        np.where(above < 0, len(feature), above),
        _chained(joined["share"], above) if cover is not None else None,
        int(run.max(initial=1)),
    )


def _grouped(ends: list[tuple[Array, Array]], feature: Array) -> list[PathGroup]:
    """The paths of all levels, which end with the edges ``ends``, in groups by the number of their features."""
    by_width: dict[int, list[tuple[Array, Array]]] = {}
    for path, votes in ends:
        path = -np.sort(-path, axis=1)  # edges first, then -1
        widths = -(-(path >= 0).sum(axis=1) // _STEP) * _STEP
        for width in np.unique(widths):
            chosen = path[widths == width]
            chosen = np.pad(chosen, ((0, 0), (0, max(0, width - path.shape[1]))), constant_values=-1)[:, :width]
            by_width.setdefault(int(width), []).append((chosen, votes[widths == width]))
    groups = []
    for _, members in sorted(by_width.items()):
        edges, votes = (np.concatenate(arrays) for arrays in zip(*members, strict=True))
        most = int((edges >= 0).sum(axis=1).max())
        edges = edges[:, :most]
        groups.append(
            PathGroup(np.where(edges < 0, len(feature), edges), np.where(edges < 0, -1, feature[edges]), votes)
        )
    return groups


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
