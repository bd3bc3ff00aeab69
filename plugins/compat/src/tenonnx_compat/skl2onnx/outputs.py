"""Outputs of a converted estimator, with skl2onnx's names, order and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, constant
from tenonnx_compat.refusal import NotSupported
from tenonnx_compat.skl2onnx.interface import Form, Output
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_onnx_ml.maps import zip_map

#: Options that select outputs and their types.
OPTIONS = (
    "zipmap",
    "nocl",
    "raw_scores",
    "output_class_labels",
    "score_samples",
    "decision_path",
    "decision_leaf",
    "return_std",
)


def outputs_of(model: Any, options: Mapping[str, Any]) -> list[Output]:
    """The outputs of an estimator, or of the last step of a pipeline, for these options."""
    from sklearn.base import is_classifier, is_regressor
    from sklearn.feature_selection import SelectorMixin
    from sklearn.gaussian_process import GaussianProcessRegressor

    last = model
    while getattr(last, "steps", None):
        last = last.steps[-1][1]
    kind = getattr(last, "_estimator_type", None) or getattr(_tags(last), "estimator_type", None)
    samples = [Output("score_samples", "score_samples", column=True)] if options.get("score_samples") else []
    if isinstance(last, SelectorMixin):
        return [Output("transform", "variable", column=True)]
    if is_classifier(last):
        return [*_of_classifier(last, options), *_of_trees(last, options)]
    if is_regressor(last):
        mean, deviation = ("GPmean", "GPcovstd") if isinstance(last, GaussianProcessRegressor) else ("variable", "std")
        deviations = [Output("predict_std", deviation)] if options.get("return_std") else []
        return [Output("predict", mean, column=True), *deviations, *_of_trees(last, options)]
    if kind == "outlier_detector":
        return [Output("predict", "label", column=True), Output("decision_function", "scores", column=True), *samples]
    if hasattr(last, "predict_proba"):
        return [Output("predict", "label", column=True), Output("predict_proba", "probabilities"), *samples]
    if hasattr(last, "predict"):
        label = Output("predict", "label")
        return [label, Output("transform", "scores")] if hasattr(last, "transform") else [label]
    if hasattr(last, "kneighbors") and not hasattr(last, "transform"):
        return [Output("indices", "index"), Output("distances", "distance")]
    return [Output("transform", "variable", column=True)]


def _tags(model: Any) -> Any:
    from sklearn.utils import get_tags

    return get_tags(model)


def _of_classifier(model: Any, options: Mapping[str, Any]) -> list[Output]:
    """Labels, and probabilities or scores: as maps, as a matrix (``zipmap`` False), or as one output per class."""
    from sklearn.linear_model import RidgeClassifier, RidgeClassifierCV
    from sklearn.svm import LinearSVC

    classes = getattr(model, "classes_", None)
    several = isinstance(classes, list)
    scored = hasattr(model, "predict_proba") and not options.get("raw_scores")
    method = "predict_proba" if scored else "decision_function"
    plain = several or isinstance(
        model, LinearSVC | RidgeClassifier | RidgeClassifierCV
    )  # skl2onnx returns no maps for them
    zipmap = False if plain else options.get("zipmap", True)
    if options.get("output_class_labels") and (zipmap or several):
        raise NotSupported("option 'output_class_labels' is not compatible with option 'zipmap'", do="set zipmap=False")
    labels = Output("predict", "output_label" if zipmap else "label")
    if several or not hasattr(model, method):
        return [labels, Output(method, "probabilities", True, several)] if hasattr(model, method) else [labels]
    names = np.asarray(classes)
    texts = names.dtype.kind in "USO"
    if options.get("nocl"):
        names = np.arange(len(names))
        if texts:
            labels = Output("predict", labels.name, form=_numbered([str(each) for each in np.asarray(classes)]))
        texts = False
    if zipmap == "columns":
        columns = [f"{'s' if texts else 'i'}{each}" for each in names]
        return [labels, *(Output(method, name, form=_column(k, len(names))) for k, name in enumerate(columns))]
    if zipmap:
        return [labels, Output(method, "output_probability", form=_maps(names, texts))]
    both = not plain or options.get("raw_scores")
    outputs = [labels, Output(method, "probabilities", column=not both, form=_both if both else ops.identity)]
    if options.get("output_class_labels"):
        known = names.astype(object) if texts else names.astype(np.int64)
        outputs.append(Output("predict", "class_labels", form=lambda _: constant(known)))
    return outputs


def _numbered(classes: list[str]) -> Form:
    """Map string labels to their indices in ``classes``."""
    return lambda value: label_encoder(value, keys_strings=classes, values_int64s=list(range(len(classes))))


def _column(k: int, count: int) -> Form:
    """Select column ``k`` as a vector."""
    return lambda value: ops.squeeze(
        ops.split(_both(value), np.ones(count, np.int64), axis=1)[k], np.array([1], np.int64)
    )


def _maps(classes: Any, texts: bool) -> Form:
    """Convert each row to a map from class to score."""
    labels: dict[str, Any]
    if texts:
        labels = {"classlabels_strings": [str(each) for each in classes]}
    else:
        labels = {"classlabels_int64s": [int(each) for each in classes]}
    return lambda value: zip_map(ops.cast(_both(value), to=DType.float32), **labels)


def _both(value: tx.Value) -> tx.Value:
    """Scores of both classes, from the decision function of the second."""
    second = ops.unsqueeze(value, np.array([1], np.int64)) if value.rank == 1 else value
    both: tx.Value = ops.concat(-second, second, axis=1) if value.rank == 1 else ops.identity(value)
    return both


def _of_trees(model: Any, options: Mapping[str, Any]) -> list[Output]:
    """The index of the leaf per row and tree, and the decision path as a string of ``0`` and ``1`` per node."""
    trees = [each.tree_ for each in getattr(model, "estimators_", [model]) if hasattr(each, "tree_")]
    outputs = []
    if options.get("decision_path"):
        outputs.append(Output("apply", "decision_path", column=True, form=_paths(trees)))
    if options.get("decision_leaf"):
        outputs.append(Output("apply", "decision_leaf", column=True))
    return outputs


def _paths(trees: list[Any]) -> Form:
    """Map leaf indices ``int64[rows, trees]`` to decision paths ``string[rows, trees]``."""
    texts = [np.array(_path_texts(tree), dtype=object) for tree in trees]

    def form(leaves: tx.Value) -> tx.Value:
        columns = ops.split(leaves, np.ones(len(trees), np.int64), axis=1) if len(trees) > 1 else [leaves]
        paths = [ops.gather(constant(table), each, axis=0) for table, each in zip(texts, columns, strict=True)]
        joined: tx.Value = ops.concat(*paths, axis=1) if len(paths) > 1 else paths[0]
        return joined

    return form


def _path_texts(tree: Any) -> list[str]:
    """The decision path to each node of a tree: a string with ``1`` for its ancestors and itself, ``0`` for others."""
    parents = {int(child): k for side in (tree.children_left, tree.children_right) for k, child in enumerate(side)}
    paths = []
    for node in range(tree.node_count):
        places = ["0"] * tree.node_count
        step: int | None = node
        while step is not None:
            places[step] = "1"
            step = parents.get(step)
        paths.append("".join(places))
    return paths
