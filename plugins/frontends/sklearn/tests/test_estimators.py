"""Files on onnxruntime against the estimators."""

import pickle
import warnings

import numpy as np
import onnxruntime
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF, SparseCoder, SparsePCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, OrdinalEncoder, SplineTransformer, StandardScaler
from sklearn.semi_supervised import LabelPropagation
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import tenonnx as tx
from tenonnx_sklearn import convert, converts, feeds
from tenonnx_sklearn.cases import cases
from tenonnx_sklearn.conversion import known
from tenonnx_sklearn.judging import WAYS, judge, judged
from tenonnx_sklearn.verification import unusual, verify_against

#: A fourth of all cases; tests/packages runs all.
SAMPLE = list(cases())[::4]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_file_computes_what_the_estimator_does_or_is_refused(case, tmp_path):
    model, rows = case.fitted()
    way = list(WAYS)[len(case.name) % len(WAYS)]
    verdict = judged(model, rows, tmp_path / "model.onnx", {way: WAYS[way]}, **case.options)[way]
    assert verdict == "right" or verdict.startswith("refused")


def rows_of(count, features=4, seed=0):
    return np.random.default_rng(seed).normal(size=(count, features))


def test_float32_rows_at_a_threshold_take_the_branch_of_the_original():
    X = rows_of(300)
    model = DecisionTreeClassifier(random_state=0).fit(X, (X[:, 0] * X[:, 1] > 0).astype(int))
    tree = model.tree_
    inner = tree.children_left >= 0
    rows = rows_of(2000, seed=1)
    for k, (feature, threshold) in enumerate(zip(tree.feature[inner], tree.threshold[inner], strict=True)):
        rows[k::100, feature] = threshold
    near = rows.astype(np.float32)
    for asked in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        label = tx.load(model, verify=False).run({"X": asked})["label"]
        assert (label == model.predict(asked)).all()


@pytest.mark.parametrize("kind", [RandomForestClassifier, HistGradientBoostingClassifier])
def test_float64_rows_are_exact(kind):
    X = rows_of(200)
    model = kind(random_state=0).fit(X, (X.sum(axis=1) > 0).astype(int))
    rows = rows_of(500, seed=1)
    result = tx.load(model, dtype="float64", verify=False).run({"X": rows})
    assert (result["label"] == model.predict(rows)).all()
    np.testing.assert_allclose(result["probabilities"], model.predict_proba(rows), rtol=0, atol=1e-9)


def test_missing_values_and_categories_of_histogram_boosting():
    X = rows_of(400)
    X[:, 1] = np.random.default_rng(1).integers(0, 12, 400)
    X[::7, 0] = X[::5, 1] = np.nan
    y = ((X[:, 1] % 3 == 1) ^ (np.nan_to_num(X[:, 0]) > 0)).astype(int)
    model = HistGradientBoostingClassifier(categorical_features=[1], max_iter=20).fit(X, y)
    rows = np.float32(X)
    rows[:20, 1] = 99
    result = tx.load(model, rows).run({"X": rows})
    assert (result["label"] == model.predict(rows)).all()


def test_one_input_for_each_column_and_the_names_of_outputs():
    model = LinearRegression().fit(rows_of(50, 2), rows_of(50, 1)[:, 0])
    model.feature_names_in_ = np.array(["age", "size"], object)
    graph = tx.load(model, inputs="columns", verify=False)
    assert [value.name for value in graph.inputs] == ["age", "size"]
    assert [value.name for value in graph.outputs] == ["variable"]
    result = graph.run({"age": np.zeros((0, 1), np.float32), "size": np.zeros((0, 1), np.float32)})
    assert result["variable"].shape == (0,)


def test_labels_of_text():
    X = rows_of(60)
    model = LogisticRegression().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    rows = np.float32(X)
    assert tx.load(model, rows).run({"X": rows})["label"].tolist() == model.predict(rows).tolist()


class Doubled(LinearRegression):
    """A subclass that computes something else."""

    def predict(self, X):
        return super().predict(X) * 2


def test_estimators_without_a_rule_are_refused_by_name():
    model = Doubled().fit(rows_of(20), rows_of(20)[:, 0])
    with pytest.raises(tx.NotRepresentable, match="Doubled"):
        tx.load(model)


