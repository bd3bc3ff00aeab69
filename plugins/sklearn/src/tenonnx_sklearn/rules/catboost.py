"""CatBoost, read from the JSON that its model saves; the package itself is not imported."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import column, columns, flat, label, like, position, upright
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Tree
from tenonnx_sklearn.rules.results import by_decision, logistic


def _held(model: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        found: dict[str, Any] = json.loads(path.read_text())
    for kind in ("categorical_features", "text_features", "embedding_features"):
        if found["features_info"].get(kind):
            raise refusal(model, f"{kind}, whose values the model holds as hashes alone; encode them in a step before")
    return found


def _scores(model: Any, X: Value) -> Value:
    """The raw scores ``float[rows, dimensions]``; features are compared in float32."""
    held = _held(model)
    features = {each["feature_index"]: each for each in held["features_info"]["float_features"]}
    scale, bias = held["scale_and_bias"]
    bias = np.asarray(bias, np.float64)
    if "oblivious_trees" in held:
        trees = [_oblivious(tree, features) for tree in held["oblivious_trees"]]
    else:
        trees = [_nested(tree, features) for tree in held["trees"]]
    for tree in trees:
        tree.values = tree.values * float(scale)
    scores = Ensemble(trees).scores(X)
    return scores + like(X, bias) if bias.any() else scores


def _missing_left(feature: dict[str, Any]) -> bool:
    """A number that is missing lies above all borders (``AsTrue``), or below them."""
    return feature["nan_value_treatment"] != "AsTrue"


def _oblivious(tree: dict[str, Any], features: dict[int, Any]) -> Tree:
    """All nodes of a level ask one question: the first split is the lowest bit of a leaf's place."""
    splits = tree["splits"] or []
    depth = len(splits)
    inner, leaves = 2**depth - 1, 2**depth
    feature, threshold = np.zeros(inner + leaves, int), np.zeros(inner + leaves)
    missing = np.zeros(inner + leaves, bool)
    left, right = (np.full(inner + leaves, -1) for _ in range(2))
    order = np.zeros(1, int)
    for level, split in enumerate(reversed(splits)):
        places = np.arange(2**level - 1, 2 ** (level + 1) - 1)
        found = features[split["float_feature_index"]]
        feature[places], threshold[places] = found["flat_feature_index"], split["border"]
        missing[places] = _missing_left(found)
        left[places], right[places] = 2 * places + 1, 2 * places + 2
        order = np.stack([order * 2, order * 2 + 1], axis=1).ravel()
    held = np.asarray(tree["leaf_values"], np.float64).reshape(leaves, -1)
    values = np.zeros((inner + leaves, held.shape[1]))
    values[inner:] = held[order]
    return Tree(feature, threshold, left, right, values, missing)


def _nested(root: dict[str, Any], features: dict[int, Any]) -> Tree:
    nodes = [root]
    for node in nodes:
        nodes += [node[side] for side in ("left", "right") if side in node]
    places = {id(node): k for k, node in enumerate(nodes)}
    feature, threshold, missing = np.zeros(len(nodes), int), np.zeros(len(nodes)), np.zeros(len(nodes), bool)
    left, right = (np.full(len(nodes), -1) for _ in range(2))
    leaves = {k: np.atleast_1d(node["value"]) for k, node in enumerate(nodes) if "split" not in node}
    values = np.zeros((len(nodes), len(next(iter(leaves.values())))))
    for k, node in enumerate(nodes):
        if k in leaves:
            values[k] = leaves[k]
            continue
        found = features[node["split"]["float_feature_index"]]
        feature[k], threshold[k] = found["flat_feature_index"], node["split"]["border"]
        missing[k] = _missing_left(found)
        left[k], right[k] = places[id(node["left"])], places[id(node["right"])]
    return Tree(feature, threshold, left, right, values, missing)


def _loss(model: Any) -> str:
    """The name of the loss, without its parameters."""
    return str(model.get_all_params()["loss_function"]).partition(":")[0]


@converts("catboost.CatBoostClassifier")
def classifier(model: Any, X: Value) -> Outputs:
    scores, loss = _scores(model, X), _loss(model)
    if loss in ("Logloss", "CrossEntropy"):
        if model.get_probability_threshold() not in (None, 0.5):
            raise refusal(model, "a threshold of probabilities that was set")
        decision = flat(scores)
        return by_decision(model.classes_, decision, logistic(decision))
    if loss in ("MultiClass", "MultiClassOneVsAll"):  # labels are a column, as CatBoost gives them
        proba = ops.softmax(scores, axis=1) if loss == "MultiClass" else ops.sigmoid(scores)
        return {"predict": upright(label(model.classes_, position(scores))), "predict_proba": proba}
    if loss in ("MultiLogloss", "MultiCrossEntropy"):
        return {"predict": ops.cast(scores > 0.0, to="int64"), "predict_proba": ops.sigmoid(scores)}
    raise refusal(model, f"loss_function={loss}")


@converts("catboost.CatBoostRegressor", "catboost.CatBoostRanker")
def regressor(model: Any, X: Value) -> Outputs:
    scores, loss = _scores(model, X), _loss(model)
    if loss in ("Poisson", "Tweedie"):
        return {"predict": flat(ops.exp(scores))}
    if loss == "RMSEWithUncertainty":
        variance = ops.exp(column(scores, 1) * 2.0)
        return {"predict": ops.concat(columns(scores, [0]), ops.unsqueeze(variance, np.array([1], np.int64)), axis=1)}
    if loss == "LogLinQuantile":
        return {"predict": flat(ops.exp(scores))}
    return {"predict": flat(scores) if scores.shape[1] == 1 else scores}
