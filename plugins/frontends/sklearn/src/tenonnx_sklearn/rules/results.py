"""Outputs of rules, by kind of estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import both, double, flat, is_positive, label, like, position
from tenonnx_sklearn.conversion import Outputs


def by_decision(classes: Any, decision: Value, proba: Value | None = None) -> Outputs:
    """A classifier by decision values: one for two classes, or the maximum of one for each class."""
    index = is_positive(decision) if decision.rank == 1 else position(decision)
    result = {"predict": label(classes, index), "decision_function": decision}
    return result if proba is None else {**result, "predict_proba": proba}


def by_logistic(classes: Any, decision: Value, logits: Value | None = None) -> Outputs:
    """A classifier whose probabilities are a logistic function of the decision, or of other ``logits``."""
    logits = decision if logits is None else logits
    found = by_decision(classes, decision, logistic(logits))
    return {**found, "predict_log_proba": lambda: ops.log(logistic(double(logits)))}


def by_probability(classes: Any, proba: Value) -> Outputs:
    """A classifier that selects the most probable class."""
    return {"predict": label(classes, position(proba)), "predict_proba": proba}


def by_log_joint(classes: Any, scores: Value) -> Outputs:
    """A classifier by unnormalized log-probabilities."""
    normal = scores - ops.reduce_log_sum_exp(scores, np.array([1], np.int64), keepdims=1)
    return {
        "predict": label(classes, position(scores)),
        "predict_proba": ops.softmax(scores, axis=1),
        "predict_log_proba": normal,
        "predict_joint_log_proba": scores,
    }


def logistic(decision: Value) -> Value:
    """Two probabilities from a single logit, or the softmax of several."""
    return both(ops.sigmoid(decision)) if decision.rank == 1 else ops.softmax(decision, axis=1)


def outliers(scores: Value, offset: float, *, inclusive: bool = True) -> Outputs:
    """An outlier detector: 1 for rows with a decision of at least 0, and -1 for others."""
    decision = scores - float(offset) if offset else scores
    inside = decision >= 0.0 if inclusive else decision > 0.0
    return {
        "predict": ops.where(inside, np.int64(1), np.int64(-1)),
        "decision_function": decision,
        "score_samples": scores,
    }


def regression(y: Value, single: bool = True) -> Outputs:
    """A regressor of one or several targets."""
    return {"predict": flat(y) if single else y}


def taken(X: Value, number: float) -> Any:
    return like(X, number)
