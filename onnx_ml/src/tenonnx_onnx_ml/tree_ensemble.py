"""Classification and regression by ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, constant, op
from tenonnx_onnx_ml.cache import remembered
from tenonnx_onnx_ml.scores import (
    check_numbers,
    label_dtype,
    labelled,
    labelled_array,
    labels_problem,
    transform_problem,
    transformed,
    transformed_array,
    with_second,
    with_second_array,
)
from tenonnx_onnx_ml.trees import Trees, leaves, leaves_of_array, numbers, parse, place_votes
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import where
from tenonnx_standard.reduction import reduce_max, reduce_min, reduce_sum
from tenonnx_standard.selection import argmax
from tenonnx_standard.shape import reshape
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

_AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Trees with the weights of their leaves, a row for each node, and what is added to their sums."""

    trees: Trees
    votes: Array
    base: Array | None
    aggregate: str
    positive: bool
    voted: frozenset[int]

    def scores(self, X: Value) -> Value:
        """The aggregated votes, and the base, as [rows, columns]."""
        x = reshape(X, [1, -1]) if X.ndim == 1 else X
        votes = gather(constant(self.votes), leaves(self.trees, x))
        if self.aggregate in ("MIN", "MAX"):
            total = (reduce_min if self.aggregate == "MIN" else reduce_max)(votes, [1], keepdims=0)
            limit = float(np.finfo(np.float32).max)
            total = where((total < limit) & (total > -limit), total, 0.0)
        else:
            total = reduce_sum(votes, [1], keepdims=0)
            if self.aggregate == "AVERAGE":
                total = total / float(len(self.trees.roots))
        total = total if self.base is None else total + constant(self.base)
        return total if total.dtype is DType.float32 else cast(total, to=DType.float32)

    def scores_of_array(self, X: Array) -> Array:
        """``scores`` of an array."""
        x = np.atleast_2d(X)
        if x.shape[1] < self.trees.least_features:
            raise TypeMismatch(
                f"the trees ask for {self.trees.least_features} features", given=f"X has the shape {list(X.shape)}"
            )
        reached = leaves_of_array(self.trees, x)
        if self.aggregate in ("MIN", "MAX"):
            ufunc = np.minimum if self.aggregate == "MIN" else np.maximum
            total = ufunc.reduce(self.votes[reached], axis=1)
            total = np.where(np.isfinite(total), total, 0)
        else:
            total = _summed(self.votes, reached)
            if self.aggregate == "AVERAGE":
                total = total / total.dtype.type(len(self.trees.roots))
        total = total if self.base is None else total + self.base
        return total.astype(np.float32, copy=False)


def _summed(votes: Array, reached: Array) -> Array:
    """The sum over trees of the rows that are reached, tree by tree: [rows, columns] fits the cache better."""
    total = votes[reached[:, 0]]
    for tree in range(1, reached.shape[1]):
        total += votes[reached[:, tree]]
    return total


@remembered
def _ensemble(
    treeids: Any, nodeids: Any, featureids: Any, modes: Any, truenodeids: Any, falsenodeids: Any, values: Any,
    tensor: Any, tracks: Any, vote_trees: Any, vote_nodes: Any, ids: Any, weights: Any, weights_tensor: Any, base: Any,
    base_tensor: Any, columns: Any, aggregate: Any, prefix: Any,
) -> Ensemble | str:  # fmt: skip
    """The ensemble that attributes describe, or what is wrong with it."""
    trees = parse(treeids, nodeids, featureids, modes, truenodeids, falsenodeids, values, tensor, tracks)
    if isinstance(trees, str):
        return trees
    if aggregate not in _AGGREGATES:
        return f"aggregate_function must be one of {', '.join(_AGGREGATES)}, and here it is {aggregate!r}"
    given = numbers(weights, weights_tensor)
    if given is None or vote_trees is None or vote_nodes is None or ids is None:
        return f"the leaves must have weights: {prefix}_treeids, {prefix}_nodeids, {prefix}_ids and {prefix}_weights"
    table = place_votes(trees, treeids, nodeids, (vote_trees, vote_nodes, ids, given), columns, aggregate, prefix)
    if isinstance(table, str):
        return table
    added = numbers(base, base_tensor)
    if added is not None and len(added) not in (1, columns):
        return f"there must be one base value for each of {columns} scores, and here are {len(added)}"
    added = None if added is None else added.astype(table.dtype)
    return Ensemble(trees, table, added, aggregate, bool((given >= 0).all()), frozenset(ids))


