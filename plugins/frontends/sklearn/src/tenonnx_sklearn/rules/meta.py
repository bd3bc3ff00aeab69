"""Meta-estimators: pipelines, columns, voting, stacking, thresholds, chains and searches."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier, is_regressor

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    added,
    affine,
    alike,
    beside,
    both,
    cast,
    column,
    columns,
    constant,
    double,
    flat,
    interpolate,
    is_zero,
    label,
    like,
    nearest,
    normalized,
    position,
    total,
    upright,
)
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
    "sklearn.GridSearchCV",
    "sklearn.RandomizedSearchCV",
    "sklearn.HalvingGridSearchCV",
    "sklearn.HalvingRandomSearchCV",
    table=True,
)
def search(model: Any, X: Table) -> Outputs:
    return convert(model.best_estimator_, X)


@converts("sklearn.FrozenEstimator", table=True)
def frozen(model: Any, X: Table) -> Outputs:
    return convert(model.estimator, X)


@converts("sklearn.SelfTrainingClassifier", table=True)
def self_training(model: Any, X: Table) -> Outputs:
    return convert(getattr(model, "estimator_", None) or model.base_estimator_, X)  # base_estimator_ before 1.6


@converts("sklearn._ConstantPredictor")
def constant_predictor(model: Any, X: Value) -> Outputs:
    """Constant prediction of a classifier that was fitted on a single class."""
    one = flat(constant(X, float(np.ravel(model.y_)[0])))
    return {"predict": cast(one, DType.int64), "decision_function": one, "predict_proba": both(one)}


@converts("sklearn.DummyRegressor")
def dummy_regressor(model: Any, X: Value) -> Outputs:
    y = constant(X, model.constant_)
    return {"predict": flat(y) if model.n_outputs_ == 1 else y}


@converts("sklearn.DummyClassifier")
def dummy_classifier(model: Any, X: Value) -> Outputs:
    if model._strategy in ("stratified", "uniform"):
        raise refusal(model, f"strategy={model._strategy}, which draws at random")
    several = model.n_outputs_ > 1
    lists = zip(model.classes_, model.class_prior_, strict=True) if several else [(model.classes_, model.class_prior_)]
    constants = np.ravel(model.constant) if model._strategy == "constant" else None
    labels, shares = [], []
    for k, (classes, prior) in enumerate(lists):
        classes, proba = np.asarray(classes), np.asarray(prior, np.float64)
        if model._strategy != "prior":
            chosen = classes[proba.argmax()] if constants is None else constants[k]
            proba = (classes == chosen).astype(np.float64)
        shares.append(constant(X, proba))
        labels.append(label(classes, flat(cast(constant(X, proba.argmax()), DType.int64))))
    return {"predict": beside(labels) if several else labels[0], "predict_proba": shares if several else shares[0]}


@converts("sklearn.VotingRegressor", table=True)
def voting_regressor(model: Any, X: Table) -> Outputs:
    parts = [output(each, X, "predict") for each in model.estimators_]
    weights = np.ones(len(parts)) if model._weights_not_none is None else np.asarray(model._weights_not_none)
    return {"predict": affine(beside(parts), weights / weights.sum()), "transform": beside(parts)}


@converts("sklearn.VotingClassifier", table=True)
def voting_classifier(model: Any, X: Table) -> Outputs:
    given = model._weights_not_none
    weights = np.ones(len(model.estimators_)) if given is None else np.asarray(given, np.float64)
    if model.voting == "soft":
        parts = [output(each, X, "predict_proba") for each in model.estimators_]
        total = added([part * float(weight) for part, weight in zip(parts, weights, strict=True)])
        found = by_probability(model.classes_, total / float(weights.sum()))
        shown = beside(parts) if model.flatten_transform else _layers(parts)
        return {**found, "transform": shown}
    chosen = [upright(output(each, X, "predict")) for each in model.estimators_]
    places = np.arange(len(model.classes_))[None]
    votes = [
        cast(ops.equal(each, places), X.dtype) * float(weight) for each, weight in zip(chosen, weights, strict=True)
    ]
    return {"predict": label(model.classes_, position(added(votes))), "transform": beside(chosen)}


def _layers(parts: list[Value]) -> Value:
    """Stack matrices: ``[parts, rows, columns]``."""
    return ops.concat(*[ops.unsqueeze(part, np.array([0], np.int64)) for part in alike(parts)], axis=0)


@converts("sklearn.StackingRegressor", "sklearn.StackingClassifier", table=True)
def stacking(model: Any, X: Table) -> Outputs:
    parts: list[Value] = []
    for each, method in zip(model.estimators_, model.stack_method_, strict=True):
        part = output(each, X, method)
        if isinstance(part, list):  # of several labels
            parts += [cast(columns(of_label, range(1, of_label.shape[1])), X.dtype) for of_label in part]
            continue
        if method == "predict_proba" and len(model.classes_) == 2:
            part = columns(part, range(1, part.shape[1]))
        parts.append(cast(upright(part), X.dtype))
    if model.passthrough:
        parts.append(X.matrix())
    result = {**convert(model.final_estimator_, beside(parts)), "transform": beside(parts)}
    encoder = getattr(model, "_label_encoder", None)
    if isinstance(encoder, list):
        labels = [label(each.classes_, column(result["predict"], k)) for k, each in enumerate(encoder)]
        return {**result, "predict": beside(labels)}
    return {**result, "predict": label(encoder.classes_, result["predict"])} if encoder is not None else result


@converts("sklearn.CalibratedClassifierCV", table=True)
def calibrated(model: Any, X: Table) -> Outputs:
    total = added([_calibrated_by(model, member, X) for member in model.calibrated_classifiers_])
    return by_probability(model.classes_, total / float(len(model.calibrated_classifiers_)))


def _calibrated_by(model: Any, member: Any, X: Table) -> Value:
    decided = hasattr(member.estimator, "decision_function")
    scores = double(output(member.estimator, X, "decision_function" if decided else "predict_proba"))
    binary = len(model.classes_) == 2
    if model.method == "temperature":
        return _tempered(member, scores, decided)
    if scores.rank == 2 and binary:
        scores = columns(scores, [1])
    scores = upright(scores)
    parts = [_calibrator(c, column(scores, k)) for k, c in enumerate(member.calibrators[: int(scores.shape[1])])]
    if binary:
        return both(parts[0])
    seen = dict(zip(np.searchsorted(model.classes_, member.estimator.classes_).tolist(), parts, strict=False))
    return normalized(beside([seen.get(k, parts[0] * 0.0) for k in range(len(model.classes_))]))


def _tempered(member: Any, scores: Value, decided: bool) -> Value:
    """Temperature scaling of logits; a single score is expanded to two of opposite signs."""
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


def _scored(member: Any, X: Table) -> tuple[Outputs, Value, float]:
    """Prediction of a member, its score of the second class, and the threshold of that score."""
    result = convert(member, X)
    if is_regressor(member):
        return result, result["predict"], 0.5
    if hasattr(member, "decision_function"):
        return result, called(result["decision_function"]), 0.0 if is_classifier(member) else 0.5
    return result, column(called(result["predict_proba"]), 1), 0.5


class _Undecided(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A member with zero probabilities, for testing how this version of scikit-learn breaks ties."""

    def predict_proba(self, X: Any) -> Any:
        return np.zeros((len(X), 2))


