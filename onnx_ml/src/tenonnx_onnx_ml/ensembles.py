"""Tree ensembles: trees and votes from the attributes of the three operators, and their scores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import DType, Operand, TypeMismatch, Value, constant, in_parts, limits
from tenonnx_onnx_ml.quickscorer import QuickScorer
from tenonnx_onnx_ml.tree_walk import BLOCK, leaves_by_ops, leaves_function, leaves_reached, profitable_tops, record
from tenonnx_onnx_ml.trees import MEMBER, Branches, Trees, planted
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import where
from tenonnx_standard.reduction import reduce_max, reduce_min, reduce_sum
from tenonnx_standard.shapes import reshape
from tenonnx_standard.slicing import gather, gather_elements

Array = np.ndarray[Any, Any]

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
LEAF = len(MODES)

_NEUTRAL = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Trees, the ``votes`` of each leaf per column, and the ``base`` values added to the scores.

    ``positive`` states whether no weight is negative, ``voted`` which columns have votes.
    """

    branches: Branches
    votes: Array
    base: Array | None
    aggregate: str
    positive: bool
    voted: tuple[int, ...]
    _planted: dict[str, tuple[Trees, Array, Array, Callable[[], QuickScorer | None]]] = field(default_factory=dict)

    def planted(self, dtype: Any) -> tuple[Trees, Array, Array, Callable[[], QuickScorer | None]]:
        """The trees for rows of ``dtype``, their slots, the votes of each slot, and their QuickScorer; cached.

        Features and thresholds are compared in float64 if either has it, else in float32.
        """
        wide = np.float64 in (dtype, self.branches.thresholds.dtype)
        name = "float64" if wide else "float32"
        if name not in self._planted:
            trees = planted(self.branches, np.dtype(name))
            upper = functools.cache(functools.partial(profitable_tops, trees))
            self._planted[name] = trees, record(trees), self.votes[trees.leaves], upper
        return self._planted[name]

    def scores(self, X: Value, to: DType) -> Value:
        """The sum of all trees and the base values, [rows, columns]."""
        trees, _, table, _ = self.planted(X.dtype.numpy)
        stage = DType.of(trees.thresholds.dtype)
        reached = leaves_by_ops(trees, X if X.dtype is stage else cast(X, to=stage))
        if table.shape[1] == 1:
            votes, keepdims = reshape(gather_elements(constant(table[:, 0]), reached), [-1, trees.count]), 1
        else:
            votes, keepdims = gather(constant(table), reshape(reached, [-1, trees.count])), 0
        if self.aggregate in _NEUTRAL:
            total = (reduce_min if self.aggregate == "MIN" else reduce_max)(votes, [1], keepdims=keepdims)
            limit = float(np.finfo(table.dtype).max)
            total = where((total <= limit) & (total >= -limit), total, 0.0)
        else:
            total = reduce_sum(votes, [1], keepdims=keepdims)
            if self.aggregate == "AVERAGE":
                total = total / float(trees.count)
        total = total if self.base is None else total + constant(self.base)
        return total if total.dtype is to else cast(total, to=to)

    def scores_of_array(self, X: Array, to: Any) -> Array:
        """``scores`` for an array."""
        self.check_features(X.shape)
        trees, slots, *_ = self.planted(X.dtype)
        return self._combined(X, to, functools.partial(leaves_reached, trees, slots))

    def scorer(self, X: Operand, to: Any) -> Callable[[Array], Array]:
        """``scores_of_array`` as a function of arrays like ``X``."""
        self.check_features(X.shape)
        trees, slots, _, upper = self.planted(X.dtype)
        leaves_of_row = leaves_function(trees, slots, upper, X.shape[0])
        return lambda x: self._combined(x, to, leaves_of_row)

    def _combined(self, X: Array, to: Any, leaves_of_row: Callable[[Array], Array]) -> Array:
        """Combined weights of the leaves reached by rows, in blocks of rows that threads share."""
        trees, _, table, _ = self.planted(X.dtype)
        x = np.ascontiguousarray(X, trees.thresholds.dtype)
        combine = _NEUTRAL.get(self.aggregate, (np.add, 0))[0]
        total = np.empty((len(x), table.shape[1]), table.dtype)
        step = max(1, BLOCK // trees.count)

        def score(start: int, end: int) -> None:
            for first in range(start, end, step):
                block = slice(first, min(first + step, end))
                votes = table.take(leaves_of_row(x[block]), axis=0, mode="clip")
                combine.reduce(votes, axis=0, out=total[block])

        in_parts(score, len(x), least=step)  # smaller parts make threads wait for each other
        if self.aggregate in _NEUTRAL:
            total[~np.isfinite(total)] = 0
        elif self.aggregate == "AVERAGE":
            total /= trees.count
        if self.base is not None:
            total += self.base
        return total.astype(to, copy=False)

    def check_features(self, shape: Sequence[Any]) -> None:
        """Raise ``TypeMismatch`` unless the rows have all features that the trees read."""
        least = self.branches.least_features
        if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] < least):
            raise TypeMismatch(
                f"X lacks some of the {least} features that the trees read", given=f"the shape {list(shape)}"
            )


