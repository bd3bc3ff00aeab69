"""Neighbours, kernels, clusters, mixtures, components."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    KERNELS,
    affine,
    beside,
    cast,
    column,
    double,
    flat,
    kernel,
    label,
    like,
    minkowski,
    nearest,
    position,
    squared_distances,
    total,
)  # fmt: skip
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.meta import pairwise_votes
from tenonnx_sklearn.rules.results import by_decision, by_log_joint, by_probability, outliers

# ----- neighbours -----------------------------------------------------------------------------------------------------


def distances(model: Any, X: Value) -> Value:
    """``float64[rows, points]`` from the points that an estimator keeps."""
    metric = model.effective_metric_ if isinstance(model.effective_metric_, str) else "a function"
    powers = {"euclidean": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "l2": 2.0, "chebyshev": np.inf}
    parameters = model.effective_metric_params_ or {}
    if metric == "minkowski" and parameters.get("w") is None:
        powers["minkowski"] = float(parameters.get("p", 2))
    if metric not in powers or not isinstance(model._fit_X, np.ndarray):
        raise refusal(model, f"metric={metric}")
    return minkowski(X, model._fit_X, powers[metric])


def _weights(model: Any, distance: Value) -> Value:
    """The weight of each neighbour; those at no distance leave the others none."""
    if model.weights in (None, "uniform"):
        return distance * 0.0 + 1.0
    if model.weights != "distance":
        raise refusal(model, "weights that are a function")
    same = cast(ops.equal(distance, np.float64(0)), DType.float64)
    some = total(same, keepdims=True) > 0.5
    return ops.where(some, same, 1.0 / ops.where(same > 0.5, np.float64(1), distance))


def _neighbours(model: Any, X: Value) -> tuple[Value, Value]:
    """Distances and positions of the nearest points."""
    return ops.top_k(distances(model, X), np.array([model.n_neighbors], np.int64), axis=1, largest=0)


@converts("sklearn.KNeighborsClassifier")
def nearest_classifier(model: Any, X: Value) -> Outputs:
    if isinstance(model.classes_, list):
        raise refusal(model, "several outputs")
    distance, place = _neighbours(model, X)
    chosen = ops.gather(np.eye(len(model.classes_))[model._y.ravel()], place, axis=0)
    weights = ops.unsqueeze(_weights(model, distance), np.array([2], np.int64))
    votes = ops.reduce_sum(chosen * weights, np.array([1], np.int64), keepdims=0)
    return {
        "predict": label(model.classes_, position(votes)),
        "predict_proba": cast(votes / total(votes, keepdims=True), X.dtype),
    }


@converts("sklearn.KNeighborsRegressor")
def nearest_regressor(model: Any, X: Value) -> Outputs:
    distance, place = _neighbours(model, X)
    targets = np.asarray(model._y, np.float64)
    known = ops.gather(targets.reshape(len(targets), -1), place, axis=0)
    weights = _weights(model, distance)
    shares = ops.unsqueeze(weights / total(weights, keepdims=True), np.array([2], np.int64))
    y = ops.reduce_sum(known * shares, np.array([1], np.int64), keepdims=0)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


@converts("sklearn.RadiusNeighborsRegressor")
def radius_regressor(model: Any, X: Value) -> Outputs:
    distance = distances(model, X)
    inside = cast(distance <= float(model.radius), DType.float64)
    if model.weights == "distance":
        raise refusal(model, "weights=distance")
    targets = np.asarray(model._y, np.float64)
    y = (inside @ targets.reshape(len(targets), -1)) / total(inside, keepdims=True)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


@converts("sklearn.RadiusNeighborsClassifier")
def radius_classifier(model: Any, X: Value) -> Outputs:
    if isinstance(model.classes_, list) or model.weights not in (None, "uniform"):
        raise refusal(model, "several outputs, or weights")
    if model.outlier_label_ not in (None, [None]):
        raise refusal(model, "outlier_label")
    inside = cast(distances(model, X) <= float(model.radius), DType.float64)
    votes = inside @ np.eye(len(model.classes_))[np.ravel(model._y)]
    return by_probability(model.classes_, cast(votes / total(votes, keepdims=True), X.dtype))


@converts("sklearn.NearestCentroid")
def nearest_centroid(model: Any, X: Value) -> Outputs:
    if model.metric == "manhattan":
        return {"predict": label(model.classes_, nearest(minkowski(X, model.centroids_, 1)))}
    if model.metric != "euclidean":
        raise refusal(model, f"metric={model.metric}")
    deviation = getattr(model, "within_class_std_dev_", None)
    prior = getattr(model, "class_prior_", None)
    if deviation is None or prior is None:  # before scikit-learn 1.6
        return {"predict": label(model.classes_, nearest(squared_distances(X, model.centroids_)))}
    scale = np.where(deviation == 0, 1.0, deviation)
    scores = 2.0 * np.log(prior) - squared_distances(double(X) / scale, model.centroids_ / scale)
    uniform = np.isclose(prior, 1 / len(prior)).all()
    chosen = nearest(squared_distances(X, model.centroids_)) if uniform else position(scores)
    decision = column(scores, 1) - column(scores, 0) if len(prior) == 2 else scores
    return {
        "predict": label(model.classes_, chosen),
        "predict_proba": ops.softmax(scores, axis=1),
        "decision_function": decision,
    }


@converts("sklearn.LocalOutlierFactor")
def local_outliers(model: Any, X: Value) -> Outputs:
    if not model.novelty:
        raise refusal(model, "novelty=False")
    count = np.array([model.n_neighbors_], np.int64)
    distance, place = ops.top_k(distances(model, X), count, axis=1, largest=0)
    reached = ops.maximum(distance, ops.gather(model._distances_fit_X_[:, model.n_neighbors_ - 1], place, axis=0))
    axes = np.array([1], np.int64)
    density = 1.0 / (ops.reduce_mean(reached, axes, keepdims=1) + 1e-10)
    scores = -ops.reduce_mean(ops.gather(model._lrd, place, axis=0) / density, axes, keepdims=0)
    return outliers(scores, model.offset_)


@converts("sklearn.KernelDensity")
def kernel_density(model: Any, X: Value) -> Outputs:
    if model.kernel != "gaussian" or model.metric != "euclidean":
        raise refusal(model, f"kernel={model.kernel}, metric={model.metric}")
    points = np.asarray(model.tree_.data)
    weights = np.ones(len(points)) if model.tree_.sample_weight is None else np.asarray(model.tree_.sample_weight)
    near = squared_distances(X, points) * (-0.5 / model.bandwidth_**2) + np.log(weights / weights.sum())
    constant = points.shape[1] * (0.5 * np.log(2 * np.pi) + np.log(model.bandwidth_))
    return {"score_samples": ops.reduce_log_sum_exp(near, np.array([1], np.int64), keepdims=0) - float(constant)}


@converts("sklearn.NeighborhoodComponentsAnalysis")
def neighbourhood_components(model: Any, X: Value) -> Outputs:
    return {"transform": affine(X, model.components_)}


# ----- kernels --------------------------------------------------------------------------------------------------------


def _kernel_of(model: Any, X: Value, points: Any, gamma: Any) -> Value:
    if not isinstance(model.kernel, str) or model.kernel not in KERNELS:
        raise refusal(model, f"kernel={model.kernel}")
    coef0, degree = (getattr(model, name, None) for name in ("coef0", "degree"))
    coef0, degree = 1.0 if coef0 is None else coef0, 3 if degree is None else degree
    return kernel(X, points, model.kernel, gamma, coef0, degree)


def _supported(model: Any, X: Value) -> Value:
    if not isinstance(model.support_vectors_, np.ndarray):
        raise refusal(model, "sparse support vectors")
    return _kernel_of(model, X, model.support_vectors_, model._gamma)


@converts("sklearn.SVR", "sklearn.NuSVR")
def support_regressor(model: Any, X: Value) -> Outputs:
    return {"predict": cast(flat(affine(_supported(model, X), model.dual_coef_, model.intercept_)), X.dtype)}


@converts("sklearn.OneClassSVM")
def support_one_class(model: Any, X: Value) -> Outputs:
    decision = flat(affine(_supported(model, X), model.dual_coef_, model.intercept_))
    found = outliers(decision, 0.0, inclusive=False)
    return {**found, "score_samples": decision + float(np.ravel(model.offset_)[0])}


@converts("sklearn.SVC", "sklearn.NuSVC")
def support_classifier(model: Any, X: Value) -> Outputs:
    values, classes = _supported(model, X), len(model.classes_)
    if classes == 2:
        return by_decision(model.classes_, flat(affine(values, model.dual_coef_, model.intercept_)))
    starts = np.concatenate([[0], np.cumsum(model.n_support_)])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((len(pairs), values.shape[1]))
    for row, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(starts[k], starts[k + 1]) for k in (i, j))
        weights[row, of_i] = model.dual_coef_[j - 1, of_i]
        weights[row, of_j] = model.dual_coef_[i, of_j]
    scores = affine(values, weights, model.intercept_)
    _, decision = pairwise_votes(classes, cast(scores < 0.0, DType.float64), -scores)
    firsts = cast(scores > 0.0, DType.float64)
    chosen = pairwise_votes(classes, 1.0 - firsts, scores)[0]
    if model.break_ties and model.decision_function_shape == "ovr":
        chosen = decision
    shown = decision if model.decision_function_shape == "ovr" else scores
    return {"predict": label(model.classes_, position(chosen)), "decision_function": shown}


@converts("sklearn.KernelRidge")
def kernel_ridge(model: Any, X: Value) -> Outputs:
    y = affine(_kernel_of(model, X, model.X_fit_, model.gamma), np.asarray(model.dual_coef_).T)
    return {"predict": cast(y, X.dtype)}


@converts("sklearn.Nystroem")
def nystroem(model: Any, X: Value) -> Outputs:
    values = _kernel_of(model, X, model.components_, model.gamma)
    return {"transform": cast(affine(values, model.normalization_), X.dtype)}


@converts("sklearn.KernelPCA")
def kernel_components(model: Any, X: Value) -> Outputs:
    values = _kernel_of(model, X, model.X_fit_, getattr(model, "gamma_", model.gamma))
    centre = model._centerer
    means = total(values, keepdims=True) / float(len(model.X_fit_))
    values = values - centre.K_fit_rows_ - means + float(centre.K_fit_all_)
    kept = np.flatnonzero(model.eigenvalues_)
    scaled = np.zeros_like(model.eigenvectors_)
    scaled[:, kept] = model.eigenvectors_[:, kept] / np.sqrt(model.eigenvalues_[kept])
    return {"transform": cast(affine(values, scaled.T), X.dtype)}


@converts("sklearn.RBFSampler")
def kernel_sampler(model: Any, X: Value) -> Outputs:
    waves = ops.cos(cast(affine(double(X), model.random_weights_.T, model.random_offset_), DType.float32))
    return {"transform": cast(waves, X.dtype) * float(np.sqrt(2.0 / model.n_components))}


@converts("sklearn.KernelCenterer")
def kernel_centerer(model: Any, X: Value) -> Outputs:
    means = total(X, keepdims=True) / float(len(model.K_fit_rows_))
    return {"transform": X - like(X, model.K_fit_rows_) - means + like(X, model.K_fit_all_)}


@converts("sklearn.GaussianProcessRegressor")
def gaussian_process(model: Any, X: Value) -> Outputs:
    if np.ndim(model.y_train_) > 1 and np.shape(model.y_train_)[1] > 1:
        raise refusal(model, "several targets")
    if not hasattr(model, "X_train_"):
        raise refusal(model, "no rows fitted")
    values = covariance(model, model.kernel_, X, model.X_train_)
    scale, mean = (float(np.ravel(n)[0]) for n in (model._y_train_std, model._y_train_mean))
    y = affine(values, np.ravel(model.alpha_)) * scale + mean
    return {"predict": cast(y, X.dtype)}


def covariance(model: Any, part: Any, X: Value, points: Any) -> Value:
    """The kernel of a Gaussian process between rows and the points that it was fitted on."""
    name = type(part).__name__
    if name in ("Sum", "Product"):
        one, two = (covariance(model, each, X, points) for each in (part.k1, part.k2))
        return one + two if name == "Sum" else one * two
    if name == "ConstantKernel":
        return squared_distances(X, points) * 0.0 + float(part.constant_value)
    if name == "WhiteKernel":
        return squared_distances(X, points) * 0.0
    if name == "DotProduct":
        return double(X) @ np.asarray(points, np.float64).T + float(part.sigma_0**2)
    if name in ("RBF", "Matern", "RationalQuadratic"):
        length = np.asarray(part.length_scale, np.float64)
        square = squared_distances(double(X) / length, points / length)
        if name == "RBF" or (name == "Matern" and part.nu == np.inf):
            return ops.exp(square * -0.5)
        if name == "RationalQuadratic":
            return ops.pow_(square / float(2 * part.alpha) + 1.0, np.float64(-part.alpha))
        distance = ops.sqrt(square)
        if part.nu == 0.5:
            return ops.exp(-distance)
        if part.nu == 1.5:
            scaled = distance * float(np.sqrt(3))
            return (scaled + 1.0) * ops.exp(-scaled)
        if part.nu == 2.5:
            scaled = distance * float(np.sqrt(5))
            return (scaled + 1.0 + scaled * scaled / 3.0) * ops.exp(-scaled)
    raise refusal(model, f"the kernel {part}")


# ----- clusters and mixtures ------------------------------------------------------------------------------------------


@converts("sklearn.KMeans", "sklearn.MiniBatchKMeans")
def k_means(model: Any, X: Value) -> Outputs:
    square = squared_distances(X, model.cluster_centers_)
    return {"predict": nearest(square), "transform": ops.sqrt(square)}


@converts("sklearn.MeanShift", "sklearn.AffinityPropagation")
def nearest_cluster(model: Any, X: Value) -> Outputs:
    if len(model.cluster_centers_) == 0:
        raise refusal(model, "no clusters")
    return {"predict": nearest(squared_distances(X, model.cluster_centers_))}


@converts("sklearn.Birch")
def birch(model: Any, X: Value) -> Outputs:
    square = squared_distances(X, model.subcluster_centers_)
    return {"predict": label_of(model.subcluster_labels_, nearest(square)), "transform": ops.sqrt(square)}


def label_of(labels: Any, index: Value) -> Value:
    return ops.gather(np.asarray(labels, np.int64), index, axis=0)


@converts("sklearn.FeatureAgglomeration")
def feature_agglomeration(model: Any, X: Value) -> Outputs:
    if model.pooling_func is not np.mean:
        raise refusal(model, "a pooling_func that is not numpy.mean")
    groups = np.unique(model.labels_)
    weights = np.array([(model.labels_ == group) / (model.labels_ == group).sum() for group in groups])
    return {"transform": affine(X, weights)}


@converts("sklearn.GaussianMixture", "sklearn.BayesianGaussianMixture")
def mixture(model: Any, X: Value) -> Outputs:
    if model.covariance_type not in ("full", "diag", "spherical", "tied"):
        raise refusal(model, f"covariance_type={model.covariance_type}")
    rows, scores, size = double(X), [], model.means_.shape[1]
    for k, mean in enumerate(model.means_):
        factor = model.precisions_cholesky_ if model.covariance_type == "tied" else model.precisions_cholesky_[k]
        factor = factor * np.eye(size) if np.ndim(factor) == 0 else np.diag(factor) if np.ndim(factor) == 1 else factor
        scaled = (rows - mean) @ factor
        constant = np.log(np.diag(factor)).sum() - 0.5 * size * np.log(2 * np.pi) + model._estimate_log_weights()[k]
        if hasattr(model, "degrees_of_freedom_"):
            from scipy.special import digamma

            freedom = model.degrees_of_freedom_[k]
            constant -= 0.5 * size * np.log(freedom)
            wishart = size * np.log(2.0) + digamma(0.5 * (freedom - np.arange(size))).sum()
            constant += 0.5 * (wishart - size / model.mean_precision_[k])
        scores.append(total(scaled * scaled) * -0.5 + float(constant))
    joint = beside(scores)
    found = by_log_joint(np.arange(len(scores)), joint)
    return {**found, "score_samples": ops.reduce_log_sum_exp(joint, np.array([1], np.int64), keepdims=0)}


def _mahalanobis(X: Value, model: Any) -> Value:
    gaps = double(X) - model.location_
    return total((gaps @ model.get_precision()) * gaps)


@converts("sklearn.EllipticEnvelope")
def elliptic_envelope(model: Any, X: Value) -> Outputs:
    return outliers(-_mahalanobis(X, model), model.offset_)


# ----- components -----------------------------------------------------------------------------------------------------


@converts("sklearn.PCA", "sklearn.IncrementalPCA")
def components(model: Any, X: Value) -> Outputs:
    centred = X if model.mean_ is None else X - like(X, model.mean_)
    y = affine(centred, model.components_)
    if model.whiten:
        scale = np.sqrt(model.explained_variance_)
        y = y / like(X, np.maximum(scale, np.finfo(scale.dtype).eps))
    return {"transform": y}


@converts("sklearn.TruncatedSVD")
def truncated(model: Any, X: Value) -> Outputs:
    return {"transform": affine(X, model.components_)}


@converts("sklearn.GaussianRandomProjection", "sklearn.SparseRandomProjection")
def random_projection(model: Any, X: Value) -> Outputs:
    weights = model.components_
    return {"transform": affine(X, weights.toarray() if hasattr(weights, "toarray") else weights)}


@converts("sklearn.FastICA")
def independent(model: Any, X: Value) -> Outputs:
    centred = X - like(X, model.mean_) if model.whiten else X
    return {"transform": affine(centred, model.components_)}


@converts("sklearn.FactorAnalysis")
def factors(model: Any, X: Value) -> Outputs:
    weights = model.components_ / model.noise_variance_
    inverse = np.linalg.inv(np.eye(len(weights)) + weights @ model.components_.T)
    return {"transform": affine(X - like(X, model.mean_), inverse @ weights)}


@converts("sklearn.SparsePCA", "sklearn.MiniBatchSparsePCA")
def sparse_components(model: Any, X: Value) -> Outputs:
    gram = model.components_ @ model.components_.T
    inverse = np.linalg.solve(gram + model.ridge_alpha * np.eye(len(gram)), model.components_)
    return {"transform": affine(X - like(X, model.mean_), inverse)}