def _of_ties(model: Any) -> tuple[bool, float]:
    """Whether the last of several equal classes wins, and the normalization of zero probabilities."""
    copied, row = copy(model), np.zeros((1, 1))
    copied.estimators_ = [_Undecided()] * len(model.estimators_)
    with np.errstate(all="ignore"):
        return copied.predict(row)[0] != model.classes_[0], float(copied.predict_proba(row)[0, 0])


@converts("sklearn.OneVsRestClassifier", table=True)
def one_versus_rest(model: Any, X: Table) -> Outputs:
    members = [_scored(each, X) for each in model.estimators_]
    scores, limit = beside([score for _, score, _ in members]), members[0][2]
    result = {"decision_function": flat(scores) if len(members) == 1 else scores}
    if model.multilabel_:
        result["predict"] = cast(scores > limit, DType.int64)
    elif len(members) == 1:
        result["predict"] = label(model.classes_, cast(flat(scores) > limit, DType.int64))
    else:
        last, nothing = _of_ties(model)
        result["predict"] = label(model.classes_, ops.argmax(scores, axis=1, keepdims=0, select_last_index=int(last)))
    if all("predict_proba" in each for each, _, _ in members):
        proba = beside([column(called(each["predict_proba"]), 1) for each, _, _ in members])
        if len(members) == 1:
            proba = both(flat(proba))
        elif not model.multilabel_:
            sums = total(proba, keepdims=True)
            empty = is_zero(sums)
            proba = ops.where(empty, like(proba, nothing), proba / ops.where(empty, like(proba, 1.0), sums))
        result["predict_proba"] = proba
    return result


