"""Tree ensembles of all libraries as one op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, DType, NotRepresentable, Value
from tenonnx_onnx_ml.tree_ensemble import tree_ensemble, tree_ensemble_regressor
from tenonnx_sklearn.algebra import beside, cast, columns
from tenonnx_sklearn.scaling import before_scaling, thresholds_before

Array = np.ndarray[Any, Any]


@dataclass
class Tree:
    """A tree in flat arrays. Rows go left if the feature is at most the threshold; leaves have ``left`` -1.

    ``values`` is ``float64[nodes, targets]``; only those of leaves are used. ``cover`` is the weight of training rows
    that reach each node, for TreeSHAP.
    """

    feature: Array
    threshold: Array
    left: Array
    right: Array
    values: Array
    missing_left: Array | None = None
    cover: Array | None = None


@dataclass
class Ensemble:
    """Trees whose values are added. ``strict``: rows go left only below the threshold.

    ``stored`` is the dtype in which the library compares; float64 features are rounded to it.
    """

    trees: list[Tree] = field(default_factory=list)
    strict: bool = False
    stored: Any = np.float32

    def scores(self, X: Value) -> Value:
        """The sums ``float[rows, targets]`` in the dtype of ``X``; a scaling before is folded into the thresholds."""
        if not self.trees:
            raise NotRepresentable("the model has no trees", do="fit it for one round at least")
        X, transform = before_scaling(X)
        if transform is not None:
            return self._before(transform, X).scores(X)
        double = X.dtype is DType.float64
        if double and self.stored is np.float32:
            X = cast(cast(X, DType.float32), DType.float64)
        return self._one_node(X) if double else self._regressor(X)

    def _before(self, transform: Callable[[Array], Array], X: Value) -> Ensemble:
        """The equivalent ensemble on rows before ``transform``."""
        dtype, stored = X.dtype.numpy, self.stored
        thresholds = np.concatenate([self._thresholds(tree, dtype.type) for tree in self.trees])
        leaves = np.concatenate([tree.left < 0 for tree in self.trees])
        features = np.where(leaves, 0, np.concatenate([tree.feature for tree in self.trees]))
        found = thresholds_before(
            lambda rows: transform(rows).astype(stored),
            features,
            np.where(leaves, dtype.type(0), thresholds),
            int(X.shape[1]),
        )
        parts = np.split(found, np.cumsum([len(tree.left) for tree in self.trees])[:-1])
        trees = [replace(tree, threshold=part) for tree, part in zip(self.trees, parts, strict=True)]
        return Ensemble(trees, stored=np.float64)

    def _thresholds(self, tree: Tree, dtype: Any) -> Array:
        """Thresholds of ``x <= t``, rounded down so that numbers of ``dtype`` take the original branch."""
        thresholds = np.asarray(tree.threshold, np.float64)
        rounded = thresholds.astype(dtype)
        above = rounded.astype(np.float64) > thresholds
        with np.errstate(over="ignore"):  # below the lowest number it is -inf
            before = np.nextafter(rounded, dtype(-np.inf))
            rounded = np.where(above, before, rounded)
            if self.strict:  # x < t is x <= the number before t, or t itself if it was rounded down
                rounded = np.where(rounded.astype(np.float64) == thresholds, before, rounded)
        return rounded

    def _regressor(self, X: Value) -> Value:
        parts: dict[str, list[Any]] = {name: [] for name in _NODES}
        targets: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
        count = self.trees[0].values.shape[1]
        for k, tree in enumerate(self.trees):
            nodes = np.arange(len(tree.left))
            leaf = tree.left < 0
            missing = np.zeros(len(nodes), bool) if tree.missing_left is None else tree.missing_left.astype(bool)
            parts["treeids"].append(np.full(len(nodes), k))
            parts["nodeids"].append(nodes)
            parts["featureids"].append(np.where(leaf, 0, tree.feature))
            parts["modes"].append(np.where(leaf, "LEAF", "BRANCH_LEQ"))
            parts["values"].append(np.where(leaf, np.float32(0), self._thresholds(tree, np.float32)))
            parts["truenodeids"].append(np.where(leaf, 0, tree.left))
            parts["falsenodeids"].append(np.where(leaf, 0, tree.right))
            parts["missing_value_tracks_true"].append(np.where(leaf, 0, missing))
            places = np.repeat(nodes[leaf], count)
            targets["treeids"].append(np.full(len(places), k))
            targets["nodeids"].append(places)
            targets["ids"].append(np.tile(np.arange(count), leaf.sum()))
            targets["weights"].append(tree.values[leaf].astype(np.float32).ravel())
        if all(tree.cover is not None for tree in self.trees):
            parts["hitrates"] = [np.asarray(tree.cover, np.float32) for tree in self.trees]
        attributes = {f"nodes_{name}": np.concatenate(found).tolist() for name, found in parts.items()}
        attributes |= {f"target_{name}": np.concatenate(found).tolist() for name, found in targets.items()}
        return tree_ensemble_regressor(X, n_targets=count, **attributes)

    def _one_node(self, X: Value) -> Value:
        count = self.trees[0].values.shape[1]
        return beside([self._target(X, k) for k in range(count)])

    def _target(self, X: Value, target: int) -> Value:
        """Scores of one target: ``TreeEnsemble`` has one weight per leaf, so that each target needs a node."""
        names = ("featureids", "splits", "modes", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
        parts: dict[str, list[Any]] = {name: [] for name in (*names, "missing_value_tracks_true")}
        weights: list[Array] = []
        roots: list[int] = []
        branches = leaves = 0
        for tree in self.trees:
            left, right = tree.left, tree.right
            thresholds = self._thresholds(tree, np.float64)
            if left[0] < 0:  # a single leaf, above which TreeEnsemble requires a branch
                both = np.array([1, -1, -1]), np.array([2, -1, -1])
                values = np.repeat(tree.values, 3, axis=0)
                tree = Tree(np.zeros(3, int), np.zeros(3), *both, values)
                left, right, thresholds = tree.left, tree.right, tree.threshold
            leaf = left < 0
            number = np.where(leaf, np.cumsum(leaf) - 1 + leaves, np.cumsum(~leaf) - 1 + branches)
            inner = ~leaf
            missing = np.zeros(len(left), bool) if tree.missing_left is None else tree.missing_left.astype(bool)
            parts["featureids"].append(tree.feature[inner])
            parts["splits"].append(thresholds[inner])
            parts["modes"].append(np.zeros(inner.sum(), np.uint8))
            parts["truenodeids"].append(number[left[inner]])
            parts["trueleafs"].append(leaf[left[inner]].astype(int))
            parts["falsenodeids"].append(number[right[inner]])
            parts["falseleafs"].append(leaf[right[inner]].astype(int))
            parts["missing_value_tracks_true"].append(missing[inner].astype(int))
            weights.append(tree.values[leaf][:, target])
            roots.append(branches)
            branches, leaves = branches + int(inner.sum()), leaves + int(leaf.sum())
        joined = {name: np.concatenate(found) for name, found in parts.items()}
        tensors = {f"nodes_{name}": ArrayConstant(joined.pop(name)) for name in ("splits", "modes")}
        return tree_ensemble(
            X,
            n_targets=1,
            leaf_targetids=[0] * leaves,
            leaf_weights=ArrayConstant(np.concatenate(weights)),
            tree_roots=roots,
            **{f"nodes_{name}": found.astype(int).tolist() for name, found in joined.items()},
            **tensors,
        )


_NODES = (
    "treeids",
    "nodeids",
    "featureids",
    "modes",
    "values",
    "truenodeids",
    "falsenodeids",
    "missing_value_tracks_true",
)


@dataclass
class Memberships:
    """Tests of categories for membership in sets, as columns after the features: 0 for members, 1 for others.

    Numbers are truncated to integers; with ``negative``, those between -1 and 0 are not categories.
    """

    features: int
    negative: bool = False
    tests: list[tuple[int, Array, bool]] = field(default_factory=list)

    def ask(self, feature: int, members: Array, otherwise: bool) -> int:
        """The column of a test: ``members`` is a mask of integers, ``otherwise`` the result for any other number."""
        self.tests.append((feature, np.asarray(members, bool), otherwise))
        return self.features + len(self.tests) - 1

    def append(self, X: Value) -> Value:
        parts = [X]
        for feature in sorted({feature for feature, _, _ in self.tests}):
            questions = [(m, o) for f, m, o in self.tests if f == feature]
            size = max(len(members) for members, _ in questions)
            table = np.empty((size + 2, len(questions)), X.dtype.numpy)
            for k, (members, otherwise) in enumerate(questions):
                table[:, k] = not otherwise
                table[: len(members), k] = ~members
            table[size + 1] = np.nan  # missing numbers take the branch that the tree specifies
            x = columns(X, [feature])
            missing = ops.isnan(x)
            whole = ops.floor(ops.where(missing, X.dtype.numpy.type(-1), x))
            inside = ops.and_(x >= 0.0 if self.negative else x > -1.0, whole < float(size))
            code = ops.where(inside, ops.maximum(whole, X.dtype.numpy.type(0)), X.dtype.numpy.type(size))
            code = ops.where(missing, X.dtype.numpy.type(size + 1), code)
            index = ops.squeeze(ops.cast(code, to=DType.int64), np.array([1], np.int64))
            parts.append(ops.gather(table, index, axis=0))
        order = sorted(range(len(self.tests)), key=lambda k: (self.tests[k][0], k))
        whole = beside(parts)
        if order == list(range(len(order))):
            return whole
        places = np.argsort(order) + self.features
        return columns(whole, [*range(self.features), *places])
