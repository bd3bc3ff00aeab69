"""LightGBM, read from what its booster dumps; the package itself is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import both, flat, label, position
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Memberships, Tree
from tenonnx_sklearn.rules.results import by_decision


def _scores(model: Any, X: Value) -> tuple[Value, list[str]]:
    """The raw scores, and the words of the objective."""
    dumped = model.booster_.dump_model()
    if not isinstance(dumped.get("objective"), str):
        raise refusal(model, "an objective that is a function")
    if dumped.get("pandas_categorical"):
        raise refusal(model, "categories of pandas, where inputs are numbers")
    targets = dumped["num_tree_per_iteration"]
    memberships = Memberships(X.shape[1])
    trees = [
        _tree(model, info["tree_structure"], memberships, targets, k % targets)
        for k, info in enumerate(dumped["tree_info"])
    ]
    scores = Ensemble(trees, stored=np.float64).scores(memberships.append(X))
    if dumped.get("average_output"):
        scores = scores / float(len(trees) // targets)
    return (flat(scores) if targets == 1 else scores), dumped["objective"].split()


def _tree(model: Any, root: dict[str, Any], memberships: Memberships, targets: int, target: int) -> Tree:
    nodes = [root]
    for node in nodes:
        nodes += [node[side] for side in ("left_child", "right_child") if side in node]
    places = {id(node): k for k, node in enumerate(nodes)}
    feature, left, right = (np.full(len(nodes), fill) for fill in (0, -1, -1))
    threshold, missing = np.zeros(len(nodes)), np.zeros(len(nodes), bool)
    values = np.zeros((len(nodes), targets))
    for k, node in enumerate(nodes):
        if "split_feature" not in node:
            if "leaf_coeff" in node:
                raise refusal(model, "linear_tree=True")
            values[k, target] = node["leaf_value"]
            continue
        left[k], right[k] = places[id(node["left_child"])], places[id(node["right_child"])]
        feature[k] = node["split_feature"]
        if node["decision_type"] == "==":
            inside = [int(each) for each in str(node["threshold"]).split("||")]
            members = np.zeros(max(inside) + 1, bool)
            members[inside] = True
            feature[k], threshold[k] = memberships.ask(int(feature[k]), members, otherwise=False), 0.5
        elif node["missing_type"] == "Zero":
            raise refusal(model, "zero_as_missing=True")
        else:
            threshold[k] = node["threshold"]
            as_zero = node["missing_type"] == "None"
            missing[k] = threshold[k] >= 0 if as_zero else node["default_left"]
    return Tree(feature, threshold, left, right, values, missing)


def _parameter(words: list[str], name: str) -> float:
    return next((float(word.partition(":")[2]) for word in words if word.startswith(f"{name}:")), 1.0)


@converts("lightgbm.LGBMClassifier")
def classifier(model: Any, X: Value) -> Outputs:
    scores, words = _scores(model, X)
    if words[0] == "binary" and scores.rank == 1:
        decision = scores * _parameter(words, "sigmoid")
        return by_decision(model.classes_, decision, both(ops.sigmoid(decision)))
    if words[0] == "multiclassova":
        proba = ops.sigmoid(scores * _parameter(words, "sigmoid"))
    elif words[0] == "multiclass":
        proba = ops.softmax(scores, axis=1)
    else:
        raise refusal(model, f"objective={words[0]}")
    return {"predict": label(model.classes_, position(proba)), "predict_proba": proba}


@converts("lightgbm.LGBMRegressor", "lightgbm.LGBMRanker")
def regressor(model: Any, X: Value) -> Outputs:
    scores, words = _scores(model, X)
    name = words[0]
    if name in ("poisson", "gamma", "tweedie"):
        return {"predict": ops.exp(scores)}
    if name == "cross_entropy":
        return {"predict": ops.sigmoid(scores)}
    if name in ("cross_entropy_lambda", "binary", "multiclass", "multiclassova"):
        raise refusal(model, f"objective={name}")
    return {"predict": ops.sign(scores) * scores * scores if "sqrt" in words else scores}
