"""QuickScorer against step-by-step traversal of the same trees."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from tenonnx_onnx_ml.quickscorer import EXITS, quick_scorer
from tenonnx_onnx_ml.tree_walk import leaves_by_tops, leaves_function, leaves_reached, profitable_tops, record
from tenonnx_onnx_ml.trees import EQ, GTE, LEQ, LT, NEQ, Branches, planted

FEATURES = 3
SPECIAL = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0])


def branches(seed, count, size, modes=(LEQ, LT, GTE, EQ, NEQ), latest=3):
    """Random trees, grown by repeatedly replacing one of the ``latest`` leaves by a branch."""
    random = np.random.default_rng(seed)
    ways = np.empty((count, size, 2), np.int64)
    ways[:] = -1 - np.arange(count * size * 2).reshape(count, size, 2) // 2
    for tree, start in zip(ways, range(0, count * size, size), strict=True):
        for k in range(1, size):
            leaves = np.argwhere(tree[:k] < 0)[-latest:]
            tree[tuple(leaves[random.integers(len(leaves))])] = start + k
    total = count * size
    thresholds = np.where(random.random(total) < 0.1, random.choice(SPECIAL, total), random.integers(-8, 8, total) / 4)
    return Branches(
        random.integers(0, FEATURES, total),
        thresholds,
        random.choice(modes, total),
        *ways.reshape(-1, 2).T,
        random.random(total) < 0.5,
        np.arange(0, total, size),
    )


def samples(count, dtype):
    random = np.random.default_rng(1)
    x = random.integers(-9, 9, (count, FEATURES)) / 4
    return np.where(random.random(x.shape) < 0.2, random.choice(SPECIAL, x.shape), x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("count", "size"), [(1, 1), (3, 5), (200, 7), (40, 12), (20, 40), (20, 150)])
def test_rows_reach_the_same_leaves(count, size, dtype):
    trees = planted(branches(size, count, size), dtype)
    slots, upper, x = record(trees), quick_scorer(trees), samples(100, dtype)
    np.testing.assert_array_equal(leaves_by_tops(trees, slots, upper, x), leaves_reached(trees, slots, x))


def test_words_are_as_wide_as_the_tops_have_exits():
    widths = [quick_scorer(planted(branches(0, 2, size, [LEQ]), np.float32)).words.itemsize for size in (5, 12, 25, 60)]
    assert widths == [1, 2, 4, 8]


def test_the_deepest_branches_are_in_the_top():
    size = 100
    chains = dataclasses.replace(branches(2, 5, size, [LEQ], latest=1), thresholds=np.zeros(5 * size))
    trees = planted(chains, np.float32)
    assert trees.depth == size
    assert quick_scorer(trees).depth == size - (EXITS - 1)


def test_leaves_of_uneven_trees_by_tops(monkeypatch):
    trees = planted(branches(3, 50, 60), np.float32)
    slots, x = record(trees), samples(100, np.float32)
    expected = leaves_reached(trees, slots, x)
    monkeypatch.setattr("tenonnx_onnx_ml.tree_walk.leaves_reached", None)
    np.testing.assert_array_equal(leaves_function(trees, slots, partial(profitable_tops, trees), len(x))(x), expected)


def test_trees_of_single_leaves_have_no_tops():
    leaves = Branches(*(np.zeros(0, np.int64),) * 5, np.zeros(0, bool), np.array([-1, -2]))
    trees = planted(leaves, np.float32)
    reached = leaves_function(trees, record(trees), partial(profitable_tops, trees), 100)(samples(100, np.float32))
    np.testing.assert_array_equal(reached, [[0] * 100, [1] * 100])


@pytest.mark.parametrize("features", [2, 100])
def test_trees_are_walked_if_that_is_faster(features, monkeypatch):
    monkeypatch.setattr("tenonnx_onnx_ml.tree_walk.leaves_by_tops", None)
    many = branches(4, 1500 if features == 2 else 50, 20, [LEQ])
    drawn = np.random.default_rng(5).integers(0, features, len(many.features))
    trees = planted(dataclasses.replace(many, features=drawn), np.float32)
    x = np.zeros((30, features), np.float32)
    slots = record(trees)
    np.testing.assert_array_equal(
        leaves_function(trees, slots, partial(profitable_tops, trees), len(x))(x), leaves_reached(trees, slots, x)
    )
