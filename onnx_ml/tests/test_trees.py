"""Tree ensembles: errors at load time, and comparison with independent implementations."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_onnx_ml import ensembles
from tenonnx_onnx_ml.tree_ensemble import tree_ensemble, tree_ensemble_regressor

TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
VOTES = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
CLASSIFIER = TREE | VOTES | {"classlabels_int64s": [3, 4]}
TARGETS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
REGRESSOR = TREE | TARGETS | {"n_targets": 1}
LISTED = {
    "tree_roots": [0],
    "nodes_featureids": [0],
    "nodes_modes": np.array([0], np.uint8),
    "nodes_splits": np.array([0.5], np.float32),
    "nodes_truenodeids": [0],
    "nodes_trueleafs": [1],
    "nodes_falsenodeids": [1],
    "nodes_falseleafs": [1],
    "leaf_targetids": [0, 0],
    "leaf_weights": np.array([1, 2], np.float32),
    "n_targets": 1,
}
OPS = {
    "TreeEnsembleClassifier": (3, ["label", "scores"], CLASSIFIER),
    "TreeEnsembleRegressor": (3, ["y"], REGRESSOR),
    "TreeEnsemble": (5, ["y"], LISTED),
}


def model(op, features=2, dtype=np.float32, **change):
    """A single-node model for rows of features, with modified attributes."""
    version, outputs, attributes = OPS[op]
    attributes = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in (attributes | change).items()
        if value is not None
    }
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n", features])
    labels = helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"])
    ends = [
        labels if name == "label" else helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", None])
        for name in outputs
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(helper.make_graph([node], "one", [x], ends), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("op", "change", "message", "given"),
    [
        ("TreeEnsembleClassifier", {"nodes_values": [0.5, 0.0]}, "nodes_\\* are missing, or", "nodes_values 2"),
        ("TreeEnsembleClassifier", {"nodes_treeids": None}, "nodes_\\* are missing", "nodes_treeids 0"),
        (
            "TreeEnsembleClassifier",
            {"nodes_modes": ["BRANCH", "LEAF", "LEAF"]},
            "nodes_modes holds an unknown",
            "BRANCH",
        ),
        ("TreeEnsembleClassifier", {"nodes_nodeids": [0, 1, 1]}, "nodes_nodeids repeats a node", "node 1 of tree 0"),
        ("TreeEnsembleClassifier", {"nodes_truenodeids": [7, 0, 0]}, "nodes_truenodeids holds a node", "child 7 in"),
        ("TreeEnsembleClassifier", {"nodes_falsenodeids": [0, 0, 0]}, "form a cycle", "a cycle"),
        ("TreeEnsembleClassifier", {"nodes_featureids": [-1, 0, 0]}, "nodes_featureids holds a negative", "-1"),
        ("TreeEnsembleClassifier", {"class_weights": [1.0]}, "class_\\* are missing, or differ", "class_weights 1"),
        ("TreeEnsembleClassifier", {"class_nodeids": [1, 9]}, "class_nodeids holds a node", "vote 9 in tree 0"),
        ("TreeEnsembleClassifier", {"class_ids": [0, 2]}, "class_ids holds a number outside 0 to 1", "2"),
        ("TreeEnsembleClassifier", {"classlabels_int64s": None}, "classlabels_int64s and", None),
        ("TreeEnsembleClassifier", {"classlabels_strings": ["a", "b"]}, "both integers and strings", None),
        ("TreeEnsembleClassifier", {"base_values": [0.0] * 3}, "base_values does not hold one number", "3 base values"),
        ("TreeEnsembleClassifier", {"post_transform": "HARDMAX"}, "'HARDMAX'", None),
        ("TreeEnsembleRegressor", {"n_targets": None}, "n_targets is missing", None),
        ("TreeEnsembleRegressor", {"aggregate_function": "MEAN"}, "unknown aggregate_function", "MEAN"),
        ("TreeEnsembleRegressor", {"target_weights_as_tensor": np.array([1, 2])}, "holds no floats", "int64"),
        ("TreeEnsemble", {"nodes_truenodeids": [2]}, "nodes_truenodeids holds a number outside 0 to 1", "2"),
        ("TreeEnsemble", {"nodes_falsenodeids": [0], "nodes_falseleafs": [0]}, "form a cycle", "1 in all"),
        (
            "TreeEnsemble",
            {"nodes_falsenodeids": [1], "nodes_falseleafs": [0]},
            "nodes_falsenodeids holds a number",
            "1",
        ),
        ("TreeEnsemble", {"tree_roots": [1]}, "tree_roots holds a number outside 0 to 0", "1"),
        ("TreeEnsemble", {"nodes_modes": np.array([7], np.uint8)}, "nodes_modes holds an unknown mode", "7"),
        (
            "TreeEnsemble",
            {"nodes_modes": np.array([6], np.uint8)},
            "membership_values does not hold one set",
            "0 sets, 1",
        ),
        ("TreeEnsemble", {"leaf_targetids": [0, 1]}, "leaf_targetids holds a number outside 0 to 0", "1"),
        ("TreeEnsemble", {"leaf_targetids": [0]}, "leaf_\\* are missing, or differ", "leaf_targetids 1"),
        ("TreeEnsemble", {"aggregate_function": 4}, "aggregate_function holds a number outside 0 to 3", "4"),
        ("TreeEnsemble", {"post_transform": 5}, "unknown post_transform", "5"),
    ],
)
def test_contradictions_are_refused_at_import(op, change, message, given):
    with pytest.raises(tx.TenonnxError, match=message) as error:
        tx.load(model(op, **change))
    assert str(error.value).startswith('node "-> ')
    if given:
        assert given in error.value.given


def test_cycles_that_no_root_reaches():
    nodes = {
        "nodes_treeids": [0] * 4,
        "nodes_nodeids": [0, 1, 2, 3],
        "nodes_featureids": [0] * 4,
        "nodes_values": [0.0] * 4,
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        "nodes_truenodeids": [1, 2, 1, 0],
        "nodes_falsenodeids": [3, 3, 3, 0],
    }
    with pytest.raises(tx.TenonnxError, match="form a cycle"):
        tx.load(model("TreeEnsembleRegressor", **nodes | {"target_nodeids": [3, 3]}))
    nodes |= {"nodes_falsenodeids": [3, 3, 0, 0]}
    with pytest.raises(tx.TenonnxError, match="form a cycle") as error:
        tx.load(model("TreeEnsembleRegressor", **nodes | {"target_nodeids": [3, 3]}))
    assert error.value.given == "tree 0, in which every node is a child"


def test_too_few_features():
    graph = tx.load(model("TreeEnsembleClassifier", nodes_featureids=[2, 0, 0]))
    with pytest.raises(tx.TenonnxError, match="3 features that the trees read"):
        graph.infer()


def test_splits_of_another_dtype():
    with pytest.raises(tx.TenonnxError, match="dtype of nodes_splits differs"):
        tx.load(model("TreeEnsemble", nodes_splits=np.array([0.5]))).infer()


def test_children_may_be_shared():
    """LightGBM's sets become chains of comparisons that lead to one node."""
    nodes = {
        "nodes_treeids": [0] * 4,
        "nodes_nodeids": [0, 1, 2, 3],
        "nodes_featureids": [0] * 4,
        "nodes_values": [1.0, 3.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [2, 2, 0, 0],
        "nodes_falsenodeids": [1, 3, 0, 0],
    }
    votes = TARGETS | {"target_nodeids": [2, 3], "target_weights": [10.0, 20.0]}
    x = np.array([[1.0], [2.0], [3.0]], np.float32)
    np.testing.assert_array_equal(tree_ensemble_regressor(x, n_targets=1, **nodes, **votes), [[10], [20], [10]])


# ----- random forests -------------------------------------------------------------------------------------------------

COMPARISONS = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
    "BRANCH_MEMBER": np.isin,
}