def _nodes(attributes: dict[str, Any]) -> tuple[Any, ...]:
    """The attributes of the nodes in the order in which they are parsed."""
    names = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids", "values", "values_as_tensor",
             "missing_value_tracks_true")  # fmt: skip
    return tuple(attributes[f"nodes_{name}"] for name in names)


def _sound(made: Op, ensemble: Ensemble | str, X: Value | None = None) -> Ensemble:
    if isinstance(ensemble, str):
        raise TypeMismatch(f"{made.title}: {ensemble}")
    if X is not None:
        check_numbers(made.title, "X", X, most_axes=2)
        least = ensemble.trees.least_features
        if X.rank is not None and isinstance(X.shape[-1], int) and X.shape[-1] < least:
            raise TypeMismatch(f"{made.title}: the trees ask for {least} features", given=repr(X))
    return ensemble


def _rows(X: Value) -> Any:
    return None if X.rank is None else X.shape[0] if X.ndim == 2 else 1


# ----- TreeEnsembleClassifier -----------------------------------------------------------------------------------------


@op("TreeEnsembleClassifier", domain="ai.onnx.ml", before=5)
def tree_ensemble_classifier(
    X, *,
    base_values=None, base_values_as_tensor=None, class_ids=None, class_nodeids=None, class_treeids=None,
    class_weights=None, class_weights_as_tensor=None, classlabels_int64s=None, classlabels_strings=None,
    nodes_falsenodeids=None, nodes_featureids=None, nodes_hitrates=None, nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None, nodes_modes=None, nodes_nodeids=None, nodes_treeids=None,
    nodes_truenodeids=None, nodes_values=None, nodes_values_as_tensor=None, post_transform="NONE",
):  # fmt: skip
    """The label of the greatest sum of votes of the leaves that a row reaches, and the sums after a transform.

    Where leaves vote for one of two classes alone, its sum is that of the second class: this is chosen if the sum is
    above 0.5, or above 0 where some weight is negative (see ``scores.with_second``), as in onnxruntime.
    """
    ensemble = _classifier(locals() | {"X": None})
    labels = classlabels_int64s, classlabels_strings
    scores = ensemble.scores(X)
    column = _deciding(ensemble, *labels)
    if column is None:
        return labelled(argmax(scores, axis=1, keepdims=0), *labels), transformed(scores, post_transform)
    positive = scores[:, column : column + 1]
    position = cast(reshape(positive, [-1]) > (0.5 if ensemble.positive else 0.0), to=DType.int64)
    if _count(*labels) == 1:
        return position, transformed(scores, post_transform)
    if column:
        return labelled(position, *labels), transformed(scores, post_transform)
    return labelled(position, *labels), with_second(positive, post_transform, mirrored=not ensemble.positive)


def _count(integers: Sequence[int] | None, strings: Sequence[str] | None) -> int:
    return len(integers or strings or ())


def _classifier(attributes: dict[str, Any]) -> Ensemble:
    return _sound(tree_ensemble_classifier, _parsed_classifier(attributes))


def _parsed_classifier(attributes: dict[str, Any]) -> Ensemble | str:
    columns = _count(attributes["classlabels_int64s"], attributes["classlabels_strings"])
    if not columns:
        return "class labels must be given"
    return _ensemble(
        *_nodes(attributes), attributes["class_treeids"], attributes["class_nodeids"], attributes["class_ids"],
        attributes["class_weights"], attributes["class_weights_as_tensor"], attributes["base_values"],
        attributes["base_values_as_tensor"], columns, "SUM", "class",
    )  # fmt: skip


def _deciding(ensemble: Ensemble, integers: Sequence[int] | None, strings: Sequence[str] | None) -> int | None:
    """The column of the only class of two, or one, that leaves vote for; None where the greatest score wins."""
    several = ensemble.base is not None and len(ensemble.base) > 1
    if _count(integers, strings) > 2 or len(ensemble.voted) != 1 or several:
        return None
    return next(iter(ensemble.voted))


@tree_ensemble_classifier.type
def _(X, **attributes):
    problem = check_classifier(**attributes)
    if problem:
        raise TypeMismatch(f"{tree_ensemble_classifier.title}: {problem}")
    _sound(tree_ensemble_classifier, _parsed_classifier(attributes), X)
    strings = attributes["classlabels_strings"]
    columns = _count(attributes["classlabels_int64s"], strings)
    return TensorType(label_dtype(strings), (_rows(X),)), TensorType(DType.float32, (_rows(X), columns))


