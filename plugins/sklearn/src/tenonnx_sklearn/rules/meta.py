"""Estimators of estimators: pipelines, columns, votes, stacks, thresholds, chains and searches."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    affine,
    beside,
    both,
    cast,
    column,
    columns,
    double,
    flat,
    interpolate,
    is_positive,
    label,
    like,
    nearest,
    normalized,
    position,
    squared_distances,
    upright,
)  # fmt: skip
from tenonnx_sklearn.conversion import Outputs, called, convert, converts, output, refusal
from tenonnx_sklearn.rules.results import by_probability
from tenonnx_sklearn.tables import Table, as_matrix, joined


@converts("sklearn.Pipeline", table=True)
def pipeline(model: Any, X: Table) -> Outputs:
    for _, step in model.steps[:-1]:
        if step not in (None, "passthrough"):
            X = output(step, X, "transform")
    last = model.steps[-1][1]
    return {"transform": X} if last in (None, "passthrough") else convert(last, X)


@converts("sklearn.FeatureUnion", table=True)
def feature_union(model: Any, X: Table) -> Outputs:
    weights = model.transformer_weights or {}
    parts = []
    for name, step in model.transformer_list:
        if step == "drop":
            continue
        part = X if step == "passthrough" else output(step, X, "transform")
        parts.append(as_matrix(part) * float(weights[name]) if name in weights else part)
    return {"transform": joined(parts, X.dtype)}


@converts("sklearn.ColumnTransformer", table=True)
def column_transformer(model: Any, X: Table) -> Outputs:
    weights = model.transformer_weights or {}
    parts = []
    for name, step, _ in model.transformers_:
        chosen = np.asarray(model._transformer_to_input_indices[name])
        if chosen.dtype.kind == "b":
            chosen = np.flatnonzero(chosen)
        if len(chosen) == 0 or (isinstance(step, str) and step == "drop"):
            continue
        part = X.take(chosen)
        if not (isinstance(step, str) and step == "passthrough"):
            part = output(step, part, "transform")
        parts.append(as_matrix(part) * float(weights[name]) if name in weights else part)
    return {"transform": joined(parts, X.dtype)}


@converts(
    "sklearn.GridSearchCV", "sklearn.RandomizedSearchCV", "sklearn.HalvingGridSearchCV",
    "sklearn.HalvingRandomSearchCV", table=True,
)  # fmt: skip
def search(model: Any, X: Table) -> Outputs:
    return convert(model.best_estimator_, X)


@converts("sklearn.FrozenEstimator", table=True)
def frozen(model: Any, X: Table) -> Outputs:
    return convert(model.estimator, X)


@converts("sklearn.SelfTrainingClassifier", table=True)
def self_training(model: Any, X: Table) -> Outputs:
    return convert(getattr(model, "estimator_", None) or model.base_estimator_, X)  # the latter before 1.6


@converts("sklearn._ConstantPredictor")
def constant_predictor(model: Any, X: Value) -> Outputs:
    """What stands for a classifier where all rows are of one class."""
    one = affine(X, np.zeros(X.shape[1]), float(np.ravel(model.y_)[0]))
    return {"predict": cast(one, DType.int64), "decision_function": one, "predict_proba": both(one)}


@converts("sklearn.DummyRegressor")
def dummy_regressor(model: Any, X: Value) -> Outputs:
    constant = np.asarray(model.constant_).reshape(1, -1)
    y = affine(X, np.zeros((constant.shape[1], X.shape[1])), constant.ravel())
    return {"predict": flat(y) if model.n_outputs_ == 1 else y}


@converts("sklearn.DummyClassifier")
def dummy_classifier(model: Any, X: Value) -> Outputs:
    if model._strategy in ("stratified", "uniform"):
        raise refusal(model, f"strategy={model._strategy}, which draws at random")
    if model.n_outputs_ > 1:
        best = model.constant if model._strategy == "constant" else [
            classes[np.argmax(prior)] for classes, prior in zip(model.classes_, model.class_prior_, strict=True)
        ]  # fmt: skip
        return {"predict": cast(affine(X, np.zeros((len(best), X.shape[1])), np.asarray(best)), DType.int64)}
    proba = np.asarray(model.class_prior_, np.float64)
    if model._strategy in ("constant", "most_frequent"):
        chosen = model.constant if model._strategy == "constant" else model.classes_[proba.argmax()]
        proba = (np.asarray(model.classes_) == chosen).astype(np.float64)
    shares = affine(X, np.zeros((len(proba), X.shape[1])), proba)
    index = affine(X, np.zeros(X.shape[1]), proba.argmax())
    place = cast(index, DType.int64)
    found = {"predict_proba": shares}
    prior = np.asarray(model.class_prior_)
    best = int(prior.argmax()) if model._strategy == "prior" else int(proba.argmax())
    return {"predict": label(model.classes_, place * 0 + best), **found}


@converts("sklearn.VotingRegressor", table=True)
def voting_regressor(model: Any, X: Table) -> Outputs:
    parts = [output(each, X, "predict") for each in model.estimators_]
    weights = np.ones(len(parts)) if model._weights_not_none is None else np.asarray(model._weights_not_none)
    return {"predict": affine(beside(parts), weights / weights.sum()), "transform": beside(parts)}


@converts("sklearn.VotingClassifier", table=True)
def voting_classifier(model: Any, X: Table) -> Outputs:
    given = model._weights_not_none
    weights = np.ones(len(model.estimators_)) if given is None else np.asarray(given, np.float64)
    total = None
    for each, weight in zip(model.estimators_, weights, strict=True):
        if model.voting == "soft":
            part = output(each, X, "predict_proba")
        else:
            chosen = ops.unsqueeze(output(each, X, "predict"), np.array([1], np.int64))
            part = cast(ops.equal(chosen, np.arange(len(model.classes_))[None]), X.dtype)
        part = part * float(weight)
        total = part if total is None else total + part
    assert total is not None
    if model.voting == "soft":
        return by_probability(model.classes_, total / float(weights.sum()))
    return {"predict": label(model.classes_, position(total))}


@converts("sklearn.StackingRegressor", "sklearn.StackingClassifier", table=True)
def stacking(model: Any, X: Table) -> Outputs:
    parts = []
    for each, method in zip(model.estimators_, model.stack_method_, strict=True):
        part = output(each, X, method)
        if method == "predict_proba" and len(model.classes_) == 2:
            part = column(part, 1)
        parts.append(cast(upright(part), X.dtype))
    if model.passthrough:
        parts.append(X.matrix())
    found = convert(model.final_estimator_, beside(parts))
    if hasattr(model, "_label_encoder"):
        found["predict"] = label(model._label_encoder.classes_, found["predict"])
    return found


@converts("sklearn.CalibratedClassifierCV", table=True)
def calibrated(model: Any, X: Table) -> Outputs:
    total = None
    for member in model.calibrated_classifiers_:
        each = _calibrated_by(model, member, X)
        total = each if total is None else total + each
    assert total is not None
    return by_probability(model.classes_, total / float(len(model.calibrated_classifiers_)))


def _calibrated_by(model: Any, member: Any, X: Table) -> Value:
    decided = hasattr(member.estimator, "decision_function")
    scores = double(output(member.estimator, X, "decision_function" if decided else "predict_proba"))
    binary = len(model.classes_) == 2
    if model.method == "temperature":
        return _tempered(member, scores, decided)
    if scores.rank == 2 and binary:
        scores = columns(scores, [1])
    if len(member.estimator.classes_) != len(model.classes_):
        raise refusal(model, "a member that saw fewer classes")
    parts = [_calibrator(c, column(upright(scores), k)) for k, c in enumerate(member.calibrators)]
    return both(parts[0]) if binary else normalized(beside(parts))


def _tempered(member: Any, scores: Value, decided: bool) -> Value:
    """The softmax of logits by one factor; a single score stands for two, of opposite signs."""
    logits = scores if decided else ops.log(scores + 1e-12)
    if logits.rank == 1:
        logits = beside([-logits, logits])
    return ops.softmax(logits * float(member.calibrators[0].beta_), axis=1)


def _calibrator(calibrator: Any, x: Value) -> Value:
    if hasattr(calibrator, "a_"):
        return ops.sigmoid(-(x * float(calibrator.a_) + float(calibrator.b_)))
    return interpolate(x, calibrator.X_thresholds_, calibrator.y_thresholds_)


@converts("sklearn.IsotonicRegression")
def isotonic(model: Any, X: Value) -> Outputs:
    if model.out_of_bounds != "clip" and model.out_of_bounds != "nan":
        raise refusal(model, f"out_of_bounds={model.out_of_bounds}")
    x = double(flat(X))
    y = interpolate(x, model.X_thresholds_, model.y_thresholds_)
    if model.out_of_bounds == "nan":
        outside = ops.or_(x < float(model.X_min_), x > float(model.X_max_))
        y = ops.where(outside, np.float64(np.nan), y)
    return {"predict": cast(y, X.dtype), "transform": cast(y, X.dtype)}


@converts("sklearn.TunedThresholdClassifierCV", "sklearn.FixedThresholdClassifier", table=True)
def thresholded(model: Any, X: Table) -> Outputs:
    tuned = hasattr(model, "best_threshold_")
    estimator = model.estimator_ if hasattr(model, "estimator_") else model.estimator
    found = convert(estimator, X)
    method = model._get_response_method()
    method = next(m for m in ([method] if isinstance(method, str) else method) if hasattr(estimator, m))
    marked = model._curve_scorer._get_pos_label() if tuned else model.pos_label
    first = marked is not None and marked == model.classes_[0]
    score = called(found[method])
    if method == "predict_proba":
        score = column(score, 0 if first else 1)
    elif first:
        score = -score
    threshold = model.best_threshold_ if tuned else model.threshold
    if threshold == "auto":
        threshold = 0.5 if method == "predict_proba" else 0.0
    above = cast(double(score) >= float(threshold), DType.int64)
    return {**found, "predict": label(model.classes_, 1 - above if first else above)}


@converts("sklearn.OneVsRestClassifier", table=True)
def one_versus_rest(model: Any, X: Table) -> Outputs:
    parts: list[Value] = []
    proba: list[Value] = []
    for each in model.estimators_:
        found = convert(each, X)
        if "predict_proba" in found:
            proba.append(column(called(found["predict_proba"]), 1))
        decision = found["decision_function"] if "decision_function" in found else proba[-1]
        parts.append(decision)
    found = {}
    if model.multilabel_:
        scores = beside(parts)
        decided = hasattr(model.estimators_[0], "decision_function")
        found["predict"] = cast(scores > (0.0 if decided else 0.5), DType.int64)
        return {**found, "decision_function": scores, **({"predict_proba": beside(proba)} if proba else {})}
    if len(parts) == 1:
        decided = hasattr(model.estimators_[0], "decision_function")
        index = is_positive(parts[0]) if decided else cast(parts[0] > 0.5, DType.int64)
        found["predict"] = label(model.classes_, index)
        found["decision_function"] = parts[0]
    else:
        found["decision_function"] = beside(parts)
        found["predict"] = label(model.classes_, position(found["decision_function"]))
    if proba:
        found["predict_proba"] = both(proba[0]) if len(proba) == 1 else normalized(beside(proba))
    return found


@converts("sklearn.OneVsOneClassifier", table=True)
def one_versus_one(model: Any, X: Table) -> Outputs:
    if model.pairwise_indices_ is not None:
        raise refusal(model, "a precomputed kernel")
    scores, chosen = [], []
    for each in model.estimators_:
        found = convert(each, X)
        decided = "decision_function" in found
        scores.append(found["decision_function"] if decided else column(called(found["predict_proba"]), 1))
        chosen.append(found["predict"])
    _, decision = pairwise_votes(len(model.classes_), cast(beside(chosen), X.dtype), cast(beside(scores), X.dtype))
    if len(model.classes_) == 2:
        one = column(decision, 1)
        limit = 0.0 if hasattr(model.estimators_[0], "decision_function") else 0.5
        return {"predict": label(model.classes_, cast(one > limit, DType.int64)), "decision_function": one}
    return {"predict": label(model.classes_, position(decision)), "decision_function": decision}


def pairwise_votes(classes: int, second: Value, confidence: Value) -> tuple[Value, Value]:
    """Votes for each class of machines for pairs, and these with the confidences as what breaks ties.

    ``second`` is 1 where the machine of a pair chooses the second class; ``confidence`` is for that one.
    """
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    for_second, for_first = np.zeros((len(pairs), classes)), np.zeros((len(pairs), classes))
    for row, (i, j) in enumerate(pairs):
        for_second[row, j] = for_first[row, i] = 1
    votes = second @ like(second, for_second - for_first) + like(second, for_first.sum(axis=0))
    sums = confidence @ like(confidence, for_second - for_first)
    return votes, votes + sums / ((ops.absolute(sums) + 1.0) * 3.0)


@converts("sklearn.OutputCodeClassifier", table=True)
def output_code(model: Any, X: Table) -> Outputs:
    parts = []
    for each in model.estimators_:
        found = convert(each, X)
        parts.append(
            found["decision_function"] if "decision_function" in found else column(called(found["predict_proba"]), 1)
        )
    return {"predict": label(model.classes_, nearest(squared_distances(beside(parts), model.code_book_)))}


@converts("sklearn.MultiOutputRegressor", "sklearn.MultiOutputClassifier", table=True)
def multi_output(model: Any, X: Table) -> Outputs:
    return {"predict": beside([output(each, X, "predict") for each in model.estimators_])}


@converts("sklearn.RegressorChain", "sklearn.ClassifierChain")
def chain(model: Any, X: Value) -> Outputs:
    found: list[Value] = []
    shown: list[Value] = []
    proba: list[Value] = []
    fed = "predict"
    if type(model).__name__ == "ClassifierChain":
        fed = getattr(model, "chain_method_", "predict")
        if not isinstance(fed, str):
            raise refusal(model, "a chain_method of several")
    for each in model.estimators_:
        rows = beside([X, *(cast(y, X.dtype) for y in found)])
        outputs = convert(each, rows)
        shown.append(outputs["predict"])
        if "predict_proba" in outputs:
            proba.append(column(called(outputs["predict_proba"]), 1))
        part = called(outputs[fed])
        found.append(column(part, 1) if fed == "predict_proba" else part)
    order = np.argsort(model.order_)
    y = beside([shown[k] for k in order])
    predicted = {"predict": cast(y, X.dtype)}
    return {**predicted, "predict_proba": beside([proba[k] for k in order])} if proba else predicted
