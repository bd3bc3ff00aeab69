"""Cases of tree ensembles."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_onnx_ml.tree_ensemble import tree_ensemble, tree_ensemble_classifier, tree_ensemble_regressor
from tenonnx_testing import Gap, call, cases, tensors

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 3


def forest(draw, modes=MODES):
    """The node attributes of some trees, and the leaves as (tree, node)."""
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
        """Add a node and its subtree; returns the number of the node."""
        node = count[0]
        count[0] += 1
        place = len(columns.get("nodeids", ()))
        branches = depth > 0 and draw(st.integers(0, 3)) > 0
        entry = {
            "treeids": tree,
            "nodeids": node,
            "featureids": 0,
            "values": 0.0,
            "modes": "LEAF",
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": 0,
        }
        if branches:
            entry |= {
                "featureids": draw(st.integers(0, FEATURES - 1)),
                "modes": draw(st.sampled_from(kinds)),
                "values": float(draw(st.integers(-2, 2))) / 2,
                "missing_value_tracks_true": draw(st.integers(0, 1)),
            }
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
    if draw(st.booleans()):
        attributes["nodes_hitrates"] = [1.0] * len(columns["nodeids"])
    return attributes, leaves


def in_float64(draw, attributes, prefix, count):
    """The attributes with thresholds, weights and hit rates as tensors, and optionally ``count`` base values."""
    for name in ("nodes_values", f"{prefix}_weights", "nodes_hitrates"):
        if name in attributes:
            attributes[f"{name}_as_tensor"] = np.asarray(attributes.pop(name), np.float64)
    if count and draw(st.booleans()):
        attributes["base_values_as_tensor"] = draw(tensors("float64", shape=(count,)))


def rows(draw, dtypes):
    """Rows of multiples of 0.5, so that some equal a threshold, and some NaN."""
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
    """Whether a NaN may reach a node with mode BRANCH_NEQ."""
    x = c.inputs[0]
    return x.dtype.kind == "f" and bool(np.isnan(x).any()) and "BRANCH_NEQ" in c.attributes["nodes_modes"]


NAN = Gap(
    "onnxruntime", "onnxruntime treats NaN as unequal, whatever the node's attribute says", when=has_nan_at_unequal
)
WIDE = Gap("reference", "onnx.reference returns float64 for float64", when=lambda c: c.inputs[0].dtype == np.float64)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@cases(tree_ensemble_classifier, gradient=False, gaps=[NAN])
def tree_ensemble_classifier_cases(draw):
    """Three or more classes."""
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
    gaps=[NAN, Gap("reference", "onnx.reference has other conventions if only one of two classes has votes")],
)
def tree_ensemble_classifier_cases_2(draw):
    """Two classes, only one of which has votes."""
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
        Gap("onnxruntime", "onnxruntime returns the label 0 or 1 if both of two classes have votes"),
        Gap(
            "reference",
            "onnx.reference takes the label from the transformed scores",
            when=lambda c: c.attributes["post_transform"] == "PROBIT",
        ),
    ],
)
def tree_ensemble_classifier_cases_3(draw):
    """Two classes, both with votes."""
    attributes, leaves = forest(draw, MODES[:4])
    attributes |= votes(draw, leaves, [0, 1], "class", -1, 1) | labels_of(draw, 2)
    x = rows(draw, ["float32"])
    return call(x, post_transform=draw(st.sampled_from([*TRANSFORMS, "PROBIT"])), **attributes)


@cases(tree_ensemble_classifier, gradient=False, gaps=[NAN])
def tree_ensemble_classifier_cases_4(draw):
    """Thresholds and weights in float64."""
    attributes, leaves = forest(draw)
    attributes |= votes(draw, leaves, range(3), "class", 0.1, 1) | labels_of(draw, 3)
    in_float64(draw, attributes, "class", 3)
    return call(rows(draw, ["float64"]), **attributes)


@cases(tree_ensemble_regressor, gradient=False, gaps=[NAN, WIDE])
def tree_ensemble_regressor_cases(draw):
    attributes, leaves = forest(draw)
    count = draw(st.integers(1, 3))
    attributes |= votes(draw, leaves, range(count), "target", -1, 1)
    if draw(st.booleans()):
        attributes["base_values"] = draw(tensors("float32", shape=(count,))).tolist()
    attributes["aggregate_function"] = draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]))
    x = rows(draw, ["float32", "float64"])
    return call(x, n_targets=count, post_transform=draw(st.sampled_from(TRANSFORMS)), **attributes)


def has_a_target_without_votes(c):
    """Whether some target has only base values."""
    given = c.attributes["base_values_as_tensor"] is not None
    return given and len(set(c.attributes["target_ids"])) < c.attributes["n_targets"]


UNVOTED = Gap(
    "onnxruntime",
    "onnxruntime returns 0 for targets without votes, and ignores their base value",
    has_a_target_without_votes,
)


@cases(tree_ensemble_regressor, gradient=False, gaps=[NAN, WIDE, UNVOTED])
def tree_ensemble_regressor_cases_2(draw):
    """Weights for some targets, and thresholds in float64."""
    attributes, leaves = forest(draw)
    voted = draw(st.sampled_from([[0], [1], [0, 1]]))
    attributes |= votes(draw, leaves, voted, "target", -1, 1)
    in_float64(draw, attributes, "target", 2)
    attributes["aggregate_function"] = draw(st.sampled_from(["SUM", "MIN"]))
    return call(rows(draw, ["float64"]), n_targets=2, **attributes)


# ----- TreeEnsemble ---------------------------------------------------------------------------------------------------

UNEQUAL, MEMBER = 5, 6
PROBIT = 4


def listed(draw, dtype, targets):
    """The attributes of trees with separate lists of nodes and leaves."""
    nodes, leaves, members, roots = [], [], [], []
    modes = draw(st.sampled_from([range(MEMBER + 1), [0], [MEMBER]]))

    def way(depth):
        """The target of a branch, and whether it is a leaf."""
        if depth and draw(st.booleans()):
            return grow(depth - 1), 0
        leaves.append(draw(st.integers(0, targets - 1)))
        return len(leaves) - 1, 1

    def grow(depth):
        number, mode = len(nodes), draw(st.sampled_from(modes))
        nodes.append(None)
        if mode == MEMBER:
            sets.append((number, draw(st.lists(st.integers(-4, 4), min_size=1, max_size=5))))
        (yes, yes_is_leaf), (no, no_is_leaf) = way(depth), way(depth)
        feature, threshold = draw(st.integers(0, FEATURES - 1)), draw(st.integers(-4, 4)) / 2
        nodes[number] = (feature, mode, threshold, yes, yes_is_leaf, no, no_is_leaf, draw(st.integers(0, 1)))
        return number

    sets = []
    for _ in range(draw(st.integers(1, 3))):
        roots.append(grow(draw(st.integers(0, 3))))
    for _, values in sorted(sets):
        members += [value / 2 for value in values] + [np.nan]
    feature, mode, threshold, yes, yes_is_leaf, no, no_is_leaf, missing = map(list, zip(*nodes, strict=True))
    weights = draw(tensors(dtype, shape=(len(leaves),), min_value=0.1, max_value=1))
    attributes = {
        "tree_roots": roots,
        "nodes_featureids": feature,
        "nodes_modes": np.array(mode, np.uint8),
        "nodes_splits": np.array(threshold, weights.dtype),
        "nodes_truenodeids": yes,
        "nodes_trueleafs": yes_is_leaf,
        "nodes_falsenodeids": no,
        "nodes_falseleafs": no_is_leaf,
        "leaf_targetids": leaves,
        "leaf_weights": weights,
        "n_targets": targets,
    }
    if members:
        attributes["membership_values"] = np.array(members, weights.dtype)
    if draw(st.booleans()):
        attributes["nodes_missing_value_tracks_true"] = missing
    if draw(st.booleans()):
        attributes["nodes_hitrates"] = np.ones(len(nodes), np.float32)
    return attributes


def meets_nan_at_unequal(c):
    return bool(np.isnan(c.inputs[0].astype(np.float32)).any()) and UNEQUAL in c.attributes["nodes_modes"].array()


def whole_for_sets(x, attributes):
    """Rows of integers for set membership: onnxruntime truncates to an integer in some cases."""
    return np.trunc(x) if MEMBER in attributes["nodes_modes"] else x


def has_zero(c):
    members = c.attributes["membership_values"]
    return members is not None and 0 in members.array()


LISTED = [
    Gap("onnxruntime", NAN.reason, when=meets_nan_at_unequal),
    Gap("reference", "onnx.reference treats NaN as unequal, too", when=meets_nan_at_unequal),
    Gap("reference", "onnx.reference finds no member of a set that contains 0", when=has_zero),
]


def lacks_votes(c):
    """Whether the minimum or maximum is requested of a target that may have no vote."""
    return c.attributes["aggregate_function"] > 1 and c.attributes["n_targets"] > 1


@cases(
    tree_ensemble,
    gradient=False,
    gaps=[
        *LISTED,
        Gap("reference", "onnx.reference returns the largest float without votes", when=lacks_votes),
    ],
)
def tree_ensemble_cases(draw):
    """Votes without transform."""
    x = rows(draw, ["float32", "float64", "float16"])
    aggregate, attributes = draw(st.integers(0, 3)), listed(draw, x.dtype.name, draw(st.integers(1, 3)))
    return call(whole_for_sets(x, attributes), aggregate_function=aggregate, **attributes)


@cases(
    tree_ensemble,
    gradient=False,
    gaps=[Gap("onnxruntime", "onnxruntime searches a set for the integer part of a feature")],
)
def tree_ensemble_cases_2(draw):
    """A fraction whose integer part is in the set."""
    return call(
        np.array([[0.5, *draw(st.lists(st.integers(-2, 2), min_size=2, max_size=2))]], np.float32),
        tree_roots=[0],
        nodes_featureids=[0],
        nodes_modes=np.array([MEMBER], np.uint8),
        nodes_splits=np.zeros(1, np.float32),
        nodes_truenodeids=[0],
        nodes_trueleafs=[1],
        nodes_falsenodeids=[1],
        nodes_falseleafs=[1],
        leaf_targetids=[0, 0],
        leaf_weights=np.array([1, 2], np.float32),
        n_targets=1,
        membership_values=np.array([0, -1, np.nan], np.float32),
    )


@cases(
    tree_ensemble,
    gradient=False,
    gaps=[
        *LISTED,
        Gap(
            "onnxruntime",
            "onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX",
            when=lambda c: c.attributes["post_transform"] in (1, 2) and c.attributes["n_targets"] > 1,
        ),
        Gap(
            "onnxruntime",
            "onnxruntime computes transforms in float32",
            when=lambda c: c.inputs[0].dtype == np.float64,
        ),
        Gap(
            "reference",
            "onnx.reference omits the transform",
            when=lambda c: c.attributes["n_targets"] > 1 or c.attributes["post_transform"] == PROBIT,
        ),
    ],
)
def tree_ensemble_cases_3(draw):
    """Votes after a transform."""
    x = rows(draw, ["float32", "float64"])
    transform, attributes = draw(st.integers(1, 4)), listed(draw, x.dtype.name, draw(st.integers(1, 3)))
    if transform == PROBIT:
        attributes["leaf_weights"] /= 4  # so that the sums are probabilities
    return call(whole_for_sets(x, attributes), post_transform=transform, **attributes)