def test_a_package_brings_a_rule_and_verification_catches_a_wrong_one():
    model = Doubled().fit(rows_of(20), rows_of(20)[:, 0])
    name = f"{type(model).__module__.partition('.')[0]}.Doubled"
    plain = LinearRegression().fit(rows_of(20), rows_of(20)[:, 0])
    converts(name)(lambda model, X: convert(plain, X))
    try:
        with pytest.raises(tx.VerificationFailed, match="variable"):
            tx.load(model)
        converts(name)(lambda model, X: {"predict": convert(plain, X)["predict"] * 2.0})
        tx.load(model)
    finally:
        from tenonnx_sklearn import conversion

        conversion._rules.pop(name)


@pytest.mark.parametrize("options", [{"inputs": "rows"}, {"dtype": "int8"}])
def test_options_that_are_unknown_are_refused(options):
    with pytest.raises(tx.InvalidCall):
        tx.load(LinearRegression().fit(rows_of(20), rows_of(20)[:, 0]), **options)


def test_an_estimator_that_is_not_fitted_is_refused():
    with pytest.raises(tx.InvalidCall, match="fitted"):
        tx.load(LinearRegression())


def test_an_output_that_a_rule_does_not_carry_is_refused():
    X = rows_of(40)
    model = GradientBoostingRegressor(n_estimators=3).fit(X, X[:, 0])
    with pytest.raises(tx.NotRepresentable, match="score_samples"):
        tx.load(model, outputs=["score_samples"])


def test_a_pickle_is_read_only_where_it_is_trusted(tmp_path):
    import joblib

    model = LinearRegression().fit(rows_of(20), rows_of(20)[:, 0])
    joblib.dump(model, tmp_path / "model.joblib")
    with pytest.raises(tx.InvalidCall, match="trust"):
        tx.load(tmp_path / "model.joblib")
    assert [value.name for value in tx.load(tmp_path / "model.joblib", trust=True).outputs] == ["variable"]


BOOSTERS = {
    "lightgbm": (
        {},
        {"objective": "poisson"},
        {"boosting_type": "dart"},
        {"reg_sqrt": True},
        {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7},
    ),
    "xgboost": ({}, {"objective": "count:poisson"}, {"booster": "dart", "rate_drop": 0.3}),
}


@pytest.mark.parametrize(("package", "options"), [(name, each) for name, found in BOOSTERS.items() for each in found])
@pytest.mark.filterwarnings("ignore")
def test_boosters_with_missing_values(package, options, tmp_path):
    module = pytest.importorskip(package)
    X = rows_of(300)
    X[::9, 1] = np.nan
    kind = getattr(module, "LGBMRegressor" if package == "lightgbm" else "XGBRegressor")
    model = kind(n_estimators=10, n_jobs=1, verbosity=0 if package == "xgboost" else -1, **options)
    model.fit(X, np.exp(X[:, 0]))
    assert judge(model, np.float32(X), tmp_path / "model.onnx", 13) == "right"


@pytest.mark.filterwarnings("ignore")
def test_categories_of_lightgbm(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    X = rows_of(400)
    X[:, 2] = np.random.default_rng(1).integers(0, 15, 400)
    y = ((X[:, 2] % 3 == 1) ^ (X[:, 0] > 0)).astype(int)
    options = {"n_estimators": 10, "verbose": -1, "n_jobs": 1}
    model = lightgbm.LGBMClassifier(categorical_feature=[2], min_data_per_group=5, **options).fit(X, y)
    rows = np.float32(X)
    rows[:10, 2], rows[10:20, 2], rows[20:30, 2] = np.nan, 99, -1
    assert judge(model, rows, tmp_path / "model.onnx") == "right"


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_of_zeros_stay_zeros_where_rows_are_scaled(norm):
    rows = np.float32([[0, 0], [3, 4]])
    model = Normalizer(norm=norm).fit(rows)
    np.testing.assert_allclose(tx.load(model, rows).run({"X": rows})["transform"], model.transform(rows))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_numbers_that_are_missing_are_imputed_by_neighbors(weights):
    X = rows_of(60)
    X[::3, 1], X[::5, 2], X[7] = np.nan, np.nan, np.nan
    model = KNNImputer(weights=weights, add_indicator=True).fit(X)
    rows = np.float32(X)
    result = tx.load(model, rows).run({"X": rows})["transform"]
    np.testing.assert_allclose(result, model.transform(rows), rtol=1e-4, atol=1e-5)


def test_text_and_numbers_of_a_matrix_of_objects():
    X = np.array([["a", 1.5], ["b", 2.5], ["a", np.nan], ["c", 0.5]] * 5, object)
    steps = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore"), [0]), ("number", SimpleImputer(), [1])], sparse_threshold=0
    )
    model = make_pipeline(steps, LogisticRegression()).fit(X, [0, 1, 0, 1] * 5)
    graph = tx.load(model)
    assert [str(value.dtype) for value in graph.inputs] == ["string", "float32"]
    rows = np.array([["a", 1.0], ["?", None], ["c", 4]], object)
    expected = model.predict_proba(np.array([["a", 1.0], ["?", np.nan], ["c", 4]], object))
    np.testing.assert_allclose(graph.run(feeds(graph, rows))["probabilities"], expected, atol=1e-5)


