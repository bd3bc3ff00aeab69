"""Estimators of scikit-learn, LightGBM and XGBoost, small enough to be fitted in a test: name, estimator, data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # LightGBM and XGBoost import deprecated modules
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn import (
        calibration,
        cluster,
        compose,
        cross_decomposition,
        datasets,
        decomposition,
        discriminant_analysis,
        ensemble,
        feature_extraction,
        feature_selection,
        gaussian_process,
        impute,
        linear_model,
        mixture,
        multiclass,
        multioutput,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )
    from xgboost import XGBClassifier, XGBRegressor


class Entry(NamedTuple):
    """An estimator, a function that generates its training data, and the opsets of the model."""

    estimator: Any
    data: Callable[[], tuple[np.ndarray, Any]]
    opsets: Any = {"": 18, "ai.onnx.ml": 3}  # noqa: RUF012


# ----- data -----------------------------------------------------------------------------------------------------------


def _sample(load, step, columns=slice(None), dtype=np.float32):
    features, target = load(return_X_y=True)
    return features[::step, columns].astype(dtype), target[::step]


def iris():
    return _sample(datasets.load_iris, 2)


def two_kinds():
    """Two classes of iris flowers, named by strings."""
    features, kind = iris()
    return features[kind > 0], np.array(["setosa", "versicolor", "virginica"])[kind[kind > 0]]


def doubles():
    """Scaled iris data in float64."""
    features, kind = _sample(datasets.load_iris, 3, dtype=np.float64)
    return (features - features.mean(axis=0)) / features.std(axis=0), kind


def doubles_of_two():
    features, kind = doubles()
    return features[kind > 0], kind[kind > 0]


def even():
    """Scaled iris data in float32."""
    features, kind = doubles()
    return features.astype(np.float32), kind


def petals():
    """A regression in float64: the last measurement from the others."""
    features, _ = doubles()
    return features[:, :3], features[:, 3]


def two_targets():
    features, _ = iris()
    return features[:, :2], features[:, 2:]


def holes():
    """Iris data with missing measurements."""
    features, kind = iris()
    features[::5, 1] = features[1::7, 3] = np.nan
    return features, kind


def holes_of_two():
    features, kind = holes()
    return features[kind > 0], kind[kind > 0] - 1


def blood_with_holes():
    features, target = diabetes()
    features[::5, 1] = features[1::7, 3] = np.nan
    return features, target


def length_with_holes():
    """A regression with missing features."""
    features, _ = holes()
    return features[:, 1:], features[:, 0]


def wine():
    return _sample(datasets.load_wine, 2)


def cancer():
    return _sample(datasets.load_breast_cancer, 5, slice(10))


def diabetes():
    return _sample(datasets.load_diabetes, 5)


def counts():
    """Pixel counts, with a positive regression target."""
    features, digit = digits()
    return features, digit + 1


def digits():
    return _sample(datasets.load_digits, 16)


def words():
    """Categories as strings."""
    return np.array([["a", "q"], ["b", "q"], ["c", "r"], ["a", "r"]] * 3, dtype=object), np.arange(12) % 3


def codes():
    """Categories as integers."""
    return np.array([[1, 20], [2, 20], [5, 40], [1, 40]] * 3, dtype=np.int64), np.arange(12) % 3


def kinds():
    """Numbers, and seven category codes, every other one of which is a class."""
    random = np.random.default_rng(0)
    code = random.integers(0, 7, 80)
    return np.stack([random.random(80), code], axis=1).astype(np.float32), code % 2


SENTENCES = (
    "the cat sat on the mat",
    "a dog barked at the cat",
    "shares fell on the market",
    "the bank raised its rates",
    "a cat and a dog",
    "the market rose as rates fell",
    "dog and cat slept",
    "its shares rose",
)


def texts():
    return np.array(SENTENCES, dtype=object), np.array([0, 0, 1, 1, 0, 1, 0, 1])


def passengers():
    """Two numeric columns with missing values, and two string columns."""
    random = np.random.default_rng(0)
    age, fare = random.integers(1, 80, 40).astype(float), random.integers(5, 90, 40) / 2
    age[::6] = np.nan
    port, cabin = random.choice(["Cork", "Dover", "Brest"], 40), random.choice(["first", "second"], 40)
    survived = (fare > 20) ^ (random.random(40) < 0.2)
    return np.stack([age.astype(object), fare.astype(object), port, cabin], axis=1), survived.astype(np.int64)


# ----- estimators -----------------------------------------------------------------------------------------------------


def scaled(estimator):
    return pipeline.make_pipeline(preprocessing.StandardScaler(), estimator)


def of_passengers(estimator, **encoder):
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    strings = preprocessing.OneHotEncoder(**encoder)
    columns = compose.ColumnTransformer([("numbers", numbers, [0, 1]), ("strings", strings, [2, 3])])
    return pipeline.make_pipeline(columns, estimator)


def logistic():
    return linear_model.LogisticRegression(max_iter=300)


def vectorized(vectorizer, estimator):
    return pipeline.make_pipeline(vectorizer, estimator)


LINEAR = {
    "LogisticRegression": Entry(logistic(), iris),
    "LogisticRegression of two": Entry(logistic(), two_kinds),
    "LogisticRegression on digits": Entry(scaled(logistic()), digits),
    "LogisticRegression one against the rest": Entry(multiclass.OneVsRestClassifier(logistic()), iris),
    "LogisticRegressionCV": Entry(
        scaled(
            linear_model.LogisticRegressionCV(
                Cs=2, cv=2, l1_ratios=(0,), scoring="accuracy", use_legacy_attributes=False
            )
        ),
        iris,
    ),
    "SGDClassifier": Entry(scaled(linear_model.SGDClassifier(loss="log_loss", random_state=0)), cancer),
    "Perceptron": Entry(scaled(linear_model.Perceptron(random_state=0)), iris),
    "RidgeClassifier": Entry(linear_model.RidgeClassifier(), wine),
    "LinearDiscriminantAnalysis": Entry(discriminant_analysis.LinearDiscriminantAnalysis(), iris),
    "QuadraticDiscriminantAnalysis": Entry(discriminant_analysis.QuadraticDiscriminantAnalysis(), iris),
    "LinearRegression": Entry(linear_model.LinearRegression(), diabetes),
    "Ridge of two targets": Entry(linear_model.Ridge(), two_targets),
    "Lasso": Entry(linear_model.Lasso(0.1), diabetes),
    "ElasticNet": Entry(linear_model.ElasticNet(0.01), diabetes),
    "BayesianRidge": Entry(linear_model.BayesianRidge(), diabetes),
    "HuberRegressor": Entry(linear_model.HuberRegressor(max_iter=500), diabetes),
    "PoissonRegressor": Entry(scaled(linear_model.PoissonRegressor()), counts),
    "GammaRegressor": Entry(scaled(linear_model.GammaRegressor()), counts),
    "QuantileRegressor": Entry(linear_model.QuantileRegressor(alpha=0.1), diabetes),
    "RANSACRegressor": Entry(linear_model.RANSACRegressor(random_state=0), diabetes),
}

SUPPORT_VECTORS = {
    f"SVC {kernel} of {kind}": Entry(scaled(svm.SVC(kernel=kernel, random_state=0)), data)
    for kernel in ("linear", "poly", "rbf", "sigmoid")
    for kind, data in (("two", two_kinds), ("three", iris))
} | {
    "SVC, probabilities of two": Entry(scaled(svm.SVC(kernel="poly", probability=True, random_state=0)), two_kinds),
    "SVC, probabilities of three": Entry(scaled(svm.SVC(probability=True, random_state=0)), iris),
    "SVC rbf, not scaled": Entry(svm.SVC(gamma=0.01), wine),
    "SVR rbf, not scaled": Entry(svm.SVR(gamma=0.1, C=10), cancer),
    "NuSVC": Entry(scaled(svm.NuSVC(random_state=0)), iris),
    "LinearSVC": Entry(scaled(svm.LinearSVC(random_state=0)), cancer),
    "SVR": Entry(scaled(svm.SVR()), diabetes),
    "SVR poly": Entry(scaled(svm.SVR(kernel="poly", degree=2)), diabetes),
    "NuSVR": Entry(scaled(svm.NuSVR()), diabetes),
    "LinearSVR": Entry(scaled(svm.LinearSVR(random_state=0)), diabetes),
    "OneClassSVM": Entry(svm.OneClassSVM(gamma=0.5), iris),
    "SGDOneClassSVM": Entry(linear_model.SGDOneClassSVM(random_state=0), doubles),
}

_FIRST = {"": 12, "ai.onnx.ml": 1}
_SMALL = {"n_estimators": 8, "random_state": 0}
_QUIET = {"verbose": -1, "n_jobs": 1, **_SMALL}

TREES = {
    "DecisionTreeClassifier": Entry(tree.DecisionTreeClassifier(random_state=0), iris),
    "DecisionTreeRegressor": Entry(tree.DecisionTreeRegressor(random_state=0), diabetes),
    "DecisionTreeRegressor of two targets": Entry(tree.DecisionTreeRegressor(random_state=0), two_targets),
    "DecisionTreeClassifier on doubles": Entry(tree.DecisionTreeClassifier(random_state=0), doubles),
    "DecisionTreeRegressor on doubles": Entry(tree.DecisionTreeRegressor(random_state=0), petals),
    "RandomForestClassifier, first version": Entry(ensemble.RandomForestClassifier(**_SMALL), wine, _FIRST),
    "DecisionTreeClassifier with holes": Entry(tree.DecisionTreeClassifier(random_state=0), holes),
    "ExtraTreeClassifier": Entry(tree.ExtraTreeClassifier(random_state=0), wine),
    "RandomForestClassifier": Entry(ensemble.RandomForestClassifier(**_SMALL), digits),
    "RandomForestRegressor": Entry(ensemble.RandomForestRegressor(**_SMALL), diabetes),
    "ExtraTreesClassifier": Entry(ensemble.ExtraTreesClassifier(**_SMALL), two_kinds),
    "ExtraTreesRegressor": Entry(ensemble.ExtraTreesRegressor(**_SMALL), diabetes),
    "GradientBoostingClassifier": Entry(ensemble.GradientBoostingClassifier(**_SMALL), iris),
    "GradientBoostingClassifier of two": Entry(ensemble.GradientBoostingClassifier(**_SMALL), two_kinds),
    "GradientBoostingRegressor": Entry(ensemble.GradientBoostingRegressor(**_SMALL), diabetes),
    "HistGradientBoostingClassifier": Entry(ensemble.HistGradientBoostingClassifier(max_iter=5), holes),
    "HistGradientBoostingClassifier of two": Entry(ensemble.HistGradientBoostingClassifier(max_iter=5), holes_of_two),
    "HistGradientBoostingRegressor": Entry(ensemble.HistGradientBoostingRegressor(max_iter=5), length_with_holes),
    "AdaBoostClassifier": Entry(ensemble.AdaBoostClassifier(**_SMALL), iris),
    "AdaBoostRegressor": Entry(ensemble.AdaBoostRegressor(**_SMALL), diabetes),
    "BaggingClassifier": Entry(ensemble.BaggingClassifier(**_SMALL), iris),
    "BaggingRegressor": Entry(ensemble.BaggingRegressor(**_SMALL), diabetes),
    "IsolationForest": Entry(ensemble.IsolationForest(**_SMALL), iris),
    "LGBMClassifier": Entry(LGBMClassifier(**_QUIET), holes),
    "LGBMClassifier of two": Entry(LGBMClassifier(**_QUIET), holes_of_two),
    "LGBMClassifier with categories": Entry(
        LGBMClassifier(categorical_feature=[1], min_data_per_group=1, min_child_samples=2, **_QUIET), kinds
    ),
    "LGBMRegressor": Entry(LGBMRegressor(**_QUIET), length_with_holes),
    "XGBClassifier": Entry(XGBClassifier(n_jobs=1, max_depth=3, **_SMALL), holes),
    "XGBClassifier of two": Entry(XGBClassifier(n_jobs=1, max_depth=3, **_SMALL), holes_of_two),
    "XGBRegressor": Entry(XGBRegressor(n_jobs=1, max_depth=3, **_SMALL), length_with_holes),
}

_kernel = gaussian_process.kernels

OTHERS = {
    "KNeighborsClassifier": Entry(neighbors.KNeighborsClassifier(), iris),
    "KNeighborsClassifier by distance": Entry(neighbors.KNeighborsClassifier(weights="distance"), iris),
    "KNeighborsRegressor": Entry(neighbors.KNeighborsRegressor(3), diabetes),
    "RadiusNeighborsClassifier": Entry(neighbors.RadiusNeighborsClassifier(2.0), doubles),
    "LocalOutlierFactor": Entry(neighbors.LocalOutlierFactor(novelty=True), doubles),
    "GaussianNB": Entry(naive_bayes.GaussianNB(), iris),
    "MultinomialNB": Entry(naive_bayes.MultinomialNB(), digits),
    "BernoulliNB": Entry(naive_bayes.BernoulliNB(binarize=8.0), digits),
    "ComplementNB": Entry(naive_bayes.ComplementNB(), digits),
    "CategoricalNB": Entry(naive_bayes.CategoricalNB(min_categories=41), codes),
    "MLPClassifier": Entry(scaled(neural_network.MLPClassifier((8,), max_iter=20, random_state=0)), iris),
    "MLPClassifier of two": Entry(neural_network.MLPClassifier((8,), "tanh", max_iter=20, random_state=0), two_kinds),
    "MLPRegressor": Entry(
        neural_network.MLPRegressor(hidden_layer_sizes=8, activation="logistic", max_iter=20, random_state=0), petals
    ),
    "KMeans": Entry(cluster.KMeans(3, n_init=1, random_state=0), iris),
    "MiniBatchKMeans": Entry(cluster.MiniBatchKMeans(3, n_init=1, random_state=0), even),
    "GaussianMixture": Entry(mixture.GaussianMixture(3, random_state=0), doubles, 18),
    "GaussianMixture with diagonals": Entry(
        mixture.GaussianMixture(2, covariance_type="diag", random_state=0), doubles, 18
    ),
    "GaussianProcessRegressor": Entry(
        gaussian_process.GaussianProcessRegressor(_kernel.RBF() + _kernel.WhiteKernel(), random_state=0), petals
    ),
    "GaussianProcessClassifier": Entry(
        gaussian_process.GaussianProcessClassifier(_kernel.RBF(), optimizer=None, random_state=0), doubles_of_two
    ),
    "VotingClassifier": Entry(
        ensemble.VotingClassifier(
            [("a", logistic()), ("b", naive_bayes.GaussianNB())], voting="soft", flatten_transform=False
        ),
        iris,
    ),
    "CalibratedClassifierCV": Entry(calibration.CalibratedClassifierCV(svm.LinearSVC(random_state=0), cv=2), even),
    "OneVsOneClassifier": Entry(multiclass.OneVsOneClassifier(logistic()), iris),
    "MultiOutputRegressor": Entry(multioutput.MultiOutputRegressor(linear_model.Ridge()), two_targets),
    "PLSRegression": Entry(cross_decomposition.PLSRegression(2), diabetes),
    "StackingRegressor": Entry(
        ensemble.StackingRegressor(
            [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=2, random_state=0))], cv=2
        ),
        diabetes,
    ),
}

TRANSFORMERS = {
    "StandardScaler": Entry(preprocessing.StandardScaler(), cancer),
    "MinMaxScaler": Entry(preprocessing.MinMaxScaler(), wine),
    "MaxAbsScaler": Entry(preprocessing.MaxAbsScaler(), wine),
    "RobustScaler": Entry(preprocessing.RobustScaler(), wine),
    "Normalizer": Entry(preprocessing.Normalizer("l1"), iris),
    "Binarizer": Entry(preprocessing.Binarizer(threshold=2.5), iris),
    "PolynomialFeatures": Entry(preprocessing.PolynomialFeatures(2), iris),
    "PowerTransformer": Entry(preprocessing.PowerTransformer(), iris),
    "KBinsDiscretizer": Entry(
        preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"), iris
    ),
    "OneHotEncoder of strings": Entry(preprocessing.OneHotEncoder(handle_unknown="ignore"), words),
    "OneHotEncoder of integers": Entry(preprocessing.OneHotEncoder(), codes),
    "OrdinalEncoder": Entry(preprocessing.OrdinalEncoder(), words),
    "TargetEncoder": Entry(preprocessing.TargetEncoder(cv=2, random_state=0, target_type="continuous"), words),
    "SimpleImputer": Entry(impute.SimpleImputer(), holes),
    "SimpleImputer, most frequent": Entry(impute.SimpleImputer(strategy="most_frequent"), holes),
    "KNNImputer": Entry(impute.KNNImputer(n_neighbors=2), blood_with_holes),
    "KernelPCA": Entry(decomposition.KernelPCA(2, kernel="rbf"), even),
    "PCA": Entry(decomposition.PCA(2), iris),
    "TruncatedSVD": Entry(decomposition.TruncatedSVD(3, random_state=0), digits),
    "SelectKBest": Entry(feature_selection.SelectKBest(k=2), iris),
    "VarianceThreshold": Entry(feature_selection.VarianceThreshold(0.5), iris),
    "CountVectorizer": Entry(feature_extraction.text.CountVectorizer(), texts),
    "TfidfVectorizer": Entry(feature_extraction.text.TfidfVectorizer(), texts),
    "TfidfVectorizer of pairs": Entry(feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2)), texts),
}

PIPELINES = {
    "columns to LogisticRegression": Entry(of_passengers(logistic(), handle_unknown="ignore"), passengers),
    "columns to RandomForestClassifier": Entry(
        of_passengers(ensemble.RandomForestClassifier(max_depth=3, **_SMALL), handle_unknown="ignore"), passengers
    ),
    "columns to LGBMClassifier": Entry(of_passengers(LGBMClassifier(**_QUIET), handle_unknown="ignore"), passengers),
    "words to Ridge": Entry(vectorized(preprocessing.OneHotEncoder(), linear_model.Ridge()), words),
    "text to LogisticRegression": Entry(vectorized(feature_extraction.text.TfidfVectorizer(), logistic()), texts),
    "text to LinearSVC": Entry(
        vectorized(feature_extraction.text.CountVectorizer(), svm.LinearSVC(random_state=0)), texts
    ),
    "selection and union": Entry(
        pipeline.make_pipeline(
            pipeline.make_union(decomposition.PCA(2), feature_selection.SelectKBest(k=2)), logistic()
        ),
        wine,
    ),
    "scaled neighbors": Entry(scaled(neighbors.KNeighborsClassifier(3)), wine),
    "imputed forest": Entry(
        pipeline.make_pipeline(impute.SimpleImputer(), ensemble.ExtraTreesClassifier(**_SMALL)), holes
    ),
}

#: What the converter is told: a locale that every system has, and anything about LinearSVC, see the findings.
OPTIONS = {
    feature_extraction.text.CountVectorizer: {"locale": "C"},
    feature_extraction.text.TfidfVectorizer: {"locale": "C"},
    svm.LinearSVC: {"nocl": False},
}

ZOO = LINEAR | SUPPORT_VECTORS | TREES | OTHERS | TRANSFORMERS | PIPELINES
