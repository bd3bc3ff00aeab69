"""Cases of TreeEnsembleClassifier and TreeEnsembleRegressor."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.testing import Gap, call, cases, tensors
from tenonnx_onnx_ml.tree_ensemble import tree_ensemble_classifier, tree_ensemble_regressor

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 3


def forest(draw, modes=MODES):
    """The attributes of the nodes of some trees, and the leaves as (tree, node)."""
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "values",
        "modes",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    columns = {name: [] for name in names}
    kinds = draw(st.sampled_from([modes, modes[:1]]))
    leaves = []

    def grow(tree, count, depth):
        """Add a node, and what is below it; the number of the node."""
        node = count[0]
        count[0] += 1
        place = len(columns.get("nodeids", ()))
        branches = depth > 0 and draw(st.integers(0, 3)) > 0
        entry = {"treeids": tree, "nodeids": node, "featureids": 0, "values": 0.0, "modes": "LEAF",
                 "truenodeids": 0, "falsenodeids": 0, "missing_value_tracks_true": 0}  # fmt: skip
        if branches:
            entry |= {"featureids": draw(st.integers(0, FEATURES - 1)), "modes": draw(st.sampled_from(kinds)),
                      "values": float(draw(st.integers(-2, 2))) / 2,
                      "missing_value_tracks_true": draw(st.integers(0, 1))}  # fmt: skip
        for name, value in entry.items():
            columns.setdefault(name, []).append(value)
        if branches:
            columns["truenodeids"][place] = grow(tree, count, depth - 1)
            columns["falsenodeids"][place] = grow(tree, count, depth - 1)
        else:
            leaves.append((tree, node))
        return node

    for tree in range(draw(st.integers(1, 3))):
        grow(tree, [0], draw(st.integers(1, 3)))
    attributes = {f"nodes_{name}": numbers for name, numbers in columns.items()}
    if draw(st.booleans()):
        del attributes["nodes_missing_value_tracks_true"]
    return attributes, leaves


def rows(draw, dtypes):
    """Rows of halves, so that some equal a threshold, and some NaN."""
    whole = draw(tensors(dtypes, shape=(draw(st.integers(1, 6)), FEATURES), min_value=-2, max_value=2))
    if whole.dtype.kind != "f":
        return whole
    x = np.round(whole * 2) / 2
    if draw(st.booleans()):
        x = np.where(draw(tensors("bool", shape=x.shape)), x, np.asarray(np.nan, x.dtype))
    return np.asarray(x, whole.dtype)


def votes(draw, leaves, columns, prefix, low, high):
    """Weights of each leaf for each of ``columns``."""
    pairs = [(leaf, column) for leaf in leaves for column in columns]
    weights = draw(tensors("float32", shape=(len(pairs),), min_value=low, max_value=high, exclude_near=(0.0,)))
    return {
        f"{prefix}_treeids": [leaf[0] for leaf, _ in pairs],
        f"{prefix}_nodeids": [leaf[1] for leaf, _ in pairs],
        f"{prefix}_ids": [column for _, column in pairs],
        f"{prefix}_weights": weights.tolist(),
    }


def labels_of(draw, count):
    if draw(st.booleans()):
        return {"classlabels_int64s": list(range(5, 5 + count))}
    return {"classlabels_strings": ["a", "b", "c", "d"][:count]}


def has_nan_at_unequal(c):
    """Whether a NaN may meet a node that asks for another value than one."""
    x = c.inputs[0]
    return x.dtype.kind == "f" and bool(np.isnan(x).any()) and "BRANCH_NEQ" in c.attributes["nodes_modes"]


NAN = Gap("onnxruntime", "onnxruntime takes NaN for unequal, whatever the node says of it", when=has_nan_at_unequal)
WIDE = Gap("reference", "onnx.reference gives float64 for float64", when=lambda c: c.inputs[0].dtype == np.float64)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@cases(tree_ensemble_classifier, gradient=False, gaps=[NAN])
def _(draw):
    """Three classes and more."""
    attributes, leaves = forest(draw)
    count = draw(st.integers(3, 4))
    attributes |= votes(draw, leaves, range(count), "class", 0.1, 1) | labels_of(draw, count)
    if draw(st.booleans()):
        attributes["base_values"] = draw(tensors("float32", shape=(count,))).tolist()
    x = rows(draw, ["float32", "float64", "int64", "int32"])
    return call(x, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


@cases(
    tree_ensemble_classifier,
    gradient=False,
    gaps=[NAN, Gap("reference", "onnx.reference has other conventions where one of two classes has votes")],
)
def _(draw):
    """Two classes, one of which has votes."""
    attributes, leaves = forest(draw)
    low = draw(st.sampled_from([0.1, -1]))
    voted = draw(st.integers(0, 1))
    attributes |= votes(draw, leaves, [voted], "class", low, 1) | labels_of(draw, 2)
    if voted == 0 and draw(st.booleans()):
        attributes["base_values"] = draw(tensors("float32", shape=(1,))).tolist()
    x = rows(draw, ["float32", "float64", "int64", "int32"])
    return call(x, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


@cases(
    tree_ensemble_classifier,
    gradient=False,
    gaps=[
        Gap("onnxruntime", "onnxruntime gives 0 or 1 as the label of two classes that both have votes"),
        Gap(
            "reference",
            "onnx.reference takes the label from the transformed scores",
            when=lambda c: c.attributes["post_transform"] == "PROBIT",
        ),
    ],
)
def _(draw):
    """Two classes with votes."""
    attributes, leaves = forest(draw, MODES[:4])
    attributes |= votes(draw, leaves, [0, 1], "class", -1, 1) | labels_of(draw, 2)
    x = rows(draw, ["float32"])
    return call(x, post_transform=draw(st.sampled_from([*TRANSFORMS, "PROBIT"])), **attributes)


@cases(tree_ensemble_classifier, gradient=False, gaps=[NAN])
def _(draw):
    """Thresholds and weights in float64."""
    attributes, leaves = forest(draw)
    attributes |= votes(draw, leaves, range(3), "class", 0.1, 1) | labels_of(draw, 3)
    attributes["nodes_values_as_tensor"] = np.asarray(attributes.pop("nodes_values"), np.float64)
    attributes["class_weights_as_tensor"] = np.asarray(attributes.pop("class_weights"), np.float64)
    return call(rows(draw, ["float64"]), **attributes)


@cases(tree_ensemble_regressor, gradient=False, gaps=[NAN, WIDE])
def _(draw):
    attributes, leaves = forest(draw)
    count = draw(st.integers(1, 3))
    attributes |= votes(draw, leaves, range(count), "target", -1, 1)
    if draw(st.booleans()):
        attributes["base_values"] = draw(tensors("float32", shape=(count,))).tolist()
    attributes["aggregate_function"] = draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]))
    x = rows(draw, ["float32", "float64"])
    return call(x, n_targets=count, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


@cases(tree_ensemble_regressor, gradient=False, gaps=[NAN, WIDE])
def _(draw):
    """Weights for some targets, and thresholds in float64."""
    attributes, leaves = forest(draw)
    attributes |= votes(draw, leaves, [draw(st.integers(0, 1))], "target", -1, 1)
    attributes["nodes_values_as_tensor"] = np.asarray(attributes.pop("nodes_values"), np.float64)
    attributes["target_weights_as_tensor"] = np.asarray(attributes.pop("target_weights"), np.float64)
    attributes["aggregate_function"] = draw(st.sampled_from(["SUM", "MIN"]))
    return call(rows(draw, ["float64"]), n_targets=2, **attributes)
