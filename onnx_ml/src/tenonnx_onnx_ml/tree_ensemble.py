"""Prediction with ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenonnx.extend import Constant, Dim, DType, Op, TensorType, TypeMismatch, Value, holds, op
from tenonnx_onnx_ml.cache import remembered
from tenonnx_onnx_ml.ensembles import Ensemble, tensor_dtype, with_listed_leaves, with_named_nodes
from tenonnx_onnx_ml.rows import ROWS
from tenonnx_onnx_ml.scores import (
    TRANSFORMS,
    label_dtype,
    labeled,
    labeled_array,
    labels_problem,
    transform_problem,
    transformed,
    transformed_array,
    with_second,
    with_second_array,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import reshape

Array = np.ndarray[Any, Any]


@remembered
def _read(op: Op, read: Callable[[Mapping[str, Any]], Ensemble], *values: Any) -> Ensemble:
    return read(dict(zip(op.signature.attributes, values, strict=True)))


def ensemble_of(op: Op, attributes: Mapping[str, Any]) -> Ensemble:
    """The ensemble described by the attributes of ``op``, cached."""
    return _read(op, _READERS[op.name], *[attributes[name] for name in op.signature.attributes])


@contextmanager
def _titled(op: Op) -> Iterator[None]:
    """Prefix errors with the op's name."""
    try:
        yield
    except TypeMismatch as error:
        error.what = f"{op.title}: {error.what}"
        raise


def _checked(op: Op, X: Value, attributes: Mapping[str, Any]) -> tuple[Ensemble, Dim]:
    """The ensemble, and the number of rows of ``X``. Raises ``TypeMismatch`` if they do not fit."""
    with _titled(op):
        ensemble = ensemble_of(op, attributes)
        if X.rank is None:
            return ensemble, None
        ensemble.check_features(X.shape)
    return ensemble, X.shape[0]


def _refuse(problem: str | None) -> None:
    if problem:
        raise TypeMismatch(problem)


# ----- TreeEnsemble ---------------------------------------------------------------------------------------------------


@op("TreeEnsemble", domain="ai.onnx.ml", since=5)
def tree_ensemble(
    X,
    *,
    aggregate_function=1,
    leaf_targetids: list[int],
    leaf_weights: Constant,
    membership_values: Constant | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Constant | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: Constant,
    nodes_splits: Constant,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform=0,
    tree_roots: list[int],
):
    """The average, sum, minimum or maximum of the weights of the leaves that a row reaches, for each target.

    A target without any weights is 0. Without ``n_targets``, the maximum id is the last target.
    """
    scores = ensemble_of(tree_ensemble, locals()).scores(X, _accumulated(X.dtype))
    scores = transformed(scores, TRANSFORMS[post_transform])
    return scores if scores.dtype is X.dtype else cast(scores, to=X.dtype)


def _accumulated(dtype: DType) -> DType:
    """Dtype of the accumulator for scores of a dtype."""
    return DType.float64 if dtype is DType.float64 else DType.float32


@tree_ensemble.type
def tree_ensemble_type(X, **attributes):
    ensemble, rows = _checked(tree_ensemble, X, attributes)
    for name in ("nodes_splits", "leaf_weights", "membership_values"):
        given = tensor_dtype(attributes[name])
        if given not in (None, X.dtype):
            raise TypeMismatch(
                f"{tree_ensemble.title}: dtype of {name} differs from that of X", given=f"{given} for {X.dtype}"
            )
    return TensorType(X.dtype, (rows, ensemble.votes.shape[1]))


@tree_ensemble.numpy
def tree_ensemble_numpy(X, **attributes):
    scores = ensemble_of(tree_ensemble, attributes).scores_of_array(X, _accumulated(DType.of(X.dtype)).numpy)
    return transformed_array(scores, TRANSFORMS[attributes["post_transform"]]).astype(X.dtype, copy=False)


@tree_ensemble.specialize
def tree_ensemble_specialize(X, **attributes):
    score = ensemble_of(tree_ensemble, attributes).scorer(X, _accumulated(DType.of(X.dtype)).numpy)
    post_transform, dtype = TRANSFORMS[attributes["post_transform"]], X.dtype
    return lambda x: transformed_array(score(x), post_transform).astype(dtype, copy=False)


