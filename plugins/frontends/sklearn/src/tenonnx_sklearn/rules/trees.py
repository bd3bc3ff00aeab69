"""Trees, forests and boosting."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import (
    added,
    beside,
    both,
    cast,
    column,
    columns,
    double,
    flat,
    label,
    like,
    position,
    smallest,
    upright,
)
from tenonnx_sklearn.conversion import Outputs, converts, output, refusal
from tenonnx_sklearn.ensembles import Ensemble, Memberships, Tree
from tenonnx_sklearn.rules.encoding import positions
from tenonnx_sklearn.rules.results import by_decision, by_logistic, by_probability, outliers, regression
from tenonnx_sklearn.tables import Table, as_matrix


def grown(tree: Any, values: Any) -> Tree:
    """A tree of scikit-learn with these leaf values."""
    missing = getattr(tree, "missing_go_to_left", None)
    return Tree(
        tree.feature,
        tree.threshold,
        tree.children_left,
        tree.children_right,
        values,
        missing,
        tree.weighted_n_node_samples,
    )


def _shares(tree: Any) -> Any:
    """For each output of a tree, the fraction of each class in each node."""
    sums = tree.value.sum(axis=2, keepdims=True)
    return tree.value / np.where(sums == 0, 1, sums)


def _classes_voted(model: Any, trees: list[Any], X: Value) -> Outputs:
    if model.n_outputs_ > 1:
        parts = [_one_output(model, trees, X, k) for k in range(model.n_outputs_)]
        found: Outputs = {name: [each[name] for each in parts] for name in ("predict", "predict_proba")}
        return {**found, "predict": beside(found["predict"]), "apply": lambda: leaves(trees, X)}
    return {**_one_output(model, trees, X, None), "apply": lambda: leaves(trees, X)}


def leaves(trees: list[Any], X: Value) -> Value:
    """Index of the leaf that a row reaches in each tree: ``int64[rows, trees]``."""
    numbered = [np.eye(len(trees))[k] * np.arange(tree.node_count)[:, None] for k, tree in enumerate(trees)]
    found = Ensemble([grown(tree, values) for tree, values in zip(trees, numbered, strict=True)]).scores(X)
    return ops.cast(ops.round_(found), to="int64")


def _one_output(model: Any, trees: list[Any], X: Value, k: int | None) -> Outputs:
    """Mean over a forest, by sums, so that ties stay ties; for two classes only one is summed."""
    classes = model.classes_ if k is None else model.classes_[k]
    shares, count = [_shares(tree)[:, k or 0, : len(classes)] for tree in trees], float(len(trees))
    if len(classes) == 2 and all(np.allclose(each.sum(axis=1), 1, rtol=0, atol=1e-12) for each in shares):
        second = Ensemble([grown(tree, each[:, 1:]) for tree, each in zip(trees, shares, strict=True)]).scores(X)
        chosen = flat(ops.cast(second > count / 2, to="int64"))
        second = second if count == 1 else second / count
        return {"predict": label(classes, chosen), "predict_proba": both(second)}
    sums = Ensemble([grown(tree, each) for tree, each in zip(trees, shares, strict=True)]).scores(X)
    proba = sums if count == 1 else sums / count
    return {"predict": label(classes, position(sums)), "predict_proba": proba}


def _means(model: Any, trees: list[Any], X: Value) -> Outputs:
    values = [tree.value[:, :, 0] for tree in trees]
    sums = Ensemble([grown(tree, value) for tree, value in zip(trees, values, strict=True)]).scores(X)
    found = regression(sums if len(trees) == 1 else sums / float(len(trees)), model.n_outputs_ == 1)
    return {**found, "apply": lambda: leaves(trees, X)}


@converts("sklearn.DecisionTreeClassifier", "sklearn.ExtraTreeClassifier")
def tree_classifier(model: Any, X: Value) -> Outputs:
    found = _classes_voted(model, [model.tree_], X)
    return {**found, "apply": lambda: flat(found["apply"]())}


@converts("sklearn.DecisionTreeRegressor", "sklearn.ExtraTreeRegressor")
def tree_regressor(model: Any, X: Value) -> Outputs:
    found = _means(model, [model.tree_], X)
    return {**found, "apply": lambda: flat(found["apply"]())}


@converts("sklearn.RandomForestClassifier", "sklearn.ExtraTreesClassifier")
def forest_classifier(model: Any, X: Value) -> Outputs:
    return _classes_voted(model, [tree.tree_ for tree in model.estimators_], X)


@converts("sklearn.RandomTreesEmbedding")
def trees_embedding(model: Any, X: Value) -> Outputs:
    found = leaves([tree.tree_ for tree in model.estimators_], X)
    return {"transform": output(model.one_hot_encoder_, Table((found,), X.dtype), "transform"), "apply": found}


@converts("sklearn.RandomForestRegressor", "sklearn.ExtraTreesRegressor")
def forest_regressor(model: Any, X: Value) -> Outputs:
    return _means(model, [tree.tree_ for tree in model.estimators_], X)


def _boosted(model: Any, X: Value, initial: Value | Any) -> Value:
    """The raw scores ``float[rows, columns]`` of gradient boosting."""
    columns_ = model.estimators_.shape[1]
    trees = []
    for stage in model.estimators_:
        for k, estimator in enumerate(stage):
            values = np.zeros((estimator.tree_.node_count, columns_))
            values[:, k] = estimator.tree_.value[:, 0, 0] * model.learning_rate
            trees.append(grown(estimator.tree_, values))
    scores = Ensemble(trees).scores(X)
    return scores + (initial if isinstance(initial, Value) else like(X, initial))


@converts("sklearn.GradientBoostingClassifier")
def gradient_boosting_classifier(model: Any, X: Value) -> Outputs:
    initial = _initial(model, X, np.zeros(model.estimators_.shape[1]))
    scores = _boosted(model, X, initial)
    exponential = model.loss == "exponential"
    decision = flat(scores) if scores.shape[1] == 1 else scores
    result = by_logistic(model.classes_, decision, decision * 2.0 if exponential else decision)
    if decision.rank == 1:
        result["predict"] = label(model.classes_, ops.cast(decision >= 0.0, to="int64"))
    return result


def _initial(model: Any, X: Value, zeros: Any) -> Value | Any:
    """The initial scores of boosting: constants, or those of an estimator through the link function."""
    if isinstance(model.init_, str):
        return zeros
    if type(model.init_).__name__ in ("DummyClassifier", "DummyRegressor"):
        return np.asarray(model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32)))
    if not hasattr(model, "classes_"):
        return cast(upright(output(model.init_, X, "predict")), X.dtype)
    near = float(np.finfo(np.float32).eps)
    proba = ops.clip(double(output(model.init_, X, "predict_proba")), np.float64(near), np.float64(1 - near))
    if zeros.size > 1:
        logs = ops.log(proba)
        return cast(logs - ops.reduce_mean(logs, np.array([1], np.int64), keepdims=1), X.dtype)
    one = columns(proba, [1])
    logit = ops.log(one / (1.0 - one))
    return cast(logit * 0.5 if model.loss == "exponential" else logit, X.dtype)


@converts("sklearn.GradientBoostingRegressor")
def gradient_boosting_regressor(model: Any, X: Value) -> Outputs:
    return regression(_boosted(model, X, _initial(model, X, np.zeros(1))))


def _histogram_scores(model: Any, rows: Table) -> Value:
    """The raw scores of histogram boosting, which compares in float64 and encodes categories first."""
    recodes = getattr(model, "_preprocessor", None)
    X = as_matrix(rows if recodes is None else output(recodes, rows, "transform"))
    targets = len(model._predictors[0])
    memberships = Memberships(model.n_features_in_)
    known, positions = model._bin_mapper.make_known_categories_bitsets()
    trees = []
    for stage in model._predictors:
        for k, predictor in enumerate(stage):
            trees.append(_histogram_tree(predictor, memberships, known, positions, targets, k))
    scores = Ensemble(trees, stored=np.float64).scores(memberships.append(X))
    return scores + like(X, model._baseline_prediction)


def _histogram_tree(predictor: Any, memberships: Memberships, known: Any, positions: Any, targets: int, k: int) -> Tree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    feature, threshold = nodes["feature_idx"].copy(), nodes["num_threshold"].copy()
    missing = nodes["missing_go_to_left"].astype(bool)
    for n in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf):
        left = _bits(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][n]])
        seen = _bits(known[positions[feature[n]]])
        members = np.where(seen, left, bool(missing[n]))
        feature[n] = memberships.ask(int(feature[n]), members, bool(missing[n]))
        threshold[n] = 0.5
    values = np.zeros((len(nodes), targets))
    values[:, k] = nodes["value"]
    left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
    threshold = np.where(np.isposinf(threshold), np.finfo(np.float32).max, threshold)
    return Tree(feature, threshold, left, right, values, missing, nodes["count"])


def _bits(words: Any) -> Any:
    """Unpack 32-bit words to booleans."""
    return np.unpackbits(np.ascontiguousarray(words, "<u4").view(np.uint8), bitorder="little").astype(bool)


@converts("sklearn.HistGradientBoostingClassifier", table=True)
def histogram_classifier(model: Any, X: Table) -> Outputs:
    scores = _histogram_scores(model, X)
    decision = flat(scores) if scores.shape[1] == 1 else scores
    return by_logistic(model.classes_, decision)


@converts("sklearn.HistGradientBoostingRegressor", table=True)
def histogram_regressor(model: Any, X: Table) -> Outputs:
    scores = flat(_histogram_scores(model, X))
    link = type(model._loss.link).__name__
    if link not in ("IdentityLink", "LogLink"):
        raise refusal(model, f"the link {link}")
    return {"predict": ops.exp(scores) if link == "LogLink" else scores}


@converts("sklearn.IsolationForest")
def isolation_forest(model: Any, X: Value) -> Outputs:
    depths = zip(model._decision_path_lengths, model._average_path_length_per_tree, strict=True)
    trees = []
    for estimator, features, (path, average) in zip(model.estimators_, model.estimators_features_, depths, strict=True):
        tree = grown(estimator.tree_, (path + average - 1.0)[:, None])
        tree.feature = np.where(tree.left < 0, 0, np.asarray(features)[np.maximum(tree.feature, 0)])
        trees.append(tree)
    depth = flat(Ensemble(trees).scores(X))
    per_tree = float(np.ravel(_average_path(model._max_samples))[0])
    scores = -ops.pow_(like(X, 2.0), depth * (-1.0 / (len(trees) * per_tree)))
    return outliers(scores, model.offset_)


def _average_path(samples: int) -> Any:
    from sklearn.ensemble._iforest import _average_path_length

    return _average_path_length([samples])


@converts("sklearn.AdaBoostClassifier")
def adaboost_classifier(model: Any, X: Value) -> Outputs:
    count, scores = len(model.classes_), None
    spoken = _logarithms if getattr(model, "algorithm", "SAMME") == "SAMME.R" else _votes
    for estimator, weight in zip(model.estimators_, model.estimator_weights_, strict=False):
        votes = spoken(model, estimator, X, float(weight))
        scores = votes if scores is None else scores + votes
    assert scores is not None
    scores = scores / float(model.estimator_weights_.sum())
    if count == 2:
        decision = column(scores, 1) - column(scores, 0)
        decision = decision * 0.5
        shown = decision * 2.0
        proba = ops.softmax(beside([-decision, decision]), axis=1)
        return by_decision(model.classes_, shown, proba)
    proba = ops.softmax(scores / float(count - 1), axis=1)
    return by_decision(model.classes_, scores, proba)


def _votes(model: Any, estimator: Any, X: Value, weight: float) -> Value:
    """SAMME: the weight for the class that a member predicts, and a negative fraction of it for the others."""
    count = len(model.classes_)
    chosen = positions(output(estimator, X, "predict"), model.classes_)
    hit = ops.equal(ops.unsqueeze(chosen, np.array([1], np.int64)), np.arange(count)[None])
    return ops.where(hit, like(X, weight), like(X, -weight / (count - 1)))


def _logarithms(model: Any, estimator: Any, X: Value, weight: float) -> Value:
    """SAMME.R, before scikit-learn 1.6: log-probabilities minus their mean."""
    proba = double(output(estimator, X, "predict_proba"))
    logs = ops.log(ops.maximum(proba, np.finfo(np.float64).eps))
    centered = logs - ops.reduce_mean(logs, np.array([1], np.int64), keepdims=1)
    return cast(centered * float(len(model.classes_) - 1), X.dtype)


@converts("sklearn.AdaBoostRegressor")
def adaboost_regressor(model: Any, X: Value) -> Outputs:
    """The weighted median of the members' predictions."""
    count = len(model.estimators_)
    predictions = beside([output(each, X, "predict") for each in model.estimators_])
    weights = np.asarray(model.estimator_weights_[:count], np.float64)
    ordered, order = smallest(predictions, count)
    running = ops.cumsum(ops.gather(weights, order, axis=0), np.int64(1))
    reached = ops.cast(running >= 0.5 * float(weights.sum()), to="int64")
    place = ops.unsqueeze(ops.argmax(reached, axis=1, keepdims=0), np.array([1], np.int64))
    return {"predict": flat(ops.gather_elements(ordered, place, axis=1))}


