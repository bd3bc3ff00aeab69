"""TreeSHAP, compared with Shapley values by their definition, for each tree library and each form of a model."""

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn import ensemble, tree
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tenonnx as tx
from tenonnx import InvalidCall

RANDOM = np.random.default_rng(0)

#: Tolerances for float32 rounding.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((160, 5)).astype(np.float32)
    return x, x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * rng.standard_normal(160)


def explained(graph, rows, **options):
    result = tx.explain(graph, "tree-shap", **options)
    results = result.run({graph.inputs[0].name: rows})
    delta = next(each for name, each in results.items() if name.endswith("/delta"))
    np.testing.assert_allclose(delta, 0, atol=2e-5)
    assert {node.domain for node in result.walk()} <= {"ai.onnx", "ai.onnx.ml", "tenonnx"}
    return next(each for name, each in results.items() if name.endswith("/attribution"))


def trees_of(model):
    """The trees of a forest, with values divided by the number of trees."""
    trees = [each.tree_ for each in getattr(model, "estimators_", [model])]
    return [
        (
            t.feature,
            t.threshold,
            t.children_left,
            t.children_right,
            t.value[:, 0] / len(trees),
            t.weighted_n_node_samples,
        )
        for t in trees
    ]


@pytest.mark.parametrize(
    "model",
    [
        tree.DecisionTreeRegressor(max_depth=4, random_state=0),
        ensemble.RandomForestRegressor(6, random_state=0),
        ensemble.ExtraTreesRegressor(4, max_depth=7, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_path_dependent_values_of_regressors_follow_the_training_rows(model, table, path_dependent):
    x, y = table
    model.fit(x, y)
    values = explained(tx.load(model), x[:4])
    expected = np.stack([path_dependent(trees_of(model), row) for row in x[:4]])
    np.testing.assert_allclose(values, expected[..., 0], **CLOSE)


def test_path_dependent_values_of_classifiers_explain_each_class(table, path_dependent):
    x, y = table
    model = ensemble.RandomForestClassifier(4, max_depth=3, random_state=0).fit(x, np.digitize(y, [-1, 1]))
    values = explained(tx.load(model), x[:3])
    assert values.shape == (3, 5, 3)
    np.testing.assert_allclose(values, [path_dependent(trees_of(model), row) for row in x[:3]], **CLOSE)


MARGINS = {
    "forest": (ensemble.RandomForestRegressor(4, random_state=0), "predict"),
    "gradient boosting": (ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0), "decision_function"),
    "histogram boosting": (ensemble.HistGradientBoostingRegressor(max_iter=8, random_state=0), "predict"),
    "xgboost": (xgboost.XGBRegressor(n_estimators=8, max_depth=4, n_jobs=1), "predict"),
    "lightgbm": (lightgbm.LGBMRegressor(n_estimators=8, verbose=-1, n_jobs=1), "predict"),
}


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_interventional_values_compare_with_background_rows(name, table, interventional, monkeypatch):
    monkeypatch.setattr("tenonnx_explain.tree_shap._BACKGROUND", 4)  # the rows are more than one chunk
    x, y = table
    model, method = MARGINS[name]
    model.fit(x, y > 0 if method == "decision_function" else y)
    values = explained(tx.load(model), x[:3], background=x[50:56], interventional=True)
    function = getattr(model, method)
    np.testing.assert_allclose(values, [interventional(function, row, x[50:56]) for row in x[:3]], **CLOSE)


@pytest.mark.parametrize("missing", [False, True])
def test_missing_values_follow_the_default_branch(missing, table, interventional):
    x, y = table
    x = np.where(RANDOM.random(x.shape) < 0.2, np.float32(np.nan), x)
    model = ensemble.HistGradientBoostingRegressor(max_iter=6, random_state=0).fit(x, y)
    rows = x[np.isnan(x).any(axis=1) == missing][:3]
    values = explained(tx.load(model), rows, background=x[50:55], interventional=True)
    np.testing.assert_allclose(values, [interventional(model.predict, row, x[50:55]) for row in rows], **CLOSE)


def test_categories_are_features_of_the_table(table, interventional):
    x, y = table
    x = x.copy()
    x[:, 3] = RANDOM.integers(0, 6, len(x))
    model = ensemble.HistGradientBoostingRegressor(max_iter=6, categorical_features=[3], random_state=0)
    model.fit(x, y + np.isin(x[:, 3], [1, 4]))
    values = explained(tx.load(model), x[:3], background=x[50:54], interventional=True)
    assert values.shape == (3, 5)
    np.testing.assert_allclose(values, [interventional(model.predict, row, x[50:54]) for row in x[:3]], **CLOSE)


def test_preprocessing_keeps_the_features_of_the_input(table, interventional):
    x, y = table
    x = np.where(RANDOM.random(x.shape) < 0.1, np.float32(np.nan), x)
    model = make_pipeline(SimpleImputer(), StandardScaler(), ensemble.RandomForestRegressor(4, max_depth=4)).fit(x, y)
    graph = tx.load(model)
    result = tx.explain(graph, "tree-shap", background=x[50:54], interventional=True)
    name = graph.inputs[0].name
    values = result.run({name: x[:3]})[f"{name}/attribution"]
    np.testing.assert_allclose(values, [interventional(model.predict, row, x[50:54]) for row in x[:3]], **CLOSE)


def test_background_rows_replace_missing_training_counts(table):
    x, y = table
    model = tree.DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    graph = tx.load(model)
    with graph.editing():
        del graph.nodes[0].attributes["nodes_hitrates"]
    with pytest.raises(InvalidCall, match="no count of training rows per leaf"):
        tx.explain(graph, "tree-shap")
    np.testing.assert_allclose(explained(graph, x[:4], background=x), explained(tx.load(model), x[:4]), **CLOSE)


def test_many_rows_are_explained_in_blocks(table):
    x, y = table
    model = ensemble.RandomForestRegressor(3, max_depth=3, random_state=0).fit(x, y)
    graph = tx.load(model)
    many = np.concatenate([x] * 7)
    np.testing.assert_allclose(explained(graph, many)[: len(x)], explained(graph, many[-len(x) :]), **CLOSE)
    assert explained(graph, x[:0]).shape == (0, 5)


def test_files_of_old_opsets_compute_the_same(table, tmp_path):
    x, y = table
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1).fit(x, np.digitize(y, [-1, 1]))
    graph = tx.load(model)
    expected = explained(graph, x[:5])
    result = tx.explain(graph, "tree-shap")
    for version in (13, 18, 21):
        path = tmp_path / f"{version}.onnx"
        tx.export(result, path, opset_version=version)
        loaded = tx.load(path)
        assert "tenonnx" not in {node.domain for node in loaded.walk()}
        results = loaded.run({graph.inputs[0].name: x[:5]}, backend="onnxruntime")
        np.testing.assert_allclose(results[f"{graph.inputs[0].name}/attribution"], expected, **CLOSE)


def test_attributions_of_a_single_leaf_are_zero():
    x = np.zeros((8, 3), np.float32)
    model = tree.DecisionTreeRegressor().fit(x, np.ones(8))
    np.testing.assert_array_equal(explained(tx.load(model), x[:2]), 0)


def test_models_without_sums_of_trees_are_refused(table):
    x, y = table
    graph = tx.load(tree.DecisionTreeRegressor(max_depth=2).fit(x, y))
    with graph.editing():
        graph.nodes[0].attributes["aggregate_function"] = "MAX"
    with pytest.raises(InvalidCall, match="trees are not summed"):
        tx.explain(graph, "tree-shap")
    digits = tx.Graph(opsets={"ai.onnx": 21})
    digits.output("y", digits.input("x", "float32", ("n", 3)))
    with pytest.raises(InvalidCall, match="no tree ensemble"):
        tx.explain(digits, "tree-shap")


def test_values_that_are_not_sums_of_trees_are_refused(table):
    x, y = table
    model = ensemble.GradientBoostingClassifier(n_estimators=3).fit(x, y > 0)
    with pytest.raises(InvalidCall, match="is not a sum of tree scores"):
        tx.explain(tx.load(model), "tree-shap", of="probabilities")


def test_background_of_other_features_is_refused(table):
    x, y = table
    graph = tx.load(tree.DecisionTreeRegressor(max_depth=2).fit(x, y))
    with pytest.raises(InvalidCall, match="background rows do not have the features"):
        tx.explain(graph, "tree-shap", background=x[:, :3], interventional=True)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
def test_lowered_trees_are_explained_like_the_op(table, missing, columns):
    x, y = table
    if missing:
        x = np.where(RANDOM.random(x.shape) < 0.1, np.float32(np.nan), x)
    forest = ensemble.RandomForestRegressor(4, max_depth=5, random_state=0)
    graph = tx.load(forest.fit(x, y if columns == 1 else np.stack([y, -y, y**2], axis=1)))
    lowered = tx.retarget(graph, opset_version=18, domains=["ai.onnx"])
    assert {node.domain for node in lowered.nodes} == {"ai.onnx"}
    values = explained(lowered, x[:5], background=x[50:60], interventional=True)
    expected = explained(graph, x[:5], background=x[50:60], interventional=True)
    np.testing.assert_allclose(values, expected, **CLOSE)
    np.testing.assert_allclose(explained(lowered, x[:5], background=x), explained(graph, x[:5], background=x), **CLOSE)