def test_a_difference_names_the_step_of_the_pipeline():
    X = rows_of(40)
    model = make_pipeline(StandardScaler(), Doubled()).fit(X, X[:, 0])
    name = f"{Doubled.__module__.partition('.')[0]}.Doubled"
    converts(name)(lambda model, X: {"predict": X[:, 0]})
    try:
        with pytest.raises(tx.VerificationFailed, match='first step that differs is "doubled"'):
            tx.load(model)
    finally:
        from tenonnx_sklearn import conversion

        conversion._rules.pop(name)


def test_the_command_line_reads_a_joblib_file_that_is_trusted(tmp_path):
    import joblib

    from tenonnx_cli import main

    model = RandomForestClassifier(5, random_state=0).fit(rows_of(60), rows_of(60)[:, 0] > 0)
    joblib.dump(model, tmp_path / "model.joblib")
    arguments = ["convert", str(tmp_path / "model.joblib"), "-o", str(tmp_path / "model.onnx"), "--opset", "13"]
    assert main(arguments) != 0
    assert not (tmp_path / "model.onnx").exists()
    assert main([*arguments, "--trust"]) == 0
    assert [value.name for value in tx.load(tmp_path / "model.onnx").outputs] == ["label", "probabilities"]


def test_the_command_line_accepts_options_of_reading(tmp_path, capsys):
    import joblib

    from tenonnx_cli import main

    model = RandomForestClassifier(5, random_state=0).fit(rows_of(60), rows_of(60)[:, 0] > 0)
    joblib.dump(model, tmp_path / "model.joblib")
    arguments = ["convert", str(tmp_path / "model.joblib"), "-o", str(tmp_path / "model.onnx"), "--trust"]
    assert (
        main([*arguments, "--load", "inputs=columns", "--load", "dtype=float64", "--load", 'outputs=["predict"]']) == 0
    )
    graph = tx.load(tmp_path / "model.onnx")
    assert {str(value.type) for value in graph.inputs} == {"float64[batch, 1]"}
    assert [value.name for value in graph.outputs] == ["label"]
    assert main([*arguments, "--load", "zipmap=true"]) == 0
    assert "map" in str(tx.load(tmp_path / "model.onnx").outputs[1].type)
    for wrong in ("zipmap", "inputs=rows", "no_such_option=1"):
        assert main([*arguments, "--load", wrong]) != 0
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_every_estimator_has_a_rule_or_a_reason_for_having_none():
    from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
    from sklearn.utils import all_estimators

    carried = {name.removeprefix("sklearn.") for name in known()}
    methods = ("predict", "transform", "score_samples", "fit_predict", "fit_transform")
    for name, kind in all_estimators():
        if name not in carried and any(hasattr(kind, method) for method in methods):
            with pytest.raises(tx.NotRepresentable, match=r"its rows are|no predict|no transform|as many rows"):
                tx.load(kind())