@converts("sklearn.BaggingClassifier", table=True)
def bagging_classifier(model: Any, X: Table) -> Outputs:
    """Bagging; classes of members are indices, and a member may lack some classes."""
    parts = []
    for estimator, features in zip(model.estimators_, model.estimators_features_, strict=True):
        voter, seen = X.take(features), np.asarray(estimator.classes_, int)
        if hasattr(estimator, "predict_proba"):
            each = output(estimator, voter, "predict_proba")
            if len(seen) < len(model.classes_):
                each = each @ like(each, np.eye(len(model.classes_))[seen])
        else:  # voting
            each = ops.gather(
                np.eye(len(model.classes_), dtype=X.dtype.numpy), output(estimator, voter, "predict"), axis=0
            )
        parts.append(each)
    return {
        **by_probability(model.classes_, double(added(parts)) / float(len(parts))),
        **_mean_decision(model, X),
    }


def _mean_decision(model: Any, X: Table) -> Outputs:
    """The mean of the members' decision functions, if all have one for all classes."""
    known = all(len(each.classes_) == len(model.classes_) for each in model.estimators_)
    if not known or not all(hasattr(each, "decision_function") for each in model.estimators_):
        return {}

    def decision() -> Value:
        members = zip(model.estimators_, model.estimators_features_, strict=True)
        parts = [output(each, X.take(features), "decision_function") for each, features in members]
        return added(parts) / float(len(parts))

    return {"decision_function": decision}


@converts("sklearn.BaggingRegressor", table=True)
def bagging_regressor(model: Any, X: Table) -> Outputs:
    members = zip(model.estimators_, model.estimators_features_, strict=True)
    parts = [output(each, X.take(features), "predict") for each, features in members]
    return {"predict": added(parts) / float(len(parts))}