class Node:
    """A node of a random tree, evaluated as the specification defines it."""

    def __init__(self, random, depth, modes):
        self.weight = np.float32(random.uniform(-1, 1))
        self.is_leaf = depth == 0 or random.random() < 0.1
        if not self.is_leaf:
            self.mode = random.choice(modes)
            self.feature, self.missing = int(random.integers(5)), int(random.integers(2))
            self.threshold = np.float32(random.integers(-6, 7) / 2)
            self.members = random.choice(np.arange(-4, 5), random.integers(1, 8)).astype(np.float32)
            self.ways = [Node(random, depth - 1, modes) for _ in range(2)]

    def weight_of(self, row):
        if self.is_leaf:
            return self.weight
        x = row[self.feature]
        operand = self.members if self.mode == "BRANCH_MEMBER" else self.threshold
        holds = self.missing if np.isnan(x) else COMPARISONS[self.mode](x, operand)
        return self.ways[0 if holds else 1].weight_of(row)

    def all(self):
        return [self] if self.is_leaf else [self, *self.ways[0].all(), *self.ways[1].all()]


def forest(seed, modes, trees=12, depth=6):
    random = np.random.default_rng(seed)
    return [Node(random, depth, modes) for _ in range(trees)]


def samples(count=300, missing=0.1):
    random = np.random.default_rng(7)
    x = (random.integers(-8, 9, (count, 5)) / 2).astype(np.float32)
    return np.where(random.random(x.shape) < missing, np.float32(np.nan), x)


