"""QuickScorer: evaluation of the upper parts of trees by bit masks of reachable leaves, without branches.

The idea of QuickScorer (Lucchese et al., 2015, "QuickScorer: a fast algorithm to rank documents with additive ensembles
of regression trees"): the exits of a tree are bits of a word, those where a question holds first. A question that does
not hold takes away the exits on its other side, and the first exit that all questions left is the one that is reached.
What the questions of a feature leave depends on how many of their thresholds are below it, so it is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx_onnx_ml.trees import Trees

Array = np.ndarray[Any, Any]

#: So many exits a tree has at most: the bits of the widest word.
EXITS = 64

#: So many bytes of words, those of a group of trees, are looked up at once.
LOOKED_UP = 128


@dataclass(frozen=True, slots=True, eq=False)
class QuickScorer:
    """The upper parts of trees, which end at the slots ``exits`` [trees, EXITS].

    Of each of the ``features`` that they ask for, ``thresholds`` are sorted, with infinity behind, and NaN behind that.
    ``places`` [ranks, groups of trees] of each tell where in ``words`` stands what so many thresholds below the feature
    leave. ``depth`` is how many steps may lead from an exit to a leaf, ``inner`` which of all slots are no leaves.
    """

    features: Array
    thresholds: Sequence[Array]
    places: Sequence[Array]
    words: Array
    exits: Array
    depth: int
    inner: Array

    def passed(self, x: Array) -> Array:
        """The slots at which rows leave the tops of the trees, as [trees, rows]."""
        shape, count = (len(x), self.places[0].shape[1], self.words.shape[1]), len(self.exits)
        left, found = np.full(shape, -1).astype(self.words.dtype), np.empty(shape, self.words.dtype)
        for feature, thresholds, places in zip(self.features, self.thresholds, self.places, strict=True):
            ranks = thresholds.searchsorted(x[:, feature])
            self.words.take(places.take(ranks, axis=0, mode="clip"), axis=0, out=found, mode="clip")
            np.bitwise_and(left, found, out=left)
        left = left.reshape(len(x), -1)[:, :count]
        first = np.bitwise_count((left - left.dtype.type(1)) & ~left)
        trees = np.arange(0, count * EXITS, EXITS)
        return self.exits.reshape(-1).take(np.add(first.T, trees[:, None], order="C"), mode="clip")


def quick_scorer(trees: Trees) -> QuickScorer:
    """The tops of trees: of the branches those from which most steps may follow, as many as there are words for."""
    slots, tree, rounds = _expanded(trees)
    below, inner = np.ones(len(slots), np.int64), []
    for parents, first in reversed(rounds):
        children = first + 2 * np.arange(len(parents))
        below[parents] = below[children] + below[children + 1]
    start = np.zeros(len(slots), np.int64)
    is_exit = np.ones(len(slots), bool)
    for parents, first in rounds:
        children = first + 2 * np.arange(len(parents))
        start[children + 1] = start[parents]
        start[children] = start[parents] + below[children + 1]
        is_exit[parents] = False
        inner.append(np.stack([parents, children + 1], axis=1))
    exits = np.zeros((trees.count, EXITS), np.int32)
    exits[tree[is_exit], start[is_exit]] = slots[is_exit]
    asking, held = np.concatenate(inner).T
    words = _without(start[held], below[held], int(below[: trees.count].max()))
    depth = int(trees.heights[slots[is_exit]].max())
    return QuickScorer(*_looked_up(trees, slots[asking], tree[asking], words), exits, depth, trees.heights > 0)


def _expanded(trees: Trees) -> tuple[Array, Array, list[tuple[Array, int]]]:
    """Slots and their trees, the roots first, and how they follow each other, by rounds.

    A round tells which of them are asked, and where those begin that follow: two for each, the one above first.
    """
    slots = tree = np.arange(trees.count)
    size, rounds = np.ones(trees.count, np.int64), []
    waiting = slots[~np.isnan(trees.thresholds[: trees.count])]
    for height in range(trees.depth, 0, -1):
        now = trees.heights[slots[waiting]] == height
        chosen, waiting = waiting[now], waiting[~now]
        chosen = chosen[np.argsort(tree[chosen], kind="stable")]
        of = tree[chosen]
        chosen = chosen[np.arange(len(of)) - np.searchsorted(of, of) < EXITS - size[of]]
        if not chosen.size:
            continue
        rounds.append((chosen, len(slots)))
        following = (trees.following[slots[chosen], None] + np.arange(2)).reshape(-1)
        asks = np.flatnonzero(~np.isnan(trees.thresholds[following]))
        waiting = np.concatenate([waiting, len(slots) + asks])
        slots = np.concatenate([slots, following])
        tree = np.concatenate([tree, tree[chosen].repeat(2)])
        size += np.bincount(tree[chosen], minlength=trees.count)
    return slots, tree, rounds


def _without(start: Array, count: Array, most: int) -> Array:
    """Words of the least width for so many exits, in which ``count`` bits from ``start`` are missing."""
    one = np.uint64(1)
    words = ~(((one << count.astype(np.uint64)) - one) << start.astype(np.uint64))
    return words.astype(next(f"u{size}" for size in (1, 2, 4, 8) if 8 * size >= most))


def _looked_up(trees: Trees, slots: Array, tree: Array, words: Array) -> tuple[Array, list[Array], list[Array], Array]:
    """Tables of ``QuickScorer`` for the questions of ``slots``, each of which leaves one of the words of its tree.

    Words of a feature and a group of trees are what is left by no threshold, by ever more of them, and by NaN.
    """
    lowered = trees.features[slots] < trees.lowered
    features, feature = np.unique(trees.features[slots] - np.where(lowered, 0, trees.lowered), return_inverse=True)
    width = LOOKED_UP // words.itemsize
    group, groups = tree // width, -(-trees.count // width)
    order = np.lexsort((trees.thresholds[slots], feature))
    feature, group, tree, words, lowered = (each[order] for each in (feature, group, tree % width, words, lowered))
    thresholds, segment = trees.thresholds[slots[order]], feature * groups + group
    counts = np.bincount(segment, minlength=len(features) * groups)
    ends = np.cumsum(counts + 2)
    starts = ends - counts - 2
    table = np.full((ends[-1], width), -1).astype(words.dtype)
    within = np.argsort(segment, kind="stable")
    table[np.arange(len(within)) + 2 * segment[within] + 1, tree[within]] = words[within]
    for start, end in zip(starts, ends, strict=True):
        part = table[start : end - 1]
        np.bitwise_and.accumulate(part, axis=0, out=part)
    np.bitwise_and.at(table, (ends[segment[~lowered]] - 1, tree[~lowered]), words[~lowered])
    cuts = np.flatnonzero(np.diff(feature)) + 1
    starts, ends = starts.reshape(-1, 1, groups), ends.reshape(-1, 1, groups)
    ranks = [(each[:, None] == np.arange(groups)).cumsum(axis=0) for each in np.split(group, cuts)]
    places = [
        np.concatenate([first, first + each, last - 1]) for first, each, last in zip(starts, ranks, ends, strict=True)
    ]
    beyond = np.array([np.inf, np.nan], thresholds.dtype)
    return features, [np.concatenate([each, beyond]) for each in np.split(thresholds, cuts)], places, table