# ----- reading attributes ---------------------------------------------------------------------------------------------


def with_named_nodes(attributes: Mapping[str, Any], prefix: str, columns: int, aggregate: str) -> Ensemble:
    """The ensemble of a TreeEnsembleClassifier or -Regressor, whose nodes are identified by tree and number.

    The root of a tree is a node that is not a child; if there are several, the first branch, else the first leaf.
    Several entries of a leaf for the same column are combined; if there is only one column, the first entry counts.
    """
    nodes = {name: _integers(attributes, f"nodes_{name}") for name in ("treeids", "nodeids", "featureids")}
    ways = {name: _integers(attributes, f"nodes_{name}") for name in ("truenodeids", "falsenodeids")}
    modes = _modes(attributes["nodes_modes"])
    thresholds = numbers(attributes, "nodes_values")
    missing = _integers(attributes, "nodes_missing_value_tracks_true", len(modes))
    _check_lengths("nodes", nodes | ways | {"modes": modes, "values": thresholds, "missing_value_tracks_true": missing})
    places = _Places(nodes["treeids"], nodes["nodeids"])
    inner = np.flatnonzero(modes != LEAF)
    code = np.where(modes == LEAF, -np.cumsum(modes == LEAF), np.cumsum(modes != LEAF) - 1)
    children = {}
    for name, numbered in ways.items():
        children[name] = places.find(nodes["treeids"][inner], numbered[inner])
        _check_known(f"nodes_{name}", "a child", nodes["treeids"][inner], numbered[inner], children[name])
    orphans = np.ones(len(modes), bool)
    for found in children.values():
        orphans[found] = False
    candidates = np.concatenate([np.flatnonzero(orphans & (modes != LEAF)), np.flatnonzero(orphans & (modes == LEAF))])
    trees, roots = np.unique(nodes["treeids"][candidates], return_index=True)
    if len(trees) < places.tree_count:
        rootless = np.setdiff1d(nodes["treeids"], trees)
        raise TypeMismatch(
            "nodes_truenodeids and nodes_falsenodeids form a cycle",
            given=f"tree {rootless[0]}, in which every node is a child",
            do="make one node of each tree the root",
        )
    branches = Branches(
        _features(nodes["featureids"][inner]),
        thresholds[inner],
        modes[inner],
        code[children["truenodeids"]],
        code[children["falsenodeids"]],
        missing[inner].astype(bool),
        code[np.sort(candidates[roots])],
    )
    votes = {name: _integers(attributes, f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids")}
    weights = numbers(attributes, f"{prefix}_weights")
    _check_lengths(prefix, votes | {"weights": weights})
    found = places.find(votes["treeids"], votes["nodeids"])
    _check_known(f"{prefix}_nodeids", "a vote", votes["treeids"], votes["nodeids"], found)
    at_leaf = np.flatnonzero(modes[found] == LEAF)
    if columns == 1:  # onnxruntime uses the first entry of a leaf, which models of skl2onnx rely on
        at_leaf = at_leaf[np.unique(found[at_leaf], return_index=True)[1]]
    base = numbers(attributes, "base_values")
    if base.size not in (0, 1, columns):
        raise TypeMismatch(
            f"base_values does not hold one number for each of {columns} scores", given=f"{base.size} base values"
        )
    return _ensemble(
        branches,
        int((modes == LEAF).sum()),
        columns,
        aggregate,
        base,
        -1 - code[found[at_leaf]],
        _within(f"{prefix}_ids", votes["ids"], columns)[at_leaf],
        weights[at_leaf],
    )


def with_listed_leaves(attributes: Mapping[str, Any]) -> Ensemble:
    """The ensemble of a TreeEnsemble, which has separate lists of nodes and leaves, referenced by position."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    nodes = {name: _integers(attributes, f"nodes_{name}") for name in names}
    modes = _tensor("nodes_modes", attributes["nodes_modes"])
    splits = _floats("nodes_splits", attributes["nodes_splits"])
    missing = _integers(attributes, "nodes_missing_value_tracks_true", len(modes))
    _check_lengths("nodes", nodes | {"modes": modes, "splits": splits, "missing_value_tracks_true": missing})
    if modes.dtype != np.uint8 or modes.max(initial=0) > MEMBER:
        raise TypeMismatch(
            "nodes_modes holds an unknown mode",
            given=f"{modes.dtype}, up to {modes.max(initial=0)}",
            available=f"uint8, 0 to {MEMBER}: {', '.join(MODES)}, BRANCH_MEMBER",
        )
    targets, weights = _integers(attributes, "leaf_targetids"), _floats("leaf_weights", attributes["leaf_weights"])
    _check_lengths("leaf", {"targetids": targets, "weights": weights})
    ways = []
    for side in ("true", "false"):
        is_leaf, to = nodes[f"{side}leafs"] != 0, nodes[f"{side}nodeids"]
        _within(f"nodes_{side}nodeids", to[is_leaf], len(targets))
        _within(f"nodes_{side}nodeids", to[~is_leaf], len(modes))
        ways.append(np.where(is_leaf, -1 - to, to))
    roots = _within("tree_roots", _integers(attributes, "tree_roots"), len(modes))
    count = int((modes == MEMBER).sum())
    members = _sets(_floats("membership_values", attributes["membership_values"]))
    if len(members) != count:
        raise TypeMismatch(
            "membership_values does not hold one set, closed by NaN, for each node with the mode BRANCH_MEMBER",
            given=f"{len(members)} sets, {count} nodes",
        )
    columns = attributes["n_targets"]
    columns = int(targets.max(initial=0)) + 1 if columns is None else columns
    features = _features(nodes["featureids"])
    branches = Branches(features, splits, modes, *ways, missing.astype(bool), roots, members)  # type: ignore[call-arg]
    aggregate = AGGREGATES[int(_within("aggregate_function", np.array([attributes["aggregate_function"]]), 4)[0])]
    targets = _within("leaf_targetids", targets, columns)
    return _ensemble(branches, len(targets), columns, aggregate, np.zeros(0), np.arange(len(targets)), targets, weights)


def _ensemble(
    branches: Branches,
    leaves: int,
    columns: int,
    aggregate: str,
    base: Array,
    voting: Array,
    ids: Array,
    weights: Array,
) -> Ensemble:
    """The ensemble whose leaves ``voting`` have ``weights`` for the columns ``ids``. Building the trees checks them."""
    if aggregate not in AGGREGATES:
        raise TypeMismatch("unknown aggregate_function", given=aggregate, available=", ".join(AGGREGATES))
    combine, neutral = _NEUTRAL.get(aggregate, (np.add, 0))
    limits.check_elements([leaves, columns], "the votes of leaves")
    votes = np.full(leaves * columns, neutral, np.result_type(weights, np.float32))
    combine.at(votes, voting * columns + ids, weights.astype(votes.dtype))
    added = base.astype(votes.dtype) if base.size else None
    voted = tuple(np.unique(ids).tolist())
    ensemble = Ensemble(branches, votes.reshape(leaves, columns), added, aggregate, bool((weights >= 0).all()), voted)
    ensemble.planted(branches.thresholds.dtype)
    return ensemble


def numbers(attributes: Mapping[str, Any], name: str) -> Array:
    """The attribute ``name``, a list of floats, or the alternative tensor; empty if absent."""
    tensor = attributes[f"{name}_as_tensor"]
    return np.asarray(attributes[name] or (), np.float32) if tensor is None else _floats(f"{name}_as_tensor", tensor)


def _floats(name: str, tensor: Any) -> Array:
    """The contents of a float tensor attribute; empty if absent."""
    contents = np.zeros(0, np.float32) if tensor is None else _tensor(name, tensor)
    if contents.dtype.kind != "f":
        raise TypeMismatch(f"{name} holds no floats", given=str(contents.dtype))
    return contents


def _tensor(name: str, tensor: Any) -> Array:
    contents = tensor.array() if hasattr(tensor, "array") else tensor
    if not isinstance(contents, np.ndarray):
        raise TypeMismatch(f"{name} is not a tensor", given=type(tensor).__name__)
    return contents.reshape(-1)


def tensor_dtype(tensor: Any) -> DType | None:
    """The dtype of a tensor attribute, if present."""
    return None if tensor is None else DType.of(_tensor("", tensor).dtype)


def _integers(attributes: Mapping[str, Any], name: str, count: int = 0) -> Array:
    """The attribute ``name``; ``count`` zeros if absent."""
    given = attributes[name]
    return np.asarray(given, np.int64) if given else np.zeros(count, np.int64)


def _modes(names: Sequence[str] | None) -> Array:
    codes = {name: code for code, name in enumerate((*MODES, "LEAF"))}
    try:
        return np.fromiter(map(codes.__getitem__, names or ()), np.int8, len(names or ()))
    except KeyError as error:
        raise TypeMismatch(
            "nodes_modes holds an unknown mode", given=f"{error.args[0]!r}", available=", ".join(codes)
        ) from error


def _features(ids: Array) -> Array:
    if ids.min(initial=0) < 0:
        raise TypeMismatch("nodes_featureids holds a negative number", given=f"{ids.min()}")
    return ids


def _sets(members: Array) -> list[Array]:
    """Split a list of numbers at NaN; the final NaN is optional."""
    ends = np.flatnonzero(np.isnan(members))
    result = [part[~np.isnan(part)] for part in np.split(members, ends + 1)]
    return result if result[-1].size else result[:-1]


def _within(name: str, ids: Array, count: int) -> Array:
    outside = ids[(ids < 0) | (ids >= count)]
    if outside.size:
        raise TypeMismatch(f"{name} holds a number outside 0 to {count - 1}", given=f"{outside[0]}")
    return ids


def _check_lengths(prefix: str, lists: Mapping[str, Array]) -> None:
    lengths = {f"{prefix}_{name}": len(each) for name, each in lists.items()}
    if len(set(lengths.values())) > 1 or not any(lengths.values()):
        raise TypeMismatch(
            f"the attributes {prefix}_* are missing, or differ in length",
            given=", ".join(f"{name} {length}" for name, length in lengths.items()),
        )


def _check_known(name: str, what: str, trees: Array, ids: Array, places: Array) -> None:
    lost = np.flatnonzero(places < 0)
    if lost.size:
        k = lost[0]
        raise TypeMismatch(
            f"{name} holds a node that is not in the same tree",
            given=f"{what} {ids[k]} in tree {trees[k]}, which has no such node",
        )


class _Places:
    """Indices of nodes, by tree and number."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        self.trees, self.nodes = np.unique(trees), np.unique(nodes)
        self.tree_count = len(self.trees)
        keys = self._keys(trees, nodes)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        twice = np.flatnonzero(self.keys[1:] == self.keys[:-1])
        if twice.size:
            k = self.order[twice[0]]
            raise TypeMismatch(
                "nodes_nodeids repeats a node within a tree", given=f"node {nodes[k]} of tree {trees[k]} more than once"
            )

    def _keys(self, trees: Array, nodes: Array) -> Array:
        return np.searchsorted(self.trees, trees) * (len(self.nodes) + 1) + np.searchsorted(self.nodes, nodes)

    def find(self, trees: Array, nodes: Array) -> Array:
        """The indices of nodes, or -1 where a tree has no such node."""
        if not len(self.keys):
            return np.full(len(trees), -1)
        keys = self._keys(trees, nodes)
        near = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = (self.keys[near] == keys) & np.isin(trees, self.trees) & np.isin(nodes, self.nodes)
        return np.where(known, self.order[near], -1)
