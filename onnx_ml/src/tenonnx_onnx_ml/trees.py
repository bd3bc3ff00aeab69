"""Ensembles of decision trees as arrays of nodes, and the way of each row through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType, Value, constant, dims
from tenonnx_onnx_ml.cache import remembered
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import (
    and_,
    equal,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    not_,
    or_,
    where,
)
from tenonnx_standard.math import isnan
from tenonnx_standard.shape import expand, reshape, unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

#: Rows are led through the trees in blocks of so many steps.
BLOCK = 1 << 18

LEAF = "LEAF"

_COMPARISONS: Mapping[str, tuple[Any, Any]] = {
    "BRANCH_LEQ": (np.less_equal, less_or_equal),
    "BRANCH_LT": (np.less, less),
    "BRANCH_GTE": (np.greater_equal, greater_or_equal),
    "BRANCH_GT": (np.greater, greater),
    "BRANCH_EQ": (np.equal, equal),
    "BRANCH_NEQ": (np.not_equal, lambda a, b: not_(equal(a, b))),
}


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Nodes of all trees one behind the other.

    ``children`` holds for each node where it leads if its condition does not hold, then where if it does; a leaf leads
    to itself. ``missing`` are the nodes whose condition holds for NaN. The first node listed of a tree is its root, and
    ``depth`` the number of steps to the last leaf.
    """

    features: Array
    thresholds: Array
    modes: tuple[str, ...]
    kinds: Array
    missing: Array
    children: Array
    roots: Array
    depth: int

    @property
    def least_features(self) -> int:
        """How many features a row must have."""
        inner = self.children[::2] != np.arange(len(self.features))
        return int(self.features[inner].max(initial=-1)) + 1


def numbers(plain: Sequence[float] | None, tensor: Any) -> Array | None:
    """A list of floats, or a tensor in its place."""
    if tensor is not None:
        return tensor.array().reshape(-1)
    return None if plain is None or not len(plain) else np.asarray(plain, np.float32)


@remembered
def parse(
    treeids: Any, nodeids: Any, featureids: Any, modes: Any, truenodeids: Any, falsenodeids: Any, values: Any,
    tensor: Any, tracks: Any,
) -> Trees | str:  # fmt: skip
    """The trees that attributes describe, or what is wrong with them."""
    lists = {"treeids": treeids, "nodeids": nodeids, "featureids": featureids, "modes": modes,
             "truenodeids": truenodeids, "falsenodeids": falsenodeids}  # fmt: skip
    thresholds = numbers(values, tensor)
    lists |= {"values": thresholds} | ({"missing_value_tracks_true": tracks} if tracks else {})
    lengths = {f"nodes_{name}": 0 if numbers is None else len(numbers) for name, numbers in lists.items()}
    if len(set(lengths.values())) > 1 or not lengths["nodes_treeids"]:
        return f"the lists of nodes must be of one length, and here are {lengths}"
    unknown = sorted(set(modes) - {LEAF, *_COMPARISONS})
    if unknown:
        return f"nodes_modes must be of {', '.join(_COMPARISONS)} and {LEAF}, and here is {unknown[0]!r}"
    places: dict[tuple[int, int], int] = {}
    for place, key in enumerate(zip(treeids, nodeids, strict=True)):
        if places.setdefault(key, place) != place:
            return f"node {key[1]} of tree {key[0]} must be there once"
    children = np.repeat(np.arange(len(nodeids), dtype=np.int64), 2)
    for place, (tree, mode, no, yes) in enumerate(zip(treeids, modes, falsenodeids, truenodeids, strict=True)):
        if mode != LEAF:
            for side, child in enumerate((no, yes)):
                found = places.get((tree, child))
                if found is None:
                    return f"node {nodeids[place]} of tree {tree} has a child {child}, and the tree has no such node"
                children[2 * place + side] = found
    roots = np.asarray(list(dict(reversed([(t, k) for k, t in enumerate(treeids)])).values())[::-1], np.int64)
    kinds = tuple(dict.fromkeys(mode for mode in modes if mode != LEAF))
    index = np.asarray([0 if mode == LEAF else kinds.index(mode) for mode in modes])
    depth = _depth(children, roots)
    if depth is None:
        return "the children of a node must not lead back to it"
    features = np.where(np.asarray(modes, dtype=object) == LEAF, 0, np.asarray(featureids, np.int64))
    if features.min() < 0:
        return "nodes_featureids must not be negative"
    missing = np.asarray(tracks, bool) if tracks else np.zeros(len(nodeids), bool)
    return Trees(features, thresholds, kinds, index, missing, children, roots, depth)


