"""Linear models, discriminant analysis, naive Bayes, neural networks."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import (
    affine,
    beside,
    both,
    cast,
    columns,
    double,
    flat,
    label,
    like,
    normalized,
    position,
    total,
)
from tenonnx_sklearn.conversion import Outputs, converts, output, refusal
from tenonnx_sklearn.rules.results import by_decision, by_log_joint, by_logistic, outliers

_REGRESSORS = (
    "ElasticNet ElasticNetCV HuberRegressor Lars LarsCV Lasso LassoCV LassoLars "
    "LassoLarsCV LassoLarsIC LinearRegression LinearSVR MultiTaskElasticNet MultiTaskElasticNetCV MultiTaskLasso "
    "MultiTaskLassoCV OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV PassiveAggressiveRegressor "
    "QuantileRegressor Ridge RidgeCV SGDRegressor TheilSenRegressor"
)


#: Parameter names of a linear model in the graph.
COEFFICIENTS = ("coef", "intercept")


@converts(*(f"sklearn.{name}" for name in _REGRESSORS.split()))
def linear_regressor(model: Any, X: Value) -> Outputs:
    coef = np.asarray(model.coef_)
    if coef.ndim == 2 and coef.shape[0] == 1 and type(model).__name__ == "LinearSVR":
        coef = coef[0]
    return {"predict": affine(X, coef, model.intercept_, COEFFICIENTS)}


@converts("sklearn.BayesianRidge", "sklearn.ARDRegression")
def bayesian_regressor(model: Any, X: Value) -> Outputs:
    """``predict_std`` is the standard deviation of a prediction, due to noise and to the weights."""
    rows = double(X)
    center = np.asarray(model.X_offset_, np.float64)
    least = model.predict(center[None], return_std=True)[1].item() ** 2
    if np.isclose(least, 1 / model.alpha_, rtol=1e-9):  # versions before 1.9 do not center rows for the deviation
        rows = rows - center
    if type(model).__name__ == "ARDRegression":
        rows = columns(rows, np.flatnonzero(model.lambda_ < model.threshold_lambda))
    variance = total((rows @ np.asarray(model.sigma_)) * rows) + float(1 / model.alpha_)
    return {**linear_regressor(model, X), "predict_std": cast(ops.sqrt(variance), X.dtype)}


@converts("sklearn.PLSSVD")
def cross_covariance(model: Any, X: Value) -> Outputs:
    scaled = (X - like(X, model._x_mean)) / like(X, model._x_std)
    return {"transform": affine(scaled, model.x_weights_.T)}


@converts("sklearn.PLSRegression", "sklearn.PLSCanonical", "sklearn.CCA")
def partial_least_squares(model: Any, X: Value) -> Outputs:
    centered = X - like(X, model._x_mean)
    scaled = centered / like(X, model._x_std)
    of_scaled = (model.x_rotations_ @ model.y_loadings_.T * model._y_std).T
    is_old = np.allclose(model.coef_, of_scaled)  # before scikit-learn 1.5, coefficients refer to scaled rows
    y = affine(scaled if is_old else centered, model.coef_, model.intercept_)
    single = getattr(model, "_predict_1d", False)
    return {"predict": flat(y) if single else y, "transform": affine(scaled, model.x_rotations_.T)}


@converts("sklearn.TweedieRegressor", "sklearn.PoissonRegressor", "sklearn.GammaRegressor")
def generalized_linear(model: Any, X: Value) -> Outputs:
    y = affine(X, model.coef_, model.intercept_, COEFFICIENTS)
    link = type(model._base_loss.link).__name__
    if link not in ("IdentityLink", "LogLink"):
        raise refusal(model, f"the link {link}")
    return {"predict": ops.exp(y) if link == "LogLink" else y}


def _decision(model: Any, X: Value) -> Value:
    scores = affine(X, np.atleast_2d(model.coef_), model.intercept_, COEFFICIENTS)
    return flat(scores) if scores.shape[1] == 1 else scores


@converts("sklearn.LogisticRegression", "sklearn.LogisticRegressionCV")
def logistic_regression(model: Any, X: Value) -> Outputs:
    decision = _decision(model, X)
    multi_class = getattr(model, "multi_class", "auto")
    if decision.rank == 2 and (multi_class == "ovr" or model.solver == "liblinear"):
        return by_decision(model.classes_, decision, normalized(ops.sigmoid(decision)))
    doubled = decision.rank == 1 and multi_class == "multinomial"
    return by_logistic(model.classes_, decision, decision * 2.0 if doubled else decision)


@converts(
    "sklearn.LinearSVC",
    "sklearn.Perceptron",
    "sklearn.PassiveAggressiveClassifier",
    "sklearn.RidgeClassifier",
    "sklearn.RidgeClassifierCV",
)
def linear_classifier(model: Any, X: Value) -> Outputs:
    if getattr(getattr(model, "_label_binarizer", None), "y_type_", "").startswith("multilabel"):
        scores = affine(X, model.coef_, model.intercept_)
        return {"predict": ops.cast(scores > 0.0, to="int64"), "decision_function": scores}
    return by_decision(model.classes_, _decision(model, X))


@converts("sklearn.SGDClassifier")
def sgd_classifier(model: Any, X: Value) -> Outputs:
    """Scores may be large, so ratios of small probabilities need float64."""
    decision = _decision(model, double(X))
    if model.loss == "log_loss":
        each = ops.sigmoid(decision)
    elif model.loss == "modified_huber":
        each = (ops.clip(decision, like(decision, -1.0), like(decision, 1.0)) + 1.0) / 2.0
    else:
        return by_decision(model.classes_, decision)
    return by_decision(model.classes_, decision, both(each) if decision.rank == 1 else normalized(each))


@converts("sklearn.SGDOneClassSVM")
def sgd_one_class(model: Any, X: Value) -> Outputs:
    scores = affine(X, np.ravel(model.coef_))
    return outliers(scores, float(np.ravel(model.offset_)[0]))


@converts("sklearn.LinearDiscriminantAnalysis")
def linear_discriminant(model: Any, X: Value) -> Outputs:
    decision = _decision(model, X)
    result = by_logistic(model.classes_, decision)
    if model.solver in ("svd", "eigen"):
        centered = X - like(X, model.xbar_) if model.solver == "svd" else X
        result["transform"] = affine(centered, model.scalings_.T[: model._max_components])
    return result


@converts("sklearn.QuadraticDiscriminantAnalysis")
def quadratic_discriminant(model: Any, X: Value) -> Outputs:
    rows, scores = double(X), []
    for k in range(len(model.classes_)):
        scaled = model.rotations_[k] / np.sqrt(model.scalings_[k])
        centered = (rows - model.means_[k]) @ scaled
        constant = -0.5 * np.log(model.scalings_[k]).sum() + np.log(model.priors_[k])
        scores.append(total(centered * centered) * -0.5 + float(constant))
    joint = beside(scores)
    found = by_log_joint(model.classes_, joint)
    binary = len(scores) == 2
    return {**found, "decision_function": scores[1] - scores[0] if binary else joint}


@converts("sklearn.GaussianNB")
def gaussian_bayes(model: Any, X: Value) -> Outputs:
    rows, scores = double(X), []
    for mean, variance, prior in zip(model.theta_, model.var_, model.class_prior_, strict=True):
        gaps = rows - mean
        constant = np.log(prior) - 0.5 * np.log(2 * np.pi * variance).sum()
        scores.append(total(gaps * gaps / variance) * -0.5 + float(constant))
    return by_log_joint(model.classes_, beside(scores))


@converts("sklearn.MultinomialNB")
def multinomial_bayes(model: Any, X: Value) -> Outputs:
    return by_log_joint(model.classes_, affine(X, model.feature_log_prob_, model.class_log_prior_))


@converts("sklearn.ComplementNB")
def complement_bayes(model: Any, X: Value) -> Outputs:
    prior = model.class_log_prior_ if len(model.classes_) == 1 else 0.0
    return by_log_joint(model.classes_, affine(X, model.feature_log_prob_, prior))


@converts("sklearn.BernoulliNB")
def bernoulli_bayes(model: Any, X: Value) -> Outputs:
    if model.binarize is not None:
        X = ops.cast(float(model.binarize) < X, to=X.dtype)
    absent = np.log(1 - np.exp(model.feature_log_prob_))
    weights = model.feature_log_prob_ - absent
    return by_log_joint(model.classes_, affine(X, weights, model.class_log_prior_ + absent.sum(axis=1)))


@converts("sklearn.CategoricalNB")
def categorical_bayes(model: Any, X: Value) -> Outputs:
    scores = None
    for k, table in enumerate(model.feature_log_prob_):
        index = ops.cast(ops.gather(X, np.int64(k), axis=1), to="int64")
        each = ops.gather(like(X, table.T), index, axis=0)
        scores = each if scores is None else scores + each
    assert scores is not None
    return by_log_joint(model.classes_, scores + like(X, model.class_log_prior_))


_ACTIVATIONS: dict[str, Any] = {
    "identity": lambda x: x,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "logistic": ops.sigmoid,
    "exp": ops.exp,
    "softmax": lambda x: ops.softmax(x, axis=1),
}


def _forward(model: Any, X: Value) -> Value:
    last = len(model.coefs_) - 1
    for k, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        X = affine(X, weights.T, bias, (f"coefs_{k}", f"intercepts_{k}"))
        X = _ACTIVATIONS[model.out_activation_ if k == last else model.activation](X)
    return X


@converts("sklearn.MLPRegressor")
def net_regressor(model: Any, X: Value) -> Outputs:
    y = _forward(model, X)
    return {"predict": flat(y) if model.n_outputs_ == 1 else y}


@converts("sklearn.MLPClassifier")
def net_classifier(model: Any, X: Value) -> Outputs:
    scores = _forward(model, X)
    if model.out_activation_ == "softmax":
        return {"predict": label(model.classes_, position(scores)), "predict_proba": scores}
    if model._label_binarizer.y_type_.startswith("multilabel"):
        return {"predict": ops.cast(scores > 0.5, to="int64"), "predict_proba": scores}
    one = flat(scores)
    return {"predict": label(model.classes_, ops.cast(one > 0.5, to="int64")), "predict_proba": both(one)}


@converts("sklearn.BernoulliRBM")
def boltzmann_machine(model: Any, X: Value) -> Outputs:
    return {"transform": ops.sigmoid(affine(X, model.components_, model.intercept_hidden_))}


@converts("sklearn.RANSACRegressor")
def ransac(model: Any, X: Value) -> Outputs:
    return {"predict": output(model.estimator_, X, "predict")}