REFUSED = [
    (SparseCoder(np.eye(4)[:3], transform_algorithm="lars"), "follows a regularization path"),
    (SparseCoder(np.ones((6, 4)) + np.eye(6, 4), transform_algorithm="lasso_cd"), "linearly dependent"),
    (SparseCoder(np.eye(4), transform_algorithm="lasso_lars", positive_code=True), "positive_code"),
    (NMF(2, shuffle=True), "order at random"),
    (NMF(2, solver="mu", max_iter=15), "not a multiple of ten"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_unsupported_final_steps_are_refused(place):
    model, why = REFUSED[place]
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.load(model.fit(np.abs(rows_of(30))))


def test_factors_of_rows_depend_on_the_other_rows_as_those_of_the_estimator(tmp_path):
    """One file for any number of rows: all rows decide when the loop ends."""
    X = np.abs(rows_of(60, 6))
    model = NMF(2, init="nndsvda", max_iter=400).fit(X)
    graph = tx.load(model, verify=False, dtype="float64")
    for count in (1, 7, 60):
        np.testing.assert_allclose(graph.run({"X": X[:count]})["transform"], model.transform(X[:count]), atol=1e-8)
    assert graph.run({"X": X[:0]})["transform"].shape == (0, 2)


def test_a_table_of_one_column():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": rows_of(40, 1)[:, 0]})
    graph = tx.load(LinearRegression().fit(table, table["age"] * 2), table)
    np.testing.assert_allclose(graph.run(feeds(graph, table))["variable"], table["age"] * 2, rtol=1e-5)


def fitted_on_float32():
    """Estimators that compute in float64 although they were fitted on float32."""
    from sklearn.covariance import EllipticEnvelope, EmpiricalCovariance
    from sklearn.decomposition import KernelPCA
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.impute import IterativeImputer
    from sklearn.linear_model import ARDRegression, BayesianRidge
    from sklearn.manifold import Isomap
    from sklearn.mixture import GaussianMixture
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import LocalOutlierFactor

    return [
        GaussianNB(),
        QuadraticDiscriminantAnalysis(),
        BayesianRidge(),
        ARDRegression(),
        KernelPCA(2, kernel="rbf"),
        Isomap(n_neighbors=6),
        GaussianMixture(2, random_state=0),
        LocalOutlierFactor(novelty=True),
        EllipticEnvelope(random_state=0),
        EmpiricalCovariance(),
        IterativeImputer(max_iter=2),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(11))
def test_estimators_fitted_on_float32_are_converted_as_accurately(place, tmp_path):
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401

    X = rows_of(150).astype(np.float32)
    model = fitted_on_float32()[place].fit(X, (X[:, 0] > X[:, 1]).astype(int))
    options = {"outputs": ["mahalanobis"]} if type(model).__name__ == "EmpiricalCovariance" else {}
    assert judge(model, rows_of(50, seed=3).astype(np.float32), tmp_path / "m.onnx", **options) == "right"


def test_identifiers_keep_all_their_digits():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"id": np.arange(60) % 7 + 2**53})
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LinearRegression()).fit(table, np.arange(60) % 7)
    graph = tx.load(model, table)
    assert str(graph.inputs[0].dtype) == "int64"
    unseen = pandas.DataFrame({"id": np.arange(60) % 9 + 2**53})
    np.testing.assert_allclose(graph.run(feeds(graph, unseen))["variable"], model.predict(unseen), atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_random_rows_have_missing_numbers_and_unknown_categories():
    X = np.floor(np.abs(rows_of(80, 2)) * 2)
    X[::9, 0] = np.nan
    model = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-5).fit(X)
    graph = tx.load(model)
    result = graph.run({"X": np.array([[np.nan, 99.0]], np.float32)})["transform"]
    assert result.tolist() == [[-5.0, -1.0]]
    odd = list(unusual(model, np.zeros((40, 2))))
    assert np.isnan(odd[0]).any()
    assert (odd[1] > np.nanmax(X)).any()
    model.encoded_missing_value = -7  # only effective for rows with missing numbers
    assert any(not each.equal for each in verify_against(model, (), graph).outputs)


@pytest.mark.parametrize("kind", [GaussianNB, KNeighborsClassifier, RandomForestClassifier])
def test_members_with_only_probabilities_decide_by_these(kind):
    X = rows_of(120)
    several = np.stack([X[:, 0] > 0.3, X[:, 1] > X[:, 2]], axis=1).astype(int)
    rows = np.float32(rows_of(300, seed=1))
    for model, y in ((OneVsRestClassifier(kind()), several), (OneVsRestClassifier(kind()), several[:, 0])):
        model.fit(X, y)
        assert (tx.load(model, verify=False).run({"X": rows})["label"] == model.predict(rows)).all()