def check(**attributes: Any) -> None:
    """Raise ``TypeMismatch`` for contradictory attributes."""
    if not 0 <= attributes["post_transform"] < len(TRANSFORMS):
        raise TypeMismatch(
            "unknown post_transform",
            given=str(attributes["post_transform"]),
            available=", ".join(f"{k} {name}" for k, name in enumerate(TRANSFORMS)),
        )
    ensemble_of(tree_ensemble, attributes)


tree_ensemble.requires(holds(check), ROWS)


# ----- TreeEnsembleClassifier -----------------------------------------------------------------------------------------


@op("TreeEnsembleClassifier", domain="ai.onnx.ml", before=5)
def tree_ensemble_classifier(
    X,
    *,
    base_values: list[float] | None = None,
    base_values_as_tensor: Constant | None = None,
    class_ids: list[int] | None = None,
    class_nodeids: list[int] | None = None,
    class_treeids: list[int] | None = None,
    class_weights: list[float] | None = None,
    class_weights_as_tensor: Constant | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int] | None = None,
    nodes_featureids: list[int] | None = None,
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: Constant | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str] | None = None,
    nodes_nodeids: list[int] | None = None,
    nodes_treeids: list[int] | None = None,
    nodes_truenodeids: list[int] | None = None,
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: Constant | None = None,
    post_transform="NONE",
):
    """The label of the maximum sum of votes of the leaves that a row reaches, and the transformed sums.

    If leaves vote for only one of two classes, their sum is the score of the second class, which is chosen if the sum
    is above 0.5, or above 0 if a weight is negative (see ``scores.with_second``), as in onnxruntime.
    """
    ensemble = ensemble_of(tree_ensemble_classifier, locals())
    labels = classlabels_int64s, classlabels_strings
    scores = ensemble.scores(X, DType.float32)
    column = _deciding(ensemble, *labels)
    if column is None:
        return labeled(argmax(scores, axis=1, keepdims=0), *labels), transformed(scores, post_transform)
    positive = scores[:, column : column + 1]
    position = cast(reshape(positive, [-1]) > (0.5 if ensemble.positive else 0.0), to=DType.int64)
    if _count(*labels) == 1:
        return position, transformed(scores, post_transform)
    if column:
        return labeled(position, *labels), transformed(scores, post_transform)
    return labeled(position, *labels), with_second(positive, post_transform, mirrored=not ensemble.positive)


def _count(integers: Sequence[int] | None, strings: Sequence[str] | None) -> int:
    return len(integers or strings or ())


def _named_classes(attributes: Mapping[str, Any]) -> Ensemble:
    columns = _count(attributes["classlabels_int64s"], attributes["classlabels_strings"])
    return with_named_nodes(attributes, "class", columns, "SUM")


def _deciding(ensemble: Ensemble, integers: Sequence[int] | None, strings: Sequence[str] | None) -> int | None:
    """The column of the only class with votes, if there are at most two classes; None if the maximum score wins."""
    several = ensemble.base is not None and len(ensemble.base) > 1
    if _count(integers, strings) > 2 or len(ensemble.voted) != 1 or several:
        return None
    return ensemble.voted[0]


@tree_ensemble_classifier.type
def tree_ensemble_classifier_type(X, **attributes):
    ensemble, rows = _checked(tree_ensemble_classifier, X, attributes)
    kind = label_dtype(attributes["classlabels_strings"])
    return TensorType(kind, (rows,)), TensorType(DType.float32, (rows, ensemble.votes.shape[1]))


@tree_ensemble_classifier.numpy
def tree_ensemble_classifier_numpy(X, **attributes):
    ensemble = ensemble_of(tree_ensemble_classifier, attributes)
    return _classified(ensemble, ensemble.scores_of_array(X, np.float32), attributes)


@tree_ensemble_classifier.specialize
def tree_ensemble_classifier_specialize(X, **attributes):
    ensemble = ensemble_of(tree_ensemble_classifier, attributes)
    score = ensemble.scorer(X, np.float32)
    return lambda x: _classified(ensemble, score(x), attributes)