def as_regressor(trees, shuffled=None):
    """The attributes of a TreeEnsembleRegressor, optionally with ``shuffled`` nodes."""
    rows, votes = [], []
    for tree, root in enumerate(trees):
        number = {id(node): k for k, node in enumerate(root.all())}
        for node in root.all():
            key = tree, number[id(node)]
            if node.is_leaf:
                rows.append((*key, 0, 0.0, "LEAF", 0, 0, 0))
                votes.append((*key, 0, float(node.weight)))
            else:
                ways = [number[id(way)] for way in node.ways]
                rows.append((*key, node.feature, float(node.threshold), node.mode, *ways, node.missing))
    if shuffled is not None:
        rows = [rows[k] for k in shuffled.permutation(len(rows))]
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
    columns = dict(zip([f"nodes_{name}" for name in names], map(list, zip(*rows, strict=True)), strict=True))
    names = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
    return columns | dict(zip(names, map(list, zip(*votes, strict=True)), strict=True)) | {"n_targets": 1}


def as_listed(trees):
    """The attributes of a TreeEnsemble."""
    inner = [node for root in trees for node in root.all() if not node.is_leaf]
    leaves = [node for root in trees for node in root.all() if node.is_leaf]
    place = {id(node): k for nodes in (inner, leaves) for k, node in enumerate(nodes)}
    members = [node.members for node in inner if node.mode == "BRANCH_MEMBER"]
    sets = np.concatenate([np.append(each, np.nan) for each in members]) if members else np.zeros(0)
    codes = list(COMPARISONS)
    attributes = {
        "tree_roots": [place[id(root)] for root in trees],
        "nodes_featureids": [node.feature for node in inner],
        "nodes_modes": np.array([codes.index(node.mode) for node in inner], np.uint8),
        "nodes_splits": np.array([node.threshold for node in inner]),
        "nodes_missing_value_tracks_true": [node.missing for node in inner],
        "membership_values": sets.astype(np.float32),
        "leaf_targetids": [0] * len(leaves),
        "leaf_weights": np.array([leaf.weight for leaf in leaves]),
        "n_targets": 1,
    }
    for way, side in enumerate(("true", "false")):
        attributes[f"nodes_{side}nodeids"] = [place[id(node.ways[way])] for node in inner]
        attributes[f"nodes_{side}leafs"] = [int(node.ways[way].is_leaf) for node in inner]
    return attributes


