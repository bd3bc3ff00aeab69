"""LightGBM, read from the booster's dump without importing the package."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import beside, both, column, columns, flat, label, like, position
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Memberships, Tree
from tenonnx_sklearn.rules.encoding import coded
from tenonnx_sklearn.rules.results import by_logistic
from tenonnx_sklearn.tables import Table

#: LightGBM's threshold for zero.
ZERO = 1.0000000180025095e-35


def _scores(model: Any, rows: Table) -> tuple[Value, list[str]]:
    """The raw scores, and the words of the objective."""
    if model.get_params().get("pred_early_stop"):
        raise refusal(model, "pred_early_stop=True, by which a row is asked about some of the trees")
    dumped = model.booster_.dump_model()
    X = coded(model, rows, _categories_of_pandas(model, dumped))
    targets = dumped["num_tree_per_iteration"]
    roots = [info["tree_structure"] for info in dumped["tree_info"]]
    memberships, linear = Memberships(X.shape[1]), _linear_features(roots)
    width = targets * (1 + len(linear))
    zeros: set[int] = set()
    trees = [_tree(root, memberships, zeros, width, k % targets, targets, linear) for k, root in enumerate(roots)]
    X = _zeros_as_missing(X, sorted(zeros))
    sums = Ensemble(trees, stored=np.float64).scores(memberships.append(X))
    scores = columns(sums, range(targets)) if linear else sums
    for k, feature in enumerate(linear, 1):  # summed coefficients of a feature over all reached leaves
        x = columns(X, [feature])
        x = ops.where(ops.isnan(x), like(X, 0.0), x)
        scores = scores + x * columns(sums, range(k * targets, (k + 1) * targets))
    if dumped.get("average_output"):
        scores = scores / float(len(trees) // targets)
    return (flat(scores) if targets == 1 else scores), str(dumped.get("objective", "custom")).split()


def _categories_of_pandas(model: Any, dumped: dict[str, Any]) -> dict[int, Any]:
    """The categories of pandas columns, by column; the model's text lists these columns."""
    found = dumped.get("pandas_categorical") or []
    if not found:
        return {}
    lines = model.booster_.model_to_string().splitlines()
    said = next((line for line in lines if line.startswith("[categorical_feature:")), "[:]")
    places = [int(word) for word in said.rpartition(":")[2].strip("] ").split(",") if word.strip()]
    if len(places) != len(found):
        raise refusal(model, f"categories of {len(found)} columns of a table, of which the model names {len(places)}")
    return dict(zip(places, found, strict=True))


def _zeros_as_missing(X: Value, features: list[int]) -> Value:
    if not features:
        return X
    parts = [column(X, k) for k in range(X.shape[1])]
    for k in features:
        zero = ops.absolute(parts[k]) <= like(X, ZERO)
        parts[k] = ops.where(zero, like(X, np.nan), parts[k])
    return beside(parts)


def _linear_features(roots: list[dict[str, Any]]) -> list[int]:
    """The features with a coefficient in some leaf."""
    nodes, found = list(roots), set()
    for node in nodes:
        nodes += [node[side] for side in ("left_child", "right_child") if side in node]
        found |= {int(k) for k in node.get("leaf_features", [])}
    return sorted(found)


def _without_missing(leaf: dict[str, Any]) -> dict[str, Any]:
    """A linear leaf, preceded by tests for missing features, in which case it is constant."""
    node = leaf
    for feature in leaf.get("leaf_features", []):
        node = {
            "split_feature": int(feature),
            "decision_type": "<=",
            "threshold": np.finfo(np.float32).max,
            "missing_type": "NaN",
            "default_left": False,
            "left_child": node,
            "right_child": {"leaf_value": leaf["leaf_value"]},
        }
    return node


def _tree(
    root: dict[str, Any],
    memberships: Memberships,
    zeros: set[int],
    width: int,
    target: int,
    targets: int,
    linear: list[int],
) -> Tree:
    nodes = [_without_missing(root)]
    for node in nodes:
        for side in ("left_child", "right_child"):
            if side in node and "split_feature" in node:
                if "leaf_features" in node[side] and node["right_child"].keys() != {"leaf_value"}:
                    node[side] = _without_missing(node[side])
                nodes.append(node[side])
    places = {id(node): k for k, node in enumerate(nodes)}
    feature, left, right = (np.full(len(nodes), fill) for fill in (0, -1, -1))
    threshold, missing = np.zeros(len(nodes)), np.zeros(len(nodes), bool)
    values = np.zeros((len(nodes), width))
    for k, node in enumerate(nodes):
        if "split_feature" not in node:
            values[k, target] = node.get("leaf_const", node["leaf_value"])
            for each, factor in zip(node.get("leaf_features", []), node.get("leaf_coeff", []), strict=True):
                values[k, (1 + linear.index(int(each))) * targets + target] += factor
            continue
        left[k], right[k] = places[id(node["left_child"])], places[id(node["right_child"])]
        feature[k] = node["split_feature"]
        if node["decision_type"] == "==":
            inside = [int(each) for each in str(node["threshold"]).split("||")]
            members = np.zeros(max(inside) + 1, bool)
            members[inside] = True
            feature[k], threshold[k] = memberships.ask(int(feature[k]), members, otherwise=False), 0.5
            continue
        threshold[k] = node["threshold"]
        if node["missing_type"] == "Zero":
            zeros.add(int(feature[k]))
        as_zero = node["missing_type"] == "None"
        missing[k] = threshold[k] >= 0 if as_zero else node["default_left"]
    counts = [node.get("internal_count", node.get("leaf_count")) for node in nodes]
    cover = None if None in counts else np.asarray(counts, np.float64)
    return Tree(feature, threshold, left, right, values, missing, cover)


def _parameter(words: list[str], name: str) -> float:
    return next((float(word.partition(":")[2]) for word in words if word.startswith(f"{name}:")), 1.0)


def _linked(scores: Value, words: list[str]) -> Value:
    """Output according to the objective: a number, a probability, or one for each class."""
    name = words[0]
    if name in ("poisson", "gamma", "tweedie"):
        return ops.exp(scores)
    if name in ("binary", "cross_entropy", "multiclassova"):
        return ops.sigmoid(scores * _parameter(words, "sigmoid"))
    if name == "cross_entropy_lambda":
        return ops.log(ops.exp(scores) + 1.0)
    if name == "multiclass":
        return ops.softmax(scores, axis=1)
    return ops.sign(scores) * scores * scores if "sqrt" in words else scores


@converts("lightgbm.LGBMClassifier", table=True)
def classifier(model: Any, X: Table) -> Outputs:
    scores, words = _scores(model, X)
    if callable(model.objective):  # a user-defined objective predicts scores
        return {"predict": scores, "predict_proba": scores, "decision_function": scores}
    proba = _linked(scores, words)
    if words[0] in ("binary", "cross_entropy"):
        return by_logistic(model.classes_, scores, scores * _parameter(words, "sigmoid"))
    if words[0] == "cross_entropy_lambda":
        return {"predict": label(model.classes_, ops.cast(proba > 0.5, to="int64")), "predict_proba": both(proba)}
    found = {"predict": label(model.classes_, position(proba)), "predict_proba": proba}
    return {**found, "decision_function": scores}


@converts("lightgbm.LGBMRegressor", "lightgbm.LGBMRanker", "tenonnx_sklearn.LightGBMBooster", table=True)
def regressor(model: Any, X: Table) -> Outputs:
    return {"predict": _linked(*_scores(model, X))}