def _depth(children: Array, roots: Array) -> int | None:
    """How many steps lead to the last leaf; None if some never do."""
    current, count = np.unique(roots), len(children) // 2
    for step in range(count + 1):
        inner = current[children[2 * current] != current]
        inner = np.union1d(inner, current[children[2 * current + 1] != current])
        if not inner.size:
            return step
        current = np.unique(np.concatenate([children[2 * inner], children[2 * inner + 1]]))
    return None


def place_votes(
    trees: Trees, treeids: Sequence[int], nodeids: Sequence[int], votes: tuple[Any, Any, Any, Array], columns: int,
    aggregate: str, prefix: str,
) -> Array | str:  # fmt: skip
    """The weights of leaves, as a row for each node; or what is wrong with them."""
    vote_trees, vote_nodes, ids, weights = votes
    lengths = {f"{prefix}_treeids": len(vote_trees), f"{prefix}_nodeids": len(vote_nodes), f"{prefix}_ids": len(ids),
               f"{prefix}_weights": len(weights)}  # fmt: skip
    if len(set(lengths.values())) > 1:
        return f"the lists of weights must be of one length, and here are {lengths}"
    places = {key: place for place, key in enumerate(zip(treeids, nodeids, strict=True))}
    rows = [places.get(key, -1) for key in zip(vote_trees, vote_nodes, strict=True)]
    if -1 in rows:
        k = rows.index(-1)
        return f"a weight is for node {vote_nodes[k]} of tree {vote_trees[k]}, and there is no such node"
    outside = [i for i in ids if not 0 <= i < columns]
    if outside:
        return f"{prefix}_ids must be from 0 to {columns - 1}, and here is {outside[0]}"
    ufunc, neutral = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}.get(aggregate, (np.add, 0))
    table = np.full((len(trees.features), columns), neutral, weights.dtype)
    ufunc.at(table, (rows, list(ids)), weights)
    return table


# ----- the way through the trees --------------------------------------------------------------------------------------


def leaves(trees: Trees, X: Value) -> Value:
    """The leaf that each row of ``X`` reaches in each tree, as [rows, trees]."""
    stage = DType.of(trees.thresholds.dtype)
    count, rows = len(trees.features), dims(X)[0]
    column = gather(X, trees.features, axis=1)
    decisions = _decisions(trees, column if column.dtype is stage else cast(column, to=stage))
    decisions = reshape(cast(decisions, to=DType.int64), [-1])
    first = unsqueeze(range_(0, rows, 1) * count, [1])
    current = expand(constant(trees.roots), [rows, len(trees.roots)])
    children = constant(trees.children)
    for _ in range(trees.depth):
        current = gather(children, current * 2 + gather(decisions, current + first))
    return current


def _decisions(trees: Trees, x: Value) -> Value:
    """Whether the condition of each node holds for each row, as [rows, nodes]."""
    thresholds = constant(trees.thresholds)
    if not trees.modes:
        return not_(equal(x, x))
    holds = _COMPARISONS[trees.modes[0]][1](x, thresholds)
    for kind, mode in enumerate(trees.modes[1:], start=1):
        holds = where(constant(trees.kinds == kind), _COMPARISONS[mode][1](x, thresholds), holds)
    if not trees.missing.any() and "BRANCH_NEQ" not in trees.modes:
        return holds
    missing = isnan(x)
    return or_(and_(holds, not_(missing)), and_(missing, constant(trees.missing)))


def leaves_of_array(trees: Trees, X: Array) -> Array:
    """``leaves`` of an array, in blocks of rows."""
    x = np.ascontiguousarray(X, trees.thresholds.dtype)
    step = max(1, BLOCK // len(trees.roots))
    found = np.empty((len(x), len(trees.roots)), np.int64)
    for start in range(0, len(x), step):
        _lead(trees, x[start : start + step], found[start : start + step])
    return found


def _lead(trees: Trees, x: Array, current: Array) -> None:
    current[:] = trees.roots
    flat, first = x.reshape(-1), np.arange(len(x))[:, None] * x.shape[1]
    missing = np.isnan(x).any()
    for _ in range(trees.depth):
        value = flat.take(trees.features.take(current) + first)
        threshold = trees.thresholds.take(current)
        holds = _hold(trees, value, threshold, current)
        if missing:
            holds = np.where(np.isnan(value), trees.missing.take(current), holds)
        np.take(trees.children, 2 * current + holds, out=current, mode="clip")


def _hold(trees: Trees, value: Array, threshold: Array, current: Array) -> Array:
    if len(trees.modes) == 1:
        return _COMPARISONS[trees.modes[0]][0](value, threshold)
    each = [_COMPARISONS[mode][0](value, threshold) for mode in trees.modes]
    return np.choose(trees.kinds.take(current), each)