@converts("sklearn.OneVsOneClassifier", table=True)
def one_versus_one(model: Any, X: Table) -> Outputs:
    if model.pairwise_indices_ is not None:
        raise refusal(model, "a precomputed kernel")
    if any(is_regressor(each) for each in model.estimators_):
        raise refusal(model, "members that are regressors, which do not vote")
    members = [_scored(each, X) for each in model.estimators_]
    chosen = beside([cast(found["predict"], X.dtype) for found, _, _ in members])
    _, decision = pairwise_votes(len(model.classes_), chosen, cast(beside([score for _, score, _ in members]), X.dtype))
    if len(model.classes_) == 2:
        one = column(decision, 1)
        above = cast(one > members[0][2], DType.int64)
        return {"predict": label(model.classes_, above), "decision_function": one}
    return {"predict": label(model.classes_, position(decision)), "decision_function": decision}


def pairwise_votes(classes: int, second: Value, confidence: Value) -> tuple[Value, Value]:
    """Votes for each class from pairwise classifiers, and the votes with confidences as tie breakers.

    ``second`` is 1 where a pair chooses its second class; ``confidence`` is that of the second class.
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
    """Output codes: the nearest code, summed in scikit-learn's order, so that ties agree."""
    scores = double(beside([_scored(each, X)[1] for each in model.estimators_]))
    codes = np.asarray(model.code_book_, np.float64)
    square = total(scores * scores, keepdims=True) + (scores * -2.0) @ codes.T + (codes * codes).sum(axis=1)
    return {"predict": label(model.classes_, nearest(square))}


@converts("sklearn.MultiOutputRegressor", "sklearn.MultiOutputClassifier", table=True)
def multi_output(model: Any, X: Table) -> Outputs:
    members = [convert(each, X) for each in model.estimators_]
    result: Outputs = {"predict": beside([each["predict"] for each in members])}
    if all("predict_proba" in each for each in members):
        result["predict_proba"] = lambda: [called(each["predict_proba"]) for each in members]
    return result


@converts("sklearn.RegressorChain", "sklearn.ClassifierChain")
def chain(model: Any, X: Value) -> Outputs:
    found: list[Value] = []
    members: list[Outputs] = []
    fed = "predict"
    if type(model).__name__ == "ClassifierChain":
        fed = getattr(model, "chain_method_", "predict")
    for each in model.estimators_:
        rows = beside([X, *(cast(y, X.dtype) for y in found)])
        members.append(convert(each, rows))
        part = called(members[-1][fed])
        found.append(column(part, 1) if fed in ("predict_proba", "predict_log_proba") else part)
    order = np.argsort(model.order_)
    outputs: Outputs = {"predict": cast(beside([members[k]["predict"] for k in order]), X.dtype)}
    if all("predict_proba" in each for each in members):
        outputs["predict_proba"] = beside([column(called(members[k]["predict_proba"]), 1) for k in order])
    if all(
        hasattr(each, "decision_function") and "decision_function" in found
        for each, found in zip(model.estimators_, members, strict=True)
    ):
        outputs["decision_function"] = beside([called(members[k]["decision_function"]) for k in order])
    return outputs
