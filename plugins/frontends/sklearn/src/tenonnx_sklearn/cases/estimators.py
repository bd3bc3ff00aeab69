"""Every scikit-learn estimator that predicts or transforms, with default settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def defaults() -> Iterator[tuple[str, Callable[[], tuple[Any, Any]]]]:
    """Every estimator with default settings, on data of two and of three classes, or of one target."""
    from sklearn.utils import all_estimators

    for name, kind in all_estimators():
        if not any(hasattr(kind, method) for method in ("predict", "transform", "score_samples")):
            continue
        if kind.__name__ in _NOT_OF_ROWS:
            continue
        for classes in (0,) if not _classifies(kind) else (2,) if kind.__name__ in _BINARY else (2, 3):
            yield f"{name}{f' {classes} classes' if classes else ''}", _fit(kind, classes)


def _classifies(kind: Any) -> bool:
    from sklearn.base import ClassifierMixin

    return issubclass(kind, ClassifierMixin) or kind.__name__ in _OF_CLASSES


def _fit(kind: Any, classes: int) -> Callable[[], tuple[Any, Any]]:
    def fitted() -> tuple[Any, Any]:
        generator = np.random.default_rng(0)
        X = generator.normal(size=(120, 4))
        if kind.__name__ in _COUNTS:
            X = np.floor(np.abs(X) * 2)
        elif kind.__name__ in _POSITIVE:
            X = np.abs(X)
        score = X @ [1.0, -2.0, 0.5, 1.0] + generator.normal(size=120) * 0.3
        y: Any = score if not classes else np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
        if kind.__name__ in ("PoissonRegressor", "GammaRegressor", "TweedieRegressor"):
            y = np.exp(score / 3)
        if kind.__name__.startswith("MultiTask") or kind.__name__ in ("MultiOutputRegressor", "RegressorChain"):
            y = np.stack([score, X[:, 0] - X[:, 1]], axis=1)
        if kind.__name__ in ("MultiOutputClassifier", "ClassifierChain"):
            y = np.stack([score > 0, X[:, 0] > X[:, 1]], axis=1).astype(np.int64)
        if kind.__name__ == "IsotonicRegression":
            X = X[:, :1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _with_members(kind)
            model.fit(X, y)
        return model, np.concatenate([X, generator.permuted(X, axis=0)]).astype(np.float32)

    return fitted


_OF_CLASSES = {
    "GridSearchCV",
    "NeighborhoodComponentsAnalysis",
    "Pipeline",
    "RandomizedSearchCV",
    "RFE",
    "RFECV",
    "SelfTrainingClassifier",
}
_NOT_OF_ROWS = {
    "CountVectorizer",
    "DictVectorizer",
    "FeatureHasher",
    "HashingVectorizer",
    "KernelCenterer",
    "LabelBinarizer",
    "LabelEncoder",
    "MultiLabelBinarizer",
    "PatchExtractor",
    "TfidfVectorizer",
}
_BINARY = {"FixedThresholdClassifier", "TunedThresholdClassifierCV", "MultiOutputClassifier", "ClassifierChain"}
_COUNTS = {"OneHotEncoder", "OrdinalEncoder", "TargetEncoder", "CategoricalNB", "MultinomialNB", "ComplementNB"}
_POSITIVE = {"AdditiveChi2Sampler", "SkewedChi2Sampler", "NMF", "MiniBatchNMF", "LatentDirichletAllocation"}


def _with_members(kind: Any) -> Any:
    """An estimator with default settings, and with members if it requires some."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    name = kind.__name__
    if kind is Pipeline:
        return Pipeline([("scale", StandardScaler()), ("classify", LogisticRegression())])
    if kind is FeatureUnion:
        return FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())])
    if kind is ColumnTransformer:
        return ColumnTransformer([("a", StandardScaler(), [0, 2]), ("b", MinMaxScaler(), [1])], remainder="passthrough")
    if name in ("SelectFromModel", "SelfTrainingClassifier"):
        return kind(LinearRegression() if name == "SelectFromModel" else LogisticRegression())
    if name == "SparseCoder":
        return kind(np.eye(4)[:3])
    if kind is SequentialFeatureSelector:
        return kind(LinearRegression(), n_features_to_select=2)
    if name in ("LocalOutlierFactor",):
        return kind(novelty=True)
    if name == "RadiusNeighborsClassifier" or name == "RadiusNeighborsRegressor":
        return kind(radius=50.0)
    member: Any = LinearRegression() if "Regressor" in name else LogisticRegression()
    if name.startswith(("Voting", "Stacking")):
        return kind([("one", member), ("two", _second(name))])
    if name in ("GridSearchCV", "RandomizedSearchCV"):
        return kind(member, {"C": [0.5, 1.0]}, **({"n_iter": 2} if name[0] == "R" else {}))
    if _needs_member(kind):
        return kind(member)
    model = kind()
    if name in ("CCA", "PLSCanonical", "PLSSVD", "GaussianRandomProjection", "SparseRandomProjection"):
        model.set_params(n_components=1)
    return model.set_params(n_estimators=20) if "n_estimators" in model.get_params() else model


def _needs_member(kind: Any) -> bool:
    import inspect

    found = inspect.signature(kind).parameters
    member = found.get("estimator", found.get("base_estimator"))  # base_estimator before 1.7
    return member is not None and member.default is inspect.Parameter.empty


def _second(name: str) -> Any:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    return DecisionTreeRegressor(max_depth=3) if "Regressor" in name else DecisionTreeClassifier(max_depth=3)