def _classified(ensemble: Ensemble, scores: Array, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    labels = attributes["classlabels_int64s"], attributes["classlabels_strings"]
    post_transform = attributes["post_transform"]
    column = _deciding(ensemble, *labels)
    if column is None:
        return labeled_array(scores.argmax(axis=1), *labels), transformed_array(scores, post_transform)
    positive = scores[:, column : column + 1]
    position = (positive[:, 0] > (0.5 if ensemble.positive else 0.0)).astype(np.int64)
    if _count(*labels) == 1:
        return position, transformed_array(scores, post_transform)
    if column:
        return labeled_array(position, *labels), transformed_array(scores, post_transform)
    return labeled_array(position, *labels), with_second_array(positive, post_transform, mirrored=not ensemble.positive)


def check_classifier(**attributes: Any) -> None:
    """Raise ``TypeMismatch`` for contradictory attributes."""
    integers, strings = attributes["classlabels_int64s"], attributes["classlabels_strings"]
    problem = labels_problem(integers, strings, "classlabels_int64s and classlabels_strings")
    _refuse(problem or transform_problem(attributes["post_transform"]))
    if not integers and not strings:
        raise TypeMismatch("classlabels_int64s and classlabels_strings are missing")
    if strings and len(strings) == 1:
        raise TypeMismatch("a single class label is not an integer", given=f"classlabels_strings {strings}")
    ensemble_of(tree_ensemble_classifier, attributes)


tree_ensemble_classifier.requires(holds(check_classifier), ROWS)
tree_ensemble_classifier.until(
    3,
    lacks=["base_values_as_tensor", "class_weights_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor"],
)


# ----- TreeEnsembleRegressor ------------------------------------------------------------------------------------------


@op("TreeEnsembleRegressor", domain="ai.onnx.ml", before=5)
def tree_ensemble_regressor(
    X,
    *,
    aggregate_function="SUM",
    base_values: list[float] | None = None,
    base_values_as_tensor: Constant | None = None,
    n_targets: int | None = None,
    nodes_falsenodeids: list[int] | None = None,
    nodes_featureids: list[int] | None = None,
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: Constant | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str] | None = None,
    nodes_nodeids: list[int] | None = None,
    nodes_treeids: list[int] | None = None,
    nodes_truenodeids: list[int] | None = None,
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: Constant | None = None,
    post_transform="NONE",
    target_ids: list[int] | None = None,
    target_nodeids: list[int] | None = None,
    target_treeids: list[int] | None = None,
    target_weights: list[float] | None = None,
    target_weights_as_tensor: Constant | None = None,
):
    """The sum, average, minimum or maximum of the weights of the leaves that a row reaches, for each target.

    The base values are added to it; a target without any weights is 0 plus its base value.
    """
    return transformed(ensemble_of(tree_ensemble_regressor, locals()).scores(X, DType.float32), post_transform)


def _named_targets(attributes: Mapping[str, Any]) -> Ensemble:
    columns = attributes["n_targets"]
    if not columns or columns < 1:
        raise TypeMismatch("n_targets is missing", given=f"n_targets {columns}")
    return with_named_nodes(attributes, "target", columns, attributes["aggregate_function"])


@tree_ensemble_regressor.type
def tree_ensemble_regressor_type(X, **attributes):
    _, rows = _checked(tree_ensemble_regressor, X, attributes)
    return TensorType(DType.float32, (rows, attributes["n_targets"]))


@tree_ensemble_regressor.numpy
def tree_ensemble_regressor_numpy(X, **attributes):
    scores = ensemble_of(tree_ensemble_regressor, attributes).scores_of_array(X, np.float32)
    return transformed_array(scores, attributes["post_transform"])


@tree_ensemble_regressor.specialize
def tree_ensemble_regressor_specialize(X, **attributes):
    score = ensemble_of(tree_ensemble_regressor, attributes).scorer(X, np.float32)
    return lambda x: transformed_array(score(x), attributes["post_transform"])


def check_regressor(**attributes: Any) -> None:
    """Raise ``TypeMismatch`` for contradictory attributes."""
    _refuse(transform_problem(attributes["post_transform"]))
    ensemble_of(tree_ensemble_regressor, attributes)


tree_ensemble_regressor.requires(holds(check_regressor), ROWS)
tree_ensemble_regressor.until(
    3,
    lacks=["base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor", "target_weights_as_tensor"],
)

_READERS: dict[str, Callable[[Mapping[str, Any]], Ensemble]] = {
    "TreeEnsemble": with_listed_leaves,
    "TreeEnsembleClassifier": _named_classes,
    "TreeEnsembleRegressor": _named_targets,
}