def test_a_constant_member_answers_rows_that_miss_numbers():
    X = rows_of(60)
    X[::5, 0] = np.nan
    model = DummyClassifier().fit(X, X[:, 1] > 0)
    assert np.isfinite(tx.load(model).run({"X": np.full((3, 4), np.nan, np.float32)})["probabilities"]).all()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (KNeighborsClassifier(3, metric="hamming"), "equally far"),
        (SplineTransformer(degree=1, extrapolation="linear"), "degree=1"),
        (OneVsOneClassifier(Ridge()), "do not vote"),
    ],
)
def test_settings_without_a_form_are_refused_by_name(model, why):
    X = rows_of(60)
    model.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    with pytest.raises(tx.NotRepresentable, match=why):
        tx.load(model, verify=False)


@pytest.mark.parametrize(
    "settings", [{"kernel": "poly", "degree": 4, "coef0": 0.5}, {"kernel": "sigmoid", "gamma": 0.1}]
)
def test_factors_of_kernels_keep_their_digits_on_onnxruntime(settings, tmp_path):
    draw = np.random.default_rng(0)
    X, X_test = draw.normal(size=(80, 4)), draw.normal(size=(100, 4))
    model = SVC(**settings).fit(X, X[:, 0] > 0)
    tx.export(tx.load(model, dtype="float64"), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    result = session.run(["decision_function"], {"X": X_test})[0]
    np.testing.assert_allclose(result, model.decision_function(X_test), rtol=1e-9, atol=1e-9)


def test_models_that_return_a_vector_for_one_row():
    X = np.random.default_rng(0).normal(size=(60, 4))
    graph = tx.load(SparsePCA(2, max_iter=3, random_state=0).fit(X))
    assert [value.shape[1] for value in graph.outputs] == [2]


def test_labels_that_were_spread_to_no_neighbor_are_missing():
    X = np.concatenate([np.zeros((5, 2)), np.full((5, 2), 50.0)]) + np.random.default_rng(0).normal(size=(10, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LabelPropagation(kernel="knn", n_neighbors=2).fit(X, [0, 1, 0, 1, 0, -1, -1, -1, -1, -1])
        rows = np.array([[0.0, 0.0], [50.0, 50.0]], np.float32)
        expected = model.predict_proba(rows)
    result = tx.load(model, verify=False).run({"X": rows})
    assert np.isnan(expected[1]).all()
    np.testing.assert_allclose(result["probabilities"], expected, rtol=1e-5)


def test_a_file_without_a_readable_estimator_is_refused(tmp_path):
    (tmp_path / "broken.joblib").write_bytes(b"no pickle")
    (tmp_path / "map.pkl").write_bytes(pickle.dumps({"a": 1}))
    moved = pickle.dumps(Ridge()).replace(b"linear_model._ridge", b"linear_model._rigde")
    (tmp_path / "moved.pkl").write_bytes(moved)
    for name, kind, words in (
        ("broken.joblib", tx.InvalidModel, "installed packages cannot read"),
        ("map.pkl", tx.InvalidCall, "holds a dict"),
        ("moved.pkl", tx.InvalidModel, "_rigde"),
        ("none.pkl", tx.InvalidCall, "cannot read"),
    ):
        with pytest.raises(kind, match=words):
            tx.load(tmp_path / name, trust=True)


def test_a_missing_fit_or_column_is_reported():
    with pytest.raises(tx.InvalidCall, match="call its fit"):
        tx.load(make_pipeline(StandardScaler(), LogisticRegression()))
    X = np.random.default_rng(0).normal(size=(20, 2))
    graph = tx.load(LogisticRegression().fit(X, X[:, 0] > 0), inputs="columns")
    with pytest.raises(tx.InvalidCall, match=r"none named x1\n.*available *x0"):
        feeds(graph, {"x0": X[:, 0]})


def test_a_subclass_may_use_the_rule_of_its_base():
    class Twin(LogisticRegression):
        pass

    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(tx.NotRepresentable, match=r"sklearn\.LogisticRegression the name as well"):
        tx.load(Twin().fit(X, X[:, 0] > 0))
