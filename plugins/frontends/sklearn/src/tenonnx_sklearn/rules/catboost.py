"""CatBoost, read from the model's JSON without importing the package."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import column, columns, flat, label, like, position, upright
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Memberships, Tree
from tenonnx_sklearn.rules.catboost_categories import Codes, columns_of, counted
from tenonnx_sklearn.rules.results import by_logistic
from tenonnx_sklearn.tables import Table


def _model_json(model: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(model.saved_json() if hasattr(model, "saved_json") else _saved_json(model))
    for kind in ("text_features", "embedding_features"):
        if result["features_info"].get(kind):
            raise refusal(model, f"{kind}, whose values the model holds as hashes alone; encode them in a step before")
    return result


def _saved_json(model: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        return path.read_text("utf-8")


def _scores(model: Any, X: Table) -> Value:
    """The raw scores ``float[rows, dimensions]``; features are compared in float32."""
    contents = _model_json(model)
    info = contents["features_info"]
    codes = Codes.of(model, info, X)
    counts = counted(codes, info.get("ctrs", []), contents.get("ctr_data", {}), X.dtype)
    memberships = Memberships(len(codes.parts) + len(counts))
    splits = _splits(codes, info, memberships)
    scale, bias = contents["scale_and_bias"]
    bias = np.asarray(bias, np.float64)
    if "oblivious_trees" in contents:
        trees = [_oblivious(tree, splits) for tree in contents["oblivious_trees"]]
    else:
        trees = [_nested(tree, splits) for tree in contents["trees"]]
    for tree in trees:
        tree.values = tree.values * float(scale)
    scores = Ensemble(trees).scores(columns_of(codes, counts, memberships, X.dtype))
    return scores + like(scores, bias) if bias.any() else scores


#: A test of a tree: the column, the maximum of rows to the left, and whether missing numbers go left.
Split = tuple[int, float, bool]


def _splits(codes: Codes, info: dict[str, Any], memberships: Memberships) -> Callable[[int], Split]:
    """The tests by their index: on numbers, then on single categories, then on counters."""
    found: list[Callable[[], Split]] = []
    for each in info.get("float_features", []):
        place, missing = each["flat_feature_index"], _missing_left(each)
        found += [partial(tuple, (place, border, missing)) for border in each["borders"] or []]
    for each in info.get("categorical_features", []):
        found += [partial(_is_category, codes, memberships, each, value) for value in each.get("values", [])]
    for k, ctr in enumerate(info.get("ctrs", []), len(codes.parts)):
        found += [partial(tuple, (k, border, False)) for border in ctr["borders"]]
    known: dict[int, Split] = {}

    def split(number: int) -> Split:
        if number not in known:
            known[number] = found[number]()
        return known[number]

    return split


def _is_category(codes: Codes, memberships: Memberships, feature: dict[str, Any], value: int) -> Split:
    """Test of one category, whose rows go right."""
    others = np.ones(len(codes.hashes[feature["feature_index"]]), bool)
    others[codes.place(feature["feature_index"], value)] = False
    return memberships.ask(feature["flat_feature_index"], others, otherwise=True), 0.5, False


def _missing_left(feature: dict[str, Any]) -> bool:
    """Whether missing numbers go left; they are above all borders with ``AsTrue``, else below."""
    return feature["nan_value_treatment"] != "AsTrue"


def _oblivious(tree: dict[str, Any], splits: Callable[[int], Split]) -> Tree:
    """An oblivious tree, with one test for each level: the first test is the lowest bit of the leaf index."""
    splits_of_trees = [splits(each["split_index"]) for each in tree["splits"] or []]
    depth = len(splits_of_trees)
    inner, leaves = 2**depth - 1, 2**depth
    feature, threshold = np.zeros(inner + leaves, int), np.zeros(inner + leaves)
    missing = np.zeros(inner + leaves, bool)
    left, right = (np.full(inner + leaves, -1) for _ in range(2))
    order = np.zeros(1, int)
    for level, split in enumerate(reversed(splits_of_trees)):
        places = np.arange(2**level - 1, 2 ** (level + 1) - 1)
        feature[places], threshold[places], missing[places] = split
        left[places], right[places] = 2 * places + 1, 2 * places + 2
        order = np.stack([order * 2, order * 2 + 1], axis=1).ravel()
    leaf_values = np.asarray(tree["leaf_values"], np.float64).reshape(leaves, -1)
    values = np.zeros((inner + leaves, leaf_values.shape[1]))
    values[inner:] = leaf_values[order]
    cover = None
    if len(tree.get("leaf_weights") or ()) == leaves:
        cover = np.zeros(inner + leaves)
        cover[inner:] = np.asarray(tree["leaf_weights"], np.float64)[order]
        for node in reversed(range(inner)):
            cover[node] = cover[left[node]] + cover[right[node]]
    return Tree(feature, threshold, left, right, values, missing, cover)


def _nested(root: dict[str, Any], splits: Callable[[int], Split]) -> Tree:
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
        feature[k], threshold[k], missing[k] = splits(node["split"]["split_index"])
        left[k], right[k] = places[id(node["left"])], places[id(node["right"])]
    return Tree(feature, threshold, left, right, values, missing)


def _loss(model: Any) -> str:
    """The name of the loss, without its parameters."""
    return str(model.get_all_params()["loss_function"]).partition(":")[0]


@converts("catboost.CatBoostClassifier", "tenonnx_sklearn.CatBoostClassifier", table=True)
def classifier(model: Any, X: Table) -> Outputs:
    scores, loss = _scores(model, X), _loss(model)
    if loss in ("Logloss", "CrossEntropy", "Focal"):
        decision, threshold = flat(scores), model.get_probability_threshold() or 0.5
        above = ops.cast(decision > float(np.log(threshold / (1 - threshold))), to="int64")
        return {**by_logistic(model.classes_, decision), "predict": label(model.classes_, above)}
    if loss in ("MultiClass", "MultiClassOneVsAll"):  # labels are a column, as in CatBoost
        proba = ops.softmax(scores, axis=1) if loss == "MultiClass" else ops.sigmoid(scores)
        return {"predict": upright(label(model.classes_, position(scores))), "predict_proba": proba}
    if loss in ("MultiLogloss", "MultiCrossEntropy"):
        return {"predict": ops.cast(scores > 0.0, to="int64"), "predict_proba": ops.sigmoid(scores)}
    raise refusal(model, f"loss_function={loss}")


@converts("catboost.CatBoostRegressor", "catboost.CatBoostRanker", "tenonnx_sklearn.CatBoostRegressor", table=True)
def regressor(model: Any, X: Table) -> Outputs:
    scores, loss = _scores(model, X), _loss(model)
    if loss in ("Poisson", "Tweedie"):
        return {"predict": flat(ops.exp(scores))}
    if loss == "RMSEWithUncertainty":
        variance = ops.exp(column(scores, 1) * 2.0)
        return {"predict": ops.concat(columns(scores, [0]), ops.unsqueeze(variance, np.array([1], np.int64)), axis=1)}
    return {"predict": flat(scores) if scores.shape[1] == 1 else scores}


@converts("catboost.CatBoost", table=True)
def raw(model: Any, X: Table) -> Outputs:
    """Raw scores, for a model that is neither classifier nor regressor."""
    scores = _scores(model, X)
    return {"predict": flat(scores) if scores.shape[1] == 1 else scores}
