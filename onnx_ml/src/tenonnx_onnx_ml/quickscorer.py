"""QuickScorer: branchless evaluation of the upper parts of trees by bit masks of reachable exits.

After QuickScorer (Lucchese et al., 2015, "QuickScorer: a fast algorithm to rank documents with additive ensembles of
regression trees"). The exits of a tree are the bits of a word, those of true tests first. A test that is false clears
the exits on its true side; the first remaining exit is the one reached. The bits cleared by the tests of a feature
depend only on the number of thresholds below it, so they are looked up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx_onnx_ml.trees import Trees

Array = np.ndarray[Any, Any]

#: Maximum exits of a tree: the bits of the widest word.
EXITS = 64

#: Bytes of words looked up at once, for a group of trees.
LOOKED_UP = 128


@dataclass(frozen=True, slots=True, eq=False)
class QuickScorer:
    """The upper parts of trees, which end at the slots ``exits`` [trees, EXITS].

    For each of ``features``, ``thresholds`` are sorted, followed by infinity and NaN. ``places`` [ranks, groups of
    trees] has, for each number of thresholds below the feature, the row in ``words`` with the remaining exits.
    ``depth`` is the maximum number of steps from an exit to a leaf; ``inner`` marks slots that are not leaves.
    """

    features: Array
    thresholds: Sequence[Array]
    places: Sequence[Array]
    words: Array
    exits: Array
    depth: int
    inner: Array

    def passed(self, x: Array) -> Array:
        """The exits of rows, as slots [trees, rows]."""
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
    """The upper parts of trees: the branches with the greatest height, as many as fit into words."""
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
    words = _words_without(start[held], below[held], int(below[: trees.count].max()))
    depth = int(trees.heights[slots[is_exit]].max())
    return QuickScorer(*_lookup_tables(trees, slots[asking], tree[asking], words), exits, depth, trees.heights > 0)


def _expanded(trees: Trees) -> tuple[Array, Array, list[tuple[Array, int]]]:
    """Slots and their trees, roots first, and their expansion in rounds.

    A round has the expanded slots and the index of their first child; each has two consecutive children, the one for
    greater values first.
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


def _words_without(start: Array, count: Array, most: int) -> Array:
    """Words with ``count`` bits cleared from ``start`` on, of the narrowest type with ``most`` bits."""
    one = np.uint64(1)
    words = ~(((one << count.astype(np.uint64)) - one) << start.astype(np.uint64))
    return words.astype(next(f"u{size}" for size in (1, 2, 4, 8) if 8 * size >= most))


def _lookup_tables(
    trees: Trees, slots: Array, tree: Array, words: Array
) -> tuple[Array, list[Array], list[Array], Array]:
    """The lookup tables for the tests of ``slots``, each of which leaves one of ``words`` in its tree.

    The words of a feature and a group of trees are those for no threshold, for increasing numbers of them, and for NaN.
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
