"""XGBoost, read from the JSON that its booster saves; the package itself is not imported."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import both, flat, like
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Tree
from tenonnx_sklearn.rules.results import by_decision, by_probability

_LOGISTIC = ("binary:logistic", "reg:logistic")
_LOG = ("count:poisson", "reg:gamma", "reg:tweedie")
_IDENTITY = (
    "binary:logitraw", "multi:softmax", "multi:softprob", "rank:map", "rank:ndcg", "rank:pairwise",
    "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror", "reg:squarederror", "reg:squaredlogerror",
)  # fmt: skip


def _margins(model: Any, X: Value) -> tuple[Value, str]:
    """The sums of trees and the base score, before the link; and the name of the objective."""
    booster = model.get_booster()
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective, boosted = learner["objective"]["name"], learner["gradient_booster"]
    if boosted["name"] not in ("gbtree", "dart"):
        raise refusal(model, f"booster={boosted['name']}")
    if model.missing is not None and not np.isnan(model.missing):
        raise refusal(model, f"missing={model.missing}")
    weights = boosted.get("weight_drop")
    held = (boosted["gbtree"] if weights is not None else boosted)["model"]
    margin = _base(model, learner, objective)
    targets = max(len(margin), 1 + max(held["tree_info"], default=0))
    best = booster.attr("best_iteration")
    last = held["iteration_indptr"][int(best) + 1] if best is not None else len(held["trees"])
    trees = [
        _tree(model, tree, targets, target, 1.0 if weights is None else weights[k])
        for k, (tree, target) in enumerate(zip(held["trees"][:last], held["tree_info"][:last], strict=True))
    ]
    scores = Ensemble(trees, strict=True).scores(X) + like(X, margin)
    return (flat(scores) if targets == 1 else scores), objective


def _base(model: Any, learner: dict[str, Any], objective: str) -> Any:
    given = learner["learner_model_param"]["base_score"].strip("[]").split(",")
    base = np.asarray([float(number) for number in given], np.float32).astype(np.float64)
    if objective in _LOGISTIC:
        return np.log(base / (1 - base))
    if objective in _LOG:
        return np.log(base)
    if objective not in _IDENTITY:
        raise refusal(model, f"objective={objective}")
    return base


def _tree(model: Any, tree: dict[str, Any], targets: int, target: int, weight: float) -> Tree:
    if any(tree["split_type"]) or int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise refusal(model, "splits by categories, or leaves of several targets")
    conditions = np.asarray(tree["split_conditions"], np.float32).astype(np.float64)
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    values = np.zeros((len(left), targets))
    values[:, target] = np.where(left < 0, conditions * weight, 0)
    return Tree(
        np.asarray(tree["split_indices"]), conditions, left, right, values, np.asarray(tree["default_left"], bool)
    )


@converts("xgboost.XGBClassifier", "xgboost.XGBRFClassifier")
def classifier(model: Any, X: Value) -> Outputs:
    margins, objective = _margins(model, X)
    if objective.startswith("multi:"):
        return by_probability(model.classes_, ops.softmax(margins, axis=1))
    if objective != "binary:logistic" or margins.rank != 1:
        raise refusal(model, f"objective={objective}, or several labels for a row")
    return by_decision(model.classes_, margins, both(ops.sigmoid(margins)))


@converts("xgboost.XGBRegressor", "xgboost.XGBRFRegressor", "xgboost.XGBRanker")
def regressor(model: Any, X: Value) -> Outputs:
    margins, objective = _margins(model, X)
    if objective in _LOG:
        return {"predict": ops.exp(margins)}
    return {"predict": ops.sigmoid(margins) if objective in _LOGISTIC else margins}
