"""XGBoost, read from the booster's JSON without importing the package."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import affine, both, cast, flat, label, like, position
from tenonnx_sklearn.boosters import XGBoostBooster
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.ensembles import Ensemble, Memberships, Tree
from tenonnx_sklearn.rules.encoding import MISSING_TEXTS, coded
from tenonnx_sklearn.rules.results import by_logistic, by_probability
from tenonnx_sklearn.sparsity import is_sparse, stores_zeros
from tenonnx_sklearn.tables import Table, contents_of

_LOGISTIC = ("binary:logistic", "reg:logistic")
_LOG = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:aft", "survival:cox")
_IDENTITY = (
    "binary:hinge",
    "binary:logitraw",
    "multi:softmax",
    "multi:softprob",
    "rank:map",
    "rank:ndcg",
    "rank:pairwise",
    "reg:absoluteerror",
    "reg:expectileerror",
    "reg:pseudohubererror",
    "reg:quantileerror",
    "reg:squarederror",
    "reg:squaredlogerror",
)


#: Up to here the logistic function is 0.5 in float32.
ABOVE_HALF = 8.9e-8


def _margins(model: Any, rows: Table) -> tuple[Value, str]:
    """The margins, including the base score, and the name of the objective."""
    booster = model.get_booster()
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective, boosted = learner["objective"]["name"], learner["gradient_booster"]
    margin = _base(model, learner, objective)
    if boosted["name"] == "gblinear":
        X = _with_missing(model, rows.matrix(), is_sparse(rows))
        return _linear(boosted["model"]["weights"], margin[0], X), objective
    weights = boosted.get("weight_drop")
    ensemble = (boosted["gbtree"] if weights is not None else boosted)["model"]
    X = _with_missing(model, coded(model, rows, _categories(model, ensemble, rows)), is_sparse(rows))
    size = max([1, *(int(tree["tree_param"].get("size_leaf_vector", 1)) for tree in ensemble["trees"])])
    targets = max(len(margin), size, 1 + max(ensemble["tree_info"], default=0))
    best = None if isinstance(model, XGBoostBooster) else booster.attr("best_iteration")
    last = ensemble["iteration_indptr"][int(best) + 1] if best is not None else len(ensemble["trees"])
    memberships = Memberships(X.shape[1], negative=True)
    trees = [
        _tree(tree, memberships, targets, None if size > 1 else target, 1.0 if weights is None else weights[k])
        for k, (tree, target) in enumerate(zip(ensemble["trees"][:last], ensemble["tree_info"][:last], strict=True))
    ]
    scores = Ensemble(trees, strict=True).scores(memberships.append(X)) + like(X, margin)
    return (flat(scores) if targets == 1 else scores), objective


def _linear(weights: list[float], margin: Any, X: Value) -> Value:
    """Linear booster: one row of weights for each feature, then the biases; missing numbers count as zero."""
    table = np.asarray(weights, np.float64).reshape(X.shape[1] + 1, -1)
    known = ops.where(ops.isnan(X), like(X, 0.0), X)
    scores = affine(known, table[:-1].T, table[-1] + margin)
    return flat(scores) if table.shape[1] == 1 else scores


def _with_missing(model: Any, X: Value, sparse: bool) -> Value:
    """Rows with missing numbers as NaN: those equal to ``missing``, and the zeros that a sparse matrix omits."""
    marks = {0.0} if sparse else set()
    if sparse and stores_zeros():
        raise refusal(
            model,
            f"sparse rows of {', '.join(stores_zeros())}, in which some zeros are stored and others left out, which "
            "XGBoost takes for missing; make them dense in a step before",
        )
    if model.missing is not None and not np.isnan(model.missing):
        marks.add(float(model.missing))
    for mark in sorted(marks):
        X = ops.where(ops.equal(X, like(X, mark)), like(X, np.nan), X)
    return X


def _categories(model: Any, booster: dict[str, Any], rows: Table) -> dict[int, Any]:
    """The categories of columns, which XGBoost stores from 3.1 on."""
    result = {}
    for k, each in enumerate((booster.get("cats") or {}).get("enc", [])):
        if each["values"]:
            result[k] = _texts(model, each, rows.column(k)) if "offsets" in each else each["values"]
    return result


def _texts(model: Any, booster: dict[str, Any], x: Value) -> list[str]:
    """Category names. XGBoost splits strings from pandas by characters instead of bytes.

    Non-ASCII names can be read in both ways; the right one explains the example.
    """
    whole, cuts = bytes(np.asarray(booster["values"]).astype(np.uint8)), booster["offsets"]
    by_bytes = [whole[a:b].decode(errors="replace") for a, b in pairwise(cuts)]
    seen = contents_of(x)
    if whole.isascii() or seen is None or x.dtype is not DType.string:
        return by_bytes
    texts = {each for each in seen.ravel().tolist() if each not in MISSING_TEXTS}
    if texts <= set(by_bytes):
        return by_bytes
    rest, result = whole.decode(errors="ignore"), []
    for size in np.diff(cuts).tolist():
        text, rest = rest[:size], rest[size:]
        if len(text) < size:  # the last bytes are missing
            known = [each for each in texts - {*result} if len(each) == size and each.startswith(text)]
            text = known[0] if len(known) == 1 else text
        result.append(text)
    if not texts <= set(result):
        raise refusal(
            model,
            f"texts beyond ASCII that XGBoost holds cut short, of which {sorted(texts - {*result})} are unknown; "
            "give tx.load rows in which each known category occurs, or fit on categories of ASCII",
        )
    return result


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


def _tree(tree: dict[str, Any], memberships: Memberships, targets: int, target: int | None, weight: float) -> Tree:
    """``target`` is the output of scalar leaves, None for vector leaves."""
    conditions = np.asarray(tree["split_conditions"], np.float32).astype(np.float64)
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    leaf, feature = left < 0, np.asarray(tree["split_indices"])
    values = np.zeros((len(left), targets))
    if target is not None:
        values[:, target] = np.where(leaf, conditions * weight, 0)
    elif "leaf_weights" in tree:  # at the index of a leaf's right child
        leaf_weights = np.asarray(tree["leaf_weights"], np.float32).reshape(-1, targets)
        values[leaf] = leaf_weights[right[leaf]] * weight
    else:
        values[leaf] = np.asarray(tree["base_weights"], np.float32).reshape(-1, targets)[leaf] * weight
    parts = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    for node, start, size in parts:  # categories in the set go right, all others left
        inside = np.asarray(tree["categories"][start : start + size])
        members = np.ones(int(inside.max()) + 1, bool)
        members[inside] = False
        feature[node], conditions[node] = memberships.ask(int(feature[node]), members, otherwise=True), 0.5
    cover = np.asarray(tree["sum_hessian"], np.float64) if "sum_hessian" in tree else None
    return Tree(feature, conditions, left, right, values, np.asarray(tree["default_left"], bool), cover)


@converts("xgboost.XGBClassifier", "xgboost.XGBRFClassifier", table=True)
def classifier(model: Any, X: Table) -> Outputs:
    margins, objective = _margins(model, X)
    if objective.startswith("multi:"):
        return by_probability(model.classes_, ops.softmax(margins, axis=1))
    if objective == "binary:logistic" and margins.rank == 1:
        found = by_logistic(model.classes_, margins)  # labels compare the float32 probability with a half
        return {**found, "predict": label(model.classes_, ops.cast(margins > ABOVE_HALF, to="int64"))}
    if objective == "binary:logistic":
        proba = ops.sigmoid(margins)
        return {"predict": ops.cast(proba > 0.5, to="int64"), "predict_proba": proba}
    if objective in ("binary:logitraw", "binary:hinge"):
        shown = margins if objective == "binary:logitraw" else cast(margins > 0.0, margins.dtype)
        chosen = ops.cast(shown > 0.5, to="int64")
        return {"predict": label(model.classes_, chosen), "predict_proba": both(shown)}
    raise refusal(model, f"objective={objective}")


@converts(
    "xgboost.XGBRegressor", "xgboost.XGBRFRegressor", "xgboost.XGBRanker", "tenonnx_sklearn.XGBoostBooster", table=True
)
def regressor(model: Any, X: Table) -> Outputs:
    margins, objective = _margins(model, X)
    if objective in _LOG:
        return {"predict": ops.exp(margins)}
    if objective == "binary:hinge":
        return {"predict": cast(margins > 0.0, margins.dtype)}
    if objective == "multi:softprob":
        return {"predict": ops.softmax(margins, axis=1)}
    if objective == "multi:softmax":
        return {"predict": cast(position(margins), margins.dtype)}
    return {"predict": ops.sigmoid(margins) if objective in _LOGISTIC else margins}