@tree_ensemble_classifier.numpy
def _(X, **attributes):
    ensemble = _classifier(attributes)
    labels, post_transform = (
        (attributes["classlabels_int64s"], attributes["classlabels_strings"]),
        attributes["post_transform"],
    )
    scores = ensemble.scores_of_array(X)
    column = _deciding(ensemble, *labels)
    if column is None:
        return labelled_array(scores.argmax(axis=1), *labels), transformed_array(scores, post_transform)
    positive = scores[:, column : column + 1]
    position = (positive[:, 0] > (0.5 if ensemble.positive else 0.0)).astype(np.int64)
    if _count(*labels) == 1:
        return position, transformed_array(scores, post_transform)
    if column:
        return labelled_array(position, *labels), transformed_array(scores, post_transform)
    return labelled_array(position, *labels), with_second_array(
        positive, post_transform, mirrored=not ensemble.positive
    )


def check_classifier(**attributes: Any) -> str | None:
    """What the attributes contradict; asked at import."""
    integers, strings = attributes["classlabels_int64s"], attributes["classlabels_strings"]
    problem = labels_problem(integers, strings, "class labels") or transform_problem(attributes["post_transform"])
    if problem:
        return problem
    if strings and len(strings) == 1:
        return "a single class label must be an integer"
    parsed = _parsed_classifier(attributes)
    return parsed if isinstance(parsed, str) else None


tree_ensemble_classifier.rule("check", check_classifier)
tree_ensemble_classifier.until(
    3,
    lacks=["base_values_as_tensor", "class_weights_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor"],
)


# ----- TreeEnsembleRegressor ------------------------------------------------------------------------------------------


@op("TreeEnsembleRegressor", domain="ai.onnx.ml", before=5)
def tree_ensemble_regressor(
    X, *,
    aggregate_function="SUM", base_values=None, base_values_as_tensor=None, n_targets=None, nodes_falsenodeids=None,
    nodes_featureids=None, nodes_hitrates=None, nodes_hitrates_as_tensor=None, nodes_missing_value_tracks_true=None,
    nodes_modes=None, nodes_nodeids=None, nodes_treeids=None, nodes_truenodeids=None, nodes_values=None,
    nodes_values_as_tensor=None, post_transform="NONE", target_ids=None, target_nodeids=None, target_treeids=None,
    target_weights=None, target_weights_as_tensor=None,
):  # fmt: skip
    """The sum, average, least or greatest of the weights of the leaves that a row reaches, for each target.

    The base values are added to it; a target that no leaf has a weight for is 0 without them.
    """
    ensemble = _sound(tree_ensemble_regressor, _parsed_regressor(locals()))
    return transformed(ensemble.scores(X), post_transform)


def _parsed_regressor(attributes: dict[str, Any]) -> Ensemble | str:
    columns = attributes["n_targets"]
    if not columns or columns < 1:
        return "n_targets must be given"
    return _ensemble(
        *_nodes(attributes), attributes["target_treeids"], attributes["target_nodeids"], attributes["target_ids"],
        attributes["target_weights"], attributes["target_weights_as_tensor"], attributes["base_values"],
        attributes["base_values_as_tensor"], columns, attributes["aggregate_function"], "target",
    )  # fmt: skip


@tree_ensemble_regressor.type
def _(X, **attributes):
    problem = check_regressor(**attributes)
    if problem:
        raise TypeMismatch(f"{tree_ensemble_regressor.title}: {problem}")
    _sound(tree_ensemble_regressor, _parsed_regressor(attributes), X)
    return TensorType(DType.float32, (_rows(X), attributes["n_targets"]))


@tree_ensemble_regressor.numpy
def _(X, **attributes):
    ensemble = _sound(tree_ensemble_regressor, _parsed_regressor(attributes))
    return transformed_array(ensemble.scores_of_array(X), attributes["post_transform"])


def check_regressor(**attributes: Any) -> str | None:
    """What the attributes contradict; asked at import."""
    problem = transform_problem(attributes["post_transform"])
    if problem:
        return problem
    parsed = _parsed_regressor(attributes)
    return parsed if isinstance(parsed, str) else None


tree_ensemble_regressor.rule("check", check_regressor)
tree_ensemble_regressor.until(
    3,
    lacks=["base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor", "target_weights_as_tensor"],
)