def by_onnxruntime(model, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


ORDERED, ALL = list(COMPARISONS)[:4], list(COMPARISONS)


@pytest.mark.parametrize("modes", [ORDERED[:1], ORDERED, ["BRANCH_MEMBER"], ALL], ids=["one", "order", "sets", "all"])
def test_forests(modes):
    """numpy, lowered operators and onnxruntime agree with a walk node by node."""
    trees, x = [root for root in forest(1, modes) if not root.is_leaf], samples()
    expected = np.array([[sum(float(root.weight_of(row)) for root in trees)] for row in x])
    made = model("TreeEnsemble", features=5, **as_listed(trees))
    np.testing.assert_allclose(tx.load(made).run({"x": x}, backend="numpy")["y"], expected, atol=1e-5)
    for opset in (9, 13, 17):
        plain = to_model(tx.retarget(tx.load(made), opset, domains=["ai.onnx"]))
        onnx.checker.check_model(plain, full_check=True)
        np.testing.assert_allclose(by_onnxruntime(plain, x), expected, atol=1e-5)
    if ALL[-1] in modes:
        x = np.trunc(samples(missing=0))  # for other rows see the gaps of the cases
    np.testing.assert_allclose(tx.load(made).run({"x": x}, backend="numpy")["y"], by_onnxruntime(made, x), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_order_of_nodes(dtype):
    """Nodes may be in any order; the root is the node that is not a child."""
    trees, x = forest(2, ALL[:-1]), np.nan_to_num(samples()).astype(dtype)
    attributes = as_regressor(trees)
    ordered = tree_ensemble_regressor(x, **attributes)
    shuffled = as_regressor(trees, np.random.default_rng(3))
    np.testing.assert_allclose(tree_ensemble_regressor(x, **shuffled), ordered, atol=1e-5)
    if dtype is np.float32:
        made = model("TreeEnsembleRegressor", features=5, **attributes)
        np.testing.assert_allclose(ReferenceEvaluator(made).run(None, {"x": x})[0].reshape(-1, 1), ordered, atol=1e-5)


def test_blocks_of_rows(monkeypatch):
    attributes, x = as_listed([root for root in forest(4, ALL) if not root.is_leaf]), samples()
    whole = tree_ensemble(x, **attributes)
    monkeypatch.setattr(ensembles, "BLOCK", 77)
    np.testing.assert_array_equal(tree_ensemble(x, **attributes), whole)
    assert tree_ensemble(x[:0], **attributes).shape == (0, 1)


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(ensembles, "BLOCK", 240)
    graph, x = tx.load(model("TreeEnsembleRegressor", features=5, **as_regressor(forest(4, ORDERED)))), samples()
    alone, together = (graph.compile("numpy", threads=count)({"x": x})["y"] for count in (1, 3))
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("opset", [13, 17])
def test_thresholds_in_float64(opset):
    """Float64 numbers next to a threshold are distinguished, even if rows or thresholds are float32."""
    step = 2.0**-40
    for change, dtype in (({}, np.float64), ({"nodes_values_as_tensor": np.array([1 + step, 0, 0])}, np.float32)):
        values = None if change else [1.0, 0.0, 0.0]
        for mode in ORDERED:
            made = model(
                "TreeEnsembleRegressor", 1, dtype, **change, nodes_values=values, nodes_modes=[mode, "LEAF", "LEAF"]
            )
            x = np.array([[1 - step], [1], [1 + step]], dtype)
            threshold = 1 if values else 1 + step
            expected = np.where(COMPARISONS[mode](x.astype(np.float64), threshold), 1, 2)
            np.testing.assert_array_equal(tx.load(made).run({"x": x}, backend="numpy")["y"], expected)
            plain = to_model(tx.retarget(tx.load(made), opset, domains=["ai.onnx"]))
            np.testing.assert_array_equal(by_onnxruntime(plain, x), expected)


def test_infinite_thresholds():
    x = np.array([[-np.inf], [0], [np.inf]], np.float32)
    for mode in ALL[:-1]:
        for threshold in (-np.inf, np.inf, np.nan):
            change = {"nodes_values": [threshold, 0.0, 0.0], "nodes_modes": [mode, "LEAF", "LEAF"]}
            expected = np.where(COMPARISONS[mode](x, threshold), 1, 2)
            np.testing.assert_array_equal(
                tree_ensemble_regressor(x, **REGRESSOR | change), expected, str((mode, threshold))
            )


def test_gradient_of_leaves():
    """In lowered models, leaf weights are an initializer, which has a gradient."""
    trees, x = [root for root in forest(5, ORDERED) if not root.is_leaf], samples(20)
    made = model("TreeEnsemble", features=5, **as_listed(trees))
    plain = tx.load(to_model(tx.retarget(tx.load(made), 17, domains=["ai.onnx"])))
    weights = np.sort([leaf.weight for root in trees for leaf in root.all() if leaf.is_leaf])
    name = next(v.name for v in plain.variables if v.dtype is tx.DType.float32 and weights[0] in v.data.array())
    slope = tx.grad(plain, of="y", wrt=name, seeds={"y": "seed"})
    result = slope.run({"x": x, "seed": np.ones((20, 1), np.float32)}, backend="numpy")[f"{name}/grad"]
    values = next(v for v in plain.variables if v.name == name).data.array()
    assert result.sum() == 20 * len(trees)
    np.testing.assert_allclose(result @ values, tx.load(made).run({"x": x}, backend="numpy")["y"].sum(), rtol=1e-4)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_several_entries_of_a_leaf_for_one_target(aggregate, targets):
    """The first entry counts for one target, as in onnxruntime; for several targets, entries are combined."""
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=targets,
        aggregate_function=aggregate,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        nodes_hitrates=[1.0] * 3,
        nodes_missing_value_tracks_true=[0] * 3,
        target_treeids=[0] * 4,
        target_nodeids=[1, 2, 1, 1],
        target_ids=[0] * 4,
        target_weights=[14.0, 5.0, 10.0, 18.0],
    )
    info = onnx.helper.make_tensor_value_info
    x, y = info("x", onnx.TensorProto.FLOAT, ["n", 1]), info("y", onnx.TensorProto.FLOAT, ["n", targets])
    imports = [onnx.helper.make_opsetid("ai.onnx.ml", 3), onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=8)
    feeds = {"x": np.float32([[0], [1]])}
    result = [tx.load(model).run(feeds, backend=backend)["y"][:, 0].tolist() for backend in ("numpy", "onnxruntime")]
    first = 14 if targets == 1 else {"SUM": 42, "AVERAGE": 42, "MIN": 10, "MAX": 18}[aggregate]
    assert result == [[first, 5], [first, 5]]


def test_targets_keep_to_the_limit_of_elements():
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1 << 40,
        nodes_treeids=[0],
        nodes_nodeids=[0],
        nodes_featureids=[0],
        nodes_values=[0.0],
        nodes_modes=["LEAF"],
        nodes_truenodeids=[0],
        nodes_falsenodeids=[0],
        target_treeids=[0],
        target_nodeids=[0],
        target_ids=[0],
        target_weights=[1.0],
    )
    info = onnx.helper.make_tensor_value_info
    x, y = info("x", onnx.TensorProto.FLOAT, ["n", 1]), info("y", onnx.TensorProto.FLOAT, None)
    imports = [onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=8)
    with pytest.raises(tx.LimitExceeded, match='"elements"'):
        tx.load(model).run({"x": np.zeros((1, 1), np.float32)}, backend="numpy")
