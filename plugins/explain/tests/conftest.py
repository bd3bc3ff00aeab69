"""Fixtures: Shapley values by their definition, over all coalitions."""

import itertools
import math

import numpy as np
import pytest


def shapley(value, features):
    """Shapley values ``[features, ...]`` of a game ``value(mask)``, where ``mask`` is ``bool[features]``."""
    of = {mask: np.asarray(value(np.array(mask, bool))) for mask in itertools.product((0, 1), repeat=features)}
    values = []
    for k in range(features):
        total = 0
        for mask in of:
            if not mask[k]:
                size, joined = sum(mask), (*mask[:k], 1, *mask[k + 1 :])
                share = math.factorial(size) * math.factorial(features - 1 - size) / math.factorial(features)
                total = total + share * (of[joined] - of[mask])
        values.append(total)
    return np.array(values)


def _interventional(function, row, background):
    """Features outside of a coalition take the values of each background row; the mean is returned."""
    return shapley(lambda mask: function(np.where(mask, row, background)).mean(axis=0), len(row))


def _path_dependent(trees, row):
    """Features outside of a coalition follow both branches, weighted by training rows (Lundberg et al., 2018).

    A tree is ``(feature, threshold, left, right, value, cover)``.
    """

    def expected(tree, node, mask):
        feature, threshold, left, right, value, cover = tree
        if left[node] < 0:
            return value[node]
        if mask[feature[node]]:
            return expected(tree, (left if row[feature[node]] <= threshold[node] else right)[node], mask)
        ways = [(cover[child] / cover[node]) * expected(tree, child, mask) for child in (left[node], right[node])]
        return ways[0] + ways[1]

    return shapley(lambda mask: sum(expected(tree, 0, mask) for tree in trees), len(row))


@pytest.fixture
def interventional():
    return _interventional


@pytest.fixture
def path_dependent():
    return _path_dependent
